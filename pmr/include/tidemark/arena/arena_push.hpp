// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_push`: creates objects, arrays and bytes in an arena, through the arena or a scope. Owns nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory_resource>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tidemark/arena/detail/arena_records.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/construct_object.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark {

template <class AddressSpace>
class basic_arena;

/// Tag: skips the zeroing of pushed memory, which may then show bytes of earlier blocks.
struct uninitialized_t {
  explicit uninitialized_t() = default;
};
inline constexpr uninitialized_t uninitialized{};

/// Tag: pushes a `T` with a non-trivial destructor and never runs the destructor.
struct no_destructor_t {
  explicit no_destructor_t() = default;
};
inline constexpr no_destructor_t no_destructor{};

namespace detail {
/// True if skipping the destructor of `T` loses nothing. Otherwise use `make`, or `push` with
/// `no_destructor`.
template <class T>
concept needs_no_destructor = std::is_trivially_destructible_v<T>;

/// True if a `T` made from `arguments`, which have no resource, would allocate from the default resource,
/// although `T` also takes a resource after them. A move keeps the resource of the other `T`.
template <class T, class... Arguments>
concept lacks_resource =
    requires { typename T::allocator_type; } &&
    std::convertible_to<std::pmr::memory_resource*, typename T::allocator_type> &&
    !((std::same_as<Arguments, T> || std::convertible_to<Arguments, typename T::allocator_type>) || ...) &&
    std::constructible_from<T, Arguments..., std::pmr::memory_resource*>;

template <class Range>
using copied_element = typename decltype(std::span{std::declval<Range const&>()})::value_type;
}  // namespace detail

/// Typed allocations of `basic_arena` and its scopes, which derive from this class.
///
/// The functions throw the exceptions of `basic_arena::allocate`, also if `n * sizeof(T)` overflows, and
/// those of `T`'s constructors. Nothing has changed then. O(bytes constructed or zeroed); fresh memory is
/// already zero. Not thread-safe: one thread at a time.
/// @tparam Self an arena on `AddressSpace`, or an open scope on one
template <class Self, class AddressSpace>
class arena_push {
  using arena_type = basic_arena<AddressSpace>;
  static constexpr bool on_host = AddressSpace::traits.host_accessible;
  // Other processes read this memory: a destructor could run over an object that they are reading.
  static constexpr bool never_destroys = AddressSpace::traits.seen_by_others;
  static constexpr std::size_t default_alignment = AddressSpace::traits.block_alignment;

 public:
  /// A `T` constructed from `arguments`, which needs no destructor (see `make`). Without arguments a trivial
  /// `T` is all zero bytes; a pointer to member is then not null.
  template <class T, class... Arguments>
    requires std::constructible_from<T, Arguments...>
  [[nodiscard]] T* push(Arguments&&... arguments) TIDEMARK_LIFETIMEBOUND
    requires(on_host && (detail::needs_no_destructor<T> || never_destroys))
  {
    if constexpr (sizeof...(Arguments) == 0 && std::is_trivially_default_constructible_v<T>) {
      return static_cast<T*>(push_bytes(sizeof(T), alignof(T)));
    } else {
      return construct<T>(target(), std::forward<Arguments>(arguments)...);
    }
  }

  /// Rejected: the destructor of `T` would not run.
  template <class T, class... Arguments>
    requires(on_host && std::constructible_from<T, Arguments...> &&
             !(detail::needs_no_destructor<T> || never_destroys))
  TIDEMARK_REJECTS(T*, "push does not run ~T(): write make<T>(...), or push<T>(no_destructor, ...)")
  push(Arguments&&...) TIDEMARK_REJECTED;
  /// Rejected: no constructor of `T` takes the arguments.
  template <class T, class... Arguments>
    requires(on_host && !std::constructible_from<T, Arguments...>)
  TIDEMARK_REJECTS(T*, "T has no constructor for these arguments: write those of a constructor")
  push(Arguments&&...) TIDEMARK_REJECTED;
  /// Rejected: the memory is a device's.
  template <class T, class... Arguments>
    requires(!on_host)
  TIDEMARK_REJECTS(T*, "the host must not touch this memory: write push<T>(uninitialized)")
  push(Arguments&&...) TIDEMARK_REJECTED;

  /// A `T` constructed from `arguments`, whose destructor never runs. Use it for containers that allocate
  /// only from the arena.
  template <class T, class... Arguments>
    requires std::constructible_from<T, Arguments...>
  [[nodiscard]] T* push(no_destructor_t, Arguments&&... arguments) TIDEMARK_LIFETIMEBOUND
    requires(on_host && !detail::lacks_resource<T, Arguments...>)
  {
    return construct<T>(target(), std::forward<Arguments>(arguments)...);
  }

  /// Rejected: the object would allocate from the default resource, and lose that memory.
  template <class T, class... Arguments>
    requires(on_host && std::constructible_from<T, Arguments...> && detail::lacks_resource<T, Arguments...>)
  TIDEMARK_REJECTS(T*, "T takes a resource: write push<T>(no_destructor, ..., scope.resource() or &arena)")
  push(no_destructor_t, Arguments&&...) TIDEMARK_REJECTED;

  /// Uninitialised memory for a trivial `T`.
  template <class T>
    requires std::is_trivially_default_constructible_v<T>
  [[nodiscard]] T* push(uninitialized_t) TIDEMARK_LIFETIMEBOUND {
    return static_cast<T*>(target().allocate(sizeof(T), alignof(T)));
  }

  /// `n` contiguous `T()` that need no destructors; `n` may be 0. Trivial ones are all zero bytes.
  template <class T>
    requires std::constructible_from<T>
  [[nodiscard]] std::span<T> push_array(std::size_t n) TIDEMARK_LIFETIMEBOUND
    requires(on_host && (detail::needs_no_destructor<T> || never_destroys))
  {
    if constexpr (std::is_trivially_default_constructible_v<T>) {
      return {static_cast<T*>(push_bytes(array_bytes<T>(n), alignof(T))), n};
    } else {
      return construct_array<T>(n, [](T* place) { detail::construct_object(place); });
    }
  }

  /// Rejected: the destructors of the elements would not run.
  template <class T>
    requires(on_host && std::constructible_from<T> && !(detail::needs_no_destructor<T> || never_destroys))
  TIDEMARK_REJECTS(std::span<T>, "~T() would not run: write std::pmr::vector<T>, or (n, no_destructor)")
  push_array(std::size_t) TIDEMARK_REJECTED;
  /// Rejected: `T` has no default constructor.
  template <class T>
    requires(on_host && !std::constructible_from<T>)
  TIDEMARK_REJECTS(std::span<T>, "T has no default constructor: write push_array<T>(n, value)")
  push_array(std::size_t) TIDEMARK_REJECTED;
  /// Rejected: the memory is a device's.
  template <class T>
    requires(!on_host)
  TIDEMARK_REJECTS(std::span<T>, "the host must not touch this memory: write push_array<T>(n, uninitialized)")
  push_array(std::size_t) TIDEMARK_REJECTED;

  /// Rejected: the destructors of the elements would not run.
  template <class T>
    requires(on_host && !(detail::needs_no_destructor<T> || never_destroys))
  TIDEMARK_REJECTS(std::span<T>, "~T() would not run: write std::pmr::vector<T>, or (n, no_destructor)")
  push_array(std::size_t, T const&) TIDEMARK_REJECTED;
  /// Rejected: a count is a floating-point number.
  template <class T, std::floating_point Count>
    requires(on_host)
  TIDEMARK_REJECTS(std::span<T>, "a count is an integer: write push_array<T>(n, value)")
  push_array(Count, T const&) TIDEMARK_REJECTED;

  /// `n` contiguous copies of `value` that need no destructors; `n` may be 0.
  template <class T>
    requires std::copy_constructible<T>
  [[nodiscard]] std::span<T> push_array(std::size_t n, T const& value) TIDEMARK_LIFETIMEBOUND
    requires(on_host && (detail::needs_no_destructor<T> || never_destroys))
  {
    return construct_array<T>(n, [&](T* place) { detail::construct_object(place, value); });
  }

  /// A copy of the elements of `values`, which need no destructors: a span, vector, array or other contiguous
  /// range, which may be empty.
  template <class Range>
    requires requires(Range const& values) { std::span{values}; }
  [[nodiscard]] auto push_copy(Range const& values) TIDEMARK_LIFETIMEBOUND
    requires(on_host && (detail::needs_no_destructor<detail::copied_element<Range>> || never_destroys))
  {
    using T = detail::copied_element<Range>;
    const std::span from{values};
    if constexpr (std::is_trivially_copyable_v<T>) {
      T* const first = allocate_array<T>(target(), from.size());
      if (!from.empty()) std::memcpy(static_cast<void*>(first), from.data(), from.size_bytes());
      return std::span<T>{first, from.size()};
    } else {
      auto source = from.begin();
      return construct_array<T>(from.size(), [&](T* place) { detail::construct_object(place, *source++); });
    }
  }

  /// A copy of the elements of a list in braces.
  template <class T>
  [[nodiscard]] std::span<T> push_copy(std::initializer_list<T> values) TIDEMARK_LIFETIMEBOUND
    requires(on_host && (detail::needs_no_destructor<T> || never_destroys))
  {
    return push_copy<std::initializer_list<T>>(values);
  }
  /// Rejected: the elements are not contiguous.
  template <class Range>
    requires(!requires(Range const& values) { std::span{values}; })
  TIDEMARK_REJECTS(void, "push_copy takes a contiguous range: write push_array<T>(n), and copy the elements")
  push_copy(Range const&) TIDEMARK_REJECTED;

  /// A copy of `text` with a null character behind it, which the view does not contain.
  template <class Space = AddressSpace>
    requires(Space::traits.host_accessible)
  [[nodiscard]] std::string_view push_string(std::string_view text) TIDEMARK_LIFETIMEBOUND {
    char* const first = allocate_array<char>(target(), detail::add_saturating(text.size(), 1));
    text.copy(first, text.size());
    first[text.size()] = '\0';
    return {first, text.size()};
  }

  /// `n` contiguous `T()` whose destructors never run.
  template <class T>
    requires std::constructible_from<T>
  [[nodiscard]] std::span<T> push_array(std::size_t n, no_destructor_t) TIDEMARK_LIFETIMEBOUND
    requires(on_host)
  {
    return construct_array<T>(n, [](T* place) { detail::construct_object(place); });
  }

  /// `n` contiguous trivial `T` in uninitialised memory.
  template <class T>
    requires std::is_trivially_default_constructible_v<T>
  [[nodiscard]] std::span<T> push_array(std::size_t n, uninitialized_t) TIDEMARK_LIFETIMEBOUND {
    return {allocate_array<T>(target(), n), n};
  }

  /// `bytes` zero bytes.
  template <class Space = AddressSpace>
    requires(Space::traits.host_accessible)
  [[nodiscard]] void* push_bytes(std::size_t bytes, std::size_t align = default_alignment)
      TIDEMARK_LIFETIMEBOUND {
    arena_type& to = target();
    void* storage = to.allocate(bytes, align);
    zero(to, storage, bytes);
    return storage;
  }

  /// Rejected: the memory is a device's.
  template <class Space = AddressSpace>
    requires(!Space::traits.host_accessible)
  TIDEMARK_REJECTS(void*, "the host must not touch this memory: write push_bytes(bytes, uninitialized)")
  push_bytes(std::size_t, std::size_t = default_alignment) TIDEMARK_REJECTED;

  /// `bytes` uninitialised bytes.
  [[nodiscard]] void* push_bytes(std::size_t bytes, uninitialized_t, std::size_t align = default_alignment)
      TIDEMARK_LIFETIMEBOUND {
    return target().allocate(bytes, align);
  }

  /// A `T` constructed from `arguments`. If `T` takes a resource, pass one as the last argument. Its destructor
  /// runs when the arena is rewound over it, reset or destroyed, in reverse order of construction. Destructors
  /// must not throw. The result may be discarded, because the destructor's effect may be the purpose.
  template <class T, class... Arguments>
    requires std::constructible_from<T, Arguments...>
  T* make(Arguments&&... arguments) TIDEMARK_LIFETIMEBOUND
    requires(on_host && !detail::lacks_resource<T, Arguments...>)
  {
    if constexpr (std::is_trivially_destructible_v<T>) {
      return construct<T>(target(), std::forward<Arguments>(arguments)...);
    } else {
      rollback undo{target()};
      arena_type& to = *undo.arena;
      auto* record = allocate_array<detail::arena_finalizer>(to, 1);
      T* object = construct<T>(to, std::forward<Arguments>(arguments)...);
      *record = {to.finalizers_, [](void* made) noexcept { static_cast<T*>(made)->~T(); }, object,
                 to.position()};
      to.finalizers_ = record;
      to.floor_ = to.cursor_;  // nothing below may be freed without running the destructor
      undo.arena = nullptr;
      return object;
    }
  }
  /// Rejected: no constructor of `T` takes the arguments.
  template <class T, class... Arguments>
    requires(on_host && !std::constructible_from<T, Arguments...>)
  TIDEMARK_REJECTS(T*, "T has no constructor for these arguments: write those of a constructor")
  make(Arguments&&...) TIDEMARK_REJECTED;
  /// Rejected: the object would allocate from the default resource.
  template <class T, class... Arguments>
    requires(on_host && std::constructible_from<T, Arguments...> && detail::lacks_resource<T, Arguments...>)
  TIDEMARK_REJECTS(T*, "T takes a resource: write make<T>(..., scope.resource() or &arena)")
  make(Arguments&&...) TIDEMARK_REJECTED;
  /// Rejected: the memory is a device's.
  template <class T, class... Arguments>
    requires(!on_host)
  TIDEMARK_REJECTS(T*, "the host must not touch this memory: write push<T>(uninitialized)")
  make(Arguments&&...) TIDEMARK_REJECTED;

 private:
  // At most one page: zeroing a whole block then dirties at most one fresh page.
  static constexpr std::size_t max_whole_zeroing = 4 * KiB;

  arena_type& target() { return static_cast<Self*>(this)->push_target(); }

  // Rewinds the arena to its position at construction, unless `arena` has been set to null.
  struct rollback {
    [[nodiscard]] explicit rollback(arena_type& to) noexcept
        : arena{&to}, chunk{to.chunk_}, cursor{to.cursor_} {}
    rollback(rollback const&) = delete;
    rollback& operator=(rollback const&) = delete;
    ~rollback() {
      if (arena != nullptr) arena->rewind_to(*chunk, cursor);
    }

    arena_type* arena;
    detail::arena_chunk<AddressSpace>* chunk;
    std::uintptr_t cursor;
  };

  template <class T>
  static constexpr std::size_t array_bytes(std::size_t n) noexcept {
    return detail::multiply_saturating(n, sizeof(T));
  }
  template <class T>
  static T* allocate_array(arena_type& to, std::size_t n) {
    return static_cast<T*>(to.allocate(array_bytes<T>(n), alignof(T)));
  }
  template <class T, class Construct>
  std::span<T> construct_array(std::size_t n, Construct const& construct) {
    rollback undo{target()};
    T* const first = allocate_array<T>(*undo.arena, n);
    T* built = first;
    try {
      for (; built != first + n; ++built) construct(built);
    } catch (...) {
      while (built != first) (--built)->~T();
      throw;
    }
    undo.arena = nullptr;
    return {first, n};
  }
  template <class T, class... Arguments>
  static T* construct(arena_type& to, Arguments&&... arguments) {
    if constexpr (std::is_nothrow_constructible_v<T, Arguments...>) {
      return detail::construct_object(allocate_array<T>(to, 1), std::forward<Arguments>(arguments)...);
    } else {
      rollback undo{to};
      T* object = detail::construct_object(allocate_array<T>(to, 1), std::forward<Arguments>(arguments)...);
      undo.arena = nullptr;
      return object;
    }
  }
  static void zero(arena_type& to, void* first, std::size_t bytes) noexcept {
    const std::uintptr_t address = detail::address_of(first);
    const std::uintptr_t fresh = to.fresh_from(address);
    if (address < fresh) {
      // A small block is zeroed whole: a few stores if its size is constant. A large block keeps its fresh
      // part.
      std::memset(first, 0, bytes <= max_whole_zeroing ? bytes : detail::min_of(bytes, fresh - address));
    }
    detail::mark_defined(address, bytes);
  }
};

}  // namespace tidemark
