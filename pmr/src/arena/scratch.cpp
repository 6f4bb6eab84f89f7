// SPDX-License-Identifier: Apache-2.0
#include <tidemark/arena/scratch.hpp>

#include <algorithm>
#include <list>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/thread_specific.hpp>
#include <tidemark/core/memory_pressure.hpp>

#include "../core/idle_memory.hpp"

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

struct scratch_memory {
  explicit scratch_memory(arena_options const& options)
      : memory{options}, trims{detail::call_under_pressure(&memory, [this] {
          detail::trim_idle_memory([this] { detail::scratch_access::trim_if_idle(memory); });
        })} {}

  arena memory;
  pressure_subscription trims;
};
struct arena_list {
  std::list<scratch_memory> all;  // a list, because arenas cannot move
  ~arena_list() {                 // runs on another thread when the library is unloaded
    for (scratch_memory& each : all) {
      each.trims = {};  // first: waits for a trimming thread that lends the ownership
      each.memory.release_thread_ownership();
    }
  }
};

// The calling thread's arenas. Destructors of other thread_local objects may still request scratch memory.
using thread_arenas = detail::thread_specific<arena_list>;

}  // namespace

arena& detail::scratch_arena(std::initializer_list<scratch_conflict> conflicts) {
  const auto conflicting = [&](arena const& candidate) {
    return std::ranges::any_of(conflicts, [&](scratch_conflict c) { return c.resource() == &candidate; });
  };
  std::list<scratch_memory>& all = thread_arenas::get().all;
  for (scratch_memory& candidate : all) {
    if (!conflicting(candidate.memory)) return candidate.memory;
  }
  arena_options options;
  {
    const std::scoped_lock lock{shared_options().mutex};
    options = shared_options().options;
  }
  return all.emplace_back(options).memory;
}

void detail::scratch_access::wait_for_trim(arena::scope& opened, arena& on) noexcept {
  wait_for_idle_memory([&] { return on.replace_no_scope(&opened); });
}

void detail::scratch_access::trim_if_idle(arena& idle) noexcept {
  if (!idle.replace_no_scope(arena::claimed())) return;
  {
    const auto loan = idle.owner_.lend();
    (void)idle.trim();
  }
  idle.set_innermost(nullptr);
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
