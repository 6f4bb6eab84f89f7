// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_arena`: memory whose addresses are baked into a graph. Owns its memory, alone or with other arenas;
/// a lent range stays the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <type_traits>
#include <utility>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/unique_block.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/graph/graph_layout.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark {

/// Options of `graph_arena`.
struct graph_arena_options {
  /// Used in messages and statistics; must outlive the arena and its exceptions.
  char const* name = "graph_arena";
};

/// A snapshot of a graph arena. Bytes of blocks are multiples of 256.
///
/// `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes <=
/// high_water_bytes <= reserved_bytes`.
struct graph_arena_stats {
  char const* name = "";                ///< the arena's name
  std::uint64_t allocations = 0;        ///< blocks allocated so far
  std::uint64_t deallocations = 0;      ///< blocks deallocated so far
  std::uint64_t bad_deallocations = 0;  ///< wrong deallocations so far
  std::size_t used_blocks = 0;          ///< blocks in use now
  std::size_t peak_blocks = 0;          ///< most blocks in use at once
  std::size_t used_bytes = 0;           ///< bytes in use now
  std::size_t peak_bytes = 0;           ///< most bytes in use at once
  std::size_t high_water_bytes = 0;     ///< from the beginning of the range to the end of the last block
  std::size_t reserved_bytes = 0;       ///< size of the range
};

class capture_switch;

namespace detail {
class rewound_arena;
}

/// A bump arena over one range that never reuses an address, unless it has a plan. Use it for the temporaries
/// of a CUDA graph: every replay accesses the addresses of the capture.
///
/// ```cpp
/// graph_layout const layout = rehearse(body);          // how much memory does it need?
/// graph_arena memory{layout, &device};                 // exactly this size, from a gpu::device_resource
/// body(memory);                                        // while a stream captures; see capture.hpp
/// ```
/// The arena calls neither its upstream nor a device between construction and destruction. It never touches
/// the range, so the range may be device memory.
///
/// Invariants, with `g = 256`:
/// - `begin <= high water <= end`, all multiples of `g`
/// - `granules[i] * g` is the size of the block in use at `begin + i * g`, or 0; blocks do not overlap
/// - `used_bytes == g * sum of granules`, `used_blocks == number of granules[i] != 0`
///
/// Thread-safety: one thread at a time.
class graph_arena final : public detail::forwarding_resource<graph_arena> {
 public:
  /// Minimum alignment of every block.
  static constexpr std::size_t default_alignment = detail::monotone_layout::granule_bytes;

  /// Maximum bytes used of a range: just below 1 TiB, more than any device has.
  static constexpr std::size_t max_bytes = detail::monotone_layout::max_bytes;

  /// Creates an arena on a range that the caller keeps alive. The bounds are rounded inwards to multiples of
  /// 256. The bookkeeping takes 4 bytes of host memory for each 256 bytes of the range, committed only in
  /// pages that describe block starts. A plan takes about 300 bytes for each request. @throws std::bad_alloc
  /// if there is no host memory for the bookkeeping
  explicit graph_arena(byte_range range, graph_arena_options const& options = {});
  /// Allocates `bytes`, rounded up to a multiple of 256, from `upstream`; null: the default resource.
  /// @throws whatever the upstream throws; out_of_memory if `bytes > max_bytes`; std::bad_alloc as above. All
  /// memory is returned to the upstream then.
  explicit graph_arena(std::size_t bytes, std::pmr::memory_resource* upstream = nullptr,
                       graph_arena_options const& options = {});
  /// Creates an arena of exactly the rehearsed size, which expects the rehearsed layout (see `expected`).
  /// @throws as above; std::invalid_argument if the layout's alignment is not a power of two
  explicit graph_arena(graph_layout const& rehearsed, std::pmr::memory_resource* upstream = nullptr,
                       graph_arena_options const& options = {});

  /// Creates an arena that places blocks by a plan of the capture, usually in no more memory than the peak of
  /// live bytes. A block may reuse the bytes of a block that was deallocated before its request. Requests
  /// that differ from the plan get memory in a tail of `tail_bytes` bytes after the planned part.
  ///
  /// ```cpp
  /// graph_arena memory{rehearse_plan(body), 1 * MiB, &device};   // and a tail of 1 MiB
  /// ```
  /// @pre the captured work runs in one order, as on one stream. Unordered streams would overwrite each
  /// other's blocks.
  /// @throws as above; std::invalid_argument if the plan is invalid, or aligns blocks to less than 256 bytes
  graph_arena(step_plan const& rehearsed, std::size_t tail_bytes,
              std::pmr::memory_resource* upstream = nullptr, graph_arena_options const& options = {});

  /// Creates an arena on a block that other arenas may share, for graphs that never run at once. The block is
  /// freed with its last owner.
  ///
  /// ```cpp
  /// auto memory = std::make_shared<unique_block>(&device, 64 * MiB, 256);
  /// auto prefill = capture(stream, std::make_unique<graph_arena>(memory), …);
  /// auto decode = capture(stream, std::make_unique<graph_arena>(memory), …);   // 64 MiB in all
  /// ```
  /// The program must order the launches, on one stream or with `gpu::put_behind`. No block may outlive the
  /// body, because other graphs would overwrite the block; `capture` throws allocator_busy then. One
  /// `capture_switch` may know several arenas of one block, unless captures on several threads use them at
  /// once.
  /// @throws std::invalid_argument if `memory` is null or empty; std::bad_alloc as above
  explicit graph_arena(std::shared_ptr<unique_block const> memory, graph_arena_options const& options = {});
  /// Like the overload above, and expects the rehearsed layout. @throws as above; out_of_memory if the layout
  /// does not fit, or needs more alignment than the block has
  graph_arena(graph_layout const& rehearsed, std::shared_ptr<unique_block const> memory,
              graph_arena_options const& options = {});
  /// Like the overload above, by a plan; the rest of the block is the tail. @throws as above;
  /// std::invalid_argument if the plan is invalid, or aligns blocks to less than 256 bytes
  graph_arena(step_plan const& rehearsed, std::shared_ptr<unique_block const> memory,
              graph_arena_options const& options = {});

  /// Returns the range to its upstream, if there is one. Blocks in use become invalid.
  ~graph_arena() override;

  /// Allocates a block that shares no byte with any earlier block. In an arena with a plan, it may share
  /// bytes with dead blocks. O(1), amortised with a plan.
  /// @param bytes may be 0; the block then takes 256 bytes like a block of 1 byte
  /// @param align a power of two; blocks are aligned to at least 256
  /// @throws out_of_memory; std::invalid_argument if `align` is not a power of two, which is checked above
  /// 256, and at level 2 always. Nothing has changed then.
  // No gnu::alloc_size, because compilers would assume that a block of 0 bytes has no byte to write.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND {
    if (check_level >= 2 || align > default_alignment || !layout_.fits(bytes)) [[unlikely]]
      return allocate_slow(bytes, align);
    return place_next(bytes);
  }

  /// Marks a block as not in use. The address is not reused. A deallocation is wrong if the address is not a
  /// block in use, or if the size differs after rounding up to 256. It is counted, and handled as the options
  /// say. Ignores null. O(1), amortised with a plan.
  void deallocate(void* block, std::size_t bytes,
                  [[maybe_unused]] std::size_t align = default_alignment) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    if (!is_block_in_use(address, bytes)) [[unlikely]] {
      refuse(block, bytes);
      return;
    }
    update_peaks();
    used_bytes_ -= std::size_t{std::exchange(granules_[index_of(address)], 0)} * default_alignment;
    --used_blocks_;
    if (planned_ != nullptr) [[unlikely]]
      deallocate_planned(address);
  }

  /// Restarts the arena at the first address, and resets counts, peaks and `layout`. O(1). @pre the graph
  /// that uses the addresses is destroyed; `captured_graph::update` needs no reset
  /// @throws allocator_busy if blocks are in use; nothing has changed then
  void reset();

  /// The whole range of the arena.
  [[nodiscard]] byte_range range() const noexcept {
    return {layout_.begin(), layout_.end() - layout_.begin()};
  }
  /// True if `begin <= address < end`.
  [[nodiscard]] bool owns(void const* address) const noexcept {
    return range().contains(reinterpret_cast<std::uintptr_t>(address));
  }
  /// Bytes from the beginning to the end of the last block. Only `reset` lowers it.
  [[nodiscard]] std::size_t high_water_bytes() const noexcept { return layout_.high_water_bytes(); }

  /// The layout of all blocks since the beginning.
  [[nodiscard]] graph_layout layout() const noexcept { return layout_.layout(); }
  /// The rehearsed layout, if given to the constructor. `capture` throws `layout_mismatch` if `layout()`
  /// differs. An arena with a plan also has an expected layout, but nothing is thrown, because the tail
  /// serves differing requests.
  [[nodiscard]] std::optional<graph_layout> const& expected() const noexcept { return expected_; }
  /// True if other arenas may use the same memory.
  [[nodiscard]] bool is_shared() const noexcept { return memory_ != nullptr && upstream_ == nullptr; }
  /// True if the arena has a plan.
  [[nodiscard]] bool is_planned() const noexcept { return planned_ != nullptr; }

  /// Returns a snapshot of the counts. O(1).
  [[nodiscard]] graph_arena_stats stats() const noexcept;
  /// The name used in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }
  /// The resource that owns the range; null if the range was lent or is shared.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }

  /// Reports a violation for each broken invariant of the class comment. O(range).
  void check_invariants() const noexcept;

 private:
  friend capture_switch;
  friend class detail::rewound_arena;
  using granule_count = std::uint32_t;

  void add_plan(step_plan const& rehearsed);
  [[nodiscard]] bool has_block_at(std::uintptr_t address) const noexcept {
    return range().contains(address) && granules_[index_of(address)] != 0;
  }

  [[nodiscard]] std::size_t index_of(std::uintptr_t block) const noexcept {
    return (block - layout_.begin()) / default_alignment;
  }
  [[nodiscard]] bool is_block_in_use(std::uintptr_t address, std::size_t bytes) const noexcept {
    const std::size_t offset = address - layout_.begin();  // huge (wrapped) for a lower address
    // A size that wraps when rounded up gives 0, which is the size of no block.
    return offset < layout_.high_water_bytes() && offset % default_alignment == 0 &&
           detail::monotone_layout::block_bytes(bytes) / default_alignment ==
               granules_[offset / default_alignment] &&
           granules_[offset / default_alignment] != 0;
  }
  void* count_use(std::uintptr_t block, std::size_t size) noexcept {
    granules_[index_of(block)] = static_cast<granule_count>(size / default_alignment);
    used_bytes_ += size;
    ++used_blocks_;
    return reinterpret_cast<void*>(block);
  }
  // A deallocation raises the peaks, because use is highest before one.
  void update_peaks() noexcept {
    if (used_bytes_ > peak_bytes_) peak_bytes_ = used_bytes_;
    if (used_blocks_ > peak_blocks_) peak_blocks_ = used_blocks_;
  }
  // Places a block after all others. @pre the block fits
  void* place_next(std::size_t bytes) noexcept {
    const std::uintptr_t block = layout_.place(bytes);
    return count_use(block, layout_.high_water_bytes() - (block - layout_.begin()));
  }
  // Also called while the layout is closed, as with a plan, so that no request bypasses the plan.
  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  // Allocates the plan's block for the next request; null if the plan has no block for the request.
  [[nodiscard]] void* allocate_planned(std::size_t bytes, std::size_t align);
  void deallocate_planned(std::uintptr_t address) noexcept;
  void begin_planned() noexcept;
  TIDEMARK_COLD void refuse(void* block, std::size_t bytes) noexcept;

  detail::monotone_layout layout_;
  std::unique_ptr<granule_count[], void (*)(void*)> granules_;  // size of the block that begins here; 0: none
  std::size_t used_bytes_ = 0, used_blocks_ = 0;
  std::size_t peak_bytes_ = 0, peak_blocks_ = 0;  // at the last deallocation
  std::uint64_t bad_deallocations_ = 0;
  graph_arena_options options_;
  std::optional<graph_layout> expected_;
  std::unique_ptr<detail::plan_replayer> planned_;  // null: no plan
  detail::plan_replayer::request_time now_ = 1;     // counts requests by the plan and starts of captures
  std::shared_ptr<unique_block const> memory_;      // null: the range was lent
  std::pmr::memory_resource* upstream_ = nullptr;   // null: the range was lent or is shared
  capture_switch* recognising_switch_ = nullptr;    // recognises this arena's blocks; told of the arena's end
  std::size_t switched_blocks_ = 0, switched_bytes_ = 0;  // live blocks that were allocated through it
};

}  // namespace tidemark
