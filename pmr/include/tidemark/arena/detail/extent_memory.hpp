// SPDX-License-Identifier: Apache-2.0
/// @file
/// `extent_memory`: the address space of one thread's part of a shared arena.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <tidemark/arena/detail/extent_region.hpp>
#include <tidemark/arena/shared_arena_options.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/call_site.hpp>
#include <tidemark/core/detail/identity.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// A rewind of a shared arena that is going on, for level 2.
struct ongoing_rewind {
  std::atomic<unsigned long long> thread{0};  // that rewinds; 0: none
  char const* operation = "";
  call_site where;
};

/// An `address_space` whose ranges are extents of a shared arena's region. An extent is as large as all that
/// the thread has, within limits: so there are O(log n) of them, and at most half of them is unused.
///
/// A block of more than a quarter of the next extent that the current one has no room for is *set aside*: it
/// gets an extent of exactly its size, and the thread goes on in the current one. So what a thread leaves
/// unused at the end of an extent is less than a quarter of the next.
/// One thread at a time.
template <class AddressSpace>
class extent_memory {
 public:
  using region_type = extent_region<AddressSpace>;

  static constexpr bool host_accessible = AddressSpace::host_accessible;
  static constexpr bool fresh_is_zero = AddressSpace::fresh_is_zero;
  static constexpr bool commits = false;
  static constexpr bool reserves_at_once = false;
  static constexpr std::size_t block_alignment = AddressSpace::block_alignment;
  static constexpr std::size_t chunk_growth = 1;

  /// @param index of the thread in messages. All must outlive this object.
  extent_memory(region_type& region, typename region_type::mutex_type& mutex, team_options const& options,
                ongoing_rewind const& ongoing, std::size_t index) noexcept
      : region_{&region}, mutex_{&mutex}, options_{&options}, ongoing_{&ongoing}, index_{index} {}

  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t) {
    const byte_range range = claim(least_bytes, std::max(least_bytes, next_extent_bytes()));
    extent_bytes_ += range.size;
    return range;
  }
  [[nodiscard]] bool commit(byte_range) noexcept { return true; }
  [[nodiscard]] bool decommit(byte_range) noexcept { return false; }
  void release(byte_range range) noexcept {
    extent_bytes_ -= range.size;
    release_aside(range);
  }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return options_->min_extent_bytes; }
  [[nodiscard]] std::size_t granularity() const noexcept { return block_alignment; }

  /// Bytes of the range that was reserved last at or above this address are fresh.
  [[nodiscard]] std::uintptr_t touched() const noexcept { return touched_; }
  /// Whether a block for which there is no room in the current extent is set aside.
  [[nodiscard]] bool is_set_aside(std::size_t bytes) const noexcept {
    return bytes > next_extent_bytes() / 4;
  }
  /// An extent for a block that is set aside.
  [[nodiscard]] byte_range reserve_aside(std::size_t bytes) { return claim(bytes, bytes); }
  void release_aside(byte_range range) noexcept {
    held_bytes_ -= range.size;
    region_->give_back(range);
  }

  /// In extents of this thread.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  /// The place where the thread's handle was made.
  void set_place(call_site where) noexcept { place_ = where; }

  /// Level 2: reports a use while another thread rewinds.
  void before_use(char const* name, char const* operation) const noexcept {
    const unsigned long long rewinding = ongoing_->thread.load(std::memory_order_acquire);
    if (rewinding == 0 || rewinding == this_thread_number()) return;
    report_violation(violation_kind::wrong_thread, name,
                     "shared_arena '%s': %s by thread %zu, whose handle was made%s, during a %s%s: no other "
                     "thread may use the arena then",
                     name, operation, index_, place_.text().c_str(), ongoing_->operation,
                     ongoing_->where.text().c_str());
  }
  /// Whether another thread may have allocated the block: it lies in some extent of the shared arena.
  [[nodiscard]] bool may_be_of_another_thread(void const* block) const noexcept {
    const std::scoped_lock lock{*mutex_};
    return region_->holds(address_of(block));
  }
  /// Puts the numbers of the whole shared arena into a report, instead of this thread's.
  void complete(exhaustion_report& report) const noexcept {
    const std::scoped_lock lock{*mutex_};
    report.used_bytes = region_->claimed_bytes() - region_->free_bytes();
    report.committed_bytes = region_->committed_bytes();
    report.reserved_bytes = region_->reserved_bytes();
    report.largest_bytes = std::max(report.largest_bytes, region_->largest_bytes(refused_));
  }

 private:
  std::size_t next_extent_bytes() const noexcept {
    return std::clamp(extent_bytes_, options_->min_extent_bytes, options_->max_extent_bytes);
  }
  byte_range claim(std::size_t least, std::size_t wanted) {
    refused_ = {};
    const extent claimed = region_->claim(least, wanted, refused_);
    touched_ = claimed.touched;
    held_bytes_ += claimed.range.size;
    return claimed.range;
  }

  region_type* region_;
  typename region_type::mutex_type* mutex_;
  team_options const* options_;
  ongoing_rewind const* ongoing_;
  std::size_t index_;
  std::size_t held_bytes_ = 0;
  std::size_t extent_bytes_ = 0;  // of them, less what is set aside
  std::uintptr_t touched_ = 0;
  typename region_type::refusal refused_{};
  [[no_unique_address]] call_site place_;
};

}  // namespace tidemark::detail
