// SPDX-License-Identifier: Apache-2.0
// Blocks of device memory that are replaced one by one among 10,000, served by ready memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/core/units.hpp>

namespace tidemark::bench {

struct device_pair_kind {
  bool large = true;     // blocks of 1 to 9 MiB; otherwise of 1 byte to 1 MiB, as many of each power of two
  bool random = false;   // frees blocks in random order; otherwise the oldest one first
  bool repeats = false;  // allocates blocks of the freed sizes; otherwise of new ones
};

/// @tparam Memory `device_pool`, or a simulated allocator
template <class Memory>
class device_pairs {
 public:
  device_pairs(Memory& memory, device_pair_kind kind) : memory_{memory}, kind_{kind} {
    std::vector<block> others(blocks_.size() / 4);  // their memory is then free
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      blocks_[i] = allocate(draw_bytes());
      if (i % 4 == 0) others[i / 4] = allocate(draw_bytes());
    }
    for (block const& each : others) deallocate(each);
    for (std::size_t i = 0; i < 5 * blocks_.size(); ++i) replace_one();
  }
  device_pairs(device_pairs const&) = delete;
  device_pairs& operator=(device_pairs const&) = delete;
  ~device_pairs() {
    for (block const& each : blocks_) deallocate(each);
  }

  /// Frees a block and allocates another one.
  void replace_one() {
    next_ = next_ + 1 < blocks_.size() ? next_ + 1 : 0;
    block& at = blocks_[kind_.random ? draw() * blocks_.size() >> 32 : next_];
    deallocate(at);
    at = allocate(kind_.repeats ? at.bytes : draw_bytes());
  }

 private:
  struct block {
    std::uintptr_t address;
    std::size_t bytes;
  };
  std::uint64_t draw() noexcept {  // Knuth's linear congruential generator
    state_ = state_ * 6'364'136'223'846'793'005 + 1'442'695'040'888'963'407;
    return state_ >> 32;
  }
  std::size_t draw_bytes() noexcept {
    const std::size_t drawn = draw();
    return kind_.large ? 1 * MiB + 1 + drawn % (8 * MiB) : 1 + drawn % (std::size_t{2} << (drawn >> 24) % 20);
  }
  block allocate(std::size_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(memory_.allocate(bytes)), bytes};
  }
  void deallocate(block const& each) {
    memory_.deallocate(reinterpret_cast<void*>(each.address), each.bytes);
  }

  Memory& memory_;
  device_pair_kind kind_;
  std::vector<block> blocks_ = std::vector<block>(10'000);
  std::size_t next_ = 0;
  std::uint64_t state_ = 1;
};

}  // namespace tidemark::bench
