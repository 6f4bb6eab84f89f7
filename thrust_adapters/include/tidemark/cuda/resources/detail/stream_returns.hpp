// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_returns`: returns blocks that other streams used to the memory of one stream. Owns events.
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

/// Receiver of the blocks. Its functions are called without a lock.
struct block_receiver {
  /// Called if later work of the stream may use the block.
  void (*free_now)(void* context, returned_block const& block) noexcept;
  /// Called if later work of the stream may use the block after the fence.
  void (*free_behind)(void* context, returned_block const& block, reuse_fence fence) noexcept;
  void* context;
};

/// Returns blocks to the memory of one stream, depending on the stream that used them last:
///
/// - the own stream: the block is free at once, because later work runs behind.
/// - another stream: the block is free behind an event of that stream.
/// - a capturing stream: the block belongs to a graph. It is *held*, and counts as live, until `release_held`
///   with `captured_too`.
/// - the legacy stream beside a capture of a blocking stream: no event may be recorded, and the block is held
///   until a later `release_held`.
///
/// Complexity: O(1); `release_held` O(held blocks). Thread-safety: any thread.
class stream_returns {
 public:
  /// @param device device of all streams
  /// @param name name in messages
  /// @param bookkeeping memory for records; called under this object's locks, and must not call back
  stream_returns(driver& driver, device_number device, stream_handle stream, char const* name,
                 std::pmr::memory_resource* bookkeeping, block_receiver const& receiver)
      : driver_{&driver},
        device_{device},
        stream_{stream},
        name_{name},
        receiver_{receiver},
        events_{driver, device, stream, name, bookkeeping},
        held_{bookkeeping} {}

  /// Passes a block on, or holds it. If no event can be recorded, the calling thread waits for
  /// `last_used_on`; if the wait fails, the block stays live, with a warning (`refused_return`).
  void route_return(returned_block const& block, stream_handle last_used_on) noexcept;

  /// Passes on all blocks of captures if `captured_too`, and tries the other held blocks again. @pre The
  /// graphs have ended if `captured_too`. @return bytes of the captures' blocks
  std::size_t release_held(bool captured_too) noexcept;

  [[nodiscard]] event_stock& events() noexcept { return events_; }
  [[nodiscard]] event_stock const& events() const noexcept { return events_; }

 private:
  struct held_block {
    returned_block block;
    bool is_captured;  // in a graph; else used by work of the legacy stream
  };

  void hold(returned_block const& block, bool is_captured) noexcept;

  driver* driver_;
  device_number device_;
  stream_handle stream_;
  char const* name_;
  block_receiver receiver_;
  event_stock events_;
  tidemark::detail::fork_safe<> mutex_;  // protects the members below
  std::pmr::vector<held_block> held_;
};

}  // namespace tidemark::gpu::detail
