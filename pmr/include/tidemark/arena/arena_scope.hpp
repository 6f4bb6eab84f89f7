// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena::scope`: frees what is allocated on an arena between its opening and its end. Owns no memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <utility>

#include <tidemark/arena/arena_push.hpp>
#include <tidemark/arena/detail/arena_state.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/named_range.hpp>

namespace tidemark {

namespace detail {
struct scratch_access;
}

/// `arena::scope`, `device_arena::scope` and so on: takes an arena's position when it is made, and rewinds to
/// it when it is destroyed.
///
/// ```cpp
/// {
///   arena::scope scope{step};
///   auto row = scope.push_array<double>(n);   // the same as step.push_array<double>(n)
/// }                                           // and here it is gone
/// ```
/// Scopes on one arena end in the reverse order of their opening. Ending an outer one first is reported as a
/// violation; then its memory lives until the inner one ends. Level 2 also reports allocations through an
/// outer scope while an inner one is open: the inner scope's end would free them earlier than their owner
/// expects.
///
/// The arena must outlive it. Move-only; a moved-from, ended or default-made scope is inert: it rewinds
/// nothing, and nothing may be allocated through it, which level 2 reports. `push`, `push_array`,
/// `push_bytes` and `make` are those of `arena_push`. Opening and ending are O(1). One thread at a time.
template <class AddressSpace>
class [[nodiscard]] basic_arena_scope : public arena_push<basic_arena_scope<AddressSpace>, AddressSpace> {
 public:
  using arena_type = basic_arena<AddressSpace>;

  /// An inert scope.
  [[nodiscard]] basic_arena_scope() noexcept : opened_{} {}
  /// Opens a scope on `arena`.
  [[nodiscard]] explicit basic_arena_scope(arena_type& arena TIDEMARK_LIFETIMEBOUND,
                                           detail::call_site where = std::source_location::current()) noexcept
      : opened_{}, where_{where} {
    open(arena);
  }
  /// Opens a scope on `*arena`, or makes an inert one of null.
  [[nodiscard]] explicit basic_arena_scope(arena_type* arena,
                                           detail::call_site where = std::source_location::current()) noexcept
      : opened_{}, where_{where} {
    if (arena != nullptr) open(*arena);
  }
  [[nodiscard]] basic_arena_scope(basic_arena_scope&& other) noexcept : opened_{} { take(other); }
  /// Ends this scope, then takes over `other`. `scope = arena::scope{step}` on the arena that `scope` is open
  /// on gives a scope that begins where the old one began.
  basic_arena_scope& operator=(basic_arena_scope&& other) noexcept {
    if (this == &other) return *this;
    if (arena_ != nullptr && other.opened_.outer == this && arena_->innermost() == &other &&
        other.is_empty()) {
      arena_type& arena = *arena_;
      basic_arena_scope* const outer = opened_.outer;
      other.end();
      opened_.outer = this;  // a scratch arena must not seem to be idle in between
      arena.close(*this);
      range_ = {};
      open_inside(outer, arena);
    } else {
      end();
      take(other);
    }
    return *this;
  }
  ~basic_arena_scope() { end(); }

  /// Ends the scope now. Does nothing to an inert one.
  void end() noexcept {
    if (arena_ != nullptr) std::exchange(arena_, nullptr)->close(*this);
    range_ = {};
  }

  /// Ends the scope now, while work on another stream still uses its memory: the stream of the arena, and
  /// with it all later work that may use the memory, waits for `event`. Device memory only. Does nothing to
  /// an inert scope.
  /// @param event behind that work, as `cudaEvent_t`, which was not recorded in a capture: waiting for it
  /// would end that; or the stream that has the work, as `cudaStream_t`, in a capture too if the arena's
  /// stream is in the same one. `nullptr` is ambiguous and does not compile.
  template <class Event, ordered_space Space = AddressSpace>
    requires requires(Space& space, Event const& event) { space.wait_before_reuse(event); }
  void end_after(Event const& event) noexcept {
    if (arena_ == nullptr) return;
    arena_->before_use("end of a scope");
    arena_->space_.wait_before_reuse(event);
    end();
  }

  /// Whether it is open.
  [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
  /// The arena, for `std::pmr` containers. @pre it is open; level 2 reports a violation, then throws
  /// std::logic_error, as does every allocation through it.
  [[nodiscard]] arena_type& arena() const noexcept(check_level < 2) {
    require_open();
    return *arena_;
  }

  /// As `basic_arena::allocate`. @pre it is open.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align = arena_type::default_alignment)
      TIDEMARK_LIFETIMEBOUND {
    return push_target().allocate(bytes, align);
  }

 private:
  friend arena_type;
  friend detail::arena_state<AddressSpace>;
  friend detail::scratch_access;
  template <class Space>
  friend class basic_shared_arena;  // whose messages name the place of an open scope
  friend arena_push<basic_arena_scope, AddressSpace>;

  // On a scratch arena, whose state is to be read only once the arena is claimed.
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
    range_ = {detail::range_kind::arena_scope, arena.name()};
  }

  void take(basic_arena_scope& other) noexcept {
    arena_ = std::exchange(other.arena_, nullptr);
    opened_ = other.opened_;
    where_ = other.where_;
    range_ = std::move(other.range_);
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

  // What the arena was like at the opening.
  struct state {
    basic_arena_scope* outer;                  // the innermost open scope
    std::uintptr_t cursor;                     // where this scope begins
    detail::arena_chunk<AddressSpace>* chunk;  // the chunk that `cursor` is in
    std::uintptr_t floor;
  };

  arena_type* arena_ = nullptr;  // null: inert
  state opened_;
  [[no_unique_address]] detail::call_site where_;  // level 2 only
  [[no_unique_address]] detail::named_range range_;
};

}  // namespace tidemark
