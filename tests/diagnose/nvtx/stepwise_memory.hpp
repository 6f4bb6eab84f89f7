// SPDX-License-Identifier: Apache-2.0
// Synthetic memory of a device that is committed in steps. A touch crashes.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>

#include "strict_tool.hpp"

namespace tidemark::test {

/// Synthetic memory watched beside a tool. Memory must not be released while a heap claims that it exists.
struct stepwise_supply {
  explicit stepwise_supply(strict_tool const& watching) noexcept : tool{watching} {}

  strict_tool const& tool;
  bool commits = true;    ///< otherwise commit is refused
  bool decommits = true;  ///< otherwise decommit is refused
  bool suspends = true;   ///< otherwise suspend is refused
  std::uintptr_t next = std::uintptr_t{1} << 62;
  std::map<std::uintptr_t, std::size_t> committed;  // bytes from the beginning of each reservation
};

/// An `address_space` over it. Its step is 4 KiB.
class stepwise_memory {
 public:
  static constexpr space_traits traits{.host_accessible = false, .commits = true, .suspends = true};
  static constexpr std::size_t step_bytes = 4096;
  using event_type = int;

  explicit stepwise_memory(stepwise_supply& supply) noexcept : supply_{&supply} {}

  [[nodiscard]] byte_range reserve(std::size_t, std::size_t wanted_bytes) noexcept {
    const std::size_t bytes = detail::align_up(wanted_bytes, step_bytes);
    const std::uintptr_t first = std::exchange(supply_->next, supply_->next + bytes);
    supply_->committed.emplace(first, 0);
    return {first, bytes};
  }
  [[nodiscard]] std::size_t commit(byte_range part, std::size_t) noexcept {
    if (!supply_->commits || suspended_) return 0;
    auto const reservation = around(part);
    EXPECT_EQ(reservation->first + reservation->second, part.begin) << "there is memory already, or a gap";
    reservation->second += part.size;
    return part.size;
  }
  [[nodiscard]] bool decommit(byte_range part) noexcept {
    if (!supply_->decommits) return false;
    auto const reservation = around(part);
    EXPECT_EQ(reservation->first + reservation->second, part.end());
    for (strict_tool::heap const& heap : supply_->tool.heaps()) {
      EXPECT_FALSE(heap.first >= part.begin && heap.first < part.end()) << "the memory of a heap goes";
    }
    for (std::uintptr_t address = part.begin; address < part.end(); address += traits.block_alignment) {
      EXPECT_FALSE(supply_->tool.may_touch(address)) << "the memory of a region goes";
    }
    reservation->second -= part.size;
    return true;
  }
  void release(byte_range range) noexcept {
    EXPECT_FALSE(supply_->tool.has_heap_in(range.begin, range.size)) << "the memory of a heap goes";
    EXPECT_EQ(supply_->committed.erase(range.begin), 1u);
  }
  void wait_before_reuse(event_type) noexcept {}
  [[nodiscard]] bool can_suspend() const noexcept { return true; }
  void suspend() {
    for (auto const& [first, bytes] : supply_->committed) {
      EXPECT_FALSE(supply_->tool.has_heap_in(first, bytes)) << "the memory of a heap goes";
    }
    if (!supply_->suspends) throw std::runtime_error{"configured to fail"};
    suspended_ = true;
  }
  void resume() { suspended_ = false; }
  [[nodiscard]] bool is_suspended() const noexcept { return suspended_; }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return 16 * step_bytes; }
  [[nodiscard]] std::size_t granularity() const noexcept { return step_bytes; }

 private:
  [[nodiscard]] std::map<std::uintptr_t, std::size_t>::iterator around(byte_range part) const {
    return std::prev(supply_->committed.upper_bound(part.begin));
  }

  stepwise_supply* supply_;
  bool suspended_ = false;
};

static_assert(ordered_space<stepwise_memory>);

}  // namespace tidemark::test
