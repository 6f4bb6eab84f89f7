// SPDX-License-Identifier: Apache-2.0
/// @file
/// Concepts of types that lead to memory: keeping and the search for escapes look through them. `call_in`:
/// calls the body of a scope.
#pragma once

#include <concepts>
#include <functional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tidemark::detail {

/// Raw pointers, into a block or to its start.
template <class T>
concept raw_pointer = std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>;
/// `std::unique_ptr`, `std::shared_ptr`, `std::optional`: lead to their pointee.
template <class T>
concept points_to_one = !raw_pointer<T> && !std::ranges::range<T> && requires(T const& thing) {
  { static_cast<bool>(thing) };
  *thing;
};
template <class T>  // std::tuple_size_v is an error for a type without a size
concept tuple_like = !std::ranges::range<T> && requires {
  std::tuple_size<T>::value;  // NOLINT(modernize-type-traits)
};

/// Calls `body(scope)`, or `body()` if it takes no scope.
template <class Scope, class Body>
  requires(std::invocable<Body, Scope&> || std::invocable<Body>)
decltype(auto) call_in(Scope& scope, Body&& body) {
  if constexpr (std::invocable<Body, Scope&>) return std::invoke(std::forward<Body>(body), scope);
  else return std::invoke(std::forward<Body>(body));
}

}  // namespace tidemark::detail
