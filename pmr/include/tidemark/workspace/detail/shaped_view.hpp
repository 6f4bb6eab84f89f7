// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shaped_view`: what `tensor_view` and `bit_view` have in common. Owns nothing.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <tuple>

#include <tidemark/workspace/detail/extents.hpp>
#include <tidemark/workspace/detail/generation.hpp>

namespace tidemark::detail {

/// A pointer to the first word, and the extents: shape, indices and reshaping of a view.
///
/// An access to elements or memory first calls the view's generation, and throws what that throws; questions
/// about the shape do not. Complexity: O(rank), no allocation.
/// @tparam View derives from this, and has `element_name`, `element_at(offset)` and `with_rank<Rank>`
/// @tparam Word what the pointer is to
template <class View, class Word, std::size_t Rank, class Layout, view_generation Generation>
class shaped_view {
 public:
  using size_type = std::size_t;
  using index_type = std::size_t;
  using rank_type = std::size_t;

  /// Number of dimensions.
  [[nodiscard]] static constexpr std::size_t rank() noexcept { return Rank; }
  /// Elements along dimension `r`. @pre `r < Rank`.
  [[nodiscard]] constexpr std::size_t extent(std::size_t r) const noexcept { return extents_[r]; }
  /// Elements along each dimension.
  [[nodiscard]] constexpr std::array<std::size_t, Rank> const& extents() const noexcept { return extents_; }
  /// All elements: the product of the extents; at rank 0 it is 1, or 0 if the view is of nothing.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    if constexpr (Rank == 0) return first_ != nullptr ? 1 : 0;
    std::size_t elements = 1;
    for (std::size_t const extent : extents_) elements *= extent;
    return elements;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return size() == 0; }
  /// What knows whether the memory is still there.
  [[nodiscard]] constexpr Generation const& generation() const noexcept { return generation_; }

  /// An element. @param index one for each dimension, of any integral types
  /// @pre Each is in its extent: `0 <= index < extent(r)`.
  /// @throws what `Generation` throws; the view stays as it is.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr decltype(auto) operator()(Index... index) const noexcept(!Generation::checks) {
    return static_cast<View const&>(*this).element_at(
        Layout::offset(extents_, {static_cast<std::size_t>(index)...}));
  }
#ifdef __cpp_multidimensional_subscript
  /// The same. @pre, @throws as there.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr decltype(auto) operator[](Index... index) const noexcept(!Generation::checks) {
    return (*this)(index...);
  }
#else
  /// The same, with the one index that such an operator takes in C++20. @pre, @throws as there.
  template <std::integral Index>
    requires(Rank == 1)
  [[nodiscard]] constexpr decltype(auto) operator[](Index index) const noexcept(!Generation::checks) {
    return (*this)(index);
  }
#endif
  /// The same, with all indices in one array. @pre, @throws as there.
  template <std::integral Index>
  [[nodiscard]] constexpr decltype(auto) operator[](std::array<Index, Rank> const& index) const
      noexcept(!Generation::checks) {
    return std::apply([this](auto... each) -> decltype(auto) { return (*this)(each...); }, index);
  }

  /// The same elements in the order of memory, with other extents: same layout and generation, which is
  /// checked at the new view's first access only.
  ///
  /// @param extents elements along each dimension, of any integral types, or all in one array; without any
  /// the new rank is 0
  /// @throws std::invalid_argument if one is negative, or if that is another number of elements, with a
  /// sentence that says which; the view stays as it is
  template <class... Extents>
    requires shape_extents<Extents...>
  [[nodiscard]] constexpr auto reshape(Extents const&... extents) const {
    auto const shape = checked_extents(extents...);
    if (element_count(shape) != size()) [[unlikely]]
      reject_reshape(View::element_name, extents_, size(), shape);
    return typename View::template with_rank<shape.size()>{first_, shape, generation_};
  }

 protected:
  constexpr shaped_view() noexcept = default;
  constexpr shaped_view(Word* first, std::array<std::size_t, Rank> const& extents,
                        Generation generation) noexcept
      : first_{first}, extents_{extents}, generation_{generation} {}

  /// The first word, if it is still there.
  [[nodiscard]] constexpr Word* access() const noexcept(!Generation::checks) {
    if constexpr (Generation::checks) generation_.require_live(View::element_name, extents_);
    return first_;
  }

  Word* first_ = nullptr;                    // null only where size() is 0
  std::array<std::size_t, Rank> extents_{};  // elements along each dimension, the outermost first
  [[no_unique_address]] Generation generation_;
};

}  // namespace tidemark::detail
