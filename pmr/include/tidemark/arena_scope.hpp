// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_scope`: what is allocated on an arena between its opening and its end vanishes at its end.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <tidemark/arena.hpp>
#include <tidemark/detail/named_range.hpp>

namespace tidemark {

/// Marks an arena's position when it is made and rewinds to it when it is destroyed.
///
/// ```cpp
/// arena_scope scope{step};
/// auto row = scope.push_array<double>(n);   // the same as step.push_array<double>(n)
/// ```                                       // and here it is gone
/// Scopes on one arena end in the reverse order of their opening. Ending an outer one first is reported as a
/// violation; then its memory lives until the inner one ends. Allocating through a scope rather than through
/// the arena lets level 2 report that an outer scope is asked for memory while an inner one is open: such
/// memory would vanish with the inner scope, earlier than its owner expects.
///
/// It does not own the arena, which must outlive it. Move-only; a moved-from, ended or default-made scope is
/// inert: it rewinds nothing, and nothing may be allocated through it. Opening and ending are O(1). One
/// thread at a time.
template <class AddressSpace>
class [[nodiscard]] basic_arena_scope {
 public:
  using arena_type = basic_arena<AddressSpace>;

  /// An inert scope.
  basic_arena_scope() noexcept = default;
  /// Opens a scope on `arena`.
  explicit basic_arena_scope(arena_type& arena) noexcept { open(arena); }
  /// Opens a scope on `*arena`, or makes an inert one of null.
  explicit basic_arena_scope(arena_type* arena) noexcept {
    if (arena != nullptr) open(*arena);
  }
  basic_arena_scope(basic_arena_scope&& other) noexcept { take(other); }
  /// Ends this scope, then takes over `other`. `scope = arena_scope{arena}` on the arena that `scope` is open
  /// on gives a scope that begins where the old one began.
  basic_arena_scope& operator=(basic_arena_scope&& other) noexcept {
    if (this == &other) return *this;
    if (arena_ != nullptr && other.outer_ == this && arena_->innermost_ == &other && other.is_empty()) {
      arena_type& arena = *arena_;
      other.end();
      end();
      open(arena);
    } else {
      end();
      take(other);
    }
    return *this;
  }
  ~basic_arena_scope() { end(); }

  /// Ends the scope now. Does nothing to an inert one.
  void end() noexcept {
    if (arena_ != nullptr) std::exchange(arena_, nullptr)->close_scope(*this);
    range_ = {};
  }

  /// Ends the scope now, though work elsewhere still uses its memory: its memory is used again only after
  /// `event`. That is for device memory, where the stream of the arena waits for the event, and with it all
  /// later work that may use the memory. Does nothing to an inert scope.
  /// @param event behind that work, as `cudaEvent_t`
  template <class Event, class Space = AddressSpace>
    requires requires(Space& space, Event const& event) { space.wait_before_reuse(event); }
  void end_after(Event const& event) noexcept {
    if (arena_ == nullptr) return;
    if constexpr (check_level >= 2) arena_->before_use("end of a scope");
    arena_->space_.wait_before_reuse(event);
    end();
  }

  /// Whether it is open.
  [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
  /// The arena, to be handed to `std::pmr` containers. @pre it is open.
  [[nodiscard]] arena_type& arena() const noexcept { return *arena_; }

  /// As the arena's member of the same name. @pre it is open.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align = arena_type::default_alignment) {
    return owner().allocate(bytes, align);
  }
  /// As the arena's member of the same name. @pre it is open.
  template <class T, class... Arguments>
  [[nodiscard]] T* push(Arguments&&... arguments) {
    return owner().template push<T>(std::forward<Arguments>(arguments)...);
  }
  /// As the arena's member of the same name. @pre it is open.
  template <class T, std::same_as<uninitialized_t>... Tag>
  [[nodiscard]] std::span<T> push_array(std::size_t n, Tag... tag) {
    return owner().template push_array<T>(n, tag...);
  }
  /// As the arena's member of the same name. @pre it is open.
  [[nodiscard]] void* push_bytes(std::size_t bytes, std::size_t align = arena_type::default_alignment) {
    return owner().push_bytes(bytes, align);
  }
  /// As the arena's member of the same name. @pre it is open.
  [[nodiscard]] void* push_bytes(std::size_t bytes, uninitialized_t tag,
                                 std::size_t align = arena_type::default_alignment) {
    return owner().push_bytes(bytes, tag, align);
  }
  /// As the arena's member of the same name. @pre it is open.
  template <class T, class... Arguments>
  T* make(Arguments&&... arguments) {
    return owner().template make<T>(std::forward<Arguments>(arguments)...);
  }

 private:
  friend arena_type;

  void open(arena_type& arena) noexcept {
    if constexpr (check_level >= 2) arena.before_use("opening of a scope");
    arena_ = &arena;
    outer_ = arena.innermost_;
    chunk_ = arena.chunk_;
    begin_ = arena.cursor_;
    outer_floor_ = arena.floor_;
    arena.innermost_ = this;
    arena.floor_ = begin_;
    range_ = {detail::range_kind::arena_scope, arena.name()};
  }

  void take(basic_arena_scope& other) noexcept {
    arena_ = std::exchange(other.arena_, nullptr);
    outer_ = other.outer_;
    chunk_ = other.chunk_;
    begin_ = other.begin_;
    outer_floor_ = other.outer_floor_;
    range_ = std::move(other.range_);
    if (arena_ == nullptr) return;
    basic_arena_scope** link = &arena_->innermost_;
    while (*link != &other) link = &(*link)->outer_;
    *link = this;
  }

  bool is_empty() const noexcept { return arena_->chunk_ == chunk_ && arena_->cursor_ == begin_; }

  arena_type& owner() const noexcept {
    if constexpr (check_level >= 2) {
      if (arena_->innermost_ != this) {
        detail::report_violation(
            violation_kind::outer_scope_use, arena_->name(),
            "arena '%s': allocating through an outer scope while a scope inside it is open; the "
            "memory would vanish when the inner one ends",
            arena_->name());
      }
    }
    return *arena_;
  }

  arena_type* arena_ = nullptr;           // null: inert
  basic_arena_scope* outer_ = nullptr;    // the scope that is open around this one
  std::uintptr_t begin_ = 0;              // the arena's cursor at the opening
  detail::arena_chunk* chunk_ = nullptr;  // the chunk that begin_ is in
  std::uintptr_t outer_floor_ = 0;        // the arena's floor at the opening
  [[no_unique_address]] detail::named_range range_;
};

/// A scope on an `arena`.
using arena_scope = basic_arena_scope<virtual_memory>;

}  // namespace tidemark
