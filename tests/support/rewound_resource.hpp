// SPDX-License-Identifier: Apache-2.0
// An upstream that takes all its memory back at once: `rewind` starts again at the first address.
#pragma once

#include <array>
#include <cstddef>
#include <memory_resource>
#include <vector>

namespace tidemark::test {

class rewound_resource final : public std::pmr::memory_resource {
 public:
  /// Starts again at the first address.
  void rewind() noexcept { used_ = 0; }

  std::vector<void*> came_back;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    used_ = (used_ + align - 1) / align * align + bytes;
    return &memory_.at(used_ - bytes);
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override { came_back.push_back(block); }
  bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }

  alignas(64) std::array<std::byte, 4096> memory_{};
  std::size_t used_ = 0;
};

}  // namespace tidemark::test
