// SPDX-License-Identifier: Apache-2.0
// Strategy: differences of the Windows file from the Linux file: reservations that cannot be returned in
// parts, and faults that are exceptions.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {
namespace {

TEST(windows_memory, aligns_reservations_beyond_what_the_system_aligns_to) {
  os_memory& os = system_memory();
  void* const first = os.reserve(3 * MiB, 2 * MiB);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % (2 * MiB), 0u);
  EXPECT_TRUE(os.commit(first, 3 * MiB));
  EXPECT_TRUE(os.release(first, 3 * MiB));
  EXPECT_FALSE(os.commit(first, 4 * KiB)) << "the reservation is gone";
}

TEST(windows_memory, reads_as_zero_when_it_is_committed_again) {
  os_memory& os = system_memory();
  auto* const first = static_cast<char*>(os.reserve(64 * KiB, 64 * KiB));
  ASSERT_NE(first, nullptr);
  ASSERT_TRUE(os.commit(first, 64 * KiB));
  std::memset(first, 1, 64 * KiB);
  ASSERT_TRUE(os.decommit(first + 4 * KiB, 4 * KiB));
  ASSERT_TRUE(os.commit(first, 64 * KiB)) << "also over what is committed";
  EXPECT_EQ(first[0], 1);
  EXPECT_EQ(first[4 * KiB], 0);
  EXPECT_EQ(first[8 * KiB], 1);
  EXPECT_TRUE(os.release(first, 64 * KiB));
}

TEST(windows_memory, refuses_more_addresses_than_there_are) {
  EXPECT_EQ(system_memory().reserve(SIZE_MAX - MiB, 2 * MiB), nullptr);
  EXPECT_EQ(system_memory().reserve(SIZE_MAX / 2, 4 * KiB), nullptr);
}

TEST(windows_memory, returns_another_seed_each_time) { EXPECT_NE(entropy_seed(), entropy_seed()); }

void use_after_rewind() {
  arena memory{{.name = "trapped", .trap = {.one_in = 1}}};
  int volatile* late = nullptr;
  {
    arena::scope scope{memory};
    late = static_cast<int*>(memory.allocate(sizeof(int)));
    *late = 1;
  }
  *late = 2;
}

TEST(windows_faults, report_a_use_after_a_rewind) {
  EXPECT_DEATH(use_after_rewind(), "arena 'trapped': use of .* after it was rewound over");
}

}  // namespace
}  // namespace tidemark
