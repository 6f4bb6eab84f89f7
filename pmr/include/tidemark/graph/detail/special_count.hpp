// SPDX-License-Identifier: Apache-2.0
/// @file
/// `special_count`: whether a `capture_switch` has more to do with a block than to forward it.
#pragma once

#include <atomic>
#include <cstddef>

#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark::detail {

/// How many records, baked sets and known arenas a switch has: written with its lock held, read without it.
///
/// Who has a block of one of them learnt of it from a thread that saw the count after it, so reads no 0 while
/// it is there.
template <class Sync>
class basic_special_count {
 public:
  /// Whether there are any. Any thread.
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] std::size_t value() const noexcept { return count_.load(std::memory_order_acquire); }
  /// @pre the lock is held in which they were counted
  void set(std::size_t count) noexcept { count_.store(count, std::memory_order_release); }

 private:
  Sync::template atomic<std::size_t> count_{0};
};
using special_count = basic_special_count<std_atomics>;

}  // namespace tidemark::detail
