// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_ledger`: the live blocks of a resource that checks deallocations, and reports of them. Owns its
/// records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
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

/// The record of a block that the calling thread has allocated: at `site`, or else where the innermost
/// `allocation_site` says.
[[nodiscard]] live_block block_here(void const* block, std::size_t bytes, std::size_t align,
                                    std::uint64_t number, std::optional<std::source_location> site) noexcept;

/// "64 bytes aligned to 16 at 0x5581, request 3, from model.cpp:12 (loading weights)". Inside an object,
/// because it is also said where nothing may be allocated.
struct block_text {
  char text[384];
};
[[nodiscard]] block_text describe(live_block const& block) noexcept;

/// The live blocks, the oldest first. @throws std::bad_alloc.
[[nodiscard]] std::vector<live_block> live_blocks(block_ledger const& ledger);

/// Reports `violation_kind::leak` if there are live blocks with numbers from `first_number` on: how many, of
/// how many bytes, and as many of them as the message has room for.
/// @param late gets the report
/// @param kind, resource what resource it is, for the message: `tracking_resource 'weights': leak: 3 blocks
/// ...`
/// @param when more about it, before "leak"
void report_leak(late_reports& late, char const* kind, char const* resource, block_ledger const& ledger,
                 std::uint64_t first_number = 0, char const* when = "") noexcept;
/// The same at once.
inline void report_leak(char const* kind, char const* resource, block_ledger const& ledger) noexcept {
  late_reports now;
  report_leak(now, kind, resource, ledger);
}

/// The record of a block of a pool: allocated at `where`, or else where the innermost `allocation_site` says.
[[nodiscard]] live_block pooled_block(void const* block, std::size_t bytes, std::size_t align,
                                      block_ledger& ledger, call_site where) noexcept;

/// Reports the live blocks of a pool that ends, as `report_leak`, but for frames of coroutines alone, which
/// were reported. The default handler prints the report and does not abort, because a pool may be meant to
/// end with live blocks. Where AddressSanitizer looks on, a block of the heap as large as each live one is
/// lost on purpose: LeakSanitizer, which would see the slabs freed and nothing else, then counts them.
/// @param frames live frames of coroutines
void report_lost_blocks(char const* kind, char const* resource, block_ledger const& ledger,
                        std::size_t frames, bool on_host) noexcept;

}  // namespace tidemark::detail
