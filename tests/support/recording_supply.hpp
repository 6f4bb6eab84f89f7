// SPDX-License-Identifier: Apache-2.0
// Sources of memory for tests: they count calls, fail the n-th call, and check that they get back exactly the
// blocks they returned.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory_resource>
#include <new>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/os_memory.hpp>

namespace tidemark::test {

/// Common base of all sources: counts calls that can fail, and makes chosen calls fail.
class supply {
 public:
  static constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

  std::size_t calls = 0;          ///< calls that could have failed
  std::size_t fail_from = never;  ///< the first call, counted from 0, that fails
  std::size_t fail_count = 1;     ///< how many in a row fail

  std::size_t outstanding = 0;  ///< bytes returned and not yet deallocated

 protected:
  bool this_one_fails() noexcept {
    const std::size_t call = calls++;
    return call >= fail_from && call - fail_from < fail_count;
  }
};

/// An upstream resource.
class recording_resource final : public std::pmr::memory_resource, public supply {
 public:
  explicit recording_resource(std::pmr::memory_resource* upstream = std::pmr::new_delete_resource())
      : upstream_{upstream} {}
  ~recording_resource() override {
    EXPECT_TRUE(blocks_.empty()) << blocks_.size() << " blocks were not deallocated";
  }

  std::size_t largest = 0;  ///< largest request so far, in bytes

  /// Returns true if a block that begins at `first` was returned and not yet deallocated.
  [[nodiscard]] bool holds(void* first) const { return blocks_.contains(first); }

 private:
  struct block {
    std::size_t bytes, align;
  };

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (this_one_fails()) throw std::bad_alloc{};
    // No memory has room for it, and AddressSanitizer ends a program that requests as much.
    if (bytes > std::numeric_limits<std::ptrdiff_t>::max()) throw std::bad_alloc{};
    void* given = upstream_->allocate(bytes, align);
    blocks_.emplace(given, block{bytes, align});
    outstanding += bytes;
    if (bytes > largest) largest = bytes;
    return given;
  }
  void do_deallocate(void* first, std::size_t bytes, std::size_t align) override {
    const auto found = blocks_.find(first);
    ASSERT_NE(found, blocks_.end()) << "got back a block that it did not give";
    EXPECT_EQ(found->second.bytes, bytes) << "got back a block of another size";
    EXPECT_EQ(found->second.align, align) << "got back a block of another alignment";
    blocks_.erase(found);
    outstanding -= bytes;
    upstream_->deallocate(first, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource* upstream_;
  std::map<void*, block> blocks_;
};

/// The operating system's calls, watched: ranges must lie in reservations, and whole reservations come back.
class recording_os : public os_memory, public supply {
 public:
  ~recording_os() override {
    EXPECT_TRUE(reservations_.empty()) << reservations_.size() << " reservations were not released";
  }

  std::size_t reserves = 0, commits = 0, decommits = 0, releases = 0, prefaults = 0, advices = 0;
  std::size_t committed_bytes = 0;         ///< in all commit calls so far
  std::size_t commit_limit_bytes = never;  ///< a commit that would exceed it in all is refused
  bool last_advice = false;                ///< whether huge pages were wanted last
  byte_range last_advised;                 ///< part of the last advice

  void* reserve(std::size_t bytes, std::size_t align) noexcept override {
    ++reserves;
    if (this_one_fails()) return nullptr;
    void* first = system_memory().reserve(bytes, align);
    if (first == nullptr) return nullptr;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % align, 0u);
    reservations_.emplace(reinterpret_cast<std::uintptr_t>(first), bytes);
    outstanding += bytes;
    return first;
  }
  bool commit(void* first, std::size_t bytes) noexcept override {
    ++commits;
    expect_inside(first, bytes);
    if (this_one_fails() || bytes > commit_limit_bytes - committed_bytes) return false;
    committed_bytes += bytes;
    return system_memory().commit(first, bytes);
  }
  bool decommit(void* first, std::size_t bytes) noexcept override {
    ++decommits;
    expect_inside(first, bytes);
    if (this_one_fails()) return false;
    std::memset(first, 0xEE, bytes);  // the owner may touch memory that it takes back
    return system_memory().decommit(first, bytes);
  }
  bool release(void* first, std::size_t bytes) noexcept override {
    ++releases;
    const auto found = reservations_.find(reinterpret_cast<std::uintptr_t>(first));
    if (found == reservations_.end() || found->second != bytes) {
      ADD_FAILURE() << "released what was not reserved as such";
      return false;
    }
    reservations_.erase(found);
    outstanding -= bytes;
    return system_memory().release(first, bytes);
  }
  bool advise_huge_pages(void* first, std::size_t bytes, bool wanted) noexcept override {
    ++advices;
    last_advice = wanted;
    last_advised = {reinterpret_cast<std::uintptr_t>(first), bytes};
    last_advised = {reinterpret_cast<std::uintptr_t>(first), bytes};
    expect_inside(first, bytes);
    return system_memory().advise_huge_pages(first, bytes, wanted);
  }
  bool prefault(void* first, std::size_t bytes) noexcept override {
    ++prefaults;
    expect_inside(first, bytes);
    for (std::size_t i = 0; i < bytes; i += page_size()) static_cast<char volatile*>(first)[i] = 0;
    return system_memory().prefault(first, bytes);
  }
  std::size_t page_size() noexcept override { return system_memory().page_size(); }
  bool entropy(void* first, std::size_t bytes) noexcept override {
    return !this_one_fails() && system_memory().entropy(first, bytes);
  }

 private:
  void expect_inside(void* first, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    EXPECT_EQ(begin % page_size(), 0u);
    EXPECT_EQ(bytes % page_size(), 0u);
    auto after = reservations_.upper_bound(begin);
    ASSERT_NE(after, reservations_.begin()) << "a range outside all reservations";
    --after;
    EXPECT_LE(begin + bytes, after->first + after->second) << "a range beyond its reservation";
  }

  std::map<std::uintptr_t, std::size_t> reservations_;
};

}  // namespace tidemark::test
