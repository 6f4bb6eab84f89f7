// SPDX-License-Identifier: Apache-2.0
/// @file
/// `over_aligned`: blocks of the driver's that were made larger so that a part of them is aligned. Owns its
/// records, not the blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include <tidemark/cuda/block_kind.hpp>

namespace tidemark::cuda::detail {

/// Where blocks begin of which an aligned part was handed out: the driver aligns to 256 bytes and wants its
/// own address back, and nothing can be written beside the part.
///
/// Complexity: O(log(parts handed out)). Any thread.
class over_aligned {
 public:
  /// A record that is not in use yet.
  using record = std::map<std::uintptr_t, std::uintptr_t>::node_type;

  /// Bytes to ask the driver for so that `bytes` of them, or one, are aligned to `align`; 0 if no block can
  /// be so large.
  [[nodiscard]] static std::size_t room(std::size_t bytes, std::size_t align) noexcept;

  /// A record, so that nothing needs memory once there is a block. @throws std::bad_alloc.
  [[nodiscard]] static record make_record();
  /// The aligned part of a block of `room(bytes, align)` bytes. @pre `align > driver_block_alignment`.
  [[nodiscard]] std::uintptr_t part_of(std::uintptr_t block, std::size_t align, record made) noexcept;
  /// The block of a part, which is forgotten. @pre it is one.
  [[nodiscard]] std::uintptr_t block_of(std::uintptr_t part) noexcept;

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> blocks_;  // by part
};

}  // namespace tidemark::cuda::detail
