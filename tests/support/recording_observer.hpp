// SPDX-License-Identifier: Apache-2.0
// An observer that writes down its calls, fails on demand, and requires the protocol of
// `allocation_observer`.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/allocation_observer.hpp>

namespace tidemark::test {

/// Writes "+64" for a block of 64 bytes, "-64" for its release, "!64" for a failure.
class recording_observer final : public allocation_observer {
 public:
  void before_allocate(std::size_t, std::size_t) override {
    EXPECT_FALSE(is_pending_);
    if (std::exchange(rejects_next, false)) throw std::bad_alloc{};
    is_pending_ = true;
  }
  void allocated(void* block, std::size_t bytes, std::size_t align) override {
    EXPECT_TRUE(is_pending_);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % align, 0u);
    if (std::exchange(fails_next, false)) {
      failed(bytes);
      throw std::bad_alloc{};
    }
    is_pending_ = false;
    events.push_back("+" + std::to_string(bytes));
    EXPECT_TRUE(live.emplace(block, bytes).second) << "a live block was allocated again";
    used_bytes += bytes;
    peak_bytes = std::max(peak_bytes, used_bytes);
  }
  void failed(std::size_t bytes) noexcept override {
    EXPECT_TRUE(std::exchange(is_pending_, false));
    events.push_back("!" + std::to_string(bytes));
  }
  void released(void* block, std::size_t bytes) noexcept override {
    const auto found = live.find(block);
    EXPECT_TRUE(found != live.end() && found->second == bytes) << "no such block is live: " << bytes;
    if (found == live.end()) return;
    live.erase(found);
    used_bytes -= bytes;
    events.push_back("-" + std::to_string(bytes));
  }
  void step_began(std::uint64_t kind) noexcept override { events.push_back("step " + std::to_string(kind)); }
  void step_ended() noexcept override { events.emplace_back("end"); }
  void detached() noexcept override { ++detached_times; }

  /// Returns and clears the events since the last call.
  std::vector<std::string> drain() { return std::exchange(events, {}); }

  bool rejects_next = false;  // `before_allocate` throws once
  bool fails_next = false;    // `allocated` throws once
  std::vector<std::string> events;
  std::map<void*, std::size_t> live;
  std::size_t used_bytes = 0, peak_bytes = 0, detached_times = 0;

 private:
  bool is_pending_ = false;
};

using event_list = std::vector<std::string>;

}  // namespace tidemark::test
