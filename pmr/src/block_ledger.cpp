// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/block_ledger.hpp>

#include <algorithm>

#include <tidemark/detail/align.hpp>
#include <tidemark/violation.hpp>

namespace tidemark::detail {
void block_ledger::add(void const* block, ledger_entry const& entry) {
  live_.insert_or_assign(address_of(block), entry);
  freed_.erase(address_of(block));
  freed_before_.erase(address_of(block));
}

std::optional<ledger_entry> block_ledger::remove(char const* kind, char const* resource, void const* block,
                                                 std::size_t bytes, std::size_t align) noexcept {
  const std::uintptr_t address = address_of(block);
  const auto found = live_.find(address);
  if (found != live_.end()) {
    const ledger_entry entry = found->second;
    if (entry.bytes == bytes && entry.align == align) {
      freed_.insert(live_.extract(found));  // moves the record, because nothing may be allocated here
      if (freed_.size() > freed_max) {
        freed_before_.clear();
        freed_before_.swap(freed_);
      }
      return entry;
    }
    report_violation(
        violation_kind::bad_deallocate, resource,
        "%s '%s': wrong size: %zu bytes aligned to %zu are given back at %p, which were allocated "
        "as %zu aligned to %zu",
        kind, resource, bytes, align, block, entry.bytes, entry.align);
    return std::nullopt;
  }
  if (freed_.contains(address) || freed_before_.contains(address)) {
    report_violation(violation_kind::bad_deallocate, resource,
                     "%s '%s': double free of %zu bytes at %p, which were given back already", kind, resource,
                     bytes, block);
    return std::nullopt;
  }
  const auto above = live_.upper_bound(address);
  if (above != live_.begin()) {
    const auto below = std::prev(above);
    if (const std::size_t offset = address - below->first; offset < below->second.bytes) {
      report_violation(
          violation_kind::bad_deallocate, resource,
          "%s '%s': interior pointer: %p, given back as %zu bytes, lies %zu bytes inside a block "
          "of %zu bytes",
          kind, resource, block, bytes, offset, below->second.bytes);
      return std::nullopt;
    }
  }
  report_violation(violation_kind::bad_deallocate, resource,
                   "%s '%s': foreign pointer: %zu bytes are given back at %p, which it does not hold", kind,
                   resource, bytes, block);
  return std::nullopt;
}

void block_ledger::clear() noexcept {
  live_.clear();
  freed_.clear();
  freed_before_.clear();
}

}  // namespace tidemark::detail
