// SPDX-License-Identifier: Apache-2.0
// Sources of memory for tests with threads.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include <tidemark/core/detail/distinct_resource.hpp>

namespace tidemark::test {

/// Any resource, one thread at a time.
class locked_resource final : public detail::distinct_resource {
 public:
  explicit locked_resource(std::pmr::memory_resource* upstream) : upstream_{upstream} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    return upstream_->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    upstream_->deallocate(block, bytes, align);
  }

  std::mutex mutex_;
  std::pmr::memory_resource* upstream_;
};

/// Hands out blocks of up to 64 bytes of memory that is not there, each address once, and takes each back
/// once. No lock, so that it makes no thread wait for another.
class each_once_memory final : public detail::distinct_resource {
 public:
  explicit each_once_memory(std::size_t max_blocks) : deallocations_(max_blocks) {}

  /// Blocks that are out.
  [[nodiscard]] std::size_t outstanding() const noexcept { return next_.load() - returned_.load(); }

 private:
  static constexpr std::uintptr_t first_address = std::uintptr_t{1} << 62;
  static constexpr std::size_t stride = 64;

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    const std::size_t i = next_.fetch_add(1);
    if (i >= deallocations_.size() || bytes > stride || align > stride) throw std::bad_alloc{};
    return reinterpret_cast<void*>(first_address + i * stride);
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override {
    const std::size_t i = (reinterpret_cast<std::uintptr_t>(block) - first_address) / stride;
    EXPECT_EQ(deallocations_.at(i).fetch_add(1), 0) << "block " << i << " went back twice";
    returned_.fetch_add(1);
  }

  std::atomic<std::size_t> next_{0}, returned_{0};
  std::vector<std::atomic<int>> deallocations_;
};

}  // namespace tidemark::test
