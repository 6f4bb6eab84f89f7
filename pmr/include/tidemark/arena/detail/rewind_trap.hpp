// SPDX-License-Identifier: Apache-2.0
/// @file
/// `rewind_trap`: the addresses that an arena gives to trapped scopes, and whose turn it is. Owns the addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <tidemark/arena/arena_options.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/virtual_memory.hpp>

namespace tidemark::detail {

struct trap_log;

/// Slices of one reservation, each for one scope, taken upwards: `region.begin <= next <= region.end()`. Below `next`
/// lie the slices in use and, without memory and inaccessible, those of scopes that have ended. When none is in use and
/// no room is left, `next` goes back to the beginning.
///
/// The turns are those of GWP-ASan: after each trapped scope a random number of rewinds, `one_in` on average. The
/// places of the last rewinds are in a log that the handler of the fault may read at any time.
/// Thread-safety: as its arena.
class rewind_trap {
 public:
  /// @throws std::bad_alloc.
  rewind_trap(trap_options const& options, char const* name);
  rewind_trap(rewind_trap const&) = delete;
  rewind_trap& operator=(rewind_trap const&) = delete;
  ~rewind_trap();

  /// Whether the next scope is to be trapped.
  [[nodiscard]] bool is_due() const noexcept { return rewinds_to_go_ == 0; }
  void count_rewind() noexcept { rewinds_to_go_ -= rewinds_to_go_ != 0 ? 1 : 0; }
  /// A scope begins to be trapped: the next turn is drawn.
  void draw() noexcept;

  /// Takes the region from a space; without success no scope will be trapped.
  void reserve(virtual_memory& space) noexcept;
  /// Addresses without memory, whole pages. @return an empty range if there are none
  [[nodiscard]] byte_range take(virtual_memory& space, std::size_t bytes) noexcept;
  /// Takes the newest slice back, which was not committed.
  void give_back(byte_range slice) noexcept;
  /// A slice was rewound over: makes its memory inaccessible, for good if that succeeds, and records who called.
  /// @param used the first address that was not touched
  /// @return false if the system does not take the memory back
  bool retire(virtual_memory& space, byte_range slice, std::uintptr_t used,
              std::uintptr_t committed) noexcept;
  /// A scope that was due is over, or has no slice.
  void on_scope(bool is_trapped) noexcept { ++(is_trapped ? trapped_ : untrapped_); }
  /// Returns the region. @pre no scope has a slice. @return the part of it that ever had memory
  byte_range release(virtual_memory& space) noexcept;

  /// Adds its own numbers to an arena's.
  void add_to(arena_stats& stats) const noexcept;
  /// Formula of an invariant that does not hold, or null.
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  trap_options options_;
  std::uint64_t random_;
  std::uint64_t rewinds_to_go_ = 0;  // 0: a scope is due
  trap_log* log_;                    // never freed: a fault may come at any time
  byte_range region_;                // there while the arena has its first chunk
  std::uintptr_t next_ = 0;          // addresses of the region at or above are fresh
  std::uintptr_t highest_ = 0;       // no slice has ended above
  std::size_t slices_ = 0;           // in use, or lost
  std::size_t lost_bytes_ = 0;       // the system would not take them back, so they are accessible still
  std::uint64_t trapped_ = 0;
  std::uint64_t untrapped_ = 0;
  std::uint64_t reuses_ = 0;
  std::uint64_t system_calls_ = 0;
};

using rewind_trap_ptr = std::unique_ptr<rewind_trap>;

}  // namespace tidemark::detail
