// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_ledger`: the live blocks of a resource that checks deallocations. Owns its records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/late_reports.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// Whether pools record their blocks: at level 2, and where AddressSanitizer looks on, which sees a pool's
/// slabs and not its blocks.
inline constexpr bool records_blocks = check_level >= 2 || TIDEMARK_ASAN != 0;

/// The live blocks by address, and the addresses that were freed last. Tells a double free from a wrong
/// size, an interior pointer or a foreign one.
///
/// Its records come from `operator new`, never from a resource that is being checked. O(log blocks) a call.
/// One thread at a time.
class block_ledger {
 public:
  /// The last so many freed addresses are remembered, and up to as many before them.
  static constexpr std::size_t max_freed = std::size_t{1} << 15;

  using blocks = std::map<std::uintptr_t, live_block>;

  /// A block was allocated. @throws std::bad_alloc, with nothing changed.
  void add(live_block const& block);

  /// The number of the next request, from 1.
  [[nodiscard]] std::uint64_t next_number() noexcept { return ++requests_; }

  /// A block is being freed.
  /// @param late gets the report of a wrong call
  /// @param kind, resource what resource it is, for the report: `pool 'step': double free of 64 bytes ...`
  /// @return what was recorded; nothing, after a report of `violation_kind::bad_deallocate`, if the call
  /// is wrong: the block is then still recorded as it was.
  std::optional<live_block> remove(late_reports& late, char const* kind, char const* resource,
                                   void const* block, std::size_t bytes, std::size_t align) noexcept;

  /// Forgets all blocks.
  void clear() noexcept;

  /// The live blocks, by address.
  [[nodiscard]] blocks const& live() const noexcept { return live_; }

 private:
  blocks live_;
  // Freed, and not in live_: the newest, max_freed at most, and those that were the newest before, so
  // that the ledger of a long run stays bounded.
  blocks freed_, freed_before_;
  std::uint64_t requests_ = 0;
};

}  // namespace tidemark::detail
