// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kinds of things that lead to memory: what keeping and the search for escapes look through.
#pragma once

#include <ranges>
#include <tuple>
#include <type_traits>

namespace tidemark::detail {

/// Raw pointers, into a block or to its start.
template <class T>
concept raw_pointer = std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>;
/// `std::unique_ptr`, `std::shared_ptr`, `std::optional`: they lead to what they point to.
template <class T>
concept points_to_one = !raw_pointer<T> && !std::ranges::range<T> && requires(T const& thing) {
  { static_cast<bool>(thing) };
  *thing;
};
template <class T>  // not std::tuple_size_v, which is an error where there is no size
concept tuple_like = !std::ranges::range<T> && requires {
  std::tuple_size<T>::value;  // NOLINT(modernize-type-traits)
};

}  // namespace tidemark::detail
