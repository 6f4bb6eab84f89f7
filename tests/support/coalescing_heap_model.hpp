// SPDX-License-Identifier: Apache-2.0
// Random blocks, trims and failures of the upstream, compared with a shadow of the live blocks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include <tidemark/pool/detail/coalescing_heap.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "recording_supply.hpp"
#include "shadow.hpp"

namespace tidemark::test {

class coalescing_heap_model {
 public:
  explicit coalescing_heap_model(choices random) : random_{std::move(random)} {}
  ~coalescing_heap_model() {
    while (!held_.empty()) free_one(held_.size() - 1);
    EXPECT_EQ(heap_.used_bytes(), 0u);
    EXPECT_EQ(heap_.stranded_bytes(), 0u) << "nothing is live that could hold a chunk";
    (void)heap_.release_free(heap_.cached_bytes());
    EXPECT_EQ(upstream_.outstanding, 0u);
  }

  void step() {
    const std::uint64_t what = random_() % 1000;
    const bool rising = ++steps_ / 500 % 2 == 0;
    if (what < 980) {
      if (held_.empty() || random_() % 100 < (rising ? 60 : 40)) allocate();
      else free_one(random_() % held_.size());
    } else if (what < 990) {
      release_free(random_() % (1 * MiB));
    } else if (what < 991) {
      log_line("heap.release();");
      heap_.release();
      held_.clear();
      blocks_.clear();
      requested_bytes_ = 0;
      EXPECT_EQ(upstream_.outstanding, 0u);
    } else {
      EXPECT_EQ(heap_.broken_invariant(), nullptr);
    }
    check();
  }
  void check_contents() const { blocks_.check_all(); }

  std::uint64_t taken = 0, refused = 0, stranded = 0, returned = 0;

 private:
  void allocate() {
    const std::size_t bytes = 4 * KiB + (random_() % 4 == 0 ? random_() % 300'000 : random_() % 8 * 3000);
    const std::size_t align = std::size_t{1} << random_() % 9;
    const std::size_t held_before = heap_.held_bytes();
    log_line("void* ", new_block{}, " = heap.try_allocate(", bytes, ", ", align, ");  // or heap.allocate");
    void* block = heap_.try_allocate(bytes, align);
    if (block != nullptr) {
      ++taken;
      EXPECT_EQ(heap_.held_bytes(), held_before);
    } else {
      upstream_.fail_from = random_() % 8 == 0 ? upstream_.calls : supply::never;
      upstream_.fail_count = 1 + random_() % 2;
      try {
        block = heap_.allocate(bytes, align, random_() % (4 * MiB));
      } catch (std::bad_alloc const&) {
        ++refused;
        EXPECT_EQ(heap_.held_bytes(), held_before);
        return;
      }
    }
    name_block(block);
    requested_bytes_ += bytes;
    blocks_.add(block, bytes, align);
    held_.push_back({block, bytes});
  }
  void free_one(std::size_t i) {
    const block chosen = remove_at(held_, i);
    blocks_.remove(chosen.first);
    log_line("heap.deallocate(", block_at{chosen.first}, ", ", chosen.bytes, ");");
    const std::size_t stranded_before = heap_.stranded_bytes();
    heap_.deallocate(chosen.first, chosen.bytes);
    stranded += heap_.stranded_bytes() > stranded_before ? 1 : 0;
    requested_bytes_ -= chosen.bytes;
  }
  void release_free(std::size_t bytes) {
    const std::size_t held_before = heap_.held_bytes(), used_before = heap_.used_bytes();
    log_line("heap.release_free(", bytes, ");");
    const std::size_t gone = heap_.release_free(bytes);
    returned += gone > 0 ? 1 : 0;
    EXPECT_EQ(heap_.held_bytes(), held_before - gone);
    EXPECT_EQ(heap_.used_bytes(), used_before);
  }
  void check() const {
    EXPECT_EQ(heap_.requested_bytes(), requested_bytes_);
    EXPECT_GE(heap_.used_bytes(), requested_bytes_);
    EXPECT_LE(heap_.used_bytes(), requested_bytes_ + held_.size() * 80);
    EXPECT_GE(upstream_.outstanding, heap_.held_bytes());
  }

  struct block {
    void* first;
    std::size_t bytes;
  };

  recording_resource upstream_;
  detail::coalescing_heap heap_{&upstream_};
  choices random_;
  std::vector<block> held_;
  shadow blocks_;
  std::uint64_t steps_ = 0;
  std::size_t requested_bytes_ = 0;
};

}  // namespace tidemark::test
