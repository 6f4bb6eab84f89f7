// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_returns`: when blocks that other streams used return to the memory of one stream. Owns events.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/cuda/driver/detail/event_stock.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// A deallocated block.
struct returned_block {
  void* block;
  std::size_t bytes, align;
};

/// Receiver of the blocks. The functions are called without a lock.
struct block_receiver {
  /// Later work of the stream may use the block.
  void (*free_now)(void* context, returned_block const& block) noexcept;
  /// It may do so when the fence is done.
  void (*free_behind)(void* context, returned_block const& block, reuse_fence fence) noexcept;
  void* context;
};

/// Takes blocks back for the memory of one stream, according to the stream that used them last:
///
/// - the own stream: the block is free at once, because later work comes behind;
/// - another stream: the block is free behind an event of that stream;
/// - a stream that is capturing: the block is in a graph. It is *held*, and counts as live, until
///   `release_held` with `captured_too`;
/// - the legacy stream beside a capture of a blocking stream, where no event may be recorded: held until a
///   later `release_held`.
///
/// Complexity: O(1); `release_held` O(held blocks). Thread-safety: any thread.
class stream_returns {
 public:
  /// @param device of all streams
  /// @param name in messages
  /// @param bookkeeping memory for records; it is called under this object's locks and must not call back
  stream_returns(driver& driver, device_number device, stream_handle stream, char const* name,
                 std::pmr::memory_resource* bookkeeping, block_receiver const& receiver)
      : driver_{&driver},
        device_{device},
        stream_{stream},
        name_{name},
        receiver_{receiver},
        events_{driver, device, stream, name, bookkeeping},
        held_{bookkeeping} {}

  /// Passes a block on, or holds it. If no event can be recorded the calling thread waits for `last_used_on`;
  /// if that fails, the block stays live: a warning (`refused_return`).
  void take_back(returned_block const& block, stream_handle last_used_on) noexcept;

  /// Passes on each block that a capture held, if `captured_too`, and takes the others back again. @pre the
  /// graphs have ended, if `captured_too`. @return bytes that captures held.
  std::size_t release_held(bool captured_too) noexcept;

  [[nodiscard]] event_stock& events() noexcept { return events_; }
  [[nodiscard]] event_stock const& events() const noexcept { return events_; }

 private:
  struct held_block {
    returned_block block;
    bool is_captured;  // by a graph; else used by work of the legacy stream
  };

  void hold(returned_block const& block, bool is_captured) noexcept;

  driver* driver_;
  device_number device_;
  stream_handle stream_;
  char const* name_;
  block_receiver receiver_;
  event_stock events_;
  tidemark::detail::fork_safe<> mutex_;  // for what follows
  std::pmr::vector<held_block> held_;
};

}  // namespace tidemark::gpu::detail
