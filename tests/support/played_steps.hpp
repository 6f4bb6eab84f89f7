// SPDX-License-Identifier: Apache-2.0
// Steps of a planned arena as text, so that a test shows the requests and the frees.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <tidemark/plan/replay/planned_arena.hpp>

#include "recording_supply.hpp"
#include "shadow.hpp"

namespace tidemark::test {

/// Plays texts such as "a=100 b=64@4096 -a": block a of 100 bytes, block b of 64 bytes aligned to 4096, and a
/// is freed. Names outlive the step, and become free when their block is deallocated. Live blocks are freed
/// at the end.
template <class Arena>
class played_steps {
 public:
  explicit played_steps(Arena& memory) : memory_{memory} {}
  played_steps(played_steps const&) = delete;
  played_steps& operator=(played_steps const&) = delete;
  ~played_steps() {
    while (!held_.empty()) deallocate_named(held_.begin()->first);
  }

  /// A step of a kind that does so. @return requests that went to the fallback
  std::uint64_t step(std::string const& text, int kind = 0) {
    const std::uint64_t before = memory_.stats().fallback_allocations;
    typename Arena::step open{memory_, kind};
    play(text);
    return memory_.stats().fallback_allocations - before;
  }
  /// Without a step, or in one that is open.
  void play(std::string const& text) {
    std::istringstream words{text};
    for (std::string word; words >> word;) {
      if (word.front() == '-') deallocate_named(word.substr(1));
      else allocate_named(word);
    }
  }
  /// Returns true if a block is live.
  [[nodiscard]] bool holds(std::string const& name) const { return held_.contains(name); }
  /// Returns the address of a live block.
  [[nodiscard]] std::byte* at(std::string const& name) const { return held_.at(name).block; }
  /// Returns the addresses of the blocks requested since the last call, in order.
  std::vector<std::byte*> addresses() { return std::exchange(addresses_, {}); }

 private:
  struct held {
    std::byte* block;
    std::size_t bytes, align;
  };

  void allocate_named(std::string const& word) {
    const std::size_t equals = word.find('='), at = word.find('@');
    const std::string name = word.substr(0, equals);
    ASSERT_FALSE(held_.contains(name)) << name << " is live";
    held one{.block = nullptr, .bytes = std::stoull(word.substr(equals + 1)), .align = 8};
    if (at != std::string::npos) one.align = std::stoull(word.substr(at + 1));
    one.block = static_cast<std::byte*>(memory_.allocate(one.bytes, one.align));
    contents_.add(one.block, one.bytes, one.align);
    addresses_.push_back(one.block);
    held_.emplace(name, one);
  }
  void deallocate_named(std::string const& name) {
    ASSERT_TRUE(held_.contains(name)) << name << " is not live";
    const held one = held_.at(name);
    held_.erase(name);
    contents_.remove(one.block);
    memory_.deallocate(one.block, one.bytes, one.align);
    memory_.check_invariants();
  }

  Arena& memory_;
  std::map<std::string, held> held_;
  std::vector<std::byte*> addresses_;
  shadow contents_;
};

/// Steps on an arena whose fallback knows its blocks.
class played_arena : public ::testing::Test {
 protected:
  std::uint64_t step(std::string const& text, int kind = 0) { return steps_.step(text, kind); }
  planned_arena_stats stats() { return memory_.stats(); }

  recording_resource fallback_;
  planned_arena memory_{&fallback_};
  played_steps<planned_arena> steps_{memory_};
};

}  // namespace tidemark::test
