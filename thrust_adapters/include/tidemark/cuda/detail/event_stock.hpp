// SPDX-License-Identifier: Apache-2.0
/// @file
/// `event_stock`: events that guard blocks, used again and again. Owns the driver's events.
#pragma once

#include <cstddef>
#include <deque>
#include <memory_resource>
#include <mutex>
#include <optional>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/reuse_fence.hpp>

namespace tidemark::cuda::detail {

/// Fences behind the work of other streams, for blocks that come back to a stream of one's own. The event of
/// a fence that is destroyed serves the next one, so that events are made only as more blocks are pending
/// than ever before: to make one costs several times what recording it does.
///
/// What waits for a fence in vain, because a capture forbids it, lets the own stream wait for the event
/// instead, so that what is given back in the own stream's order still comes behind it.
///
/// Nothing is asked of an event and nothing waits for it while the own stream is capturing, which that would
/// invalidate: no fence is done then, and who waits for one all the same returns at once.
///
/// A fence may be asked and waited for whatever device is current: the own stream may be null, which is the
/// default stream of its device.
///
/// Invariant: each event is in the list of free ones or in one fence. Complexity: O(1). Any thread, but for
/// construction and destruction.
class event_stock {
 public:
  /// @param device the one of all streams
  /// @param stream of those who get the blocks back
  /// @param bookkeeping where records come from; it is called under this object's lock and must not call back
  event_stock(driver& driver, device_number device, stream_handle stream,
              std::pmr::memory_resource* bookkeeping)
      : driver_{&driver}, device_{device}, stream_{stream}, entries_{bookkeeping} {}
  event_stock(event_stock const&) = delete;
  event_stock& operator=(event_stock const&) = delete;
  /// @pre all fences are gone.
  ~event_stock();

  /// A fence behind the work that is on `other` now; nothing, with nothing changed, if there is no memory for
  /// another event or the driver refuses. @pre the device of both streams is current.
  [[nodiscard]] std::optional<reuse_fence> record(stream_handle other) noexcept;

  /// Events that there are.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  struct entry {
    event_stock* owner;
    event_handle event;
    entry* next;  // of the free ones
  };

  [[nodiscard]] entry* take() noexcept;
  [[nodiscard]] entry* make() noexcept;
  void give(entry& free) noexcept;
  [[nodiscard]] bool is_done(entry const& asked) const noexcept;
  void wait(entry const& awaited) const noexcept;

  driver* driver_;
  device_number device_;
  stream_handle stream_;
  mutable std::mutex mutex_;        // for what follows; the driver is not called under it
  std::pmr::deque<entry> entries_;  // a deque, because fences point to them
  entry* free_ = nullptr;
};

}  // namespace tidemark::cuda::detail
