// SPDX-License-Identifier: Apache-2.0
// Inaccessible memory like a device's: a touch crashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <mutex>
#include <utility>
#include <vector>

namespace tidemark::test {

/// Hands out addresses of a range that no process on x86-64 or AArch64 can map. A block that came back is the
/// next one of its size and alignment. Any thread.
class made_up_memory final : public std::pmr::memory_resource {
 public:
  /// @param device one of 256 ranges: memory of different devices has different addresses
  explicit made_up_memory(unsigned char device = 0) noexcept
      : next_{first_address + (std::uintptr_t{device} << 48)} {}

  [[nodiscard]] static bool is_made_up(void const* block) noexcept {
    return reinterpret_cast<std::uintptr_t>(block) >= first_address;
  }

 private:
  static constexpr std::uintptr_t first_address = std::uintptr_t{1} << 62;

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    std::vector<std::uintptr_t>& free = free_[{bytes, align}];
    if (!free.empty()) {
      const std::uintptr_t address = free.back();
      free.pop_back();
      return reinterpret_cast<void*>(address);
    }
    next_ = (next_ + align - 1) / align * align;
    return reinterpret_cast<void*>(std::exchange(next_, next_ + bytes + 1));
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    free_[{bytes, align}].push_back(reinterpret_cast<std::uintptr_t>(block));
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  std::mutex mutex_;
  std::uintptr_t next_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::uintptr_t>> free_;
};

}  // namespace tidemark::test
