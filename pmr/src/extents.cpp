// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/extents.hpp>

#include <stdexcept>
#include <string>

namespace tidemark::detail {

namespace {

std::string elements_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " element" : " elements");
}

}  // namespace

std::string shape_text(char const* element, std::size_t const* extents, std::size_t rank) {
  std::string text = element;
  text += '[';
  for (std::size_t r = 0; r != rank; ++r) {
    if (r != 0) text += ", ";
    text += std::to_string(extents[r]);
  }
  return text += ']';
}

void refuse_extent(long long extent) {
  throw std::invalid_argument("extent " + std::to_string(extent) + " is negative");
}

void refuse_reshape(char const* element, std::size_t const* from, std::size_t from_rank,
                    std::size_t from_count, std::size_t const* to, std::size_t to_rank) {
  std::size_t count = 0;
  std::string const asked =
      element_count(to, to_rank, count) ? std::to_string(count) : "more than can be counted";
  throw std::invalid_argument("reshape: " + shape_text(element, from, from_rank) + " has " +
                              elements_text(from_count) + ", " + shape_text("", to, to_rank) + " has " +
                              asked);
}

}  // namespace tidemark::detail
