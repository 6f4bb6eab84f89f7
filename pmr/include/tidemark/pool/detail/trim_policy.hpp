// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trim_policy`: when a pool that holds free blocks up to a limit returns memory. Owns nothing.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tidemark::detail {

/// Slabs are returned only when all their blocks are free, so that a trim may have to leave some, and look
/// again later. Bytes are those of blocks of the classes. One thread at a time.
class trim_policy {
 public:
  explicit trim_policy(std::size_t max_cached_bytes) noexcept : max_cached_bytes_{max_cached_bytes} {}

  /// What a trim leaves cached that the limit makes due: far below the limit, so that trims are as seldom as
  /// their cost wants.
  [[nodiscard]] std::size_t target_bytes() const noexcept { return max_cached_bytes_ / 2; }
  /// A trim was done, and so much was live then.
  void trimmed(std::size_t live_bytes) noexcept { live_at_trim_ = live_bytes; }

  /// With more than so much cached it is time to trim: the limit, or less if slabs that the last trim could
  /// not return may be all free by then, because half of what was live is freed. Half each time, and no
  /// less than an eighth of the limit, or all of it: a trim walks up to a limit's worth of free blocks, which
  /// what was freed since the last one pays for. A pool that holds no more than its limit never trims before.
  [[nodiscard]] std::size_t due_at(std::size_t cached_bytes, std::size_t live_bytes,
                                   std::size_t stranded_bytes) const noexcept {
    const std::size_t free_then = cached_bytes + live_bytes;  // were everything freed
    if (stranded_bytes == 0 || live_at_trim_ == 0 || free_then + stranded_bytes <= max_cached_bytes_) {
      return max_cached_bytes_;
    }
    const std::size_t step = (std::max)(live_at_trim_ - live_at_trim_ / 2, max_cached_bytes_ / 8);
    const std::size_t live_then = live_at_trim_ - (std::min)(live_at_trim_, step);
    return (std::min)(max_cached_bytes_, free_then - (std::min)(free_then, live_then + 1));
  }

 private:
  std::size_t max_cached_bytes_;
  std::size_t live_at_trim_ = 0;
};

}  // namespace tidemark::detail
