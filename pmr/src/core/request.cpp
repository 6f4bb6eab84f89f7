// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/request.hpp>

#include <bit>
#include <stdexcept>
#include <string>

#include <tidemark/core/out_of_memory.hpp>

namespace tidemark::detail {

void throw_too_large(char const* resource, std::size_t bytes, std::size_t align) {
  throw out_of_memory{{.resource = resource,
                       .requested_bytes = bytes,
                       .alignment = align,
                       .largest_bytes = max_block_bytes,
                       .because = "no object is larger than PTRDIFF_MAX bytes"}};
}

void require_power_of_two(char const* kind, char const* name, std::size_t align) {
  if (std::has_single_bit(align)) return;
  throw std::invalid_argument(std::string{kind} + " '" + name_or(name, kind) + "': alignment " +
                              std::to_string(align) + " is not a power of two");
}

}  // namespace tidemark::detail
