// SPDX-License-Identifier: Apache-2.0
/// @file
/// `waiting_upstream`: returns blocks to an upstream after the work of a stream on them. Owns blocks that it
/// could not return yet.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <vector>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// Blocks that were deallocated while no block may be returned, such as during a capture. Each allocation
/// reserves room for its block, because a deallocation must not need memory.
///
/// Invariant: `waiting <= live <= capacity`. Complexity: O(1), amortised. Thread-safety: any thread.
class waiting_blocks {
 public:
  struct block {
    void* first;
    std::size_t bytes, align;
  };

  explicit waiting_blocks(std::pmr::memory_resource* bookkeeping) : waiting_{bookkeeping} {}

  /// Reserves room for a block that is allocated next. @throws the exceptions of the bookkeeping resource;
  /// nothing has changed then.
  void add() {
    const std::scoped_lock lock{mutex_};
    if (live_ == waiting_.capacity()) waiting_.reserve(2 * live_ + 16);
    ++live_;
  }
  /// Removes a block that was returned directly, or was not allocated.
  void remove() noexcept {
    const std::scoped_lock lock{mutex_};
    --live_;
  }
  /// Adds a live block that waits from now on.
  void push(block const& waits) noexcept {
    const std::scoped_lock lock{mutex_};
    waiting_.push_back(waits);
  }
  /// Removes and returns a waiting block; empty if no block waits.
  [[nodiscard]] std::optional<block> pop() noexcept {
    const std::scoped_lock lock{mutex_};
    if (waiting_.empty()) return std::nullopt;
    const block last = waiting_.back();
    waiting_.pop_back();
    return last;
  }
  /// Returns the bytes of all waiting blocks. O(blocks).
  [[nodiscard]] std::size_t bytes() const noexcept {
    const std::scoped_lock lock{mutex_};
    std::size_t sum = 0;
    for (block const& each : waiting_) sum += each.bytes;
    return sum;
  }

 private:
  mutable tidemark::detail::fork_safe<> mutex_;  // protects the members below
  std::pmr::vector<block> waiting_;
  std::size_t live_ = 0;  // waiting blocks included
};

/// An adaptor for an upstream without a stream, such as `gpu::device_resource`, whose `cuMemFree` need not
/// wait for work that uses the memory. It returns a block after a wait for the stream. Blocks wait for the
/// next call if the stream is capturing, because a wait would end the capture, or if the wait fails.
///
/// Thread-safety: any thread, if the upstream's is.
class waiting_upstream final : public tidemark::detail::forwarding_resource<waiting_upstream> {
 public:
  waiting_upstream(std::pmr::memory_resource* upstream, device_number device, stream_handle stream,
                   char const* name, std::pmr::memory_resource* bookkeeping, driver& driver)
      : upstream_{upstream},
        device_{device},
        stream_{stream},
        name_{name},
        driver_{&driver},
        waiting_{bookkeeping} {}
  /// Returns the blocks. Blocks that must still wait are lost, with a violation (`open_capture`).
  ~waiting_upstream() override;

  /// @throws the exceptions of the upstream or the bookkeeping resource; nothing is allocated then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align);
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept { return upstream_; }

 private:
  void return_waiting() noexcept;

  std::pmr::memory_resource* upstream_;
  device_number device_;
  stream_handle stream_;
  char const* name_;
  driver* driver_;
  waiting_blocks waiting_;
};

}  // namespace tidemark::gpu::detail
