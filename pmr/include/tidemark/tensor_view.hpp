// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tensor_view`: elements that somebody else owns, as an array of some rank. Owns nothing.
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

#include <tidemark/detail/element_name.hpp>
#include <tidemark/detail/extents.hpp>
#include <tidemark/detail/view_life.hpp>
#include <tidemark/macros.hpp>

namespace tidemark {

/// The layout in which the last index moves fastest, as in C and NumPy's default.
///
/// The stride of a dimension is the product of the extents behind it. Complexity: O(rank). Thread-safe.
struct row_major {
#ifdef __cpp_lib_mdspan
  using mdspan_layout = std::layout_right;
#endif
  /// Elements from one index of dimension `r` to the next. @pre `r < Rank`.
  template <std::size_t Rank>
  [[nodiscard]] static constexpr std::size_t stride(std::array<std::size_t, Rank> const& extents,
                                                    std::size_t r) noexcept {
    std::size_t elements = 1;
    for (std::size_t behind = r + 1; behind < Rank; ++behind) elements *= extents[behind];
    return elements;
  }
  /// Elements before the one at `index`; the outermost extent takes no part. @pre Each index is in its
  /// extent.
  template <std::size_t Rank>
  [[nodiscard]] static constexpr std::size_t offset(std::array<std::size_t, Rank> const& extents,
                                                    std::array<std::size_t, Rank> const& index) noexcept {
    std::size_t elements = 0;
    for (std::size_t r = 0; r != Rank; ++r) elements = elements * extents[r] + index[r];
    return elements;
  }
};

/// The layout in which the first index moves fastest, as in Fortran, BLAS and LAPACK.
///
/// The stride of a dimension is the product of the extents before it. Complexity: O(rank). Thread-safe.
struct column_major {
#ifdef __cpp_lib_mdspan
  using mdspan_layout = std::layout_left;
#endif
  /// Elements from one index of dimension `r` to the next. @pre `r < Rank`.
  template <std::size_t Rank>
  [[nodiscard]] static constexpr std::size_t stride(std::array<std::size_t, Rank> const& extents,
                                                    std::size_t r) noexcept {
    std::size_t elements = 1;
    for (std::size_t before = 0; before != r; ++before) elements *= extents[before];
    return elements;
  }
  /// Elements before the one at `index`; the last extent takes no part. @pre Each index is in its extent.
  template <std::size_t Rank>
  [[nodiscard]] static constexpr std::size_t offset(std::array<std::size_t, Rank> const& extents,
                                                    std::array<std::size_t, Rank> const& index) noexcept {
    std::size_t elements = 0;
    for (std::size_t r = Rank; r != 0; --r) elements = elements * extents[r - 1] + index[r - 1];
    return elements;
  }
};

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
/// always. A view of rank 1 is a range besides, and becomes a `std::span` by itself. Where there is
/// `std::mdspan`, any view becomes one.
///
/// Constness is that of a pointer: elements of a `tensor_view<double, 1> const` can be written, those of a
/// `tensor_view<double const, 1>` cannot.
///
/// Invariant: the elements are `[first_, first_ + size())`; `first_` may be null only where `size()` is 0.
///
/// An access to elements or memory first asks the view's life, and throws what that throws; questions about
/// the shape do not, so that a message can be made of a view whose memory is gone. Without
/// checks only `reshape` throws. Complexity: O(rank), no allocation. Thread-safety: that of a pointer.
///
/// @tparam T the elements; `T const` where they are only read
/// @tparam Rank number of dimensions; a view of rank 0 is of one element
/// @tparam Layout `row_major` or `column_major`
/// @tparam Life what knows whether the memory is still there
template <class T, std::size_t Rank, class Layout = row_major,
          detail::view_life Life = detail::unchecked_life>
class TIDEMARK_POINTER tensor_view {
  static_assert(std::is_object_v<T> && !std::is_array_v<T>, "a tensor_view is of objects that are no arrays");
  static_assert(std::same_as<Layout, row_major> || std::same_as<Layout, column_major>,
                "the layout of a tensor_view is row_major or column_major");

 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using size_type = std::size_t;
  using index_type = std::size_t;
  using rank_type = std::size_t;
  using reference = T&;
  using data_handle_type = T*;
  using layout_type = Layout;

  /// Of nothing: all extents are 0. One of rank 0 is null, and has no element either.
  constexpr tensor_view() noexcept = default;
  /// @param first the first of as many elements as the extents have; may be null if that is none
  /// @param extents elements along each dimension; their product must fit into a std::size_t
  /// @param life of the memory
  constexpr tensor_view(T* first, std::array<std::size_t, Rank> const& extents,
                        Life life = {}) noexcept(std::is_nothrow_move_constructible_v<Life>)
      : first_{first}, extents_{extents}, life_{static_cast<Life&&>(life)} {}
  /// The same elements, to be read only.
  template <class Other>
    requires(!std::same_as<Other, T> && std::is_convertible_v<Other (*)[], T (*)[]>)
  constexpr tensor_view(tensor_view<Other, Rank, Layout, Life> const& other) noexcept(
      std::is_nothrow_copy_constructible_v<Life>)
      : first_{other.first_}, extents_{other.extents_}, life_{other.life_} {}
  /// The same elements, without a look at whether they are still there from now on: so that a function that
  /// takes `tensor_view<double, 2>` takes views of a checked workspace too. @throws what `OtherLife` throws.
  template <class Other, class OtherLife>
    requires(OtherLife::checks && !Life::checks && std::is_convertible_v<Other (*)[], T (*)[]>)
  constexpr tensor_view(tensor_view<Other, Rank, Layout, OtherLife> const& other)
      : first_{other.data()}, extents_{other.extents()} {}

  /// Number of dimensions.
  [[nodiscard]] static constexpr std::size_t rank() noexcept { return Rank; }
  /// Elements along dimension `r`. @pre `r < Rank`.
  [[nodiscard]] constexpr std::size_t extent(std::size_t r) const noexcept { return extents_[r]; }
  /// Elements along each dimension.
  [[nodiscard]] constexpr std::array<std::size_t, Rank> const& extents() const noexcept { return extents_; }
  /// Elements from one index of dimension `r` to the next. @pre `r < Rank`.
  [[nodiscard]] constexpr std::size_t stride(std::size_t r) const noexcept {
    return Layout::stride(extents_, r);
  }
  /// All elements: the product of the extents; at rank 0 it is 1, or 0 if the view is of nothing.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    if constexpr (Rank == 0) return first_ != nullptr ? 1 : 0;
    std::size_t elements = 1;
    for (std::size_t const extent : extents_) elements *= extent;
    return elements;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return size() == 0; }
  /// What knows whether the memory is still there.
  [[nodiscard]] constexpr Life const& life() const noexcept { return life_; }

  /// The first element; null if the view is of nothing. @throws what `Life` throws; the view stays as it is.
  [[nodiscard]] constexpr T* data() const noexcept(!Life::checks) {
    if constexpr (Life::checks) life_.require_live(detail::element_name<T>, extents_.data(), Rank);
    return first_;
  }
  /// The same under std::mdspan's name. @throws as `data`.
  [[nodiscard]] constexpr T* data_handle() const noexcept(!Life::checks) { return data(); }
  /// All elements in the order of memory. @throws as `data`.
  [[nodiscard]] constexpr std::span<T> elements() const noexcept(!Life::checks) { return {data(), size()}; }

  /// An element. @param index one for each dimension, of any integral types
  /// @pre Each is in its extent: `0 <= index < extent(r)`. @throws as `data`.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr T& operator()(Index... index) const noexcept(!Life::checks) {
    return at({static_cast<std::size_t>(index)...});
  }
#ifdef __cpp_multidimensional_subscript
  /// The same. @pre, @throws as there.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr T& operator[](Index... index) const noexcept(!Life::checks) {
    return at({static_cast<std::size_t>(index)...});
  }
#else
  /// The same, with the one index that such an operator takes in C++20. @pre, @throws as there.
  template <std::integral Index>
    requires(Rank == 1)
  [[nodiscard]] constexpr T& operator[](Index index) const noexcept(!Life::checks) {
    return at({static_cast<std::size_t>(index)});
  }
#endif
  /// The same, with all indices in one array. @pre, @throws as there.
  template <std::integral Index>
  [[nodiscard]] constexpr T& operator[](std::array<Index, Rank> const& index) const noexcept(!Life::checks) {
    std::array<std::size_t, Rank> unsigned_index{};
    for (std::size_t r = 0; r != Rank; ++r) unsigned_index[r] = static_cast<std::size_t>(index[r]);
    return at(unsigned_index);
  }

  /// The elements as a range. @throws as `data`.
  [[nodiscard]] constexpr T* begin() const noexcept(!Life::checks)
    requires(Rank == 1)
  {
    return data();
  }
  [[nodiscard]] constexpr T* end() const noexcept(!Life::checks)
    requires(Rank == 1)
  {
    return data() + size();
  }

#ifdef __cpp_lib_mdspan
  /// The std::mdspan of the same elements. It knows nothing of their life. @throws as `data`.
  [[nodiscard]] constexpr auto mdspan() const noexcept(!Life::checks) {
    return std::mdspan<T, std::dextents<std::size_t, Rank>, typename Layout::mdspan_layout>{data(), extents_};
  }
  [[nodiscard]] constexpr explicit
  operator std::mdspan<T, std::dextents<std::size_t, Rank>, typename Layout::mdspan_layout>() const
      noexcept(!Life::checks) {
    return mdspan();
  }
#endif

  /// The same elements in the order of memory, with other extents: same layout, same life, which is asked at
  /// the new view's first access only.
  ///
  /// @param extents elements along each dimension, of any integral types; without any the new rank is 0
  /// @throws std::invalid_argument if one is negative, or if that is another number of elements, with a
  /// sentence that says which; the view stays as it is
  template <std::integral... Extent>
  [[nodiscard]] constexpr tensor_view<T, sizeof...(Extent), Layout, Life> reshape(Extent... extents) const {
    return reshaped(detail::checked_extents(extents...));
  }
  /// The same with all extents in one array. @throws as there.
  template <std::integral Extent, std::size_t NewRank>
  [[nodiscard]] constexpr tensor_view<T, NewRank, Layout, Life> reshape(
      std::array<Extent, NewRank> const& extents) const {
    return reshaped(detail::checked_extents(extents));
  }

 private:
  template <class, std::size_t, class, detail::view_life>
  friend class tensor_view;

  [[nodiscard]] constexpr T& at(std::array<std::size_t, Rank> const& index) const noexcept(!Life::checks) {
    return data()[Layout::offset(extents_, index)];
  }
  template <std::size_t NewRank>
  [[nodiscard]] constexpr tensor_view<T, NewRank, Layout, Life> reshaped(
      std::array<std::size_t, NewRank> const& extents) const {
    detail::require_same_count(detail::element_name<T>, extents_.data(), Rank, size(), extents.data(),
                               NewRank);
    return {first_, extents, life_};
  }

  T* first_ = nullptr;
  std::array<std::size_t, Rank> extents_{};  // elements along each dimension, the outermost first
  [[no_unique_address]] Life life_;
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
template <class Layout = row_major, class T, std::size_t Size, std::integral... Extent>
[[nodiscard]] constexpr tensor_view<T, sizeof...(Extent), Layout> reshape(std::span<T, Size> elements,
                                                                          Extent... extents) {
  return tensor_view<T, 1, Layout>{elements.data(), {elements.size()}}.reshape(extents...);
}
/// The same with all extents in one array. @throws as there.
template <class Layout = row_major, class T, std::size_t Size, std::integral Extent, std::size_t Rank>
[[nodiscard]] constexpr tensor_view<T, Rank, Layout> reshape(std::span<T, Size> elements,
                                                             std::array<Extent, Rank> const& extents) {
  return tensor_view<T, 1, Layout>{elements.data(), {elements.size()}}.reshape(extents);
}

}  // namespace tidemark

/// A view of rank 1 is a range that is cheap to copy, and whose iterators outlive it.
template <class T, class Layout, tidemark::detail::view_life Life>
inline constexpr bool std::ranges::enable_view<tidemark::tensor_view<T, 1, Layout, Life>> = true;
template <class T, class Layout, tidemark::detail::view_life Life>
inline constexpr bool std::ranges::enable_borrowed_range<tidemark::tensor_view<T, 1, Layout, Life>> = true;

static_assert(std::is_convertible_v<tidemark::tensor_view<double, 1>, std::span<double>> &&
                  std::is_convertible_v<tidemark::tensor_view<double, 1> const, std::span<double const>>,
              "a function that takes a std::span takes a view of rank 1");
