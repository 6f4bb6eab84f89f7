// SPDX-License-Identifier: Apache-2.0
/// @file
/// `statistics_resource`: counts the blocks and bytes of another resource. The upstream owns the memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <type_traits>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/resource_stats.hpp>
#include <tidemark/core/size_histogram.hpp>
#include <tidemark/telemetry/detail/resource_adaptor.hpp>

namespace tidemark {

/// Forwards every request and counts it: blocks and bytes in use, their peaks, and totals.
///
/// Put it on any resource to measure its use, in production too: a call costs a few instructions more. Frames
/// of counters measure parts of a program.
///
/// ```cpp
/// statistics_resource counted{&pool, "weights"};
/// counted.push_counters();
/// train(&counted);
/// std::printf("one epoch peaks at %zu bytes\n", counted.pop_counters().peak_bytes);
/// ```
/// Invariants, if every `deallocate` matches an `allocate`:
/// - `allocations - deallocations == used_blocks <= peak_blocks <= allocations`
/// - `used_bytes <= peak_bytes <= total_bytes`
///
/// A block counts from the return of the upstream's `allocate` to the call of its `deallocate`. A wrong size
/// in `deallocate` makes the counts wrong; `tracking_resource` detects it.
///
/// Complexity: O(1) plus the upstream's. Thread-safe if the upstream is, also in a forked child. Counts are
/// exact once the counted calls have returned.
class statistics_resource final : public detail::observing_adaptor<statistics_resource> {
 public:
  /// @param upstream source of the memory; must outlive this object
  /// @param name used in statistics; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null.
  explicit statistics_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                               char const* name = "statistics")
      : observing_adaptor{"statistics_resource", upstream, name} {}
  /// The same on the default resource.
  explicit statistics_resource(char const* name)
      : statistics_resource{std::pmr::get_default_resource(), name} {}

  /// Counts the block.
  void allocated([[maybe_unused]] void* block, std::size_t bytes,
                 [[maybe_unused]] std::size_t align) override {
    counter_.on_allocate(bytes);
    if (size_histogram* sizes = sizes_.load(std::memory_order_relaxed)) [[unlikely]]
      record(*sizes, bytes);
  }

  /// A snapshot of all counters since construction, whatever frames are open. O(open frames).
  [[nodiscard]] resource_stats stats() const noexcept;

  /// Opens a frame of counters inside the open frames. Concurrent calls on other threads count before the
  /// frame or in it. @throws std::bad_alloc, with nothing changed.
  void push_counters();

  /// Ends the innermost frame. Enclosing frames include its counts.
  /// @return the counts since the matching `push_counters`. Counts and peaks begin at 0 there, so
  /// `peak_bytes` is the highest use above the use at that moment. `used_bytes` or `used_blocks` is 0 if more
  /// was deallocated than allocated. @throws std::logic_error if no frame is open.
  resource_stats pop_counters();

  /// Also records the sizes of later requests in `sizes`, which can suggest the size classes of a pool. Null
  /// stops recording. `sizes` must live until then. A size is dropped if there is no memory to record it.
  void record_sizes(size_histogram* sizes) noexcept { sizes_.store(sizes, std::memory_order_relaxed); }

  /// Number of open frames.
  [[nodiscard]] std::size_t frames() const noexcept;

 private:
  TIDEMARK_COLD static void record(size_histogram& sizes, std::size_t bytes) noexcept;

  std::atomic<size_histogram*> sizes_{nullptr};
  mutable detail::fork_safe<> mutex_;  // guards the frames only; counting takes no lock
  // Counts at the beginning of each open frame, outermost first. Their peaks are the enclosing frame's, saved
  // until the inner frame ends. Counting therefore writes to one pair of peaks for any number of frames.
  std::vector<resource_stats> frames_;
};

}  // namespace tidemark
