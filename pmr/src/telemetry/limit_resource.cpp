// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/limit_resource.hpp>

#include <tidemark/core/out_of_memory.hpp>

namespace tidemark {

void limit_resource::throw_over_limit(std::size_t bytes, std::size_t align) {
  counter_.refused();
  const std::size_t used = claimed_bytes_.load(std::memory_order_relaxed);
  const std::size_t limit = limit_bytes();
  throw out_of_memory({.resource = name(),
                       .requested_bytes = bytes,
                       .alignment = align,
                       .used_bytes = used,
                       .committed_bytes = limit,
                       .reserved_bytes = limit,
                       .largest_bytes = used < limit ? limit - used : 0});
}

}  // namespace tidemark
