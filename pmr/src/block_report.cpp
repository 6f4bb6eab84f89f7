// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/block_report.hpp>

#include <algorithm>
#include <cstring>

#include <tidemark/allocation_site.hpp>
#include <tidemark/violation.hpp>

namespace tidemark::detail {
namespace {

void const* pointer_to(std::uintptr_t address) noexcept { return reinterpret_cast<void const*>(address); }

}  // namespace

ledger_entry entry_here(std::size_t bytes, std::size_t align, std::uint64_t number,
                        std::optional<std::source_location> site) noexcept {
  ledger_entry entry{.bytes = bytes, .align = align, .number = number};
  if (allocation_site const* const innermost = allocation_site::innermost()) {
    entry.site = innermost->where();
    entry.label = innermost->label();
  }
  if (site) entry.site = *site;
  return entry;
}

block_text describe(void const* address, ledger_entry const& entry) noexcept {
  const bool known = entry.site.line() != 0;
  const bool labelled = entry.label[0] != '\0';
  char line[16] = "";
  if (known) std::snprintf(line, sizeof line, ":%u", static_cast<unsigned>(entry.site.line()));
  block_text block;
  std::snprintf(block.text, sizeof block.text,
                "%zu bytes aligned to %zu at %p, request %llu, from %s%s%s%s%s", entry.bytes, entry.align,
                address, static_cast<unsigned long long>(entry.number),
                known ? entry.site.file_name() : "an unknown place", line, labelled ? " (" : "", entry.label,
                labelled ? ")" : "");
  return block;
}

std::vector<live_block> live_blocks(block_ledger const& ledger) {
  std::vector<live_block> blocks;
  blocks.reserve(ledger.live().size());
  for (auto const& [address, entry] : ledger.live()) {
    blocks.push_back({pointer_to(address), entry.bytes, entry.align, entry.site, entry.label, entry.number});
  }
  std::ranges::sort(blocks, {}, &live_block::number);
  return blocks;
}

void print_blocks(std::FILE* out, char const* kind, char const* resource,
                  std::vector<live_block> const& blocks) {
  for (live_block const& block : blocks) {
    const block_text text =
        describe(block.address, {block.bytes, block.align, block.site, block.label, block.number});
    std::fprintf(out, "%s '%s': not given back: %s\n", kind, resource, text.text);
  }
}

void report_leak(char const* kind, char const* resource, block_ledger const& ledger,
                 std::uint64_t first_number, char const* when) noexcept {
  // The oldest blocks are the ones to look at first. Found without a list, because nothing may be allocated
  // here.
  static constexpr std::size_t named_max = 4;
  block_ledger::blocks::value_type const* oldest[named_max]{};
  std::size_t n = 0, bytes = 0, named = 0;
  for (auto const& block : ledger.live()) {
    if (block.second.number < first_number) continue;
    ++n;
    bytes += block.second.bytes;
    std::size_t place = named;
    for (; place > 0 && oldest[place - 1]->second.number > block.second.number; --place) {
      if (place < named_max) oldest[place] = oldest[place - 1];
    }
    if (place < named_max) oldest[place] = &block;
    named = std::min(named + 1, named_max);
  }
  if (n == 0) return;
  char list[400] = "";
  std::size_t used = 0, told = 0;
  for (; told < named; ++told) {
    const block_text block = describe(pointer_to(oldest[told]->first), oldest[told]->second);
    const std::size_t bytes_of_text = std::strlen(block.text);
    if (told > 0 && used + bytes_of_text + 2 >= sizeof list) break;
    used += static_cast<std::size_t>(
        std::snprintf(list + used, sizeof list - used, "%s%s", told > 0 ? "; " : "", block.text));
  }
  char rest[40] = "";
  if (told < n) std::snprintf(rest, sizeof rest, "; and %zu more", n - told);
  report_violation(violation_kind::leak, resource,
                   "%s '%s': %sleak: %zu block%s of %zu bytes %s not given back: %s%s", kind, resource, when,
                   n, n == 1 ? "" : "s", bytes, n == 1 ? "was" : "were", list, rest);
}

}  // namespace tidemark::detail
