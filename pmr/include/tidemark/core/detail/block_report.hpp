// SPDX-License-Identifier: Apache-2.0
/// @file
/// How resources that know their blocks speak of them. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/call_site.hpp>
#include <tidemark/core/detail/late_reports.hpp>

namespace tidemark::detail {

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
