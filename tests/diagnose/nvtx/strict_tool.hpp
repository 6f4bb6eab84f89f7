// SPDX-License-Identifier: Apache-2.0
// A tool that learns of device memory, and checks tidemark against the rules of NVTX's header.
// Regions lie in their heap and do not overlap; resized, closed or reset objects exist; and nothing is left
// at the end.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <tidemark/diagnose/detail/listening_tool.hpp>

namespace tidemark::test {

/// The tool in use, as long as it lives.
class strict_tool final : public detail::listening_tool {
 public:
  struct heap {
    std::uintptr_t first;
    std::size_t bytes;
    std::string name;
    bool operator==(heap const&) const = default;
  };
  using regions_type = std::map<std::uintptr_t, std::size_t>;  // bytes, by first address

  strict_tool() : before_{detail::set_current_tool(this)} {}
  ~strict_tool() {
    detail::set_current_tool(before_);
    EXPECT_TRUE(heaps_.empty()) << heaps_.size() << " heaps were not closed";
  }

  bool watches = true;  ///< otherwise heaps get no number, as without a tool
  /// Accepts memory as a heap. If set, the tool behaves as compute-sanitizer: it accepts whole allocations
  /// only.
  std::function<bool(std::uintptr_t first, std::size_t bytes)> accepts;
  std::size_t refused = 0;         ///< heaps that `accepts` did not accept
  std::vector<std::string> calls;  ///< since it was cleared: the function's name, and how many regions

  /// Open heaps in ascending order.
  [[nodiscard]] std::vector<heap> heaps() const {
    std::map<std::uintptr_t, heap> sorted;
    for (auto const& [id, one] : heaps_) sorted.emplace(one.first, one);
    std::vector<heap> result;
    for (auto const& [first, one] : sorted) result.push_back(one);
    return result;
  }
  [[nodiscard]] regions_type const& regions() const { return regions_; }
  /// The same, with regions that touch taken for one.
  [[nodiscard]] regions_type reachable() const { return merged(regions_); }
  [[nodiscard]] static regions_type merged(regions_type const& regions) {
    regions_type merged;
    for (auto const& [first, bytes] : regions) {
      if (!merged.empty() && std::prev(merged.end())->first + std::prev(merged.end())->second == first) {
        std::prev(merged.end())->second += bytes;
      } else {
        merged.emplace(first, bytes);
      }
    }
    return merged;
  }
  /// Returns true if a byte lies in a region.
  [[nodiscard]] bool may_touch(std::uintptr_t address) const {
    const auto above = regions_.upper_bound(address);
    return above != regions_.begin() && address - std::prev(above)->first < std::prev(above)->second;
  }
  /// Returns true if some heap has a byte in `[first, first + bytes)`.
  [[nodiscard]] bool has_heap_in(std::uintptr_t first, std::size_t bytes) const {
    for (auto const& [id, one] : heaps_) {
      if (one.first < first + bytes && first < one.first + one.bytes) return true;
    }
    return false;
  }

  [[nodiscard]] bool takes_whole_allocations_only() const noexcept override { return accepts != nullptr; }
  heap_id open_heap(std::uintptr_t first, std::size_t bytes, char const* name) noexcept override {
    calls.emplace_back("open_heap");
    if (!watches) return 0;
    EXPECT_GT(bytes, 0u);
    if (accepts != nullptr && !accepts(first, bytes)) return ++refused, 0;
    EXPECT_FALSE(has_heap_in(first, bytes)) << "a heap over another";
    heaps_.emplace(++last_id_, heap{first, bytes, name});
    return static_cast<heap_id>(last_id_);
  }
  void reset_heap(heap_id id) noexcept override {
    calls.emplace_back("reset_heap");
    if (heap const* const one = find(id)) drop_regions_of(*one);
  }
  void close_heap(heap_id id) noexcept override {
    calls.emplace_back("close_heap");
    heap const* const one = find(id);
    if (one == nullptr) return;
    drop_regions_of(*one);
    heaps_.erase(id);
  }
  void open_region(heap_id id, std::uintptr_t first, std::size_t bytes, char const* name) noexcept override {
    calls.emplace_back("open_region");
    heap const* const one = find(id);
    if (one == nullptr) return;
    EXPECT_EQ(name, one->name);
    EXPECT_GE(first, one->first) << "a region below its heap";
    EXPECT_LE(first + bytes, one->first + one->bytes) << "a region beyond its heap";
    EXPECT_TRUE(regions_.emplace(first, 0).second) << "a region that is there";
    set_bytes(first, bytes);
  }
  void resize_region(std::uintptr_t first, std::size_t bytes) noexcept override {
    calls.emplace_back("resize_region");
    EXPECT_TRUE(regions_.contains(first)) << "resizes what is no region";
    set_bytes(first, bytes);
  }
  void close_regions(std::uintptr_t const* firsts, std::size_t n) noexcept override {
    calls.emplace_back("close_regions " + std::to_string(n));
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_EQ(regions_.erase(firsts[i]), 1u) << "closes what is no region";
  }

 private:
  [[nodiscard]] heap const* find(heap_id id) const {
    const auto found = heaps_.find(id);
    EXPECT_NE(found, heaps_.end()) << "of a heap that is not there";
    return found != heaps_.end() ? &found->second : nullptr;
  }
  void drop_regions_of(heap const& one) {
    regions_.erase(regions_.lower_bound(one.first), regions_.lower_bound(one.first + one.bytes));
  }
  void set_bytes(std::uintptr_t first, std::size_t bytes) {
    EXPECT_GT(bytes, 0u) << "a region of nothing";
    const auto at = regions_.find(first);
    if (at == regions_.end()) return;
    if (at != regions_.begin()) {
      EXPECT_LE(std::prev(at)->first + std::prev(at)->second, first) << "a region over another";
    }
    if (std::next(at) != regions_.end()) {
      EXPECT_LE(first + bytes, std::next(at)->first) << "a region over another";
    }
    EXPECT_NE(at->second, bytes) << "a repeated report";
    at->second = bytes;
  }

  detail::listening_tool* before_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, heap> heaps_;
  regions_type regions_;
};

}  // namespace tidemark::test
