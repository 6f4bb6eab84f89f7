// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_arena`: memory whose addresses get baked into a graph. It owns what it took of an upstream, alone
/// or with other arenas; a range that was lent to it stays the lender's. `rewound_arena`: an arena while a
/// graph is captured anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <type_traits>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/unique_block.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/graph/detail/monotone_layout.hpp>
#include <tidemark/graph/graph_layout.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark {

/// What a graph arena does at a wrong deallocation: of a block twice, of another size, or of a block that
/// was never its own.
enum class bad_deallocate_policy {
  report,  ///< report a violation, which aborts by default
  ignore,  ///< count it, in `graph_arena_stats::bad_deallocations`, and do nothing
};

/// How a graph arena is made.
struct graph_arena_options {
  /// What to do with a block that was never the arena's.
  bad_deallocate_policy bad_deallocate = bad_deallocate_policy::report;
  /// Name in messages and statistics; must outlive the arena and the exceptions it throws.
  char const* name = "graph_arena";
};

/// A snapshot of a graph arena. Bytes of blocks are multiples of 256.
///
/// `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes <=
/// high_water_bytes <= reserved_bytes`.
struct graph_arena_stats {
  char const* name = "";                ///< the arena's name
  std::uint64_t allocations = 0;        ///< blocks so far
  std::uint64_t deallocations = 0;      ///< blocks so far
  std::uint64_t bad_deallocations = 0;  ///< wrong ones so far
  std::size_t used_blocks = 0;          ///< in use now
  std::size_t peak_blocks = 0;          ///< most in use at once
  std::size_t used_bytes = 0;           ///< in use now
  std::size_t peak_bytes = 0;           ///< most in use at once
  std::size_t high_water_bytes = 0;     ///< from the beginning to the end of the last block
  std::size_t reserved_bytes = 0;       ///< of its range
};

class capture_switch;

namespace detail {
class rewound_arena;

/// Where an arena was when a body began to allocate.
struct graph_arena_mark {
  monotone_layout layout;
  std::size_t request = 0;  // the next one of the plan; 0 if there is none
};
}  // namespace detail

/// A bump arena over one range that never reuses an address; with a plan, only when all blocks there are
/// dead.
///
/// A graph that a device replays, such as a CUDA graph, has the addresses of its memory baked in: every
/// replay reads and writes where the capture did. Ordinary allocators reuse a temporary's memory as soon as
/// it is freed, maybe for something that is alive outside the graph, and the next replay overwrites that.
/// Here nothing is reused: the high water never goes down, `deallocate` is bookkeeping only, and the whole
/// range belongs to the graph for as long as the graph lives.
///
/// ```cpp
/// graph_layout const layout = rehearse(body);          // how much memory does it need?
/// graph_arena memory{layout, &device};                 // exactly this size, from a gpu::device_resource
/// body(memory);                                        // while a stream captures; see capture.hpp
/// ```
/// **By a plan.** A capture on one stream does what it does in the order in which it was captured, and so
/// does each replay. So a block may have the bytes of another that was deallocated before its request. An
/// arena made of a plan of the capture (`rehearse_plan`) lays its blocks so, most often in no more memory
/// than is live at once. What the capture does otherwise than rehearsed lies behind the planned memory, one
/// block after the other, as far as there is a tail for it. Captures of several streams that are not put in
/// one order must not use such an arena.
///
/// ```cpp
/// graph_arena memory{rehearse_plan(body), 1 * MiB, &device};   // and a tail of 1 MiB
/// ```
/// **On shared memory.** Graphs that never run at once can have their temporaries in the same bytes: each has
/// an arena of its own on memory that they share. The program must launch them one behind the other, on one
/// stream or by `gpu::put_behind`. No block may outlive the body, where the other graphs would overwrite it:
/// `capture` throws allocator_busy. The memory goes with the last arena.
///
/// ```cpp
/// auto memory = std::make_shared<unique_block>(&device, 64 * MiB, 256);
/// auto prefill = capture(stream, std::make_unique<graph_arena>(memory), …);
/// auto decode = capture(stream, std::make_unique<graph_arena>(memory), …);   // 64 MiB in all
/// ```
/// It makes no call to its upstream or to a device between its construction and its destruction, and never
/// touches the range: an address that means nothing to the host will do. Blocks are multiples of 256 bytes,
/// and so are their addresses.
///
/// Invariants, with `g = 256`, checked by `check_invariants()`:
/// - `begin <= high water <= end`, all multiples of `g`
/// - `granules[i] != 0` if and only if a block in use begins at `begin + i * g`; it takes `granules[i] * g`
///   bytes, and they end at or below the beginning of the next
/// - `used_bytes == g * sum of granules`, `used_blocks == number of granules[i] != 0`
///
/// Complexity: allocate and deallocate O(1), in any order, at any number of live blocks; by a plan
/// amortised. Host memory: 4 bytes for each 256 of the range, of which the system backs the pages that
/// block beginnings fall into, and about 300 for each request of a plan. Thread-safety: one thread at a
/// time.
class graph_arena final : public detail::forwarding_resource<graph_arena> {
 public:
  /// Alignment of every block, at least.
  static constexpr std::size_t default_alignment = detail::monotone_layout::granule_bytes;

  /// So many bytes of its range are used at most: just below 1 TiB, more than any device has.
  static constexpr std::size_t max_bytes = detail::monotone_layout::max_bytes;

  /// An arena on a range that the caller keeps alive. Its ends are rounded inwards to multiples of 256.
  /// @throws std::bad_alloc if there is no host memory for the bookkeeping.
  explicit graph_arena(byte_range range, graph_arena_options const& options = {});
  /// An arena on `bytes` bytes, rounded up to a multiple of 256, of `upstream`; null: the default resource.
  /// @throws what the upstream throws; out_of_memory if `bytes` is more than `max_bytes`; std::bad_alloc as
  /// above. The upstream has everything back then.
  graph_arena(std::size_t bytes, std::pmr::memory_resource* upstream,
              graph_arena_options const& options = {});
  /// An arena of exactly what was rehearsed, which expects just that: see `expected`. @throws as above, and
  /// std::invalid_argument if the layout's alignment is no power of two.
  graph_arena(graph_layout const& rehearsed, std::pmr::memory_resource* upstream,
              graph_arena_options const& options = {});

  /// An arena laid out by a plan of what was rehearsed, with `tail_bytes` bytes above it for what the
  /// capture does otherwise. @throws as above; std::invalid_argument if the plan is not valid, or aligns
  /// to less than 256 bytes.
  graph_arena(step_plan const& rehearsed, std::size_t tail_bytes, std::pmr::memory_resource* upstream,
              graph_arena_options const& options = {});

  /// An arena on all of a block that other arenas may have, too: see above. Several of one block may be known
  /// to one `capture_switch`; captures of several threads at once through it must not have the same block.
  /// @throws std::invalid_argument if `memory` is null or empty; std::bad_alloc as above.
  explicit graph_arena(std::shared_ptr<unique_block const> memory, graph_arena_options const& options = {});
  /// The same, of what was rehearsed, which it expects. @throws as above; out_of_memory if it does not fit
  /// there, or is aligned to more than the block.
  graph_arena(graph_layout const& rehearsed, std::shared_ptr<unique_block const> memory,
              graph_arena_options const& options = {});
  /// The same by a plan, with all that is above it as the tail. @throws as above; std::invalid_argument if
  /// the plan is not valid, or aligns to less than 256 bytes.
  graph_arena(step_plan const& rehearsed, std::shared_ptr<unique_block const> memory,
              graph_arena_options const& options = {});

  /// Returns the range to its upstream, if it has one. Blocks in use become invalid.
  ~graph_arena() override;

  /// A block that no block before it shares a byte with, but by a plan: then one that is dead may.
  /// @param bytes may be 0: the block is then as good as one of 1 byte, and differs from all others.
  /// @param align a power of two; blocks are aligned to 256 at least.
  /// @throws out_of_memory; std::invalid_argument if `align` is found not to be a power of two, which only
  /// level 2 looks at where it is below 256. Nothing has changed then.
  // Without gnu::alloc_size: compilers would take a block of 0 bytes for one without a byte to write.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND {
    if (check_level >= 2 || align > default_alignment || !layout_.fits(bytes)) [[unlikely]]
      return allocate_slow(bytes, align);
    return place_next(bytes);
  }

  /// Records that a block is not in use any more. Its address is not reused. What is not a block in use
  /// of that size, rounded up to a multiple of 256, is refused as the options say, and counted. Null:
  /// does nothing.
  void deallocate(void* block, std::size_t bytes, std::size_t = default_alignment) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    if (!is_block_in_use(address, bytes)) [[unlikely]] {
      refuse(block, bytes);
      return;
    }
    granule_count& granules = granules_[index_of(address)];
    used_bytes_ -= std::size_t{granules} * default_alignment;
    --used_blocks_;
    granules = 0;
    if (planned_ != nullptr) [[unlikely]]
      deallocate_planned(address);
  }

  /// Starts anew: the next capture gets the first address again. Only where the graph that has the
  /// addresses is gone; `captured_graph::update` needs no reset. Counts, peaks and `layout` start anew, too.
  /// @throws allocator_busy if blocks are in use, with nothing changed. O(1).
  void reset();

  /// The range, used or not.
  [[nodiscard]] byte_range range() const noexcept {
    return {layout_.begin(), layout_.end() - layout_.begin()};
  }
  /// Whether an address lies in the range: at `begin` and above, and below `end`.
  [[nodiscard]] bool owns(void const* address) const noexcept {
    return range().contains(reinterpret_cast<std::uintptr_t>(address));
  }
  /// Bytes from the beginning to the end of the last block. Never goes down but by `reset`.
  [[nodiscard]] std::size_t high_water_bytes() const noexcept { return layout_.high_water_bytes(); }

  /// What was allocated since the beginning.
  [[nodiscard]] graph_layout layout() const noexcept { return layout_.layout(); }
  /// What was rehearsed, if the arena was made of that: `capture` throws `layout_mismatch` where `layout()`
  /// differs. An arena by a plan has it too, and its tail for what differs: nothing is thrown.
  [[nodiscard]] std::optional<graph_layout> const& expected() const noexcept { return expected_; }
  /// Whether other arenas may lie on the same memory.
  [[nodiscard]] bool is_shared() const noexcept { return shared_ != nullptr; }
  /// Whether it was made of a plan.
  [[nodiscard]] bool is_planned() const noexcept { return planned_ != nullptr; }

  /// A snapshot in numbers. O(1).
  [[nodiscard]] graph_arena_stats stats() const noexcept;
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }
  /// The resource that the range was taken from; null if it was lent.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }

  /// Reports a violation for every invariant of the class comment that does not hold. O(range).
  void check_invariants() const noexcept;

 private:
  friend capture_switch;
  friend class detail::rewound_arena;
  using granule_count = std::uint32_t;
  struct free_memory {
    void operator()(granule_count* memory) const noexcept { std::free(memory); }
  };

  graph_arena(unique_block taken, graph_arena_options const& options);
  void require_fits(graph_layout const& rehearsed) const;
  void add_plan(step_plan const& rehearsed);
  [[nodiscard]] bool has_block_at(std::uintptr_t address) const noexcept {
    return range().contains(address) && granules_[index_of(address)] != 0;
  }

  [[nodiscard]] std::size_t index_of(std::uintptr_t block) const noexcept {
    return (block - layout_.begin()) / default_alignment;
  }
  [[nodiscard]] bool is_block_in_use(std::uintptr_t address, std::size_t bytes) const noexcept {
    const std::size_t offset = address - layout_.begin();  // huge where the address lies below
    // A size from which rounding up would wrap ends at 0, which is no block's.
    return offset < layout_.high_water_bytes() && offset % default_alignment == 0 &&
           detail::monotone_layout::block_bytes(bytes) / default_alignment ==
               granules_[offset / default_alignment] &&
           granules_[offset / default_alignment] != 0;
  }
  void* note_use(std::uintptr_t block, std::size_t size) noexcept {
    granules_[index_of(block)] = static_cast<granule_count>(size / default_alignment);
    used_bytes_ += size;
    if (used_bytes_ > peak_bytes_) peak_bytes_ = used_bytes_;
    if (++used_blocks_ > peak_blocks_) peak_blocks_ = used_blocks_;
    return reinterpret_cast<void*>(block);
  }
  // A block behind all others. @pre it fits there
  void* place_next(std::size_t bytes) noexcept {
    const std::uintptr_t block = layout_.place(bytes);
    return note_use(block, layout_.high_water_bytes() - (block - layout_.begin()));
  }
  // Where the layout is closed, too: by a plan, that nothing is placed without a look at it.
  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  // A block by the plan; null if that has none for this request.
  [[nodiscard]] void* take_planned(std::size_t bytes, std::size_t align);
  void deallocate_planned(std::uintptr_t address) noexcept;
  void begin_planned() noexcept;
  TIDEMARK_COLD void refuse(void* block, std::size_t bytes) noexcept {
    detail::late_reports now;
    refuse(now, block, bytes);
  }
  void refuse(detail::late_reports& late, void* block, std::size_t bytes) noexcept;

  detail::monotone_layout layout_;
  std::unique_ptr<granule_count[], free_memory> granules_;  // of the block that begins there; 0: none in use
  std::size_t used_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::size_t used_blocks_ = 0;
  std::size_t peak_blocks_ = 0;
  std::uint64_t bad_deallocations_ = 0;
  graph_arena_options options_;
  std::optional<graph_layout> expected_;
  std::unique_ptr<detail::plan_replayer> planned_;  // null: there is no plan
  detail::plan_replayer::request_time now_ = 1;     // requests so far by the plan, beginnings of captures too
  unique_block taken_;                              // of the upstream; empty: shared, or the range was lent
  std::shared_ptr<unique_block const> shared_;      // null: no other arena has it
  std::pmr::memory_resource* upstream_ = nullptr;   // null: the range was lent
  capture_switch* known_to_ = nullptr;  // recognises this arena's blocks, and must hear of its end
};

namespace detail {

/// Rewinds an arena to the mark at which a graph's body began to allocate, so that the body gets the same
/// addresses again; and puts it back at its end, unless it is kept, because the graph goes on with what it
/// had.
///
/// That breaks the arena's rule that no address is used twice, and is right here alone: the new graph takes
/// the place of the old one, and each of its launches comes behind all those before. Blocks below the mark
/// stay.
///
/// Where the arena is known to a switch, other threads may deallocate blocks of it meanwhile: each step has
/// the switch's lock. Thread-safety: one thread at a time. Complexity: O(bytes above the mark / 256) where
/// blocks are in use, and O(requests) by a plan.
class rewound_arena {
 public:
  /// @throws allocator_busy if blocks are in use that the body had allocated, with nothing changed.
  [[nodiscard]] rewound_arena(graph_arena& arena, graph_arena_mark const& mark);
  rewound_arena(rewound_arena const&) = delete;
  rewound_arena& operator=(rewound_arena const&) = delete;
  /// Unless kept: counts and layout are what they were before. Blocks that are in use above the mark stay so,
  /// in addition: they lie where the graph has its temporaries, whose launches overwrite them.
  ~rewound_arena() {
    if (arena_ != nullptr) restore();
  }

  /// The arena stays as it is now.
  void keep() noexcept { arena_ = nullptr; }

  /// Where an arena is: what a body allocates from now on lies behind it. O(1).
  [[nodiscard]] static graph_arena_mark mark_of(graph_arena const& arena) noexcept;
  /// @throws allocator_busy if other arenas have the memory, too, and blocks are in use: other graphs would
  /// overwrite them.
  static void require_no_block_outlives(graph_arena const& arena);

 private:
  [[nodiscard]] static std::unique_lock<fork_safe<>> locked(graph_arena const& arena);
  template <class Function>
  void for_each_block_since(graph_arena_mark const& mark, Function function) const;
  void restore() noexcept;

  graph_arena* arena_;  // null: kept
  graph_arena_mark mark_;
  monotone_layout before_;
  std::size_t peak_bytes_before_ = 0, peak_blocks_before_ = 0;
};

}  // namespace detail
}  // namespace tidemark
