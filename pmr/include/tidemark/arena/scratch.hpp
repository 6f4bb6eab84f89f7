// SPDX-License-Identifier: Apache-2.0
/// @file
/// `scratch`: temporary memory inside a function, from arenas that belong to the calling thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory_resource>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark {

/// A resource that scratch memory must not come from: an arena, a resource, a scope, or a pointer to one.
/// Null means no resource.
class scratch_conflict {
 public:
  /// No resource.
  scratch_conflict(std::nullptr_t) noexcept {}
  /// A resource; null means no resource.
  scratch_conflict(std::pmr::memory_resource const* resource) noexcept : resource_{resource} {}
  /// A resource.
  scratch_conflict(std::pmr::memory_resource const& resource) noexcept : resource_{&resource} {}
  /// The arena of a scope; an ended scope has no arena.
  scratch_conflict(arena::scope const& scope) noexcept : resource_{scope ? &scope.arena() : nullptr} {}
  /// The same; null means no resource.
  scratch_conflict(arena::scope const* scope) noexcept
      : resource_{scope && *scope ? &scope->arena() : nullptr} {}

  /// Null if there is no conflict.
  [[nodiscard]] std::pmr::memory_resource const* resource() const noexcept { return resource_; }

 private:
  std::pmr::memory_resource const* resource_ = nullptr;
};

/// Argument of `scratch` for functions without an arena to avoid, for example if all results are values.
inline constexpr std::nullptr_t no_conflicts = nullptr;

namespace detail {
/// The first scratch arena of the calling thread that is not in `conflicts`; makes a new arena if all are.
[[nodiscard]] arena& scratch_arena(std::initializer_list<scratch_conflict> conflicts);

/// Opens scopes on scratch arenas, which other threads may trim while no scope is open.
///
/// A thread marks an arena as idle by the store that ends the arena's last scope. A thread that trims claims
/// the arena by one compare-exchange. An outermost scope begins with one compare-exchange too.
struct scratch_access {
  static void open(arena::scope& opened, arena& on) noexcept {
    arena::scope* const outer = __atomic_load_n(&on.innermost_, __ATOMIC_RELAXED);
    if (reinterpret_cast<std::uintptr_t>(outer) > reinterpret_cast<std::uintptr_t>(arena::claimed())) {
      opened.open(on);
      return;
    }
    if (!on.replace_no_scope(&opened)) [[unlikely]]
      wait_for_trim(opened, on);
    opened.open_inside(nullptr, on);
  }
  [[nodiscard]] static arena::scope opened_on(arena& on) { return arena::scope{scratch_access{}, on}; }
  TIDEMARK_COLD static void wait_for_trim(arena::scope& opened, arena& on) noexcept;
  /// Returns memory to the system, unless a scope is open.
  static void trim_if_idle(arena& idle) noexcept;
};
}  // namespace detail

/// Opens a scope on one of the calling thread's scratch arenas that is not among `conflicts`.
///
/// Name every resource that the function allocates results from. A caller may have got that resource from
/// `scratch` too; results on the same arena would vanish with the scope.
/// ```cpp
/// std::span<float> smoothed(std::span<float const> x, arena& out) {
///   arena::scope temporary = scratch(out);                       // never on `out`
///   std::span<float> sums = temporary.push_array<float>(x.size());
///   ...
/// ```
/// Pass `scratch(no_conflicts)` if the results hold no memory. The number of conflicts is unlimited: a thread
/// makes and keeps a further arena if all its arenas conflict.
///
/// Under memory pressure (`signal_memory_pressure`) the signalling thread trims the arenas of all threads
/// that have no open scope. Allocate only inside scopes for this reason.
///
/// Thread-safe: each thread has its own arenas. They are made at first use, and destroyed at the thread's end
/// after its thread_local objects. The main thread's arenas live until the process ends, so objects of `make`
/// on them are not destroyed.
/// @throws std::bad_alloc if a further arena is needed but cannot be made; out_of_memory if address space is
/// lacking.
template <std::convertible_to<scratch_conflict>... Conflicts>
  requires(sizeof...(Conflicts) > 0)
[[nodiscard(TIDEMARK_NAME_SCOPE)]] arena::scope scratch(Conflicts const&... conflicts) {
  return detail::scratch_access::opened_on(detail::scratch_arena({scratch_conflict(conflicts)...}));
}

/// Rejected without an argument, because results on the same arena would vanish with the scope.
TIDEMARK_REJECTS(arena::scope, "scratch must avoid the results: write scratch(out), or scratch(no_conflicts)")
scratch() TIDEMARK_REJECTED;

/// Number of scratch arenas of the calling thread.
[[nodiscard]] std::size_t scratch_arena_count() noexcept;

/// Sets the options for scratch arenas made from now on, in all threads. Existing arenas keep their options.
/// Thread-safe. The default: reserves of 1 GiB, growable, named "scratch".
void set_scratch_options(arena_options const& options);

}  // namespace tidemark
