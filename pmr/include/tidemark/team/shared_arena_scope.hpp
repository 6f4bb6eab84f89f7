// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_arena::scope`: frees what all threads allocate between its opening and its end. Owns no memory.
#pragma once

#include <source_location>
#include <utility>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/diagnose/detail/named_range.hpp>
#include <tidemark/team/shared_arena.hpp>

namespace tidemark {

/// Takes the position of all threads when it is made, and rewinds to it when it is destroyed.
///
/// ```cpp
/// shared_arena::scope step{team};
/// std::vector<std::jthread> threads = ...;   // allocate on `team`
/// threads.clear();                           // they have ended before the brace
/// ```
/// Open and end it at a quiescent point: no other thread may use the arena then. Scopes on one arena end in
/// the reverse order of their opening. Ending an outer one first is reported as a violation; then its memory
/// lives until the inner one ends. So is an end while a thread holds a thread scope opened since, or has
/// rewound to below the beginning: then the memory lives until the arena's next rewind to below it.
///
/// The arena must outlive it. Move-only; a moved-from or ended scope is inert. O(threads + extents freed).
template <class AddressSpace>
class [[nodiscard]] basic_shared_arena_scope {
 public:
  using arena_type = basic_shared_arena<AddressSpace>;

  /// Opens a scope on `arena`. @throws std::bad_alloc if its beginning cannot be recorded.
  [[nodiscard]] explicit basic_shared_arena_scope(arena_type& arena TIDEMARK_LIFETIMEBOUND,
                                                  detail::call_site where = std::source_location::current())
      : arena_{&arena},
        begin_{arena.mark()},
        outer_{std::exchange(arena.innermost_, this)},
        where_{where},
        range_{detail::range_kind::arena_scope, arena.name()} {}
  [[nodiscard]] basic_shared_arena_scope(basic_shared_arena_scope&& other) noexcept { take(other); }
  /// Ends this scope, then takes over `other`. `scope = shared_arena::scope{team}` on the arena that `scope`
  /// is open on gives a scope that begins where the old one began.
  basic_shared_arena_scope& operator=(basic_shared_arena_scope&& other) noexcept {
    if (this == &other) return *this;
    if (arena_ != nullptr && other.outer_ == this && arena_->innermost_ == &other && other.is_empty()) {
      arena_type& arena = *arena_;
      other.end();
      end();
      arena_ = &arena;  // `begin_` is still its mark
      outer_ = std::exchange(arena.innermost_, this);
      where_ = other.where_;
      range_ = {detail::range_kind::arena_scope, arena.name()};
    } else {
      end();
      take(other);
    }
    return *this;
  }
  ~basic_shared_arena_scope() { end(); }

  /// Ends the scope now. Does nothing to an inert one.
  void end() noexcept {
    if (arena_ != nullptr) std::exchange(arena_, nullptr)->close(*this);
    range_ = {};
  }
  /// Whether it is open.
  [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
  /// The arena, for `std::pmr` containers. @pre it is open; level 2 reports a violation, then throws
  /// std::logic_error.
  [[nodiscard]] arena_type& arena() const noexcept(check_level < 2) {
    if constexpr (check_level >= 2)
      if (arena_ == nullptr) detail::throw_not_open("shared_arena", where_);
    return *arena_;
  }

 private:
  friend arena_type;

  bool is_empty() const noexcept { return arena_->is_at(arena_->marks_[begin_.index_]); }
  void take(basic_shared_arena_scope& other) noexcept {
    arena_ = std::exchange(other.arena_, nullptr);
    begin_ = other.begin_;
    outer_ = other.outer_;
    where_ = other.where_;
    range_ = std::move(other.range_);
    if (arena_ == nullptr) return;
    basic_shared_arena_scope** link = &arena_->innermost_;
    while (*link != &other) link = &(*link)->outer_;
    *link = this;
  }

  arena_type* arena_ = nullptr;  // null: inert
  shared_arena_mark begin_;
  basic_shared_arena_scope* outer_ = nullptr;      // the scope that was innermost before
  [[no_unique_address]] detail::call_site where_;  // level 2 only
  [[no_unique_address]] detail::named_range range_;
};

}  // namespace tidemark
