// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cache_share`: how much one thread may cache of a `synchronized_pool`. Owns nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>

#include <tidemark/core/units.hpp>

namespace tidemark::detail {

/// The limit of a thread's cache.
///
/// One rule: a cache may hold `start_bytes`, and the bytes that its thread has taken from others and not left
/// to them, but never more than a thread's share of the pool's limit. A thread that frees its own blocks
/// caches all of them, up to the share. A thread that frees the blocks of others passes them on instead: they
/// are needed elsewhere.
///
/// Everything else follows from the limit: a chain has a quarter of it, and the cache is full where half a
/// chain more does not fit. The lists report at a watermark, half a chain above their bytes at the last look,
/// or at `look_at` if the pool wants a look before. Heap blocks get the rest of the limit.
///
/// Invariant: `start <= limit() <= share` where `start` is `start_bytes`, or the share if
/// that is less. The thread alone uses it; the share may change meanwhile.
class cache_share {
 public:
  static constexpr std::size_t start_bytes = 256 * KiB;
  static constexpr std::size_t never = (std::numeric_limits<std::size_t>::max)();

  /// @param share bytes for each thread; the pool's, which outlives this object
  explicit cache_share(std::atomic<std::size_t> const& share) noexcept : share_{&share} {}

  /// Bytes that the cache may hold.
  [[nodiscard]] std::size_t limit() const noexcept {
    const std::size_t share = *share_;
    return (std::min)(share, start_bytes + (std::min)(taken_, share));
  }
  /// Bytes of a chain: few enough to stay in a core's cache on its way from thread to thread.
  [[nodiscard]] std::size_t chain_bytes() const noexcept { return (std::min)(limit() / 4, 256 * KiB); }
  /// Whether the lists may take the cache beyond its limit before they report.
  [[nodiscard]] bool is_full(std::size_t cached_bytes) const noexcept {
    return cached_bytes + chain_bytes() / 2 > limit();
  }

  /// The thread took free bytes from others, or new ones.
  void on_take(std::size_t bytes) noexcept { taken_ += bytes; }
  /// The thread left bytes to others.
  void on_leave(std::size_t bytes) noexcept { taken_ -= (std::min)(taken_, bytes); }
  /// The cache has no blocks any more.
  void forget() noexcept { taken_ = 0; }

  /// The lists report when they hold more than this. @param listed_bytes they hold now
  std::size_t set_watermark(std::size_t listed_bytes) noexcept {
    return watermark_ = (std::min)(look_at_, listed_bytes + chain_bytes() / 2);
  }
  /// The lists report when they hold more than this, also if that is less than half a chain; `never`: not
  /// wanted.
  void look_at(std::size_t listed_bytes) noexcept { look_at_ = listed_bytes; }
  /// Bytes of heap blocks that fit beside the lists.
  [[nodiscard]] std::size_t heap_bytes() const noexcept {
    const std::size_t most = limit();
    return most - (std::min)(most, watermark_);
  }

 private:
  std::atomic<std::size_t> const* share_;
  std::size_t taken_ = 0;  // from others, less what was left to them
  std::size_t watermark_ = 0;
  std::size_t look_at_ = never;
};

}  // namespace tidemark::detail
