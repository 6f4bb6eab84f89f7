// SPDX-License-Identifier: Apache-2.0
/// @file `marked_blocks`: plays the events of a recorded trace, and finds blocks that share bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <vector>

#include "recorded_trace.hpp"

namespace tidemark::test {

/// The blocks of a recorded trace on a resource. The ends of each block are written when it is allocated, and
/// read when it is freed.
class marked_blocks {
 public:
  marked_blocks(std::pmr::memory_resource& memory, std::size_t blocks) : memory_{&memory}, blocks_(blocks) {}

  void play(tools::trace_event const& event) {
    constexpr std::size_t max_end_bytes = 64;
    const auto mark = static_cast<unsigned char>(event.block % 251);
    const std::size_t ends = std::min<std::size_t>(event.bytes, max_end_bytes);
    unsigned char*& block = blocks_[event.block];
    if (event.allocates) {
      block = static_cast<unsigned char*>(memory_->allocate(event.bytes, tools::replay_alignment));
      std::memset(block, mark, ends);
      std::memset(block + event.bytes - ends, mark, ends);
      return;
    }
    const auto is_mark = [mark](unsigned char byte) { return byte == mark; };
    EXPECT_TRUE(std::all_of(block, block + ends, is_mark)) << "block " << event.block;
    EXPECT_TRUE(std::all_of(block + event.bytes - ends, block + event.bytes, is_mark))
        << "block " << event.block;
    memory_->deallocate(block, event.bytes, tools::replay_alignment);
  }

 private:
  std::pmr::memory_resource* memory_;
  std::vector<unsigned char*> blocks_;
};

}  // namespace tidemark::test
