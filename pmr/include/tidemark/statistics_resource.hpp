// SPDX-License-Identifier: Apache-2.0
/// @file
/// `statistics_resource`: counts what goes to another resource. The memory stays the upstream's.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <type_traits>
#include <vector>

#include <tidemark/bucket_histogram.hpp>
#include <tidemark/detail/resource_adaptor.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/resource_stats.hpp>

namespace tidemark {

/// Passes everything on and counts it: how many blocks and bytes there are, were at most, and went through.
///
/// Put it above any resource whose use you want to know, in production too: it costs a few instructions a
/// call. Frames of counters tell what a part of the program did.
///
/// ```cpp
/// statistics_resource counted{&pool, "weights"};
/// counted.push_counters();
/// train(&counted);
/// std::printf("one epoch peaks at %zu bytes\n", counted.pop_counters().peak_bytes);
/// ```
/// Invariants, where the upstream got back no more than it gave:
/// - `allocations - deallocations == used_blocks <= peak_blocks <= allocations`
/// - `used_bytes <= peak_bytes <= total_bytes`
///
/// A block counts from the moment the upstream has given it until just before the upstream gets it back. A
/// wrong size in `deallocate` makes the counts wrong: `tracking_resource` finds such calls.
///
/// Complexity: O(1) above the upstream's. Thread-safety: any thread, if the upstream allows it. Counts are
/// exact once the calls they count have returned. Exceptions: the upstream's pass through; nothing but
/// `refused` has changed then.
class statistics_resource final : public detail::resource_adaptor {
 public:
  /// @param upstream where memory comes from; must outlive this object
  /// @param name in statistics; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null.
  explicit statistics_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                               char const* name = "statistics")
      : resource_adaptor{"statistics_resource", upstream, name} {}

  /// Memory from the upstream. @throws what the upstream throws, with nothing changed but `refused`.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    void* block = take(bytes, align);
    counter_.handed_out(bytes);
    if (bucket_histogram* sizes = sizes_.load(std::memory_order_relaxed)) [[unlikely]]
      record(*sizes, bytes);
    return block;
  }

  /// Gives a block back to the upstream.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    counter_.given_back(bytes);
    upstream_resource()->deallocate(block, bytes, align);
  }

  /// A snapshot of all counts since construction, whatever frames are open. O(open frames).
  [[nodiscard]] resource_stats stats() const noexcept;

  /// Opens a frame of counters, inside those that are open. Calls that other threads are in meanwhile count
  /// as before it or as in it. @throws std::bad_alloc, with nothing changed.
  void push_counters();

  /// Ends the innermost frame. Frames around it go on and include what it counted.
  /// @return what happened since the matching `push_counters`: counts begin at 0 there, peaks too, so that
  /// `peak_bytes` is how much more than at that moment was in use. Where more was given back than handed out,
  /// `used_bytes` or `used_blocks` is 0. @throws std::logic_error if no frame is open.
  resource_stats pop_counters();

  /// From here on the sizes of requests go into `sizes` as well, which then can suggest the classes of a
  /// pool; null: no more. It must live as long. A size that there is no memory to record is left out.
  void record_sizes(bucket_histogram* sizes) noexcept { sizes_.store(sizes, std::memory_order_relaxed); }

  /// Number of open frames.
  [[nodiscard]] std::size_t frames() const noexcept;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }

  TIDEMARK_COLD static void record(bucket_histogram& sizes, std::size_t bytes) noexcept;

  std::atomic<bucket_histogram*> sizes_{nullptr};
  mutable std::mutex mutex_;  // for the frames only; counting takes no lock
  // What the counts were when each open frame began, the outermost first. Their peaks are those of the frame
  // around, which wait here until the inner one ends: counting then writes to one pair of peaks, however many
  // frames there are.
  std::vector<resource_stats> frames_;
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, statistics_resource>);
static_assert(!std::is_copy_constructible_v<statistics_resource>,
              "blocks know their resource by its address");

}  // namespace tidemark
