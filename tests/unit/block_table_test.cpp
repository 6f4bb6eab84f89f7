// SPDX-License-Identifier: Apache-2.0
// Strategy: the notes of a table alone, on made-up addresses; what is found in it is seen through epochs.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory_resource>

#include <tidemark/detail/block_table.hpp>

namespace tidemark::detail {
namespace {

class block_notes : public testing::Test {
 protected:
  static constexpr std::uintptr_t first = 0x7f00'1234'0000;
  bool may_be_noted(std::uintptr_t address) const {
    return table_.may_be_noted(reinterpret_cast<void const*>(address));
  }
  /// Another address whose note is kept where that of `first` is.
  std::uintptr_t neighbour() {
    table_.note(first);
    std::uintptr_t other = first + 64;
    while (!may_be_noted(other)) other += 64;
    table_.take_note_away(first);
    return other;
  }
  block_table table_{std::pmr::new_delete_resource()};
};

TEST_F(block_notes, are_of_no_address_at_first) {
  for (std::uintptr_t address = first; address < first + (1 << 20); address += 16) {
    ASSERT_FALSE(may_be_noted(address));
  }
}

TEST_F(block_notes, of_a_row_of_blocks_are_not_those_of_the_next_row) {
  for (std::uintptr_t i = 0; i < 256; ++i) table_.note(first + 64 * i);
  for (std::uintptr_t i = 0; i < 256; ++i) {
    ASSERT_TRUE(may_be_noted(first + 64 * i));
    ASSERT_FALSE(may_be_noted(first + 64 * (256 + i)));
  }
}

TEST_F(block_notes, of_two_addresses_in_one_place_go_when_both_have_gone) {
  const std::uintptr_t second = neighbour();
  EXPECT_FALSE(may_be_noted(first));
  table_.note(first);
  table_.note(second);
  table_.take_note_away(first);
  EXPECT_TRUE(may_be_noted(second));
  table_.take_note_away(second);
  EXPECT_FALSE(may_be_noted(second));
}

TEST_F(block_notes, that_are_too_many_to_be_counted_stay) {
  for (int i = 0; i < 1000; ++i) table_.note(first);
  for (int i = 0; i < 999; ++i) table_.take_note_away(first);
  EXPECT_TRUE(may_be_noted(first));
  table_.take_note_away(first);
  EXPECT_TRUE(may_be_noted(first)) << "nobody knows any more how many there were";
}

TEST_F(block_notes, up_to_254_are_counted) {
  for (int i = 0; i < 254; ++i) table_.note(first);
  for (int i = 0; i < 253; ++i) table_.take_note_away(first);
  EXPECT_TRUE(may_be_noted(first));
  table_.take_note_away(first);
  EXPECT_FALSE(may_be_noted(first));
}

}  // namespace
}  // namespace tidemark::detail
