// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pending_work`: how other threads post work to the one that uses a cache of blocks. Owns nothing.
#pragma once

#include <cstddef>
#include <limits>

#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark::detail {

/// The trims that were requested and are not done yet: of several, the one with the least target counts.
///
/// Any thread.
template <class Sync>
class basic_trim_requests {
 public:
  static constexpr std::size_t none = (std::numeric_limits<std::size_t>::max)();

  /// Requests a trim, or none.
  // Sequentially consistent: a target that the owner has taken in the meantime must not be read, because the
  // new one would be left out for its sake.
  void add(std::size_t target_bytes) noexcept {
    std::size_t least = least_.load();
    while (target_bytes < least && !least_.compare_exchange_weak(least, target_bytes)) {
    }
  }
  /// Takes all of them. @return the least target, to which the caller trims; `none` if there are none.
  [[nodiscard]] std::size_t take() noexcept { return least_.exchange(none); }
  /// Removes all of them if a trim to this target, which the caller does after this, serves the least.
  void remove_served(std::size_t target_bytes) noexcept {
    std::size_t least = least_.load();
    while (target_bytes <= least && least != none && !least_.compare_exchange_weak(least, none)) {
    }
  }
  /// The least target; `none` if there are none.
  [[nodiscard]] std::size_t least_target_bytes() const noexcept { return least_.load(); }

 private:
  Sync::template atomic<std::size_t> least_{none};
};
using trim_requests = basic_trim_requests<std_atomics>;

/// Work for the owner of a cache, which it finds by a comparison that its fast path makes anyway: of the
/// alignment with the largest that is served, which is 0 while work is pending (decision 9).
///
/// `serves`, `take` and `take_trim`: the owner. All else: any thread.
template <class Sync>
class basic_pending_work {
 public:
  /// @param max_align what the fast path serves while nothing is pending
  explicit basic_pending_work(std::size_t max_align) noexcept : max_align_{max_align} {}

  /// Whether the fast path serves the alignment.
  [[nodiscard]] bool serves(std::size_t align) const noexcept {
    return align <= max_align_.load(std::memory_order_relaxed);
  }
  /// The owner comes to its slow path in its next call.
  void post() noexcept { max_align_.store(0); }  // no alignment is so small
  /// The same, and trims to `target_bytes` there, or to less.
  void post_trim(std::size_t target_bytes) noexcept {
    trims_.add(target_bytes);  // first: the owner looks for it once it has taken what was posted
    post();
  }
  [[nodiscard]] bool is_posted() const noexcept { return max_align_.load(std::memory_order_relaxed) == 0; }
  /// Takes what was posted; the fast path goes on. @return whether anything was, since the last call.
  [[nodiscard]] bool take(std::size_t max_align) noexcept {
    return is_posted() && max_align_.exchange(max_align) == 0;
  }
  /// After `take`. @return the target of the trim to do; `trim_requests::none` if there is none.
  [[nodiscard]] std::size_t take_trim() noexcept { return trims_.take(); }

 private:
  Sync::template atomic<std::size_t> max_align_;
  basic_trim_requests<Sync> trims_;
};
using pending_work = basic_pending_work<std_atomics>;

}  // namespace tidemark::detail
