// SPDX-License-Identifier: Apache-2.0
/// @file
/// `single_writer`: a number that one thread writes and any may read.
#pragma once

#include <atomic>

#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark::detail {

/// A number that one thread writes and any may read. Costs that thread what a plain number does.
///
/// Who reads a number knows what its writer knew when it wrote it: of numbers that go up one after the other,
/// read in the reverse order, none is behind a later one.
template <class T, class Sync = std_atomics>
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
  typename Sync::template atomic<T> value_{0};
};

}  // namespace tidemark::detail
