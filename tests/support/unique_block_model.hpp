// SPDX-License-Identifier: Apache-2.0
// Random owners of blocks, which are made, moved, swapped, released and reset. Each resource checks that it
// gets back exactly the blocks it returned.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <utility>

#include <tidemark/core/unique_block.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "recording_supply.hpp"
#include "shadow.hpp"

namespace tidemark::test {

class unique_block_model {
 public:
  explicit unique_block_model(choices random) : random_{std::move(random)} {}
  ~unique_block_model() {
    for (std::size_t i = 0; i < owners_.size(); ++i) lose(i);
  }

  void step() {
    const std::size_t i = random_() % owners_.size(), j = random_() % owners_.size();
    switch (random_() % 6) {
      case 0:
      case 1:
        make(i);
        break;
      case 2:
        log_line("owners[", i, "] = std::move(owners[", j, "]);");
        if (i == j) break;
        lose(i);
        owners_[i] = std::move(owners_[j]);
        held_[i] = std::exchange(held_[j], {});
        ++moved;
        break;
      case 3:
        log_line("std::swap(owners[", i, "], owners[", j, "]);");
        std::swap(owners_[i], owners_[j]);
        std::swap(held_[i], held_[j]);
        break;
      case 4:
        log_line("owners[", i, "].reset();");
        lose(i);
        break;
      default:
        release(i);
    }
    check(i);
    check(j);
  }

  void check_contents() const {
    blocks_.check_all();
    for (std::size_t i = 0; i < owners_.size(); ++i) check(i);
  }

  std::uint64_t moved = 0, released = 0, refused = 0;

 private:
  struct held_block {
    void* first = nullptr;
    std::size_t bytes = 0, align = 0, memory = 0;
  };

  void make(std::size_t i) {
    const held_block wanted{nullptr, random_() % 500, std::size_t{1} << random_() % 9, random_() % 2};
    recording_resource& memory = memories_[wanted.memory];
    memory.fail_from = random_() % 10 == 0 ? memory.calls : supply::never;
    log_line("owners[", i, "] = unique_block{&memories[", wanted.memory, "], ", wanted.bytes, ", ",
             wanted.align, "};");
    try {
      unique_block made{&memory, wanted.bytes, wanted.align};
      blocks_.add(made.data(), wanted.bytes, wanted.align);
      lose(i);
      held_[i] = wanted;
      held_[i].first = made.data();
      owners_[i] = std::move(made);
    } catch (std::bad_alloc const&) {
      ++refused;
    }
  }

  void lose(std::size_t i) {
    if (held_[i].first != nullptr) blocks_.remove(held_[i].first);
    held_[i] = {};
    owners_[i].reset();
  }

  void release(std::size_t i) {
    log_line("memory.deallocate(owners[", i, "].release(), ", held_[i].bytes, ", ", held_[i].align, ");");
    const held_block was = std::exchange(held_[i], {});
    EXPECT_EQ(owners_[i].release(), was.first);
    if (was.first == nullptr) return;
    blocks_.remove(was.first);
    memories_[was.memory].deallocate(was.first, was.bytes, was.align);
    ++released;
  }

  void check(std::size_t i) const {
    EXPECT_EQ(owners_[i].data(), held_[i].first);
    EXPECT_EQ(static_cast<bool>(owners_[i]), held_[i].first != nullptr);
    EXPECT_EQ(owners_[i].bytes(), held_[i].bytes);
    EXPECT_EQ(owners_[i].as<std::uint32_t>().size(), held_[i].bytes / 4);
    if (held_[i].first != nullptr) EXPECT_EQ(owners_[i].alignment(), held_[i].align);
  }

  std::array<recording_resource, 2> memories_;
  choices random_;
  std::array<unique_block, 20> owners_;
  std::array<held_block, 20> held_;
  shadow blocks_;
};

}  // namespace tidemark::test
