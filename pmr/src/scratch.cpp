// SPDX-License-Identifier: Apache-2.0
#include <tidemark/scratch.hpp>

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>

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

// A list, because arenas do not move. Two are in use in nearly every thread that has any.
thread_local std::list<arena> scratch_arenas;

}  // namespace

arena& detail::scratch_arena(std::initializer_list<scratch_conflict> conflicts) {
  const auto conflicting = [&](arena const& candidate) {
    return std::ranges::any_of(conflicts, [&](scratch_conflict c) { return c.resource() == &candidate; });
  };
  for (arena& candidate : scratch_arenas) {
    if (!conflicting(candidate)) return candidate;
  }
  arena_options options;
  {
    const std::scoped_lock lock{shared_options().mutex};
    options = shared_options().options;
  }
  return scratch_arenas.emplace_back(options);
}

std::size_t scratch_arena_count() noexcept { return scratch_arenas.size(); }

void set_scratch_options(arena_options const& options) {
  const std::scoped_lock lock{shared_options().mutex};
  shared_options().options = options;
}

}  // namespace tidemark
