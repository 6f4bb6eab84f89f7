// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/identity.hpp>

#include <atomic>

namespace tidemark::detail {

void const* this_thread_token() noexcept {
  thread_local const char token = 0;
  return &token;
}

unsigned long long next_identity() noexcept {
  static std::atomic<unsigned long long> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace tidemark::detail
