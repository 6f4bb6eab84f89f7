// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace_acquisition`: the forms of acquisition that a workspace and its scopes share. Owns nothing.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <source_location>
#include <span>
#include <type_traits>

#include <tidemark/core/macros.hpp>
#include <tidemark/workspace/bit_view.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>
#include <tidemark/workspace/detail/slot_list.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>
#include <tidemark/workspace/tensor_view.hpp>

namespace tidemark {
namespace detail {

/// Gives acquisitions access to the private members of a workspace or a scope.
struct workspace_access {
  /// Acquires the next slot of a type, with memory for `n` elements.
  template <class T, class Source>
  [[gnu::always_inline]] static slot& claim(Source& source, std::size_t n, std::source_location where) {
    return source.template claim<T>(n, where);
  }
  template <class Source>
  static workspace_core& core(Source& source) {
    return source.core();
  }
};

}  // namespace detail

/// The forms of acquisition that `workspace` and `workspace::scope` share.
///
/// Each form returns the memory of the next slot of its element type as a `view` or `bits_view`. The caller
/// owns the memory until the innermost scope ends. The memory is uninitialised unless the form says
/// otherwise. `acquire` documents the arguments and errors of all forms.
///
/// ```cpp
/// auto x = scope.acquire<double>(n);                        // x[i]
/// auto a = scope.zeros<float>(rows, columns);               // a(i, j)
/// auto b = scope.acquire<float, column_major>(rows, columns);
/// auto like_a = scope.acquire_like(a);
/// auto mask = scope.falses(n);                              // packed bits: mask[i] = true
/// ```
/// More forms are functions in `<tidemark/workspace/extras/dlpack.hpp>` and `extras/random.hpp`.
///
/// Complexity: O(1) once the slot is large enough, plus the elements written. Thread-safety: the workspace's.
/// @tparam Source the derived class
/// @tparam Checked true if views detect that their memory was freed
template <class Source, bool Checked>
class workspace_acquisition {
 public:
  /// Detects at level 1 that a view's memory was freed.
  using generation_type =
      std::conditional_t<Checked, detail::checked_generation, detail::unchecked_generation>;
  /// A view of elements; converts to `std::span<T>` if it has one dimension.
  template <class T, std::size_t Rank = 1, class Layout = row_major>
  using view = tensor_view<T, Rank, Layout, generation_type>;
  /// A view of packed bits.
  template <std::size_t Rank = 1>
  using bits_view = bit_view<Rank, generation_type>;

  /// Acquires a view of these extents: `acquire<double>(rows, columns)`. For all forms:
  /// - Extents are integers: `(n)`, `(rows, columns)`, `(a, b, c)`, …, and any of them may be 0.
  /// - `Layout` is `row_major` or `column_major`; `T` is trivially copyable.
  /// - The object must be an lvalue, because a temporary scope would end before its memory is used.
  /// @throws std::invalid_argument for a negative extent; out_of_memory if the product of the extents or its
  /// bytes overflow, or at the workspace's limit; the upstream's exceptions. Nothing is acquired then.
  template <class T, class Layout = row_major, std::integral... Extents>
  // Inlined against the compiler's estimate of the cold parts: saves 1 ns each, measured.
  [[nodiscard, gnu::always_inline]] auto acquire(detail::located_extent first,
                                                 Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return acquire<T, Layout>(detail::checked_extents(first.value, rest...), first.where);
  }
  /// Acquires a view of the extents in an array.
  template <class T, class Layout = row_major, std::size_t Rank>
  [[nodiscard, gnu::always_inline]] view<T, Rank, Layout> acquire(
      std::array<std::size_t, Rank> const& extents,
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    detail::slot& memory = access::claim<T>(source(), detail::element_count(extents), where);
    return {static_cast<T*>(memory.data), extents, generation_of(memory, where)};
  }
  /// Acquires a view of one element and rank 0.
  template <class T>
  [[nodiscard]] view<T, 0> acquire(
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    return acquire<T>(std::array<std::size_t, 0>{}, where);
  }
  /// Rejected: the elements are not trivially copyable.
  template <class T, class Layout = row_major, class... Extents>
    requires(!std::is_trivially_copyable_v<T>)
  TIDEMARK_REJECTS(view<T>, "a workspace reuses memory as it is: its elements must be trivially copyable")
  acquire(Extents const&...) & TIDEMARK_REJECTED;
  /// Rejected: an extent is a floating-point number.
  template <class T, class Layout = row_major, class... Extents>
    requires(std::is_trivially_copyable_v<T> && (std::floating_point<Extents> || ...))
  TIDEMARK_REJECTS(view<T>, "an extent is an integer: write acquire<double>(rows, columns)")
  acquire(Extents const&...) & TIDEMARK_REJECTED;

  /// Acquires a view with the extents and the layout of `x`, and with its element type unless `T` is given.
  template <class T = void, class X, std::size_t Rank, class Layout, class Generation>
  [[nodiscard]] auto acquire_like(
      tensor_view<X, Rank, Layout, Generation> const& x,
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    using element = std::conditional_t<std::is_void_v<T>, std::remove_cv_t<X>, T>;
    return acquire<element, Layout>(x.extents(), where);
  }
  /// Acquires a view with the length and the element type of a vector, an array or a span.
  template <class T = void, std::ranges::sized_range Range>
    requires(!requires(Range const& r) { r.extents(); })
  [[nodiscard]] auto acquire_like(
      Range const& x, std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    using element = std::conditional_t<std::is_void_v<T>, std::ranges::range_value_t<Range>, T>;
    return acquire<element>(std::array{static_cast<std::size_t>(std::ranges::size(x))}, where);
  }

  /// Acquires a view and sets every element to 0.
  template <class T = double, class Layout = row_major, std::integral... Extents>
  [[nodiscard]] auto zeros(detail::located_extent first, Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("zeros", T{}, detail::checked_extents(first.value, rest...), first.where);
  }
  /// Acquires a view and sets every element to 1.
  template <class T = double, class Layout = row_major, std::integral... Extents>
  [[nodiscard]] auto ones(detail::located_extent first, Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("ones", T(1), detail::checked_extents(first.value, rest...), first.where);
  }
  /// Acquires a view and sets every element to `value`.
  template <class T, class Layout = row_major, std::integral... Extents>
  [[nodiscard]] auto fill(T value, detail::located_extent first, Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("fill", value, detail::checked_extents(first.value, rest...), first.where);
  }

  /// Acquires packed bits, 64 to a word, in row-major order.
  template <std::integral... Extents>
  [[nodiscard, gnu::always_inline]] auto bits(detail::located_extent first,
                                              Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    const std::array extents = detail::checked_extents(first.value, rest...);
    return bits_in(acquire<detail::bit_word>(words_for(extents), first.where), extents);
  }
  /// Acquires packed bits and sets all of them.
  template <std::integral... Extents>
  [[nodiscard]] auto trues(detail::located_extent first, Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled_bits("trues", ~std::uint64_t{0}, detail::checked_extents(first.value, rest...),
                       first.where);
  }
  /// Acquires packed bits and clears all of them.
  template <std::integral... Extents>
  [[nodiscard]] auto falses(detail::located_extent first, Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled_bits("falses", 0, detail::checked_extents(first.value, rest...), first.where);
  }

 private:
  using access = detail::workspace_access;
  friend Source;
  workspace_acquisition() = default;  // only for `Source`

  Source& source() noexcept { return static_cast<Source&>(*this); }

  static generation_type generation_of(detail::slot const& memory, std::source_location where) noexcept {
    if constexpr (Checked) return {*memory.generation, where};
    else return {};
  }

  template <class T, class Layout = row_major, std::size_t Rank>
  view<T, Rank, Layout> filled(char const* call, T value, std::array<std::size_t, Rank> const& extents,
                               std::source_location where) & {
    detail::workspace_core& core = access::core(source());
    core.require_fill(call);
    const view<T, Rank, Layout> result = acquire<T, Layout>(extents, where);
    if (core.options().host_memory) std::ranges::fill(result.elements(), value);
    else core.fill(core.list<T>(), &value);
    return result;
  }

  /// Returns the number of words for the bits of these extents, as extents.
  static std::array<std::size_t, 1> words_for(std::span<std::size_t const> extents) noexcept {
    const std::size_t n = detail::element_count(extents);
    return {n != detail::uncountable ? bits_view<>::words_for(n) : n};
  }
  template <std::size_t Rank>
  static bits_view<Rank> bits_in(view<detail::bit_word> words, std::array<std::size_t, Rank> const& extents) {
    return {reinterpret_cast<std::uint64_t*>(words.data()), extents, words.generation()};
  }
  template <std::size_t Rank>
  bits_view<Rank> filled_bits(char const* call, std::uint64_t pattern,
                              std::array<std::size_t, Rank> const& extents, std::source_location where) & {
    return bits_in(filled(call, detail::bit_word{pattern}, words_for(extents), where), extents);
  }
};

}  // namespace tidemark
