// SPDX-License-Identifier: Apache-2.0
/// @file
/// `extent_memory`: the address space of one thread's part of a shared arena, and the large blocks that the
/// part sets aside.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <tidemark/arena/detail/arena_records.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/team/detail/extent_region.hpp>
#include <tidemark/team/shared_arena_options.hpp>

namespace tidemark::detail {

/// The common state of the threads' parts of a shared arena.
template <class AddressSpace>
struct team_state {
  using region_type = extent_region<AddressSpace>;

  team_options options;
  mutable fork_safe<> mutex;                          // protects the regions
  std::vector<std::unique_ptr<region_type>> regions;  // one region, or one for each of `options.threads`
  // The current rewind, for level 2.
  std::atomic<unsigned long long> rewinding_thread{0};  // 0: there is no rewind
  char const* rewind_operation = "";
  call_site rewind_place;
};

/// An `address_space` whose ranges are extents of a shared arena's region. The next extent is as large as all
/// extents of the thread together, within limits, which keeps their number low.
///
/// A block that does not fit the current extent is *set aside* if it takes more than a quarter of the next
/// extent. The block gets an extent of whole pages, and the thread continues in the current extent. The
/// unused end of an extent is therefore less than a quarter of the next extent. A block is not set aside if
/// rounding it up to pages costs more than a quarter of the block. Thread-safety: one thread at a time.
template <class AddressSpace>
class extent_memory : public committed_ranges {
 public:
  using region_type = extent_region<AddressSpace>;

  static constexpr space_traits traits{.host_accessible = AddressSpace::traits.host_accessible,
                                       .device_accessible = AddressSpace::traits.device_accessible,
                                       .fresh_is_zero = AddressSpace::traits.fresh_is_zero,
                                       .reserves_at_once = false,
                                       .block_alignment = AddressSpace::traits.block_alignment};

  static constexpr bool is_part_of_team = true;

  /// @param index number of the thread in messages. `team` and `region` must outlive this object.
  extent_memory(team_state<AddressSpace> const& team, region_type& region, std::size_t index) noexcept
      : team_{&team}, region_{&region}, index_{index} {}

  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t) {
    const byte_range range = claim(least_bytes, (std::max)(least_bytes, next_extent_bytes()));
    extent_bytes_ += range.size;
    return range;
  }
  void release(byte_range range) noexcept {
    extent_bytes_ -= range.size;
    release_aside(range);
  }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return team_->options.min_extent_bytes; }
  [[nodiscard]] std::size_t granularity() const noexcept { return traits.block_alignment; }

  /// Returns the address from which bytes of the last reserved range are fresh.
  [[nodiscard]] std::uintptr_t touched() const noexcept { return touched_; }
  /// Returns true if a block that does not fit the current extent is set aside.
  [[nodiscard]] bool is_set_aside(std::size_t bytes) const noexcept {
    const std::size_t rounding = align_up(bytes, region_type::page_bytes) - bytes;
    return bytes > next_extent_bytes() / 4 && rounding <= bytes / 4;
  }
  /// Returns the minimum bytes of a block that may be set aside.
  [[nodiscard]] std::size_t min_aside_bytes() const noexcept { return team_->options.min_extent_bytes / 4; }
  /// Reserves an extent for a block that is set aside: the whole pages of the block.
  [[nodiscard]] byte_range reserve_aside(std::size_t bytes, std::size_t align) {
    const std::size_t slack = align > region_type::page_bytes ? align : 0;
    const byte_range range = claim(bytes + slack, bytes + slack);
    if (slack == 0 || range.empty()) return range;
    const std::uintptr_t block = align_up(range.begin, align);
    const byte_range kept{block, align_up(bytes, region_type::page_bytes)};
    if (kept.begin > range.begin) release_aside({range.begin, kept.begin - range.begin}, false);
    if (kept.end() < range.end()) release_aside({kept.end(), range.end() - kept.end()}, false);
    return kept;
  }
  void release_aside(byte_range range, bool is_whole = true) noexcept {
    held_bytes_ -= range.size;
    region_->return_extent(range, is_whole);
  }

  /// Returns the bytes in extents of this thread.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  /// Sets the place of the thread's last call of `local`.
  void set_place(call_site where) noexcept { place_ = where; }

  /// Level 2: reports a use while another thread rewinds.
  void before_use(char const* name, char const* operation) const noexcept {
    const unsigned long long rewinding = team_->rewinding_thread.load(std::memory_order_acquire);
    if (rewinding == 0 || rewinding == this_thread_number()) return;
    report_violation(violation_kind::wrong_thread, name,
                     "shared_arena '%s': %s by thread %zu, whose handle was made%s, during a %s%s: no other "
                     "thread may use the arena then",
                     name, operation, index_, place_.text().c_str(), team_->rewind_operation,
                     team_->rewind_place.text().c_str());
  }
  /// Returns true if the block is in any extent of the shared arena. Another thread may have allocated the
  /// block.
  [[nodiscard]] bool may_be_of_another_thread(void const* block) const noexcept {
    const std::scoped_lock lock{team_->mutex};
    return std::ranges::any_of(team_->regions, [=](auto const& region) { return region->holds(block); });
  }
  /// Returns the reason why the region refused the last claim.
  [[nodiscard]] char const* refusal() const noexcept {
    const std::scoped_lock lock{team_->mutex};
    return refused_ != space_refusal::none ? region_->refusal_text() : "";
  }
  /// Replaces this thread's numbers in a report by the numbers of the region. The used bytes are its claimed
  /// extents, because other threads allocate in them concurrently.
  void complete(exhaustion_report& report) const noexcept {
    const std::scoped_lock lock{team_->mutex};
    report.used_bytes = region_->claimed_bytes() - region_->free_bytes();
    report.committed_bytes = region_->stats().committed_bytes;
    report.reserved_bytes = region_->stats().reserved_bytes;
    report.largest_bytes = (std::max)(report.largest_bytes, region_->largest_bytes(refused_));
  }

 private:
  std::size_t next_extent_bytes() const noexcept {
    return std::clamp(extent_bytes_, team_->options.min_extent_bytes, team_->options.max_extent_bytes);
  }
  byte_range claim(std::size_t least, std::size_t wanted) {
    refused_ = {};
    const byte_range range = region_->claim(least, wanted, touched_, refused_);
    held_bytes_ += range.size;
    return range;
  }

  team_state<AddressSpace> const* team_;
  region_type* region_;
  std::size_t index_;
  std::size_t held_bytes_ = 0;
  std::size_t extent_bytes_ = 0;  // bytes in extents, without blocks set aside
  std::uintptr_t touched_ = 0;
  space_refusal refused_{};
  [[no_unique_address]] call_site place_;
};

// ---- blocks that a thread's part sets aside, as members of its arena's state

// The record of a block is a destructor record whose destructor returns the range. Marks, scopes and rewinds
// therefore need no case for the block.
template <class Arena>
void* aside_blocks::add(Arena& arena, std::size_t bytes, std::size_t align, space_refusal& refused) {
  ++arena.system_calls_;
  const std::size_t size = arena.block_bytes(bytes);
  const byte_range range = arena.space_.reserve_aside(size, align);
  if (range.empty()) {
    refused = space_refusal::addresses;
    return nullptr;
  }
  void* memory = nullptr;
  try {
    memory = arena.find_block(sizeof(aside_block), alignof(aside_block), refused);
  } catch (...) {
    arena.space_.release_aside(range);
    throw;
  }
  if (memory == nullptr) {
    arena.space_.release_aside(range);
    return nullptr;
  }
  const auto end_of_record = [](void* object) noexcept {
    auto& block = *static_cast<aside_block*>(object);
    aside_blocks& asides = static_cast<Arena*>(block.arena)->asides_;
    asides.newest = block.previous;
    block.previous = std::exchange(asides.ended, &block);
  };
  auto* const record =
      std::construct_at(static_cast<aside_block*>(memory),
                        aside_block{{arena.finalizers_, end_of_record, memory, arena.position()},
                                    &arena,
                                    range,
                                    size,
                                    newest,
                                    arena.floor_,
                                    nullptr});
  arena.finalizers_ = &record->finalizer;
  arena.floor_ = arena.cursor_;
  newest = record;
  held_bytes += size;
  peak_bytes = (std::max)(peak_bytes, held_bytes);
  arena.chunk_->marks.on_commit(range.begin, range.end(), arena.name());
  arena.chunk_->marks.on_allocate(range.begin, bytes);
  if constexpr (check_level >= 2) ++arena.allocations_;
  return range.data();
}

// Returns the range of a block that is set aside, unless the range was returned before.
template <class Arena>
void aside_blocks::release_range(Arena& arena, aside_block& block) noexcept {
  if (block.range.empty()) return;
  held_bytes -= block.bytes;
  arena.before_free(block.range.begin, block.range.end());
  arena.chunk_->marks.on_free(block.range.begin, block.range.end());
  arena.chunk_->marks.on_decommit(block.range.begin, block.range.end());
  arena.space_.release_aside(std::exchange(block.range, {}));
}

// Connects the record of an observed block with the block's own record, if the block is set aside.
inline void aside_blocks::observe(observed_block& record) noexcept {
  if (newest != nullptr && newest->range.data() == record.block) newest->observed = &record;
}

// Returns the range of a block at once, in any order. Removes records while the newest record has no block,
// and no mark or scope is newer than the record.
template <class Arena>
void aside_blocks::deallocate(Arena& arena, void const* block) noexcept {
  aside_block* const found = find(address_of(block), max_tried);
  if (found == nullptr || found->range.data() != block) return;
  if (found->observed != nullptr) found->observed->notify();
  release_range(arena, *found);
  for (aside_block* top = newest; top != nullptr && top->range.empty(); top = newest) {
    const std::size_t end = top->finalizer.end_position;
    observed_block* const observed = top->observed;
    if (arena.finalizers_ != (observed != nullptr ? &observed->finalizer : &top->finalizer) ||
        end != arena.position() || arena.marked_ == arena.cursor_ ||
        (arena.innermost() != nullptr && arena.scope_floor() >= end))
      return;
    arena.finalizers_ = top->finalizer.previous;
    newest = top->previous;
    const std::uintptr_t floor = top->floor;
    arena.lower_cursor(address_of(top));
    arena.floor_ = observed != nullptr ? arena.cursor_ : (std::min)(floor, arena.cursor_);
    if (observed != nullptr) observed_block::release(observed);
    if (arena.cursor_ == arena.chunk_->begin) arena.return_to_previous_chunk();
  }
}

}  // namespace tidemark::detail
