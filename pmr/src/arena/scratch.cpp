// SPDX-License-Identifier: Apache-2.0
#include <tidemark/arena/scratch.hpp>

#include <algorithm>
#include <list>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/thread_specific.hpp>

namespace tidemark {
namespace {

struct options_for_new_arenas {
  detail::fork_safe<> mutex;
  arena_options options{.name = "scratch"};
};

options_for_new_arenas& shared_options() {
  static options_for_new_arenas shared;
  return shared;
}

struct arena_list {
  std::list<arena> all;  // a list, because arenas do not move
  ~arena_list() {        // on another thread when the library is unloaded
    for (arena& each : all) each.release_thread_ownership();
  }
};

// The calling thread's arenas. Destructors of other thread_local objects may still ask for scratch memory.
using thread_arenas = detail::thread_specific<arena_list>;

}  // namespace

arena& detail::scratch_arena(std::initializer_list<scratch_conflict> conflicts) {
  const auto conflicting = [&](arena const& candidate) {
    return std::ranges::any_of(conflicts, [&](scratch_conflict c) { return c.resource() == &candidate; });
  };
  std::list<arena>& all = thread_arenas::get().all;
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
  arena_list const* const arenas = thread_arenas::find();
  return arenas != nullptr ? arenas->all.size() : 0;
}

void set_scratch_options(arena_options const& options) {
  const std::scoped_lock lock{shared_options().mutex};
  shared_options().options = options;
}

}  // namespace tidemark
