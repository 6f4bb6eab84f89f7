// SPDX-License-Identifier: Apache-2.0
// Graphs that end free their place: host memory stays constant over a million updates of one graph. The test
// counts heap calls.
#include <gtest/gtest.h>

#include <cstddef>

#include <tidemark/cuda/driver/detail/captures.hpp>
#include <tidemark/cuda/driver/driver.hpp>

#include "counting_new.hpp"

namespace tidemark::test {
namespace {

// Destroys executables, or refuses as it does during a capture.
struct counting_driver final : gpu::driver {
  gpu::status destroy_executable(gpu::executable_handle) noexcept override {
    if (refuses) return gpu::status::capture_unsupported;
    ++destroyed;
    return gpu::status::success;
  }
  std::size_t destroyed = 0;
  bool refuses = false;
};

class retired_executables : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 100; ++i) driver_.retired().reserve_one();
    for (int i = 0; i < 100; ++i) driver_.retired().retire(driver_, executable_);
    driver_.destroyed = 0;
    news = 0;
  }

  counting_driver driver_;
  gpu::executable_handle executable_ = reinterpret_cast<gpu::executable_handle>(&driver_);
};

TEST_F(retired_executables, allocate_nothing_for_a_freed_or_unused_entry) {
  for (gpu::executable_handle const retired : {executable_, gpu::executable_handle{}}) {
    for (int i = 0; i < 100'000; ++i) {
      driver_.retired().reserve_one();
      driver_.retired().retire(driver_, retired);
    }
  }
  EXPECT_EQ(driver_.destroyed, 100'000u) << "there is nothing to destroy for one that was never made";
  EXPECT_EQ(news, 0u);
}

TEST_F(retired_executables, allocate_nothing_for_entries_that_captures_delayed) {
  for (int round = 0; round < 1000; ++round) {
    driver_.retired().capture_begins();
    driver_.refuses = round % 2 == 0;
    for (int i = 0; i < 90; ++i) {
      driver_.retired().reserve_one();
      driver_.retired().retire(driver_, executable_);
    }
    EXPECT_EQ(driver_.retired().size(), 90u);
    driver_.retired().capture_ended(driver_);
    driver_.refuses = false;
    driver_.retired().capture_begins();
    driver_.retired().capture_ended(driver_);
    EXPECT_EQ(driver_.retired().size(), 0u);
  }
  EXPECT_EQ(driver_.destroyed, 90'000u);
  EXPECT_EQ(news, 0u);
}

}  // namespace
}  // namespace tidemark::test
