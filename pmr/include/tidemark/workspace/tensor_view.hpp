// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tensor_view`: elements in memory of others, as an array of some rank. Owns nothing.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <version>

#if __has_include(<mdspan>)
#include <mdspan>
#endif

#include <tidemark/core/macros.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>

namespace tidemark {

namespace detail {

/// A layout without gaps, whose dimensions in memory are those of the array in order, or in reverse.
template <bool LastIsFastest>
struct dense_layout {
#ifdef __cpp_lib_mdspan
  using mdspan_layout = std::conditional_t<LastIsFastest, std::layout_right, std::layout_left>;
#endif
  /// Elements from one index of dimension `r` to the next. @pre `r < Rank`.
  template <std::size_t Rank>
  [[nodiscard]] static constexpr std::size_t stride(std::array<std::size_t, Rank> const& extents,
                                                    std::size_t r) noexcept {
    std::size_t elements = 1;
    for (std::size_t i = LastIsFastest ? r + 1 : 0; i < (LastIsFastest ? Rank : r); ++i)
      elements *= extents[i];
    return elements;
  }
  /// Elements before the one at `index`; the slowest extent takes no part. @pre Each index is in its extent.
  template <std::size_t Rank>
  [[nodiscard]] static constexpr std::size_t offset(std::array<std::size_t, Rank> const& extents,
                                                    std::array<std::size_t, Rank> const& index) noexcept {
    std::size_t elements = 0;
    for (std::size_t i = 0; i != Rank; ++i) {
      const std::size_t r = LastIsFastest ? i : Rank - 1 - i;
      elements = elements * extents[r] + index[r];
    }
    return elements;
  }
};

}  // namespace detail

/// The layout in which the last index moves fastest, as in C and NumPy's default.
///
/// The stride of a dimension is the product of the extents behind it. Complexity: O(rank). Thread-safe.
using row_major = detail::dense_layout<true>;

/// The layout in which the first index moves fastest, as in Fortran, BLAS and LAPACK.
///
/// The stride of a dimension is the product of the extents before it. Complexity: O(rank). Thread-safe.
using column_major = detail::dense_layout<false>;

/// Contiguous elements as an array of `Rank` dimensions, without owning them: a pointer and the extents.
///
/// ```cpp
/// std::vector<double> numbers(12);
/// tensor_view<double, 2> const table{numbers.data(), {3, 4}};
/// table(2, 1) = 5;
/// std::cout << table.reshape(12)[9] << '\n';  // 5
/// ```
/// The interface is that of `std::mdspan`, which standard libraries of C++20 do not have: `view(i, j)` is
/// always there, `view[i, j]` where the compiler has such an operator (C++23), `view[std::array{i, j}]`
/// always. A view of rank 1 is a range besides, and becomes a `std::span` by itself. `mdspan()`
/// returns the `std::mdspan` of the elements where the standard library has it.
///
/// Constness is that of a pointer: elements of a `tensor_view<double, 1> const` can be written, those of a
/// `tensor_view<double const, 1>` cannot.
///
/// Invariant: the elements are `[first_, first_ + size())`.
///
/// An access to elements or memory first calls the view's generation, and throws what that throws; questions
/// about the shape do not, so that a message can describe a view whose memory was freed. Without checks
/// only `reshape` throws. Complexity: O(rank), no allocation. Thread-safety: that of a pointer.
///
/// @tparam T the elements; `T const` where they are only read
/// @tparam Rank number of dimensions; a view of rank 0 is of one element
/// @tparam Layout `row_major` or `column_major`
/// @tparam Generation what knows whether the memory is still there
template <class T, std::size_t Rank, class Layout = row_major,
          detail::view_generation Generation = detail::unchecked_generation>
class TIDEMARK_POINTER tensor_view
    : public detail::shaped_view<tensor_view<T, Rank, Layout, Generation>, T, Rank, Layout, Generation> {
  static_assert(std::is_object_v<T> && !std::is_array_v<T>, "a tensor_view is of objects that are no arrays");
  static_assert(std::same_as<Layout, row_major> || std::same_as<Layout, column_major>,
                "the layout of a tensor_view is row_major or column_major");
  using base = detail::shaped_view<tensor_view, T, Rank, Layout, Generation>;

 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using reference = T&;
  using data_handle_type = T*;
  using layout_type = Layout;

  /// Of nothing: all extents are 0. One of rank 0 is null, and has no element either.
  constexpr tensor_view() noexcept = default;
  /// @param first the first of as many elements as the extents have; may be null if there are none
  /// @param extents elements along each dimension; their product must fit into a std::size_t
  /// @param generation of the memory
  constexpr tensor_view(T* first, std::array<std::size_t, Rank> const& extents,
                        Generation generation = {}) noexcept
      : base{first, extents, generation} {}
  /// The same elements, to be read only.
  template <class Other>
    requires(!std::same_as<Other, T> && std::is_convertible_v<Other (*)[], T (*)[]>)
  constexpr tensor_view(tensor_view<Other, Rank, Layout, Generation> const& other) noexcept
      : base{other.first_, other.extents(), other.generation()} {}
  /// The same elements, without a check of whether they are still there from now on: so that a function that
  /// takes `tensor_view<double, 2>` takes views of a checked workspace too. @throws what `OtherGeneration`
  /// throws.
  template <class Other, class OtherGeneration>
    requires(OtherGeneration::checks && !Generation::checks && std::is_convertible_v<Other (*)[], T (*)[]>)
  constexpr tensor_view(tensor_view<Other, Rank, Layout, OtherGeneration> const& other)
      : base{other.data(), other.extents(), {}} {}

  /// Elements from one index of dimension `r` to the next. @pre `r < Rank`.
  [[nodiscard]] constexpr std::size_t stride(std::size_t r) const noexcept {
    return Layout::stride(this->extents(), r);
  }

  /// The first element; null if the view is of nothing. @throws what `Generation` throws; the view stays as
  /// it is.
  [[nodiscard]] constexpr T* data() const noexcept(!Generation::checks) { return this->access(); }
  /// The same under std::mdspan's name. @throws as `data`.
  [[nodiscard]] constexpr T* data_handle() const noexcept(!Generation::checks) { return data(); }
  /// All elements in the order of memory. @throws as `data`.
  [[nodiscard]] constexpr std::span<T> elements() const noexcept(!Generation::checks) {
    return {data(), this->size()};
  }

  /// The elements as a range. @throws as `data`.
  [[nodiscard]] constexpr T* begin() const noexcept(!Generation::checks)
    requires(Rank == 1)
  {
    return data();
  }
  /// Behind the last element. @throws as `data`.
  [[nodiscard]] constexpr T* end() const noexcept(!Generation::checks)
    requires(Rank == 1)
  {
    return data() + this->size();
  }

#ifdef __cpp_lib_mdspan
  using mdspan_type = std::mdspan<T, std::dextents<std::size_t, Rank>, typename Layout::mdspan_layout>;
  /// The std::mdspan of the same elements. It has no checks. @throws as `data`.
  [[nodiscard]] constexpr mdspan_type mdspan() const noexcept(!Generation::checks) {
    return {data(), this->extents()};
  }
#endif

 private:
  template <class, std::size_t, class, detail::view_generation>
  friend class tensor_view;
  friend base;

  static constexpr char const* element_name = detail::element_name<T>;
  template <std::size_t NewRank>
  using with_rank = tensor_view<T, NewRank, Layout, Generation>;
  [[nodiscard]] constexpr T& element_at(std::size_t offset) const noexcept(!Generation::checks) {
    return data()[offset];
  }
};

static_assert(sizeof(tensor_view<double, 1>) == 2 * sizeof(void*), "a view is a pointer and its extents");
static_assert(sizeof(tensor_view<double, 3, column_major>) == 4 * sizeof(void*));
static_assert(std::is_trivially_copyable_v<tensor_view<double, 2>>);
static_assert(std::is_nothrow_default_constructible_v<tensor_view<double, 0>>);
static_assert(std::is_convertible_v<tensor_view<double, 2>, tensor_view<double const, 2>> &&
                  !std::is_convertible_v<tensor_view<double const, 2>, tensor_view<double, 2>>,
              "a view can lose the right to write, and never gain it");

/// Elements in memory from elsewhere as an array of some rank. @tparam Layout `row_major` or `column_major`.
///
/// ```cpp
/// std::vector<double> numbers(12);
/// tensor_view<double, 2> const table = reshape(std::span{numbers}, 3, 4);
/// ```
/// @param elements all of them, in the order of memory; they stay the caller's
/// @param extents as `tensor_view::reshape` takes them. @throws as that, and then has done nothing.
template <class Layout = row_major, class T, std::size_t Size, class... Extents>
  requires detail::shape_extents<Extents...>
[[nodiscard]] constexpr auto reshape(std::span<T, Size> elements, Extents const&... extents) {
  return tensor_view<T, 1, Layout>{elements.data(), {elements.size()}}.reshape(extents...);
}

}  // namespace tidemark

/// @cond
// A view of rank 1 is a range that is cheap to copy, and whose iterators outlive it.
template <class T, class Layout, tidemark::detail::view_generation Generation>
inline constexpr bool std::ranges::enable_view<tidemark::tensor_view<T, 1, Layout, Generation>> = true;
template <class T, class Layout, tidemark::detail::view_generation Generation>
inline constexpr bool std::ranges::enable_borrowed_range<tidemark::tensor_view<T, 1, Layout, Generation>> =
    true;
/// @endcond

static_assert(std::is_convertible_v<tidemark::tensor_view<double, 1>, std::span<double>> &&
                  std::is_convertible_v<tidemark::tensor_view<double, 1> const, std::span<double const>>,
              "a function that takes a std::span takes a view of rank 1");
