// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_heap`: the blocks of a `device_pool` and their memory, which it owns. docs/cuda.md has the
/// picture.
///
/// Memory comes in *units*: handles of the device's granularity, 2 MiB on today's devices. A unit is idle if
/// it has memory and touches no live block. A block that needs units gets idle units, which are *moved*:
/// unmapped and mapped to the block. Decision 87 has the limits of moves. The stream may still use a
/// deallocated block, and an unmap does not wait: a unit moves only behind a mark that the stream has passed.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <optional>
#include <vector>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>
#include <tidemark/cuda/resources/detail/heap_ranges.hpp>
#include <tidemark/cuda/resources/detail/heap_slabs.hpp>
#include <tidemark/pool/detail/block_cache.hpp>

namespace tidemark {

struct device_pool_options;

}  // namespace tidemark

namespace tidemark::gpu::detail {

/// Numbered events on one stream. Memory that is freed now gets the number `next()`. The stream no longer
/// uses the memory once `has_passed(number)` is true.
///
/// Invariants: `passed <= number of each pending event < next()`; at most 8 events are pending. Every driver
/// call needs the device current, in relaxed mode, and a stream that is not capturing. Thread-safety: one
/// thread at a time.
class stream_marks {
 public:
  stream_marks(driver& driver, stream_handle stream) noexcept : driver_{&driver}, stream_{stream} {}

  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }
  [[nodiscard]] std::uint32_t next() const noexcept { return next_; }
  [[nodiscard]] bool has_passed(std::uint32_t number) const noexcept { return number < passed_; }

  /// Records an event behind the present work, unless 8 events are pending or the driver refuses.
  void record() noexcept {
    if (pending_ == events_.size()) return;
    std::optional<event>& at = events_[(first_ + pending_) % events_.size()];
    try {
      if (!at) at.emplace(*driver_);
      at->record(stream_);
    } catch (...) {  // memory then counts as in use until a wait for the stream
      return;
    }
    ++pending_;
    ++next_;
  }
  /// Queries which events have passed.
  void query() noexcept {
    while (pending_ != 0 && events_[first_]->done()) {
      first_ = (first_ + 1) % events_.size();
      passed_ = next_ - static_cast<std::uint32_t>(--pending_);
    }
  }
  /// Waits for the stream. @return false, with nothing changed, if the driver refuses.
  [[nodiscard]] bool wait() noexcept {
    if (!shows_end_of_work(driver_->synchronize(stream_))) return false;
    first_ = pending_ = 0;
    passed_ = ++next_;
    return true;
  }

 private:
  driver* driver_;
  stream_handle stream_;
  std::array<std::optional<event>, 8> events_;  // a ring
  std::size_t first_ = 0, pending_ = 0;
  std::uint32_t next_ = 0;    // number of the next event
  std::uint32_t passed_ = 0;  // events below this number have passed
};

/// Counts moves of idle units, and the moves beyond a budget: 1,000 or one for 11 units of the peak, and
/// further ones in proportion to the heap's work. A move takes about 60 µs on an H100. A wait for the stream
/// counts as several moves.
class move_budget {
 public:
  static constexpr std::uint64_t first_moves = 1'000, allocations_per_move = 200, units_per_move = 3'000,
                                 peak_units_per_move = 11, moves_per_wait = 32;

  /// Returns the moves beyond the budget.
  /// @param units in the blocks and slabs that the heap has allocated up to now
  /// @param peak_units units of the most live bytes
  [[nodiscard]] std::uint64_t debt(std::uint64_t allocations, std::uint64_t units,
                                   std::uint64_t peak_units) const noexcept {
    const std::uint64_t allowed = (std::max)(first_moves, peak_units / peak_units_per_move) +
                                  allocations / allocations_per_move + units / units_per_move;
    const std::uint64_t spent = moves_ + waits_ * moves_per_wait;
    return spent - (std::min)(spent, allowed);
  }
  void add_moves(std::uint64_t moves) noexcept { moves_ += moves; }
  void add_wait() noexcept { ++waits_; }
  /// Returns the moves up to now.
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

 private:
  std::uint64_t moves_ = 0, waits_ = 0;
};

/// One range of addresses for one stream, with memory only under blocks: the free lists of a `basic_pool`.
///
/// Memory of an upstream comes in chunks, which do not move and are returned when they are wholly free.
/// Devices without virtual memory management, and programs under compute-sanitizer, get chunks of cuMemAlloc.
///
/// Invariants: those of `heap_ranges` and `heap_slabs`; every unit that touches a live block has memory;
/// `held_bytes()` counts each handle and each chunk once; `cached_bytes() + stranded idle bytes` are the idle
/// bytes.
///
/// Complexity: O(1) up to 1 MiB, else O(units of the block), plus O(units of 17 free
/// ranges) for a block that no range with memory serves. Thread-safety: one thread at a time.
class device_heap {
 public:
  static constexpr char const* kind = "device_pool";
  static constexpr bool host_accessible = false;
  static constexpr std::size_t default_alignment = device_classes::granule_bytes;

  /// @param options complete options, except for the upstream
  /// @param posts_trims true if the device's budget posts a trim when the device is full; if false, the owner
  /// returns memory itself. @throws cuda_error, out_of_memory.
  device_heap(device_pool_options const& options, driver& driver, bool posts_trims = true);
  device_heap(device_heap const&) = delete;
  device_heap& operator=(device_heap const&) = delete;
  ~device_heap();

  /// Allocates a block from free memory; returns null if a slab or a large block needs memory or records.
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align) noexcept {
    if (!pending_.serves(align)) return nullptr;
    return bytes <= device_classes::max_bytes ? allocate_in_slab(bytes) : allocate_ready(bytes);
  }
  /// Frees a block. Returns `over_watermark` if a slab becomes surplus, or if idle memory exceeds the
  /// watermark.
  [[nodiscard]] tidemark::detail::free_result try_deallocate(void* block, std::size_t bytes,
                                                             std::size_t align) noexcept {
    if (!pending_.serves(align)) return tidemark::detail::free_result::not_listed;
    return bytes <= device_classes::max_bytes ? deallocate_in_slab(block, bytes, bytes)
                                              : deallocate_large(block, bytes);
  }
  /// Allocates a block after `try_allocate` returned null.
  /// @throws out_of_memory, cuda_error; exceptions of the upstream or the bookkeeping resource. No block is
  /// allocated then; memory may have moved.
  [[nodiscard]] void* allocate_slow(std::size_t bytes, std::size_t align);
  /// Completes a `try_deallocate` whose result is not `listed`: frees a surplus slab, or reports a violation.
  void deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                       tidemark::detail::free_result result) noexcept;
  /// Frees a block. @return false, with nothing done, if no block of this size is live at the address. May
  /// not detect a small block that is already free.
  [[nodiscard]] bool deallocate_if_live(void* block, std::size_t bytes, std::size_t align) noexcept {
    return finish_deallocation(block, bytes, align, try_deallocate(block, bytes, align));
  }
  /// Makes later refusals omit the largest request that would succeed, which costs driver calls. For requests
  /// that are retried.
  void set_brief_refusals(bool are_brief) noexcept { has_brief_refusals_ = are_brief; }
  /// Sets the idle bytes above which `try_deallocate` reports.
  void set_watermark(std::size_t bytes) noexcept { watermark_bytes_ = bytes; }
  /// Called before each trim for plans. If the heap has memory, it moves memory rather than create it until
  /// `release`, or until such a trim finds the heap empty: steps with plans repeat, and soon need no moves.
  void serve_plans() noexcept { serves_plans_ = held_bytes_ != 0; }
  /// Posts a trim for the next call of the thread that uses the heap. Any thread.
  void post_trim() noexcept { pending_.post(); }

  /// Returns idle memory, the largest ranges first, down to the target. Waits for the stream if it may still
  /// use the memory. Does nothing during a capture. @return bytes. O(ranges + units).
  std::size_t release_free(std::size_t target_bytes) noexcept;
  /// Counts idle memory beyond the target as stranded. O(1).
  void strand(std::size_t target_bytes) noexcept {
    stranded_idle_bytes_ = idle_bytes() - (std::min)(idle_bytes(), target_bytes);
  }
  /// Makes slabs without live blocks free ranges. O(open slabs).
  void free_empty_slabs() noexcept;
  /// Frees every block and returns all memory, as `release_free` does. O(ranges + units).
  void release() noexcept;

  [[nodiscard]] tidemark::detail::block_counts counts() const noexcept;
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_; }
  [[nodiscard]] std::size_t live_bytes() const noexcept {
    return cut_bytes_ - slab_bytes_ + slabs_.used_bytes();
  }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] std::size_t cached_bytes() const noexcept {
    return idle_bytes() - (std::min)(stranded_idle_bytes_, idle_bytes());
  }
  [[nodiscard]] std::size_t stranded_bytes() const noexcept {
    return held_bytes() - live_bytes() - cached_bytes();
  }
  [[nodiscard]] std::size_t stranded_block_bytes() const noexcept { return stranded_bytes(); }
  /// Returns the number of units moved.
  [[nodiscard]] std::uint64_t moves() const noexcept { return move_budget_.moves(); }
  /// Returns the bytes of the largest block with the default alignment that the heap could allocate now,
  /// without help of other resources; `exhaustion_report::unknown_bytes` on chunks, during a capture that
  /// permits no mapping, or if the driver does not return its free memory. Frees empty slabs. Makes driver
  /// calls. O(units log(bytes)).
  [[nodiscard]] std::size_t largest_request() noexcept;
  /// Changes the stream whose captures use the memory. @pre Memory of graphs: it stays at its addresses.
  void set_stream(stream_handle stream) noexcept { stream_ = stream; }
  /// Returns the first invariant that does not hold, as a formula; null if all hold. O(ranges + units).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // Allocations after a trim during which the heap creates little memory.
  static constexpr std::uint64_t lean_allocations = 8192;
  // Blocks of a power of two up to this size are aligned to their size.
  static constexpr std::size_t max_small_alignment = heap_region::page_bytes;
  [[nodiscard]] static std::size_t class_bytes(std::size_t bytes, std::size_t align) noexcept {
    return align <= default_alignment ? bytes : std::bit_ceil((std::max)(bytes, align));
  }
  [[nodiscard]] static bool is_small(std::size_t bytes, std::size_t align) noexcept {
    return align <= default_alignment ? bytes <= device_classes::max_bytes
                                      : (std::max)(bytes, align) <= max_small_alignment;
  }
  [[nodiscard]] void* allocate_in_slab(std::size_t bytes) noexcept {
    void* const block = slabs_.try_allocate(device_classes::index_of(bytes));
    if (block != nullptr) requested_bytes_ += bytes;
    return block;
  }
  // @param needed_bytes size of the block in its class, with its alignment
  [[nodiscard]] tidemark::detail::free_result deallocate_in_slab(void* block, std::size_t bytes,
                                                                 std::size_t needed_bytes) noexcept {
    using tidemark::detail::free_result;
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    heap_slab& slab = slab_at(ranges_.latest_region(), address);
    if (!slab.is_class_of(needed_bytes) || !slabs_.try_deallocate(slab, address - slab.begin)) [[unlikely]]
      return free_result::not_listed;
    requested_bytes_ -= bytes;
    return slabs_.is_surplus(slab) ? free_result::over_watermark : free_result::listed;
  }
  [[nodiscard]] void* allocate_ready(std::size_t bytes) noexcept;
  [[nodiscard]] tidemark::detail::free_result deallocate_large(void* block, std::size_t bytes) noexcept;
  // Returns the size of a block beyond the classes; 0 if it wraps.
  [[nodiscard]] static std::size_t large_size(std::size_t bytes) noexcept {
    return tidemark::detail::align_up((std::max)(bytes, heap_region::page_bytes), heap_ranges::granule_bytes);
  }
  [[nodiscard]] std::size_t idle_bytes() const noexcept {
    return ranges_.returnable_bytes() + unmapped_handles_.size() * unit_bytes_;
  }

  void use_chunks();
  [[nodiscard]] TIDEMARK_COLD bool try_replace_mapping_by_chunks();
  void report_no_mapping() noexcept;
  bool finish_deallocation(void* block, std::size_t bytes, std::size_t align,
                           tidemark::detail::free_result result) noexcept;
  [[noreturn]] TIDEMARK_COLD void refuse(std::size_t bytes, std::size_t align, char const* because);
  [[nodiscard]] TIDEMARK_COLD bool make_room();
  [[nodiscard]] heap_range& allocate_range(std::size_t bytes, std::size_t align);
  [[nodiscard]] heap_range* try_allocate_range(std::size_t bytes, std::size_t align, char const*& refusal);
  [[nodiscard]] TIDEMARK_COLD heap_range* map_range(std::size_t bytes, std::size_t align,
                                                    char const*& refusal);
  [[nodiscard]] heap_range& cut_ready(heap_range& ready, std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] heap_range& cut(heap_range& from, std::uintptr_t begin, std::size_t bytes,
                                std::uint32_t missing_before = 0) noexcept;
  void free_range(heap_range& live) noexcept;
  void free_slab(heap_slab& slab) noexcept;
  [[nodiscard]] TIDEMARK_COLD void* allocate_small(std::size_t bytes, std::size_t align);
  void add_slab(std::size_t index);

  struct placement {
    heap_range* range = nullptr;
    std::uintptr_t begin = 0;         // start of the block
    std::size_t first = 0, last = 0;  // range of the units that need memory
    std::size_t missing = 0;          // units in this range without memory
  };
  [[nodiscard]] placement place_at(heap_range& range, std::uintptr_t begin, std::size_t bytes) const noexcept;
  [[nodiscard]] std::uint32_t missing_before(heap_range& range, std::uintptr_t begin) const noexcept {
    return range.missing_units == 0
               ? 0
               : static_cast<std::uint32_t>(place_at(range, range.begin, begin - range.begin).missing);
  }
  [[nodiscard]] placement cheapest_place_in(heap_range& range, std::size_t bytes,
                                            std::size_t align) const noexcept;
  [[nodiscard]] placement cheapest_place(std::size_t bytes, std::size_t align) const noexcept;
  [[nodiscard]] heap_range* add_reservation(std::size_t bytes);
  [[nodiscard]] heap_range& add_chunk(std::size_t bytes);
  [[nodiscard]] bool gather(placement const& to, std::size_t live_bytes, char const*& refusal);
  [[nodiscard]] bool can_create(std::size_t units, char const*& refusal) noexcept;
  void create(std::size_t units, char const*& refusal);
  void share_idle(std::size_t units, placement const& but);
  void retire(heap_range& range, byte_range units) noexcept;
  bool unmap_retired() noexcept;
  template <class Take>
  std::size_t unmap_idle(std::size_t units, placement const& but, Take take) noexcept;
  template <class Take>
  std::size_t unmap_idle_of(heap_range& range, std::size_t first, std::size_t last, std::size_t units,
                            Take take) noexcept;
  [[nodiscard]] outcome map(placement const& to) noexcept;
  void unmap_unused(heap_range& range, std::size_t first, std::size_t last) noexcept;
  std::size_t release_idle(std::size_t target_bytes) noexcept;
  std::size_t release_chunks(std::size_t target_bytes) noexcept;
  void release_unmapped_handles(std::size_t kept = 0) noexcept;
  void release_unit(physical_handle memory) noexcept;
  void lose_unit(status because) noexcept;
  [[nodiscard]] std::size_t slack(std::size_t peak_bytes) const noexcept;
  [[nodiscard]] bool is_lean() const noexcept { return serves_plans_ || counts().allocations < lean_until_; }
  // Returns true if the heap was empty at its last trim, as a planned arena makes it.
  [[nodiscard]] bool begins_plans() const noexcept {
    return was_empty_ && counts().allocations < lean_until_;
  }
  [[nodiscard]] bool fits(std::size_t bytes, std::size_t align, std::size_t units,
                          bool moves_idle) const noexcept;
  [[nodiscard]] bool is_capturing() const noexcept;
  [[nodiscard]] bool may_map() const noexcept;
  void record_mark() noexcept;
  TIDEMARK_COLD void record_due_mark() noexcept;
  [[nodiscard]] byte_range addresses(heap_region const& region, std::size_t first,
                                     std::size_t last) const noexcept {
    return {region.addresses.begin + first * unit_bytes_, (last - first) * unit_bytes_};
  }

  driver* driver_;
  device_number device_;
  stream_handle stream_;
  device_budget* budget_;
  char const* name_;
  bool keeps_addresses_;
  bool has_brief_refusals_ = false;
  std::size_t unit_bytes_ = 2 * MiB;
  std::size_t total_bytes_ = 0;  // memory of the device
  tidemark::detail::pending_work pending_{device_classes::granule_bytes};
  std::size_t requested_bytes_ = 0;
  std::size_t cut_bytes_ = 0;            // bytes of live ranges
  std::size_t slab_bytes_ = 0;           // bytes of slabs among them
  std::size_t peak_cut_bytes_ = 0;       // since the last trim
  std::uint64_t all_cut_bytes_ = 0;      // of ranges that live or have lived
  std::size_t held_bytes_ = 0;           // bytes of handles and chunks
  std::size_t stranded_idle_bytes_ = 0;  // idle bytes that a trim could not return
  std::size_t watermark_bytes_ = (std::numeric_limits<std::size_t>::max)();
  std::uint64_t large_allocations_ = 0, large_deallocations_ = 0;
  std::uint64_t misses_ = 0;  // allocations that mapped memory or allocated a chunk
  move_budget move_budget_;
  std::uint64_t lean_until_ = 0;  // number of the allocation at which the effect of the last trim ends
  bool was_empty_ = false;        // at the last trim
  bool serves_plans_ = false;
  std::size_t freed_since_mark_ = 0;
  int marks_due_ = 0;  // marks still to be recorded without another need for memory
  stream_marks marks_;
  heap_ranges ranges_;
  heap_slabs slabs_;
  std::pmr::vector<physical_handle>
      unmapped_handles_;                     // held, but not mapped; capacity for all units of one placement
  std::optional<device_resource> blocks_;    // chunks if virtual memory cannot serve
  std::optional<waiting_upstream> waiting_;  // if the stream does not order the upstream
  std::pmr::memory_resource* upstream_;      // source of chunks; null: memory is mapped
  device_budget::subscription budget_subscription_;  // posts trims
};

}  // namespace tidemark::gpu::detail
