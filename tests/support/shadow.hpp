// SPDX-License-Identifier: Apache-2.0
// A shadow of the blocks a resource has allocated: no two may overlap, and each must keep its contents.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>

namespace tidemark::test {

class shadow {
 public:
  struct block {
    std::size_t bytes;
    std::size_t align;
    unsigned char pattern;
  };
  using blocks = std::map<std::uintptr_t, block>;

  /// A block was allocated: checks alignment and overlap, fills it.
  void add(void* first, std::size_t bytes, std::size_t align) {
    ASSERT_NE(first, nullptr);
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    EXPECT_EQ(begin % align, 0u) << bytes << " bytes aligned to " << align;
    // A block of 0 bytes still has its own address.
    const std::size_t extent = std::max<std::size_t>(bytes, 1);
    const auto after = blocks_.lower_bound(begin);
    if (after != blocks_.end()) EXPECT_LE(begin + extent, after->first) << "overlaps the block above";
    if (after != blocks_.begin()) {
      const auto below = std::prev(after);
      EXPECT_LE(below->first + std::max<std::size_t>(below->second.bytes, 1), begin)
          << "overlaps the block below";
    }
    const auto pattern = static_cast<unsigned char>(++patterns_ % 251);
    std::memset(first, pattern, bytes);
    blocks_[begin] = {bytes, align, pattern};
  }

  /// Checks that the block holds its written contents, and forgets it.
  void remove(void* first) {
    const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(first));
    ASSERT_NE(found, blocks_.end());
    check(*found);
    blocks_.erase(found);
  }

  /// Checks that a block still holds its written contents. `memcmp` compares each byte with the next, because a
  /// loop takes most of a model's time under AddressSanitizer.
  static void check(blocks::value_type const& entry) {
    auto const* bytes = reinterpret_cast<unsigned char const*>(entry.first);
    const std::size_t count = entry.second.bytes;
    if (count == 0) return;
    if (bytes[0] != entry.second.pattern || std::memcmp(bytes, bytes + 1, count - 1) != 0)
      ADD_FAILURE() << "one of " << count << " bytes changed";
  }

  void check_all() const {
    for (auto const& entry : blocks_) check(entry);
  }

  [[nodiscard]] blocks const& live() const noexcept { return blocks_; }
  void clear() { blocks_.clear(); }
  /// Forgets a block that may no longer be read.
  void remove_reclaimed(void* first) { blocks_.erase(reinterpret_cast<std::uintptr_t>(first)); }

 private:
  blocks blocks_;
  unsigned patterns_ = 0;
};

}  // namespace tidemark::test
