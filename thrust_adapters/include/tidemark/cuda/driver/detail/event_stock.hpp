// SPDX-License-Identifier: Apache-2.0
/// @file
/// `event_stock`: reusable events that guard blocks. Owns the driver's events.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory_resource>
#include <mutex>
#include <optional>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// Fences behind the work of other streams, for blocks that return to this stock's stream. The event of a
/// destroyed fence is reused, because creation costs several times as much as recording. Fences may be
/// awaited on any current device. Fences of one stream have one order (`reuse_fence::order`).
///
/// If a capture forbids a wait, the stock's stream waits instead. If that fails too, the stock reports a
/// violation (`open_capture`). While the stock's stream is capturing, `query` does nothing.
///
/// Invariant: each event is in the free list or in one fence. Complexity: O(1). Thread-safety: any thread,
/// except for construction and destruction.
class event_stock {
 public:
  /// @param device device of all streams
  /// @param stream stream that reuses the blocks
  /// @param name name of the resource in messages
  /// @param bookkeeping memory for records; called under this object's lock, and must not call back
  event_stock(driver& driver, device_number device, stream_handle stream, char const* name,
              std::pmr::memory_resource* bookkeeping)
      : driver_{&driver}, device_{device}, stream_{stream}, name_{name}, entries_{bookkeeping} {}
  event_stock(event_stock const&) = delete;
  event_stock& operator=(event_stock const&) = delete;
  /// @pre All fences are destroyed.
  ~event_stock();

  /// Returns a fence behind the present work of `other`. Returns no fence, with nothing changed, if there is
  /// no memory for an event or the driver returns an error. @pre The device of both streams is current.
  [[nodiscard]] std::optional<reuse_fence> record(stream_handle other) noexcept;

  /// Calls `queries()`, which may query fences, with the device current and in relaxed mode. Does nothing
  /// while the stock's stream is capturing.
  void query(std::function<void()> const& queries) const noexcept;

  /// Returns the number of events.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  struct entry {
    event_stock* owner;
    event_handle event;
    entry* next;        // next in the free list
    void const* order;  // stream of a fence
  };
  static entry& as_entry(void* fence) noexcept { return *static_cast<entry*>(fence); }

  [[nodiscard]] entry* acquire() noexcept;
  void release(entry& free) noexcept;
  void wait(entry const& awaited) const noexcept;

  driver* driver_;
  device_number device_;
  stream_handle stream_;
  char const* name_;
  mutable tidemark::detail::fork_safe<> mutex_;  // protects what follows; no driver call under it
  std::pmr::deque<entry> entries_;               // a deque, because fences point to the entries
  entry* free_ = nullptr;
};

}  // namespace tidemark::gpu::detail
