// SPDX-License-Identifier: Apache-2.0
#include <tidemark/scratch.hpp>

#include <pthread.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <new>

namespace tidemark {
namespace {

struct options_for_new_arenas {
  std::mutex mutex;
  arena_options options{.name = "scratch"};
};

options_for_new_arenas& shared_options() {
  static options_for_new_arenas shared;
  return shared;
}

using arena_list = std::list<arena>;  // a list, because arenas do not move

// The calling thread's arenas. A plain pointer, and owned by a key of the threads library, because destructors of other
// thread_local objects may still ask for scratch memory: they run before the key's, and in any order.
thread_local arena_list* arenas_of_this_thread = nullptr;

void destroy_arenas(void* list) {
  arenas_of_this_thread = nullptr;
  delete static_cast<arena_list*>(list);
}

pthread_key_t arena_key() {
  static const pthread_key_t key = [] {
    pthread_key_t created{};
    if (pthread_key_create(&created, destroy_arenas) != 0) throw std::bad_alloc{};
    return created;
  }();
  return key;
}

arena_list& arenas() {
  if (arenas_of_this_thread == nullptr) {
    auto list = std::make_unique<arena_list>();
    if (pthread_setspecific(arena_key(), list.get()) != 0) throw std::bad_alloc{};
    arenas_of_this_thread = list.release();
  }
  return *arenas_of_this_thread;
}

}  // namespace

arena& detail::scratch_arena(std::initializer_list<scratch_conflict> conflicts) {
  const auto conflicting = [&](arena const& candidate) {
    return std::ranges::any_of(conflicts, [&](scratch_conflict c) { return c.resource() == &candidate; });
  };
  arena_list& all = arenas();
  for (arena& candidate : all) {
    if (!conflicting(candidate)) return candidate;
  }
  arena_options options;
  {
    const std::scoped_lock lock{shared_options().mutex};
    options = shared_options().options;
  }
  return all.emplace_back(options);
}

std::size_t scratch_arena_count() noexcept {
  return arenas_of_this_thread != nullptr ? arenas_of_this_thread->size() : 0;
}

void set_scratch_options(arena_options const& options) {
  const std::scoped_lock lock{shared_options().mutex};
  shared_options().options = options;
}

}  // namespace tidemark
