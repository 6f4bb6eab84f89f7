// SPDX-License-Identifier: Apache-2.0
/// @file
/// `event_stock`: reusable events that guard blocks. Owns the driver's events.
#pragma once

#include <cstddef>
#include <deque>
#include <memory_resource>
#include <mutex>
#include <optional>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// Fences behind the work of other streams, for blocks that return to this stock's stream. The event of a
/// destroyed fence is reused, because to create one costs several times as much as to record it.
///
/// A wait that fails, because a capture forbids it, is done by the own stream instead, so that blocks are
/// still reused behind the event; if that fails too, a violation (`open_capture`). While the own stream is
/// capturing, which queries and waits would invalidate, `query` does nothing, and waits return at once: the
/// upstream holds the blocks then, as it does all.
///
/// Fences are queried inside `query`, and may be waited for on any current device. Those of one stream come
/// in one order (`reuse_fence::order`).
///
/// Invariant: each event is in the free list or in one fence. Complexity: O(1). Thread-safety: any thread,
/// except for construction and destruction.
class event_stock {
 public:
  /// @param device of all streams
  /// @param stream that reuses the blocks
  /// @param name of the resource, in messages
  /// @param bookkeeping memory for records; it is called under this object's lock and must not call back
  event_stock(driver& driver, device_number device, stream_handle stream, char const* name,
              std::pmr::memory_resource* bookkeeping)
      : driver_{&driver}, device_{device}, stream_{stream}, name_{name}, entries_{bookkeeping} {}
  event_stock(event_stock const&) = delete;
  event_stock& operator=(event_stock const&) = delete;
  /// @pre all fences are destroyed.
  ~event_stock();

  /// A fence behind the work that is on `other` now; no fence, with nothing changed, if there is no memory
  /// for another event or the driver returns an error. @pre the device of both streams is current.
  [[nodiscard]] std::optional<reuse_fence> record(stream_handle other) noexcept;

  /// Calls `queries(state)`, which may query fences, with the device current and in relaxed mode; not while
  /// the own stream is capturing.
  void query(void (*queries)(void* state) noexcept, void* state) const noexcept;

  /// Number of events.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  struct entry {
    event_stock* owner;
    event_handle event;
    entry* next;        // in the free list
    void const* order;  // in a fence: its stream
  };
  static entry& as_entry(void* fence) noexcept { return *static_cast<entry*>(fence); }

  [[nodiscard]] entry* acquire() noexcept;
  void release(entry& free) noexcept;
  void wait(entry const& awaited) const noexcept;

  driver* driver_;
  device_number device_;
  stream_handle stream_;
  char const* name_;
  mutable tidemark::detail::fork_safe<> mutex_;  // for what follows; the driver is not called under it
  std::pmr::deque<entry> entries_;               // a deque, because fences point to them
  entry* free_ = nullptr;
};

}  // namespace tidemark::gpu::detail
