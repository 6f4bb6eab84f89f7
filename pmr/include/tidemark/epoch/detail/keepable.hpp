// SPDX-License-Identifier: Apache-2.0
/// @file
/// What can be kept: things that hold, or point into, blocks.
#pragma once

#include <memory>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tidemark/core/detail/leads_to_memory.hpp>
#include <tidemark/epoch/detail/storage.hpp>

namespace tidemark::detail {

template <class T>
struct is_keepable;
template <class T>
inline constexpr bool is_keepable_v = is_keepable<std::remove_cvref_t<T>>::value;

template <class T>
inline constexpr bool all_are_keepable = false;
template <template <class...> class Tuple, class... Parts>
inline constexpr bool all_are_keepable<Tuple<Parts...>> = (is_keepable_v<Parts> && ...);

/// What leads to a block by itself.
template <class T>
concept keepable_itself = has_storage<T> || raw_pointer<T>;
template <class T>
concept keepable_range = !keepable_itself<T> && std::ranges::input_range<T const>;

// By specialisation, because nvcc 13.0 fails with an internal error where a branch chooses.
template <class T>
struct is_keepable : std::bool_constant<points_to_one<T>> {};
template <keepable_itself T>
struct is_keepable<T> : std::true_type {};
/// Ranges of keepable things, and contiguous ranges of anything else, whose own storage is kept.
template <keepable_range T>
struct is_keepable<T> : std::bool_constant<std::ranges::contiguous_range<T const> ||
                                           is_keepable_v<std::ranges::range_value_t<T const>>> {};
template <tuple_like T>
  requires(!keepable_itself<T>)
struct is_keepable<T> : std::bool_constant<all_are_keepable<T>> {};

/// Calls `keep(storage const&)` or `keep(void const*)` for every block that `thing` leads to.
template <class T, class Keep>
void for_each_block(T const& thing, Keep const& keep) {
  static_assert(
      is_keepable_v<T>,
      "an epoch keeps buffers, views, pointers and spans, and ranges, tuples and optionals of them");
  if constexpr (has_storage<T>) {
    keep(thing.storage());
  } else if constexpr (raw_pointer<T>) {
    keep(static_cast<void const*>(thing));
  } else if constexpr (std::ranges::input_range<T const>) {
    // An empty span may point to the end of a block, which is the start of the next. An empty container may
    // have storage.
    if constexpr (std::ranges::borrowed_range<T> && std::ranges::contiguous_range<T const>) {
      if (std::ranges::empty(thing)) return;
    }
    if constexpr (is_keepable_v<std::ranges::range_value_t<T const>>) {
      for (auto const& element : thing) for_each_block(element, keep);
    }
    if constexpr (std::ranges::contiguous_range<T const>) {
      keep(static_cast<void const*>(std::to_address(std::ranges::begin(thing))));
    }
  } else if constexpr (points_to_one<T>) {
    if (!thing) return;
    if constexpr (is_keepable_v<decltype(*thing)>) for_each_block(*thing, keep);
    if constexpr (requires { thing.get(); }) keep(static_cast<void const*>(thing.get()));
  } else {
    std::apply([&](auto const&... parts) { (for_each_block(parts, keep), ...); }, thing);
  }
}

}  // namespace tidemark::detail

namespace tidemark {

/// What `epoch::keep` takes.
template <class T>
concept keepable = detail::is_keepable_v<T>;

}  // namespace tidemark
