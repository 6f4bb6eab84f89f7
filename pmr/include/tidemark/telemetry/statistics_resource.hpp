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

/// Passes every request on and counts it: blocks and bytes in use, their peaks, and totals.
///
/// Put it on any resource whose use is of interest, in production too: a call costs a few instructions
/// more. Frames of counters measure parts of a program.
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
/// A block counts from the return of the upstream's `allocate` to the call of its `deallocate`. A wrong
/// size in `deallocate` makes the counts wrong; `tracking_resource` finds such calls.
///
/// Complexity: O(1) besides the upstream's. Thread-safety: any thread, if the upstream allows it. Counts
/// are exact once the counted calls have returned. A forked child may use it too. Exceptions: those of the
/// upstream; only `refused` has changed then.
class statistics_resource final : public detail::resource_adaptor<statistics_resource> {
 public:
  /// @param upstream where memory comes from; must outlive this object
  /// @param name in statistics; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null.
  explicit statistics_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                               char const* name = "statistics")
      : resource_adaptor{"statistics_resource", upstream, name} {}

  /// Memory from the upstream. @throws what the upstream throws; only `refused` has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    void* block = allocate_counted(bytes, align);
    if (size_histogram* sizes = sizes_.load(std::memory_order_relaxed)) [[unlikely]]
      record(*sizes, bytes);
    return block;
  }

  /// A snapshot of all counts since construction, whatever frames are open. O(open frames).
  [[nodiscard]] resource_stats stats() const noexcept;

  /// Opens a frame of counters inside the open ones. Calls that other threads make meanwhile count as
  /// before it or as in it. @throws std::bad_alloc, with nothing changed.
  void push_counters();

  /// Ends the innermost frame. The frames around it include its counts.
  /// @return what happened since the matching `push_counters`: counts and peaks begin at 0 there, so that
  /// `peak_bytes` is the most in use beyond that moment. If more was deallocated than allocated,
  /// `used_bytes` or `used_blocks` is 0. @throws std::logic_error if no frame is open.
  resource_stats pop_counters();

  /// From now on also records the sizes of requests in `sizes`, which can suggest the size classes of a
  /// pool. Null: stops. `sizes` must live that long. A size is left out if there is no memory to record it.
  void record_sizes(size_histogram* sizes) noexcept { sizes_.store(sizes, std::memory_order_relaxed); }

  /// Number of open frames.
  [[nodiscard]] std::size_t frames() const noexcept;

 private:
  TIDEMARK_COLD static void record(size_histogram& sizes, std::size_t bytes) noexcept;

  std::atomic<size_histogram*> sizes_{nullptr};
  mutable detail::fork_safe<> mutex_;  // for the frames only; counting takes no lock
  // The counts when each open frame began, the outermost first. Their peaks are those of the frame around,
  // kept here until the inner one ends: counting then writes to one pair of peaks, however many frames.
  std::vector<resource_stats> frames_;
};

}  // namespace tidemark
