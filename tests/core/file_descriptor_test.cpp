// SPDX-License-Identifier: Apache-2.0
// Strategy: the descriptors that are open in this process are counted.
#include <tidemark/core/file_descriptor.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

#include "process_memory.hpp"

namespace tidemark {
namespace {

using test::open_files;

TEST(file_descriptor, is_closed_once_by_its_last_owner) {
  const int before = open_files();
  {
    file_descriptor first{::open("/dev/null", O_RDONLY)};
    const int number = first.get();
    file_descriptor second{std::move(first)};
    EXPECT_EQ(first.get(), -1);  // NOLINT(bugprone-use-after-move)
    file_descriptor third{::open("/dev/null", O_RDONLY)};
    EXPECT_EQ(open_files(), before + 2);
    third = std::move(second);
    EXPECT_EQ(third.get(), number);
    EXPECT_EQ(open_files(), before + 1);
    file_descriptor fourth{::open("/dev/null", O_RDONLY)};
    EXPECT_EQ(::close(fourth.release()), 0);
  }
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace tidemark
