// SPDX-License-Identifier: Apache-2.0
// Random generations in a process arena, read back from its file like another process does. Published data
// must stay unchanged until a reset, whatever is allocated, deallocated and published after it.
#pragma once

#include <unistd.h>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/process/detail/process_format.hpp>
#include <tidemark/process/process_arena.hpp>

#include "choices.hpp"
#include "program_log.hpp"

namespace tidemark::test {

class process_arena_model {
 public:
  explicit process_arena_model(choices random) : random_{std::move(random)} {
    EXPECT_EQ(read(0, &format_, sizeof format_), sizeof format_);
  }

  void step() {
    const std::uint64_t what = random_() % 100;
    if (what < 60) allocate();
    else if (what < 80) deallocate();
    else if (what < 97) publish();
    else if (what < 99) publish_foreign_object();
    else reset();
    arena_.check_invariants();
  }

  /// Checks the contents that a reader would find.
  void check_contents() const {
    detail::process_header header;
    ASSERT_EQ(read(0, &header, sizeof header), sizeof header);
    EXPECT_EQ(std::memcmp(&header.format, &format_, sizeof format_), 0) << "the header never changes";
    for (block const& each : blocks_) {
      std::vector<unsigned char> bytes(each.bytes);
      ASSERT_EQ(read(each.offset, bytes.data(), bytes.size()), bytes.size());
      for (const unsigned char byte : bytes) ASSERT_EQ(byte, each.pattern);
    }
    if (published_.empty()) {
      EXPECT_EQ(header.newest.load(), 0u);
      return;
    }
    detail::publication newest;
    ASSERT_EQ(read(header.newest.load(), &newest, sizeof newest), sizeof newest);
    EXPECT_EQ(newest.generation, arena_.generation());
    EXPECT_EQ(newest.root - format_.address, published_.back());
    EXPECT_EQ(newest.root_type, detail::type_layout<root>());
    EXPECT_GE(newest.end, newest.root + sizeof(root));
  }

  std::uint64_t published = 0, reclaimed = 0, kept = 0, full = 0;

 private:
  using root = std::array<unsigned char, 64>;
  struct block {
    std::uint64_t offset;  // in the file
    std::size_t bytes;
    unsigned char pattern;
    bool is_published;
  };

  [[nodiscard]] std::size_t read(std::uint64_t offset, void* into, std::size_t bytes) const {
    return static_cast<std::size_t>(::pread(file_.get(), into, bytes, static_cast<off_t>(offset)));
  }
  [[nodiscard]] std::uint64_t offset_of(void const* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - format_.address;
  }
  [[nodiscard]] void* address_of(block const& of) const {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(format_.address + of.offset));
  }

  void add(void* first, std::size_t bytes) {
    const auto pattern = static_cast<unsigned char>(random_() % 255 + 1);
    std::memset(first, pattern, bytes);
    blocks_.push_back({offset_of(first), bytes, pattern, false});
  }

  void allocate() {
    const std::size_t bytes = 1 + random_() % (random_() % 20 == 0 ? 5000 : 300);
    const std::size_t align = std::size_t{1} << random_() % 8;
    log_line("void* ", new_block{}, " = memory.allocate(", bytes, ", ", align, ");");
    try {
      void* const first = arena_.allocate(bytes, align);
      name_block(first);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % align, 0u);
      if (!blocks_.empty()) EXPECT_GE(offset_of(first), blocks_.back().offset + blocks_.back().bytes);
      add(first, bytes);
    } catch (out_of_memory const&) {
      ++full;
      reset();
    }
  }

  // The newest, which is reclaimed unless it was published.
  void deallocate() {
    if (blocks_.empty()) return;
    const block newest = blocks_.back();
    const std::size_t before = arena_.stats().used_bytes;
    log_line("memory.deallocate(", block_at{address_of(newest)}, ", ", newest.bytes, ");");
    arena_.deallocate(address_of(newest), newest.bytes);
    if (newest.is_published) {
      EXPECT_EQ(arena_.stats().used_bytes, before) << "a published block was reclaimed";
      ++kept;
      return;
    }
    reclaimed += arena_.stats().used_bytes < before ? 1 : 0;
    blocks_.pop_back();
  }

  void publish() {
    log_line("memory.publish(*memory.push<std::array<unsigned char, 64>>());");
    try {
      auto* const made = arena_.push<root>();
      add(made->data(), made->size());
      const std::uint64_t before = arena_.generation();
      EXPECT_EQ(arena_.publish(*made), before + 1);
      published_.push_back(offset_of(made));
      for (block& each : blocks_) each.is_published = true;
      ++published;
    } catch (out_of_memory const&) {
      ++full;
      reset();
    }
  }

  void publish_foreign_object() {
    const std::uint64_t before = arena_.generation();
    EXPECT_THROW((void)arena_.publish(before), std::invalid_argument);
    EXPECT_EQ(arena_.generation(), before);
  }

  void reset() {
    check_contents();
    const std::uint64_t before = arena_.generation();
    log_line("memory.try_reset();");
    EXPECT_TRUE(arena_.try_reset()) << "there is no view";
    EXPECT_EQ(arena_.generation(), before);
    blocks_.clear();
    published_.clear();
  }

  process_arena arena_{process_arena_options{.reserve = 64 * KiB, .commit_step = 4 * KiB}};
  file_descriptor file_{arena_.export_file()};
  detail::process_format format_;
  choices random_;
  std::vector<block> blocks_;             // in the order of their addresses
  std::vector<std::uint64_t> published_;  // offsets of roots
};

}  // namespace tidemark::test
