// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/block_ledger.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <ranges>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

void block_ledger::add(live_block const& block) {
  const std::uintptr_t address = address_of(block.address);
  live_.insert_or_assign(address, block);
  freed_.erase(address);
  freed_before_.erase(address);
}

std::optional<live_block> block_ledger::remove(char const* kind, char const* resource, void const* block,
                                               std::size_t bytes, std::size_t align) noexcept {
  const std::uintptr_t address = address_of(block);
  const auto found = live_.find(address);
  const auto above = found == live_.end() ? live_.upper_bound(address) : found;
  char const* what = "foreign pointer: ";
  char why[96] = "which it does not hold";
  if (found != live_.end()) {
    const live_block known = found->second;
    if (known.bytes == bytes && known.align == align) {
      freed_.insert(live_.extract(found));  // moves the record, because this function may not allocate
      if (freed_.size() > max_freed) {
        freed_before_.clear();
        freed_before_.swap(freed_);
      }
      return known;
    }
    what = "wrong size: ";
    std::snprintf(why, sizeof why, "allocated as %zu aligned to %zu", known.bytes, known.align);
  } else if (freed_.contains(address) || freed_before_.contains(address)) {
    what = "double free of ";
    std::snprintf(why, sizeof why, "freed already");
  } else if (above != live_.begin() && address - std::prev(above)->first < std::prev(above)->second.bytes) {
    what = "interior pointer: ";
    std::snprintf(why, sizeof why, "which lies %zu bytes inside a block of %zu bytes",
                  address - std::prev(above)->first, std::prev(above)->second.bytes);
  }
  report_violation(violation_kind::bad_deallocate, resource, "%s '%s': %s%zu bytes aligned to %zu at %p, %s",
                   kind, resource, what, bytes, align, block, why);
  return std::nullopt;
}

void block_ledger::clear() noexcept {
  live_.clear();
  freed_.clear();
  freed_before_.clear();
}

live_block block_here(void const* block, std::size_t bytes, std::size_t align, std::uint64_t number,
                      std::optional<std::source_location> site) noexcept {
  live_block entry{.address = block, .bytes = bytes, .align = align, .number = number};
  if (allocation_site const* const innermost = allocation_site::innermost()) {
    entry.site = innermost->where();
    entry.label = innermost->label();
  }
  if (site) entry.site = *site;
  return entry;
}

std::array<char, 384> describe(live_block const& block) noexcept {
  const bool known = block.site.line() != 0;
  const bool labelled = block.label[0] != '\0';
  char line[16] = "";
  if (known) std::snprintf(line, sizeof line, ":%u", static_cast<unsigned>(block.site.line()));
  std::array<char, 384> result;
  std::snprintf(result.data(), result.size(), "%zu bytes aligned to %zu at %p, request %llu, from %s%s%s%s%s",
                block.bytes, block.align, block.address, static_cast<unsigned long long>(block.number),
                known ? block.site.file_name() : "an unknown place", line, labelled ? " (" : "", block.label,
                labelled ? ")" : "");
  return result;
}

std::vector<live_block> live_blocks(block_ledger const& ledger) {
  auto const live = std::views::values(ledger.live());
  std::vector<live_block> blocks{live.begin(), live.end()};
  std::ranges::sort(blocks, {}, &live_block::number);
  return blocks;
}

void report_leak(char const* kind, char const* resource, block_ledger const& ledger,
                 std::uint64_t first_number, char const* when, by_default then) noexcept {
  const auto counts = [=](live_block const& block) { return block.number >= first_number; };
  auto leaked = std::views::values(ledger.live()) | std::views::filter(counts);
  std::size_t n = 0, bytes = 0;
  for (live_block const& block : leaked) ++n, bytes += block.bytes;
  if (n == 0) return;
  // Lists only the oldest blocks, which matter most, because this function may not allocate.
  std::array<live_block, 4> oldest;
  const auto age = [](live_block const& block) { return std::pair{block.number, block.address}; };
  std::ranges::partial_sort_copy(leaked, oldest, {}, age, age);
  char list[400] = "";
  std::size_t used = 0, named = 0;
  for (; named < std::min(n, oldest.size()); ++named) {
    const auto block = describe(oldest[named]);
    if (named > 0 && used + std::strlen(block.data()) + 2 >= sizeof list) break;
    used += static_cast<std::size_t>(
        std::snprintf(list + used, sizeof list - used, "%s%s", named > 0 ? "; " : "", block.data()));
  }
  char rest[40] = "";
  if (named < n) std::snprintf(rest, sizeof rest, "; and %zu more", n - named);
  report_violation(then, violation_kind::leak, resource,
                   "%s '%s': %sleak: %zu block%s of %zu bytes %s not deallocated: %s%s", kind, resource, when,
                   n, n == 1 ? "" : "s", bytes, n == 1 ? "was" : "were", list, rest);
}

live_block pooled_block(void const* block, std::size_t bytes, std::size_t align, block_ledger& ledger,
                        call_site where) noexcept {
  const std::source_location site = where.location();
  return block_here(block, bytes, align, ledger.next_number(),
                    site.line() != 0 ? std::optional{site} : std::nullopt);
}

void report_lost_blocks(char const* kind, char const* resource, block_ledger const& ledger,
                        std::size_t frames, [[maybe_unused]] bool on_host) noexcept {
#if TIDEMARK_ASAN
  for (live_block const& block : std::views::values(ledger.live())) {
    // Storing the address keeps the call. Its inversion keeps LeakSanitizer from finding the block.
    if (on_host) [[maybe_unused]]
      std::uintptr_t const volatile lost =
          ~reinterpret_cast<std::uintptr_t>(std::malloc(std::max<std::size_t>(block.bytes, 1)));
  }
#endif
  if (ledger.live().size() <= frames) return;
  report_leak(kind, resource, ledger, 0, "", by_default::continues);
}

}  // namespace tidemark::detail
