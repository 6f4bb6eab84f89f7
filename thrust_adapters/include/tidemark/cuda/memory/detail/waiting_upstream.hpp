// SPDX-License-Identifier: Apache-2.0
/// @file
/// `waiting_upstream`: gives an upstream its blocks back when the work on a stream is done with them. Owns
/// blocks that it could not give back yet.
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

/// Blocks that were deallocated while nothing may go back, as during a capture. There is room for all live
/// blocks, made when each is allocated, so that to deallocate needs no memory.
///
/// Invariant: `waiting <= live <= capacity`. Complexity: O(1), amortised. Thread-safety: any thread.
class waiting_blocks {
 public:
  struct block {
    void* first;
    std::size_t bytes, align;
  };

  explicit waiting_blocks(std::pmr::memory_resource* bookkeeping) : waiting_{bookkeeping} {}

  /// A block is about to be allocated. @throws what the bookkeeping resource throws; nothing has changed
  /// then.
  void add() {
    const std::scoped_lock lock{mutex_};
    if (live_ == waiting_.capacity()) waiting_.reserve(2 * live_ + 16);
    ++live_;
  }
  /// A block that does not wait is gone, or was not allocated.
  void remove() noexcept {
    const std::scoped_lock lock{mutex_};
    --live_;
  }
  /// A live block waits from here on.
  void push(block const& waits) noexcept {
    const std::scoped_lock lock{mutex_};
    waiting_.push_back(waits);
  }
  /// One that waits, and does so no more; none if nothing waits.
  [[nodiscard]] std::optional<block> pop() noexcept {
    const std::scoped_lock lock{mutex_};
    if (waiting_.empty()) return std::nullopt;
    const block last = waiting_.back();
    waiting_.pop_back();
    return last;
  }
  /// Of all that wait. O(blocks).
  [[nodiscard]] std::size_t bytes() const noexcept {
    const std::scoped_lock lock{mutex_};
    std::size_t sum = 0;
    for (block const& each : waiting_) sum += each.bytes;
    return sum;
  }

 private:
  mutable tidemark::detail::fork_safe<> mutex_;  // for what follows
  std::pmr::vector<block> waiting_;
  std::size_t live_ = 0;  // waiting ones included
};

/// Stands before an upstream that knows no stream, such as `gpu::device_resource`: `cuMemFree` need not wait
/// for work that uses the memory. A block goes back after a wait for the stream. While the stream is
/// capturing, which a wait would end, or if the wait fails, blocks wait for the next call.
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
  /// If blocks still have to wait, they are lost: a violation (`open_capture`).
  ~waiting_upstream() override;

  /// @throws what the upstream or the bookkeeping resource throws; nothing is allocated then.
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
