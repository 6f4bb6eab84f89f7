// SPDX-License-Identifier: Apache-2.0
/// @file
/// `element_name`: what messages call the elements of a view. Static texts.
#pragma once

#include <array>
#include <bit>
#include <complex>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace tidemark::detail {

/// The compiler's text on this function, in which the name of `T` is the only part that varies.
template <class T>
constexpr std::string_view text_with_type() noexcept {
  return static_cast<char const*>(__PRETTY_FUNCTION__);
}

// Where the name is in that text differs from compiler to compiler, and is found with a type whose name is
// known.
inline constexpr std::size_t before_type = text_with_type<double>().rfind("double");
static_assert(before_type != std::string_view::npos,
              "this compiler's __PRETTY_FUNCTION__ must name the type");
inline constexpr std::size_t around_type =
    text_with_type<double>().size() - std::string_view{"double"}.size();

/// The C++ name of a type as a text that ends with 0, which a part of the compiler's own text does not.
template <class T>
inline constexpr auto spelled_name = [] {
  constexpr std::string_view text = text_with_type<T>();
  std::array<char, text.size() - around_type + 1> name{};
  for (std::size_t i = 0; i + 1 < name.size(); ++i) name[i] = text[before_type + i];
  return name;
}();

template <class T>
constexpr char const* integer_name() noexcept {
  constexpr std::array names{"uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"};
  return names[static_cast<std::size_t>(std::countr_zero(sizeof(T))) + (std::is_signed_v<T> ? 4 : 0)];
}

template <class T>
constexpr char const* name_of_element() noexcept {
  if constexpr (std::same_as<T, bool>) return "bool";
  else if constexpr (std::same_as<T, float>) return "float32";
  else if constexpr (std::same_as<T, double>) return "float64";
  else if constexpr (std::same_as<T, std::complex<float>>) return "complex64";
  else if constexpr (std::same_as<T, std::complex<double>>) return "complex128";
  else if constexpr (std::integral<T> && sizeof(T) <= 8) return integer_name<T>();
  else return spelled_name<T>.data();
}

/// The name of `T`, const and volatile aside, as numerical users say it: `float64`, `float32`, `int64` to
/// `int8`, `uint64` to `uint8`, `complex64`, `complex128`, `bool`. Any other type goes by its C++ name as the
/// compiler spells it. Ends with 0. Complexity: none, it is made while compiling. Thread-safe.
template <class T>
inline constexpr char const* element_name = name_of_element<std::remove_cv_t<T>>();

}  // namespace tidemark::detail
