// SPDX-License-Identifier: Apache-2.0
// Strategy: the test acts as a second thread that has read an outdated state of a block. Real threads do this
// too rarely for a reliable test.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory_resource>

#include <tidemark/epoch/detail/block_group.hpp>
#include <tidemark/epoch/detail/tracked_block.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark::detail {
namespace {

class late_comer : public testing::Test {
 protected:
  late_comer() {
    (void)group_.open("step");
    track();
    seen_ = block_.load();
  }
  void track() {
    group_.reserve_one();
    group_.track(block_, block_.load(), 64, 64);
  }
  void end_step() {
    epoch_summary summary;
    epoch_slab* chunks;
    (void)group_.end(summary, chunks);
    group_.drop_reclaimed();
  }
  bool remove() { return group_.remove(block_, seen_, seen_.ended_as(block_status::untracked), false); }

  static constexpr std::uintptr_t address = 4096;
  epoch_slab_table slabs_{std::pmr::new_delete_resource()};
  block_group group_{nullptr, slabs_, std::pmr::new_delete_resource()};
  tracked_block block_{address};
  block_state seen_;
};

TEST_F(late_comer, removes_an_unchanged_block) {
  EXPECT_TRUE(remove());
  EXPECT_EQ(group_.size(), 0u);
  EXPECT_EQ(block_.load(), seen_.ended_as(block_status::untracked));
  EXPECT_FALSE(remove()) << "once";
}

TEST_F(late_comer, ignores_a_reclaimed_block) {
  end_step();
  EXPECT_FALSE(remove());
  EXPECT_EQ(block_.load().status(), block_status::reclaimed);
}

TEST_F(late_comer, ignores_the_next_block_at_the_address) {
  end_step();
  (void)group_.open("next step");
  track();
  EXPECT_FALSE(remove());
  EXPECT_EQ(group_.size(), 1u);
  EXPECT_EQ(block_.load().status(), block_status::tracked);
}

TEST_F(late_comer, ignores_a_block_that_moved_to_another_group) {
  block_group other{nullptr, slabs_, std::pmr::new_delete_resource()};
  (void)other.open("tape", true);
  other.reserve_one();
  ASSERT_TRUE(group_.remove(block_, seen_, seen_.as(block_status::untracked), false));
  other.adopt(block_, 64, seen_);
  ASSERT_EQ(block_.load(), seen_);
  EXPECT_FALSE(remove());
  EXPECT_EQ(other.size(), 1u);
  EXPECT_EQ(group_.broken_invariant(), nullptr);
  EXPECT_EQ(other.broken_invariant(), nullptr);
}

}  // namespace
}  // namespace tidemark::detail
