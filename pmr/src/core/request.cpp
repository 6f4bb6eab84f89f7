// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/request.hpp>

#include <tidemark/core/out_of_memory.hpp>

namespace tidemark::detail {

void throw_too_large(char const* resource, std::size_t bytes, std::size_t align) {
  throw out_of_memory{{.resource = resource,
                       .requested_bytes = bytes,
                       .alignment = align,
                       .largest_bytes = max_block_bytes,
                       .because = "no object is larger than PTRDIFF_MAX bytes"}};
}

}  // namespace tidemark::detail
