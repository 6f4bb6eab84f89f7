// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_returns`: returns blocks that other streams used to the memory of one stream. Owns events.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/cuda/driver/detail/event_stock.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

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

/// Returns blocks to the memory of one stream, depending on the streams that used them:
///
/// - the own stream: the block is free at once, because later work runs after it.
/// - another stream: the block is free after an event of that stream.
/// - a capturing stream: the block belongs to a graph. It is *held*, and counts as live, until `release_held`
///   with `captured_too`, or `end_captures`.
/// - the legacy stream beside a capture of a blocking stream: no event may be recorded, and the block is held
///   until a later `release_held`.
///
/// Memory of graphs serves one stream after another, whose captures reuse it at once.
///
/// Complexity: O(1); `release_held` and `end_captures` O(held blocks). Thread-safety: any thread.
class stream_returns {
 public:
  /// Own stream of memory that serves no stream.
  static stream_handle no_stream() noexcept { return reinterpret_cast<stream_handle>(~std::uintptr_t{}); }

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
        captured_{bookkeeping},
        waiting_{bookkeeping} {}

  /// Makes this the memory of graphs, whose captures on `stream` reuse it. Events of the legacy stream
  /// must be possible.
  void serve_captures_of(stream_handle stream) noexcept {
    serves_captures_ = true;
    stream_ = stream;
  }

  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }
  [[nodiscard]] bool is_own(stream_handle stream) const noexcept { return is_same_stream(stream, stream_); }

  /// Passes a block on, or holds it. Queries whether each stream captures, also the own one, because captures
  /// that other libraries begin cannot be counted. If no event can be recorded, the calling thread waits for
  /// the stream; if the wait fails, the block stays live, with a warning (`refused_return`).
  void route_return(returned_block const& block, std::span<stream_handle const> used_on) noexcept;
  void route_return(returned_block const& block, stream_handle last_used_on) noexcept {
    route_return(block, {&last_used_on, 1});
  }

  /// Passes on all blocks of captures if `captured_too`, and tries the other held blocks again. @pre The
  /// graphs have ended if `captured_too`. @return bytes of the captures' blocks
  std::size_t release_held(bool captured_too) noexcept;

  /// Passes on blocks that captures held, behind the present work of their streams. Blocks of captures that
  /// have not ended stay held. @pre No later launch uses the blocks.
  void end_captures() noexcept;
  /// Returns the bytes that captures hold. O(held blocks).
  [[nodiscard]] std::size_t captured_bytes() const noexcept;

  [[nodiscard]] event_stock& events() noexcept { return events_; }
  [[nodiscard]] event_stock const& events() const noexcept { return events_; }

 private:
  struct deferred_block {
    returned_block block;
    std::vector<stream_handle> used_on;  // streams of the work
  };
  using deferred_blocks = std::pmr::vector<deferred_block>;

  void defer(returned_block const& block, deferred_blocks& to,
             std::span<stream_handle const> used_on) noexcept;
  [[nodiscard]] deferred_blocks take(deferred_blocks& from) noexcept;

  driver* driver_;
  device_number device_;
  std::atomic<stream_handle> stream_;
  std::atomic<bool> serves_captures_ = false;
  char const* name_;
  block_receiver receiver_;
  event_stock events_;
  mutable tidemark::detail::fork_safe<> mutex_;  // protects the members below
  deferred_blocks captured_;                     // in a graph
  deferred_blocks waiting_;                      // used by work of the legacy stream
};

}  // namespace tidemark::gpu::detail
