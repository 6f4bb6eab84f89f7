// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_ledger`: the live blocks of a resource that checks deallocations, and their reports. Owns its
/// records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// True if pools record their blocks: at level 2, and with AddressSanitizer, which sees a pool's slabs and
/// not its blocks.
inline constexpr bool records_blocks = check_level >= 2 || TIDEMARK_ASAN != 0;

/// Live blocks by address, and recently freed addresses. Distinguishes a double free from a wrong size, an
/// interior pointer or a foreign pointer.
///
/// Allocates its records by `operator new`, never from a checked resource. O(log blocks) per call. Not
/// thread-safe: one thread at a time.
class block_ledger {
 public:
  /// Number of freed addresses that are always remembered; up to twice as many may be.
  static constexpr std::size_t max_freed = std::size_t{1} << 15;

  using blocks = std::map<std::uintptr_t, live_block>;

  /// Records an allocated block. @throws std::bad_alloc, with nothing changed.
  void add(live_block const& block);

  /// Number of the next request, from 1.
  [[nodiscard]] std::uint64_t next_number() noexcept { return ++requests_; }

  /// Removes the record of a block that is being freed.
  /// @param kind, resource kind and name of the resource, for the report: `pool 'step': double free of 64
  /// bytes ...`
  /// @return the record. Empty for a wrong call, after a report of `violation_kind::bad_deallocate`; records
  /// are then unchanged.
  std::optional<live_block> remove(char const* kind, char const* resource, void const* block,
                                   std::size_t bytes, std::size_t align) noexcept;

  /// Forgets all blocks.
  void clear() noexcept;

  /// Live blocks by address.
  [[nodiscard]] blocks const& live() const noexcept { return live_; }

 private:
  blocks live_;
  // Freed blocks that are not in live_: the newest, at most max_freed, and the previous generation. The
  // ledger of a long run stays bounded.
  blocks freed_, freed_before_;
  std::uint64_t requests_ = 0;
};

/// The record of a block that the calling thread has allocated: at `site`, or else at the innermost
/// `allocation_site`.
[[nodiscard]] live_block block_here(void const* block, std::size_t bytes, std::size_t align,
                                    std::uint64_t number, std::optional<std::source_location> site) noexcept;

/// "64 bytes aligned to 16 at 0x5581, request 3, from model.cpp:12 (loading weights)". An array, because reports
/// may not allocate.
[[nodiscard]] std::array<char, 384> describe(live_block const& block) noexcept;

/// Live blocks, oldest first. @throws std::bad_alloc.
[[nodiscard]] std::vector<live_block> live_blocks(block_ledger const& ledger);

/// Reports `violation_kind::leak` if blocks with numbers from `first_number` on are live. The message has
/// their number, their bytes, and as many blocks as fit.
/// @param kind, resource kind and name of the resource, for the message: `tracking_resource 'weights': leak:
/// 3 blocks ...`
/// @param when more information, placed before "leak"
void report_leak(char const* kind, char const* resource, block_ledger const& ledger,
                 std::uint64_t first_number = 0, char const* when = "",
                 by_default then = by_default::aborts) noexcept;

/// The record of a pool's block: allocated at `where`, or else at the innermost `allocation_site`.
[[nodiscard]] live_block pooled_block(void const* block, std::size_t bytes, std::size_t align,
                                      block_ledger& ledger, call_site where) noexcept;

/// Reports the live blocks of a pool that ends, as `report_leak`. Does not report if all are coroutine
/// frames, which were already reported. The default handler prints the report and does not abort, because a
/// pool may end with live blocks on purpose.
///
/// With AddressSanitizer, a heap block of each live block's size is leaked on purpose, so that LeakSanitizer
/// counts the leaks; otherwise it would see only freed slabs.
/// @param frames number of live coroutine frames
void report_lost_blocks(char const* kind, char const* resource, block_ledger const& ledger,
                        std::size_t frames, bool on_host) noexcept;

}  // namespace tidemark::detail
