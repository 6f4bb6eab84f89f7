// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/thread_ownership.hpp>

#include <atomic>

namespace tidemark::detail {

unsigned long long next_identity() noexcept {
  static std::atomic<unsigned long long> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

unsigned long long this_thread_number() noexcept {
  thread_local const unsigned long long number = next_identity();
  return number;
}

}  // namespace tidemark::detail
