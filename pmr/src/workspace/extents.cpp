// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/detail/shaped_view.hpp>

#include <stdexcept>
#include <string>

namespace tidemark::detail {

std::string place_text(std::source_location where) {
  return std::string{where.file_name()} + ":" + std::to_string(where.line());
}

std::string shape_text(char const* element, std::span<std::size_t const> extents) {
  std::string text = element;
  char const* separator = "[";
  for (std::size_t const extent : extents) {
    text += separator + std::to_string(extent);
    separator = ", ";
  }
  return text += extents.empty() ? "[]" : "]";
}

void reject_extent(long long extent) {
  throw std::invalid_argument("extent " + std::to_string(extent) + " is negative");
}

void reject_reshape(char const* element, std::span<std::size_t const> from, std::size_t count,
                    std::span<std::size_t const> to) {
  const std::size_t requested = element_count(to);
  throw std::invalid_argument(
      "reshape: " + shape_text(element, from) + " has " + std::to_string(count) +
      (count == 1 ? " element, " : " elements, ") + shape_text("", to) + " has " +
      (requested == uncountable ? "more than can be counted" : std::to_string(requested)));
}

}  // namespace tidemark::detail
