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

namespace tidemark {

/// A resource that scratch memory must not come from: an arena, a resource, a scope, a pointer to one, or
/// null, which means none.
class scratch_conflict {
 public:
  /// No resource.
  scratch_conflict(std::nullptr_t) noexcept {}
  /// A resource; null: none.
  scratch_conflict(std::pmr::memory_resource const* resource) noexcept : resource_{resource} {}
  /// A resource.
  scratch_conflict(std::pmr::memory_resource const& resource) noexcept : resource_{&resource} {}
  /// The arena of a scope; an ended one has none.
  scratch_conflict(arena::scope const& scope) noexcept : resource_{scope ? &scope.arena() : nullptr} {}
  /// The same; null: none.
  scratch_conflict(arena::scope const* scope) noexcept
      : resource_{scope && *scope ? &scope->arena() : nullptr} {}

  /// Null: no conflict.
  [[nodiscard]] std::pmr::memory_resource const* resource() const noexcept { return resource_; }

 private:
  std::pmr::memory_resource const* resource_ = nullptr;
};

/// The argument of `scratch` that says: there is no arena to avoid, as where all results are values.
inline constexpr std::nullptr_t no_conflicts = nullptr;

namespace detail {
/// The first of the calling thread's scratch arenas that is not in `conflicts`; a new one where there is
/// none.
[[nodiscard]] arena& scratch_arena(std::initializer_list<scratch_conflict> conflicts);

/// Opens scopes on scratch arenas, which other threads may trim while none is open.
///
/// A thread publishes that an arena is idle by the store that ends the arena's last scope. A thread that
/// trims claims the arena by one compare-exchange, and an outermost scope begins with one.
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
/// Name every resource that the function allocates results from: a caller may have got it from `scratch` too,
/// and results on the same arena would vanish with the scope.
/// ```cpp
/// std::span<float> smoothed(std::span<float const> x, arena& out) {
///   arena::scope temporary = scratch(out);                       // never on `out`
///   std::span<float> sums = temporary.push_array<float>(x.size());
///   ...
/// ```
/// A function whose results are no memory says so: `scratch(no_conflicts)`. Any number of conflicts will do: a
/// thread makes a further arena when all it has are in conflict, and keeps it. Under memory pressure
/// (`signal_memory_pressure`) the signalling thread trims the arenas of all threads that have no open scope; so
/// nothing may be allocated on them outside scopes. Thread-safe: each thread has its own arenas, made at first
/// need and destroyed when it ends, after the destructors of its thread_local objects. Those of the main thread
/// are there until the process is gone: objects of `make` that are on them then are not destroyed.
/// @throws std::bad_alloc (as out_of_memory, if it is address space that lacks) if a further arena is needed
/// and cannot be had.
template <std::convertible_to<scratch_conflict>... Conflicts>
  requires(sizeof...(Conflicts) > 0)
[[nodiscard]] arena::scope scratch(Conflicts const&... conflicts) {
  return detail::scratch_access::opened_on(detail::scratch_arena({scratch_conflict(conflicts)...}));
}

/// Not without an argument: results on the same arena would vanish with the scope.
arena::scope scratch() = delete;  // write scratch(out), or scratch(no_conflicts)

/// Number of scratch arenas that the calling thread has.
[[nodiscard]] std::size_t scratch_arena_count() noexcept;

/// Sets how scratch arenas are made from now on, in all threads; those that exist stay as they are.
/// Thread-safe. The default: reserves of 1 GiB, growable, named "scratch".
void set_scratch_options(arena_options const& options);

}  // namespace tidemark
