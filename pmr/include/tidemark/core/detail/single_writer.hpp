// SPDX-License-Identifier: Apache-2.0
/// @file
/// `single_writer`: a number that one thread writes and any may read.
#pragma once

#include <atomic>

namespace tidemark::detail {

/// A number that one thread writes and any may read. Costs that thread what a plain number does.
template <class T>
class single_writer {  // NOLINT(performance-trivially-destructible): it is, but not through a module
 public:
  [[nodiscard]] T value() const noexcept { return value_.load(std::memory_order_acquire); }
  void set(T value) noexcept { value_.store(value, std::memory_order_release); }
  /// Adds, and returns the sum. Unsigned numbers may wrap.
  T add(T more) noexcept {
    const T sum = value_.load(std::memory_order_relaxed) + more;
    set(sum);
    return sum;
  }
  T subtract(T less) noexcept { return add(T{0} - less); }

 private:
  std::atomic<T> value_{0};
};

}  // namespace tidemark::detail
