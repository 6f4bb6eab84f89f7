// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena::scope`: frees the allocations made on an arena between its opening and its end. Owns no memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <source_location>
#include <utility>

#include <tidemark/arena/arena_push.hpp>
#include <tidemark/arena/detail/arena_state.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark {

namespace detail {
struct scratch_access;
}

/// `arena::scope`, `device_arena::scope` and so on: saves an arena's position at construction, and rewinds to
/// it at destruction.
///
/// ```cpp
/// {
///   arena::scope scope{step};
///   auto row = scope.push_array<double>(n);   // the same as step.push_array<double>(n)
/// }                                           // and here it is gone
/// ```
/// Scopes on one arena end in the reverse order of their opening. Ending an outer scope first is a violation;
/// its memory then lives until the inner scope ends. Level 2 also reports allocations through an outer scope
/// while an inner scope is open, because the inner scope's end would free them early.
///
/// The arena must outlive the scope. Scopes are move-only. A moved-from, ended or default-constructed scope
/// is inert: it rewinds nothing, and level 2 reports an allocation through it. `push`, `push_array`,
/// `push_bytes` and `make` come from `arena_push`. Opening and ending are O(1). Not thread-safe: one thread
/// at a time.
template <class AddressSpace>
class [[nodiscard(TIDEMARK_NAME_SCOPE)]] basic_arena_scope
    : public arena_push<basic_arena_scope<AddressSpace>, AddressSpace> {
 public:
  using arena_type = basic_arena<AddressSpace>;

  /// An inert scope.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] basic_arena_scope() noexcept : opened_{} {}
  /// Opens a scope on `arena`.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] explicit basic_arena_scope(
      arena_type& arena TIDEMARK_LIFETIMEBOUND,
      detail::call_site where = std::source_location::current()) noexcept
      : opened_{}, where_{where} {
    open(arena);
  }
  /// Opens a scope on `*arena`, or makes an inert scope if `arena` is null.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] explicit basic_arena_scope(
      arena_type* arena, detail::call_site where = std::source_location::current()) noexcept
      : opened_{}, where_{where} {
    if (arena != nullptr) open(*arena);
  }
  /// Rejected: two scopes would rewind the same memory.
  basic_arena_scope TIDEMARK_NO_COPY(
      basic_arena_scope, "a scope cannot be copied: write std::move(scope), or pass arena::scope&");
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] basic_arena_scope(basic_arena_scope&& other) noexcept : opened_{} {
    move_from(other);
  }
  /// Ends this scope, then takes over `other`. `scope = arena::scope{step}` on the same arena yields a scope
  /// that begins where the old scope began.
  basic_arena_scope& operator=(basic_arena_scope&& other) noexcept {
    if (this == &other) return *this;
    if (arena_ != nullptr && other.opened_.outer == this && arena_->innermost() == &other &&
        other.is_empty()) {
      arena_type& arena = *arena_;
      basic_arena_scope* const outer = opened_.outer;
      other.end();
      opened_.outer = this;  // a scratch arena must not look idle in between
      arena.close(*this);
      open_inside(outer, arena);
    } else {
      end();
      move_from(other);
    }
    return *this;
  }
  ~basic_arena_scope() { end(); }

  /// Ends the scope now. Does nothing to an inert scope.
  void end() noexcept {
    if (arena_ != nullptr) std::exchange(arena_, nullptr)->close(*this);
  }

  /// Ends the scope while work on another stream still uses its memory. The arena's stream waits for `event`,
  /// and so does all later work that may use the memory. Device memory only. Does nothing to an inert scope.
  /// @param event a `cudaEvent_t` recorded after that work and outside a capture, because waiting for it
  /// would end the capture. Or the work's `cudaStream_t`, which may be capturing if the arena's stream is in
  /// the same capture. `nullptr` is ambiguous and does not compile.
  template <class Event, ordered_space Space = AddressSpace>
    requires requires(Space& space, Event const& event) { space.wait_before_reuse(event); }
  void end_after(Event const& event) noexcept {
    if (arena_ == nullptr) return;
    arena_->before_use("end of a scope");
    arena_->space_.wait_before_reuse(event);
    end();
  }

  /// True if the scope is open.
  [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
  /// The arena. @pre the scope is open. Otherwise level 2 reports a violation and
  /// throws std::logic_error, as does every allocation through the scope.
  [[nodiscard]] arena_type& arena() const noexcept(check_level < 2) {
    require_open();
    return *arena_;
  }
  /// The arena, for containers: `std::pmr::vector<int> v{scope.resource()}`. @pre the scope is open.
  [[nodiscard]] std::pmr::memory_resource* resource() const noexcept(check_level < 2) TIDEMARK_LIFETIMEBOUND {
    return &arena();
  }

  /// Rejected: a container takes a resource, and its own error for a scope is long.
  template <class T TIDEMARK_SENTENCE("a container takes a resource: write scope.resource()")>
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator std::pmr::polymorphic_allocator<T>() const
      TIDEMARK_DELETED("a container takes a resource: write scope.resource()");

  /// As `basic_arena::allocate`. @pre the scope is open.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align = arena_type::default_alignment)
      TIDEMARK_LIFETIMEBOUND {
    return push_target().allocate(bytes, align);
  }

 private:
  friend arena_type;
  friend detail::arena_state<AddressSpace>;
  friend detail::scratch_access;
  template <class Space>
  friend class detail::shared_arena_state;  // its messages name the place of an open scope
  friend arena_push<basic_arena_scope, AddressSpace>;

  // Opens a scope on a scratch arena, whose state may be read only after the arena is claimed.
  template <std::same_as<detail::scratch_access> Opener>
  basic_arena_scope(Opener opener, arena_type& arena,
                    detail::call_site where = std::source_location::current()) noexcept
      : where_{where} {
    opener.open(*this, arena);
  }
  void open(arena_type& arena) noexcept {
    open_inside(arena.innermost(), arena);
    arena.set_innermost(this);
  }
  void open_inside(basic_arena_scope* outer, arena_type& arena) noexcept {
    arena.before_use("opening of a scope");
    arena_ = &arena;
    opened_ = {outer, arena.cursor_, arena.chunk_, arena.floor_};
    arena.floor_ = arena.cursor_;
  }

  void move_from(basic_arena_scope& other) noexcept {
    arena_ = std::exchange(other.arena_, nullptr);
    opened_ = other.opened_;
    where_ = other.where_;
    if (arena_ == nullptr) return;
    if (arena_->innermost() == &other) return arena_->set_innermost(this);
    basic_arena_scope* inner = arena_->innermost();
    while (inner->opened_.outer != &other) inner = inner->opened_.outer;
    inner->opened_.outer = this;
  }

  bool is_empty() const noexcept {
    return arena_->chunk_ == opened_.chunk && arena_->cursor_ == opened_.cursor;
  }

  void require_open() const noexcept(check_level < 2) {
    if constexpr (check_level >= 2)
      if (arena_ == nullptr) detail::throw_not_open("arena", where_);
  }
  arena_type& push_target() const noexcept(check_level < 2) {
    require_open();
    if constexpr (check_level >= 2) {
      if (arena_->innermost() != this) {
        detail::report_violation(
            violation_kind::outer_scope_use, arena_->name(),
            "arena '%s': allocating through an outer scope while a scope inside it is open; the memory would "
            "vanish when the inner one ends%s",
            arena_->name(), detail::opened_text(where_, arena_->innermost()->where_).c_str());
      }
    }
    return *arena_;
  }

  // The arena's state at the opening.
  struct state {
    basic_arena_scope* outer;                  // the innermost scope open at that time
    std::uintptr_t cursor;                     // where this scope begins
    detail::arena_chunk<AddressSpace>* chunk;  // the chunk that `cursor` is in
    std::uintptr_t floor;
  };

  arena_type* arena_ = nullptr;  // null: inert
  state opened_;
  [[no_unique_address]] detail::call_site where_;  // level 2 only
};

}  // namespace tidemark
