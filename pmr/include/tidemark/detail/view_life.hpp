// SPDX-License-Identifier: Apache-2.0
/// @file
/// `view_life`: what a view knows of the time that its memory is there. Owns nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace tidemark::detail {

/// A policy of `tensor_view` and `bit_view`. A view holds one, copies it along, and asks it before it gives
/// out an element or memory.
///
/// - `Life::checks`: whether it can refuse at all; where it is false the view never calls it and is
///   `noexcept`.
/// - `life.require_live(element, extents, rank)`: returns if the memory is still the view's, else throws. The
///   arguments are there for the message: the elements' name (`element_name`) and the view's shape.
template <class Life>
concept view_life =
    std::copyable<Life> && std::is_nothrow_default_constructible_v<Life> &&
    requires(Life const life, char const* element, std::size_t const* extents, std::size_t rank) {
      { std::bool_constant<Life::checks>::value } -> std::convertible_to<bool>;
      life.require_live(element, extents, rank);
    };

/// Memory that nobody watches: the view is a pointer and a shape. Complexity: none, it compiles to nothing.
/// Thread-safe.
struct unchecked_life {
  static constexpr bool checks = false;
  constexpr void require_live(char const* /*element*/, std::size_t const* /*extents*/,
                              std::size_t /*rank*/) const noexcept {}
};

static_assert(view_life<unchecked_life>);
static_assert(std::is_empty_v<unchecked_life>, "a view without checks pays nothing for them");

}  // namespace tidemark::detail
