// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tensor_view`: a view of elements as an array of some rank. Does not own the memory.
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

/// A layout without gaps, with the dimensions in memory in order or in reverse.
template <bool LastIsFastest>
struct dense_layout {
#ifdef __cpp_lib_mdspan
  using mdspan_layout = std::conditional_t<LastIsFastest, std::layout_right, std::layout_left>;
#endif
  /// Returns the elements from one index of dimension `r` to the next. @pre `r < Rank`.
  template <std::size_t Rank>
  [[nodiscard]] static constexpr std::size_t stride(std::array<std::size_t, Rank> const& extents,
                                                    std::size_t r) noexcept {
    std::size_t elements = 1;
    for (std::size_t i = LastIsFastest ? r + 1 : 0; i < (LastIsFastest ? Rank : r); ++i)
      elements *= extents[i];
    return elements;
  }
  /// Returns the elements before the element at `index`; does not use the slowest extent. @pre Each index is
  /// in its extent.
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

/// Layout in which the last index moves fastest, as in C and NumPy's default.
///
/// The stride of a dimension is the product of the extents after it. Complexity: O(rank). Thread-safe.
using row_major = detail::dense_layout<true>;

/// Layout in which the first index moves fastest, as in Fortran, BLAS and LAPACK.
///
/// The stride of a dimension is the product of the extents before it. Complexity: O(rank). Thread-safe.
using column_major = detail::dense_layout<false>;

/// Contiguous elements as an array of `Rank` dimensions: a pointer and the extents, without ownership.
///
/// ```cpp
/// std::vector<double> numbers(12);
/// tensor_view<double, 2> const table{numbers.data(), {3, 4}};
/// table(2, 1) = 5;
/// std::cout << table.reshape(12)[9] << '\n';  // 5
/// ```
/// The interface follows `std::mdspan`, which C++20 lacks. `view(i, j)` always
/// compiles; `view[i, j]` needs C++23. A view of rank 1 is also a range and converts to `std::span`.
/// `mdspan()` returns the `std::mdspan` if the standard library has it.
///
/// Constness is as for a pointer: a `tensor_view<double, 1> const` can write its elements, and a
/// `tensor_view<double const, 1>` cannot.
///
/// Invariant: the elements are `[first_, first_ + size())`.
///
/// Access to elements or memory first calls the view's generation and throws its exceptions. Functions on the
/// shape do not, because a message must describe a view whose memory was freed. Without checks only `reshape`
/// throws. Complexity: O(rank), no allocation. Thread-safety: as a pointer.
///
/// @tparam T type of the elements; `T const` for read-only access
/// @tparam Rank number of dimensions; a view of rank 0 has one element
/// @tparam Layout `row_major` or `column_major`
/// @tparam Generation detects that the memory was freed
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

  /// Makes an empty view: all extents are 0. An empty view of rank 0 is null and has no element.
  constexpr tensor_view() noexcept = default;
  /// @param first the first element; may be null if the extents have no elements
  /// @param extents elements along each dimension; their product must fit into a std::size_t
  /// @param generation generation of the memory
  constexpr tensor_view(T* first, std::array<std::size_t, Rank> const& extents,
                        Generation generation = {}) noexcept
      : base{first, extents, generation} {}
  /// Makes a read-only view of the same elements.
  template <class Other>
    requires(!std::same_as<Other, T> && std::is_convertible_v<Other (*)[], T (*)[]>)
  constexpr tensor_view(tensor_view<Other, Rank, Layout, Generation> const& other) noexcept
      : base{other.first_, other.extents(), other.generation()} {}
  /// Makes a view of the same elements without further checks. A function that takes `tensor_view<double, 2>`
  /// therefore also takes views of a checked workspace. @throws the exceptions of `OtherGeneration`.
  template <class Other, class OtherGeneration>
    requires(OtherGeneration::checks && !Generation::checks && std::is_convertible_v<Other (*)[], T (*)[]>)
  constexpr tensor_view(tensor_view<Other, Rank, Layout, OtherGeneration> const& other)
      : base{other.data(), other.extents(), {}} {}

  /// Returns the elements from one index of dimension `r` to the next. @pre `r < Rank`.
  [[nodiscard]] constexpr std::size_t stride(std::size_t r) const noexcept {
    return Layout::stride(this->extents(), r);
  }

  /// Returns the first element; null if the view is empty. @throws the exceptions of `Generation`; the view
  /// does not change then.
  [[nodiscard]] constexpr T* data() const noexcept(!Generation::checks) { return this->access(); }
  /// Returns `data()`, under the name that std::mdspan uses. @throws as `data`.
  [[nodiscard]] constexpr T* data_handle() const noexcept(!Generation::checks) { return data(); }
  /// Returns all elements in the order of memory. @throws as `data`.
  [[nodiscard]] constexpr std::span<T> elements() const noexcept(!Generation::checks) {
    return {data(), this->size()};
  }

  /// Returns the start of the elements as a range. @throws as `data`.
  [[nodiscard]] constexpr T* begin() const noexcept(!Generation::checks)
    requires(Rank == 1)
  {
    return data();
  }
  /// Returns the end of the elements as a range. @throws as `data`.
  [[nodiscard]] constexpr T* end() const noexcept(!Generation::checks)
    requires(Rank == 1)
  {
    return data() + this->size();
  }

#ifdef __cpp_lib_mdspan
  using mdspan_type = std::mdspan<T, std::dextents<std::size_t, Rank>, typename Layout::mdspan_layout>;
  /// Returns the std::mdspan of the same elements, which has no checks. @throws as `data`.
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

/// Returns a view of existing elements with other extents. @tparam Layout `row_major` or `column_major`.
///
/// ```cpp
/// std::vector<double> numbers(12);
/// tensor_view<double, 2> const table = reshape(std::span{numbers}, 3, 4);
/// ```
/// @param elements all elements in the order of memory; the caller keeps the ownership
/// @param extents as for `tensor_view::reshape`. @throws as `tensor_view::reshape`; nothing has changed then.
template <class Layout = row_major, class T, std::size_t Size, class... Extents>
  requires detail::shape_extents<Extents...>
[[nodiscard]] constexpr auto reshape(std::span<T, Size> elements, Extents const&... extents) {
  return tensor_view<T, 1, Layout>{elements.data(), {elements.size()}}.reshape(extents...);
}

}  // namespace tidemark

/// @cond
// A view of rank 1 is a range that is cheap to copy, and its iterators outlive it.
template <class T, class Layout, tidemark::detail::view_generation Generation>
inline constexpr bool std::ranges::enable_view<tidemark::tensor_view<T, 1, Layout, Generation>> = true;
template <class T, class Layout, tidemark::detail::view_generation Generation>
inline constexpr bool std::ranges::enable_borrowed_range<tidemark::tensor_view<T, 1, Layout, Generation>> =
    true;
/// @endcond
