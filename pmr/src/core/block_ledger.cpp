// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/block_ledger.hpp>

#include <cstdio>
#include <iterator>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

void block_ledger::add(live_block const& block) {
  const std::uintptr_t address = address_of(block.address);
  live_.insert_or_assign(address, block);
  freed_.erase(address);
  freed_before_.erase(address);
}

std::optional<live_block> block_ledger::remove(late_reports& late, char const* kind, char const* resource,
                                               void const* block, std::size_t bytes,
                                               std::size_t align) noexcept {
  const std::uintptr_t address = address_of(block);
  const auto found = live_.find(address);
  const auto above = found == live_.end() ? live_.upper_bound(address) : found;
  char const* what = "foreign pointer: ";
  char why[96] = "which it does not hold";
  if (found != live_.end()) {
    const live_block known = found->second;
    if (known.bytes == bytes && known.align == align) {
      freed_.insert(live_.extract(found));  // moves the record, because nothing may be allocated here
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
  late.add(violation_kind::bad_deallocate, resource, "%s '%s': %s%zu bytes aligned to %zu at %p, %s", kind,
           resource, what, bytes, align, block, why);
  return std::nullopt;
}

void block_ledger::clear() noexcept {
  live_.clear();
  freed_.clear();
  freed_before_.clear();
}

}  // namespace tidemark::detail
