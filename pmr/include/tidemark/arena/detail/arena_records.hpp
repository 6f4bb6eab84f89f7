// SPDX-License-Identifier: Apache-2.0
/// @file
/// Records of an arena: chunks, pending destructors, blocks in their own ranges, and rewinds that ended
/// marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/allocation_observer.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/config.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/device_marks.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {

/// Marks host memory for sanitizers and Valgrind, as `device_marks` marks device memory. Stores nothing,
/// because these tools record each byte.
/// @tparam OnHost false for memory that the host must not touch and no tool watches; then nothing is reported
/// @tparam Fills true if level 2 overwrites freed bytes, which exposes late reads
template <bool OnHost, bool Fills = OnHost>
struct byte_marks {
  [[nodiscard]] static constexpr bool reserve() noexcept { return true; }
  [[nodiscard]] static constexpr bool has_room() noexcept { return true; }

  static void on_commit(std::uintptr_t first, std::uintptr_t last, char const*) noexcept {
    if constexpr (OnHost) poison(first, last - first);
  }
  static void on_decommit(std::uintptr_t first, std::uintptr_t last) noexcept {
    if constexpr (OnHost) unpoison(first, last - first);  // its owner may touch it
  }
  static void on_allocate(std::uintptr_t block, std::size_t bytes) noexcept {
    if constexpr (OnHost) unpoison(block, bytes);
  }
  static void on_resize(std::uintptr_t block, std::size_t new_bytes, std::size_t old_bytes) noexcept {
    if (OnHost && new_bytes > old_bytes) unpoison(block + old_bytes, new_bytes - old_bytes);
  }
  static void on_free(std::uintptr_t first, std::uintptr_t last) noexcept {
    if (Fills && check_level >= 2 && first < last) {
      unpoison(first, last - first);
      std::memset(reinterpret_cast<void*>(first), freed_fill, last - first);
    }
    if constexpr (OnHost) poison(first, last - first);
  }
};

/// One range of an arena. Records lie beside the memory and never in it, because the memory may be a
/// device's. Invariants: `begin <= committed <= end`, `begin <= touched <= end`, and `[begin, end)` lies in
/// `range`. If the arena traps, `end` may be lower: the capacity then ends in this chunk.
template <class AddressSpace>
struct arena_chunk {
  static constexpr bool on_host = AddressSpace::traits.host_accessible;
  // Not memory that other processes see: they may still read it while the arena's end frees it.
  static constexpr bool fills = on_host && !AddressSpace::traits.seen_by_others;
  using marks_type = std::conditional_t<on_host || !TIDEMARK_NVTX, byte_marks<on_host, fills>, device_marks>;

  byte_range range;              // as `reserve` returned it
  std::uintptr_t begin = 0;      // first address of a block: start of `range`, rounded up to `block_granule`
  std::uintptr_t end = 0;        // one past the last
  std::uintptr_t committed = 0;  // memory is behind [begin, committed)
  std::uintptr_t touched = 0;    // bytes at or above are fresh; `end` if fresh memory may be nonzero
  std::size_t base = 0;          // position of `begin`; valid in the chunks up to the current chunk
  std::uintptr_t floor = 0;      // the arena's floor when it moved on to the next chunk
  bool begins_scope = false;     // the first slice of a trapped scope
  bool is_untrapped = false;     // part of the trapped scope that begins here is untrapped
  arena_chunk* previous = nullptr;
  arena_chunk* next = nullptr;
  [[no_unique_address]] marks_type marks;  // tells tools which bytes are usable

  /// True for a slice of a trapped scope, which has no range of its own.
  [[nodiscard]] bool is_slice() const noexcept { return range.empty() && begin != 0; }
  void insert_after(arena_chunk& before) noexcept {
    previous = &before;
    next = before.next;
    if (next != nullptr) next->previous = this;
    before.next = this;
  }
  void unlink() noexcept {
    previous->next = next;
    if (next != nullptr) next->previous = previous;
  }
};

/// A destructor that runs when the arena is rewound to below `end_position`. It lies in the arena itself.
struct arena_finalizer {
  arena_finalizer* previous;
  void (*destroy)(void* object) noexcept;
  void* object;
  std::size_t end_position;  // position right after the object and all that its constructor allocated
};

/// A block of an observed arena. Its record is on the heap, because a device's memory holds no records.
struct observed_block {
  observed_block(allocation_observer& observed_by, void* first, std::size_t size) noexcept
      : observer{&observed_by}, block{first}, bytes{size} {}

  // Tells the observer, unless it was told before.
  void notify() noexcept {
    if (observer != nullptr) std::exchange(observer, nullptr)->released(block, bytes);
  }
  // Tells the observer, and ends the record.
  static void release(void* ending) noexcept {
    auto* const record = static_cast<observed_block*>(ending);
    record->notify();
    delete record;
  }

  arena_finalizer finalizer{};
  allocation_observer* observer;  // null: told
  void* block;
  std::size_t bytes;  // as requested
};

/// A block in its own range, beside the chunks. It lives until it is deallocated or the arena is rewound
/// to below its record, which lies in the arena.
struct aside_block {
  arena_finalizer finalizer;  // returns the range
  void* arena;
  byte_range range;  // empty once deallocated
  std::size_t bytes;
  aside_block* previous;
  std::uintptr_t floor;      // the arena's previous floor
  observed_block* observed;  // right above this record; null: the arena has no observer
};

/// The set-aside blocks of an arena. Only the memory of a shared arena sets blocks aside
/// (team/detail/extent_memory.hpp).
struct aside_blocks {
  // `deallocate` searches at most this many records, newest first.
  static constexpr int max_tried = 64;

  aside_block* newest = nullptr;
  aside_block* ended =
      nullptr;                 // ended by the running rewind; their ranges are returned after all destructors
  std::size_t held_bytes = 0;  // sum over blocks
  std::size_t peak_bytes = 0;

  template <class Arena>
  void* add(Arena& arena, std::size_t bytes, std::size_t align, space_refusal& refused);
  void observe(observed_block& record) noexcept;
  template <class Arena>
  void release_range(Arena& arena, aside_block& block) noexcept;
  template <class Arena>
  [[gnu::noinline]] void deallocate(Arena& arena, void const* block) noexcept;

  [[nodiscard]] aside_block* find(std::uintptr_t address, int tried) const noexcept {
    for (aside_block* block = newest; block != nullptr && tried-- > 0; block = block->previous)
      if (block->range.contains(address)) return block;
    return nullptr;
  }
};

/// The rewinds of an arena that ended marks.
///
/// A mark (position p, serial s) is live as long as no later rewind went below p: `p <= min{ r.position : r
/// in rewinds, r.serial > s }`. Only the suffix minima of the rewinds matter. `rewinds_` is therefore
/// strictly increasing in `position` and in `serial`, and the first entry with a serial above s holds that
/// minimum.
///
/// A rewind that ends no mark is not recorded. The number of entries is at most the number of marks at
/// distinct positions below the current position. A loop needs few entries, because its positions recur.
class rewind_history {
 public:
  /// The serial of a mark taken now.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }

  /// No live mark lies above this position.
  [[nodiscard]] std::size_t newest_mark() const noexcept { return newest_mark_; }

  /// Records a mark. Reserves room so that `rewound_to` never allocates.
  /// @throws std::bad_alloc with nothing changed.
  void marked_at(std::size_t position) {
    if (rewinds_.size() == rewinds_.capacity()) make_room();
    newest_mark_ = max_of(newest_mark_, position);
  }

  /// Records a rewind. Amortised O(1).
  void rewound_to(std::size_t position) noexcept {
    if (newest_mark_ <= position) return;
    newest_mark_ = position;
    while (!rewinds_.empty() && rewinds_.back().position >= position) rewinds_.pop_back();
    rewinds_.push_back({position, ++serial_});  // never reallocates: one entry per mark at most
  }

  /// True if a mark is live. O(1) if no mark has ended since it was taken.
  [[nodiscard]] bool is_live(std::size_t position, std::uint64_t serial) const noexcept {
    if (serial == serial_) return true;
    std::size_t later = 0;  // becomes the first rewind after the mark
    for (std::size_t last = rewinds_.size(); later != last;) {
      const std::size_t middle = later + (last - later) / 2;
      if (serial < rewinds_[middle].serial) last = middle;
      else later = middle + 1;
    }
    return later == rewinds_.size() || position <= rewinds_[later].position;
  }

 private:
  struct rewind {
    std::size_t position;
    std::uint64_t serial;
  };

  // Not inlined, so that `expect_resource` sees that the allocation is tidemark's. Not cold, because a batch
  // across chunks after a mark would then take six more instructions.
  [[gnu::noinline]] void make_room() { rewinds_.reserve(max_of(8, 2 * rewinds_.size())); }

  std::vector<rewind> rewinds_;
  std::uint64_t serial_ = 0;
  std::size_t newest_mark_ = 0;
};

}  // namespace tidemark::detail
