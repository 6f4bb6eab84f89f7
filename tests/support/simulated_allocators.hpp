// SPDX-License-Identifier: Apache-2.0
// Device allocators that ours is compared with, simulated by their documented rules without memory: they
// place blocks at synthetic addresses and count the bytes that they would hold.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>

namespace tidemark::test {

/// An allocator that is not there. Addresses are not 0. One thread at a time.
class simulated_allocator {
 public:
  simulated_allocator() = default;
  simulated_allocator(simulated_allocator const&) = delete;
  simulated_allocator& operator=(simulated_allocator const&) = delete;
  virtual ~simulated_allocator() = default;

  /// @return the address of a block.
  [[nodiscard]] virtual std::uintptr_t allocate(std::size_t bytes) = 0;
  virtual void deallocate(std::uintptr_t block) = 0;
  /// Bytes taken from the device. These allocators return memory on request only.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }

 protected:
  std::size_t held_bytes_ = 0;
};

/// Free ranges by address and by size; neighbours within one segment are merged.
class simulated_ranges {
 public:
  void add(std::uintptr_t begin, std::size_t bytes) {
    auto next = by_address_.lower_bound(begin);
    if (next != by_address_.end() && begin + bytes == next->first && !starts_segment(next->first)) {
      bytes += next->second;
      next = erase(next);
    }
    if (next != by_address_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin && !starts_segment(begin)) {
        begin = before->first;
        bytes += before->second;
        erase(before);
      }
    }
    by_address_[begin] = bytes;
    by_size_.insert({bytes, begin});
  }
  /// Takes the smallest range of at least this size, the lowest among equals. @return an empty range if none
  /// exists
  std::pair<std::uintptr_t, std::size_t> extract_best_fit(std::size_t bytes) {
    const auto found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) return {0, 0};
    return extract(by_address_.find(found->second));
  }
  /// Takes the range that ends there. @return an empty one if none does.
  std::pair<std::uintptr_t, std::size_t> extract_ending_at(std::uintptr_t end) {
    const auto after = by_address_.lower_bound(end);
    if (after == by_address_.begin()) return {0, 0};
    const auto last = std::prev(after);
    return last->first + last->second == end ? extract(last) : std::pair<std::uintptr_t, std::size_t>{0, 0};
  }
  /// Ranges are not merged across this address.
  void begin_segment(std::uintptr_t begin) { segments_.insert(begin); }

 private:
  using iterator = std::map<std::uintptr_t, std::size_t>::iterator;
  [[nodiscard]] bool starts_segment(std::uintptr_t address) const { return segments_.contains(address); }
  iterator erase(iterator at) {
    by_size_.erase({at->second, at->first});
    return by_address_.erase(at);
  }
  std::pair<std::uintptr_t, std::size_t> extract(iterator at) {
    const std::pair<std::uintptr_t, std::size_t> taken = *at;
    erase(at);
    return taken;
  }

  std::map<std::uintptr_t, std::size_t> by_address_;
  std::set<std::pair<std::size_t, std::uintptr_t>> by_size_;
  std::set<std::uintptr_t> segments_;
};

/// PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, notes/cuda.html), for one stream. Sizes
/// are multiples of 512. Blocks up to 1 MiB come from segments of 2 MiB, up to 10 MiB from segments of 20
/// MiB, and larger blocks from segments of their size rounded up to 2 MiB. Best fit within the small or the
/// large blocks. The rest of a block stays free if it is at least 512 bytes, or more than 1 MiB of a large
/// block. With expandable segments the blocks of each kind lie in one segment, which grows by pages of 2 or
/// 20 MiB.
class simulated_pytorch final : public simulated_allocator {
 public:
  explicit simulated_pytorch(bool is_expandable) : is_expandable_{is_expandable} {}

  std::uintptr_t allocate(std::size_t bytes) override {
    bytes = std::max<std::size_t>((bytes + 511) / 512 * 512, 512);
    const bool is_small = bytes <= MiB;
    kind& of = kinds_[is_small ? 0 : 1];
    auto [begin, size] = of.free.extract_best_fit(bytes);
    if (size == 0)
      std::tie(begin, size) = is_expandable_ ? grow(of, bytes, is_small) : add(of, bytes, is_small);
    const std::size_t rest = size - bytes;
    if (is_small || is_expandable_ ? rest >= 512 : rest > MiB) {
      of.free.add(begin + bytes, rest);
      size = bytes;
    }
    live_[begin] = {size, &of};
    return begin;
  }
  void deallocate(std::uintptr_t block) override {
    const auto found = live_.find(block);
    found->second.of->free.add(block, found->second.bytes);
    live_.erase(found);
  }

 private:
  struct kind {
    simulated_ranges free;
    std::uintptr_t end;  // of an expandable segment
  };
  struct live_block {
    std::size_t bytes;
    kind* of;
  };

  std::pair<std::uintptr_t, std::size_t> add(kind& of, std::size_t bytes, bool is_small) {
    const std::size_t segment = is_small           ? 2 * MiB
                                : bytes < 10 * MiB ? 20 * MiB
                                                   : (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
    const std::uintptr_t begin = of.end;
    of.end += segment;
    of.free.begin_segment(begin);
    held_bytes_ += segment;
    return {begin, segment};
  }
  std::pair<std::uintptr_t, std::size_t> grow(kind& of, std::size_t bytes, bool is_small) {
    auto [begin, size] = of.free.extract_ending_at(of.end);
    if (size == 0) begin = of.end;
    const std::size_t page = (is_small ? 2 : 20) * MiB, pages = (bytes - size + page - 1) / page;
    of.end += pages * page;
    held_bytes_ += pages * page;
    return {begin, of.end - begin};
  }

  bool is_expandable_;
  kind kinds_[2] = {{{}, std::uintptr_t{1} << 40}, {{}, std::uintptr_t{1} << 44}};
  std::map<std::uintptr_t, live_block> live_;
};

/// One range that grows at its end by units of 2 MiB. Uses best fit, or TLSF (Masmano and others, 2004): the
/// first range of the next class, with 32 classes per doubling.
class simulated_range final : public simulated_allocator {
 public:
  explicit simulated_range(bool is_tlsf) : is_tlsf_{is_tlsf} {}

  std::uintptr_t allocate(std::size_t bytes) override {
    bytes = std::max<std::size_t>((bytes + 511) / 512 * 512, 512);
    auto [begin, size] = free_.extract_best_fit(is_tlsf_ ? class_above(bytes) : bytes);
    if (size == 0) {
      std::tie(begin, size) = free_.extract_ending_at(end_);
      if (size == 0) begin = end_;
      const std::size_t more = size < bytes ? (bytes - size + 2 * MiB - 1) / (2 * MiB) * (2 * MiB) : 0;
      end_ += more;
      held_bytes_ += more;
      size += more;
    }
    if (size > bytes) free_.add(begin + bytes, size - bytes);
    live_[begin] = bytes;
    return begin;
  }
  void deallocate(std::uintptr_t block) override {
    const auto found = live_.find(block);
    free_.add(block, found->second);
    live_.erase(found);
  }

 private:
  static std::size_t class_above(std::size_t bytes) noexcept {
    const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 32, 1);
    return (bytes + step - 1) / step * step;
  }

  bool is_tlsf_;
  std::uintptr_t end_ = std::uintptr_t{1} << 40;
  simulated_ranges free_;
  std::map<std::uintptr_t, std::size_t> live_;
};

/// Size classes, 8 to each doubling, whose blocks serve no other class.
class simulated_classes final : public simulated_allocator {
 public:
  std::uintptr_t allocate(std::size_t bytes) override {
    const std::size_t step = std::max<std::size_t>(std::bit_floor(std::max<std::size_t>(bytes, 1)) / 8, 512);
    const std::size_t size = (std::max<std::size_t>(bytes, 1) + step - 1) / step * step;
    std::vector<std::uintptr_t>& ready = free_[size];
    if (ready.empty()) {
      ready.push_back(end_);
      end_ += size;
      held_bytes_ += size;
    }
    const std::uintptr_t block = ready.back();
    ready.pop_back();
    live_[block] = size;
    return block;
  }
  void deallocate(std::uintptr_t block) override {
    const auto found = live_.find(block);
    free_[found->second].push_back(block);
    live_.erase(found);
  }

 private:
  std::uintptr_t end_ = std::uintptr_t{1} << 40;
  std::map<std::size_t, std::vector<std::uintptr_t>> free_;
  std::map<std::uintptr_t, std::size_t> live_;
};

}  // namespace tidemark::test
