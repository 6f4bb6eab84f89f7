// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/buffer_view.hpp>

#include <stdexcept>
#include <string>

namespace tidemark::detail {

void refuse_view(std::size_t offset, std::size_t count, std::size_t size) {
  throw std::out_of_range("buffer: elements " + std::to_string(offset) + " to " +
                          std::to_string(offset + count) + " of " + std::to_string(size));
}

}  // namespace tidemark::detail
