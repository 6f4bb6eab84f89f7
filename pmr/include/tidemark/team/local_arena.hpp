// SPDX-License-Identifier: Apache-2.0
/// @file
/// `local_arena`: one thread's handle on a shared arena. Owns no memory.
#pragma once

#include <concepts>
#include <cstddef>

#include <tidemark/arena/arena.hpp>
#include <tidemark/arena/arena_push.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/team/detail/extent_memory.hpp>

namespace tidemark {

template <class AddressSpace>
class basic_shared_arena;

/// The result of `shared_arena::local()`: the calling thread's handle. Allocation is as fast as on an
/// `arena`.
///
/// ```cpp
/// auto local = team.local();
/// std::pmr::vector<int> indices{&local};
/// {
///   local_arena::scope scope{local};   // a thread scope: frees what this thread allocates in it
///   auto row = local.push_array<double>(n);
/// }
/// ```
/// Blocks outlive the handle: the shared arena's rewinds free them, or this thread's own. All handles of a
/// thread share one memory. `push`, `push_array`, `push_bytes` and `make` are those of `arena_push`. The
/// rewind that frees an object of `make` runs its destructor, on the rewinding thread.
///
/// A handle stays valid after a rewind, reset, trim or release of the shared arena. It ends with the shared
/// arena, and when its thread ends or leaves. Complexity: as `arena`. Thread-safety: only the thread that
/// made it, and not during a rewind; level 2 reports both violations.
template <class AddressSpace>
class basic_local_arena final : public detail::forwarding_resource<basic_local_arena<AddressSpace>> {
 public:
  using arena_type = basic_arena<detail::extent_memory<AddressSpace>>;
  /// A thread scope: rewinds this thread's part. It must end before the shared arena is rewound to a point
  /// before the beginning of the scope.
  using scope = basic_arena_scope<detail::extent_memory<AddressSpace>>;

  static constexpr std::size_t default_alignment = arena_type::default_alignment;

  // The results outlive the handle. They are therefore not lifetimebound, unlike those of an arena.

  /// As `basic_arena::allocate`. An exception changes nothing for this thread or others.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) {
    return arena_->allocate(bytes, align);
  }
  /// As `allocate`, but returns null instead of throwing.
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align = default_alignment) noexcept {
    return arena_->try_allocate(bytes, align);
  }
  /// As `arena_push::push`, with its overloads.
  template <class T, class... Arguments>
    requires requires(arena_type& arena, Arguments&&... given) {
      (void)arena.template push<T>(std::forward<Arguments>(given)...);
    }
  [[nodiscard]] T* push(Arguments&&... arguments) {
    return arena_->template push<T>(std::forward<Arguments>(arguments)...);
  }
  /// As `arena_push::push_array`, with its overloads.
  template <class T, class... Tag>
    requires requires(arena_type& arena, Tag... tag) { (void)arena.template push_array<T>(1, tag...); }
  [[nodiscard]] std::span<T> push_array(std::size_t n, Tag... tag) {
    return arena_->template push_array<T>(n, tag...);
  }
  /// As `arena_push::push_bytes`, with its overloads.
  template <class... Arguments>
  [[nodiscard]] void* push_bytes(std::size_t bytes, Arguments... arguments) {
    return arena_->push_bytes(bytes, arguments...);
  }
  /// As `arena_push::make`.
  template <class T, class... Arguments>
    requires std::constructible_from<T, Arguments...>
  T* make(Arguments&&... arguments) {
    return arena_->template make<T>(std::forward<Arguments>(arguments)...);
  }
  /// As `basic_arena::deallocate`; does nothing for blocks of other threads.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if constexpr (check_level >= 2)
      if (!arena_->owns(block) && arena_->space().may_be_of_another_thread(block)) return;
    arena_->deallocate(block, bytes, align);
  }
  /// As `basic_arena::expand`.
  [[nodiscard]] bool expand(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept {
    return arena_->expand(block, old_bytes, new_bytes);
  }

  /// Returns this thread's position. @throws as `basic_arena::mark`.
  [[nodiscard]] arena_mark mark() { return arena_->mark(); }
  /// Frees all blocks of this thread that are newer than `mark`. @throws as `basic_arena::rewind`, also if
  /// the shared arena was rewound to a point before the mark.
  void rewind(arena_mark const& mark) { arena_->rewind(mark); }

  /// Returns this thread's statistics; its chunks are its extents, without blocks that have their own
  /// extents.
  [[nodiscard]] arena_stats stats() const noexcept { return arena_->stats(); }
  /// Returns the shared arena's name.
  [[nodiscard]] char const* name() const noexcept { return arena_->name(); }
  /// Returns true if the address is in memory that this thread has allocated. O(extents).
  [[nodiscard]] bool owns(void const* address) const noexcept { return arena_->owns(address); }

  /// Returns this thread's part, for thread scopes and functions that take an arena. Positions and `pop` do
  /// not count blocks that have their own extents.
  operator arena_type&() const noexcept { return *arena_; }

 private:
  friend basic_shared_arena<AddressSpace>;
  explicit basic_local_arena(arena_type& arena) noexcept : arena_{&arena} {}

  arena_type* arena_;
};

}  // namespace tidemark
