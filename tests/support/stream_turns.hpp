// SPDX-License-Identifier: Apache-2.0
// Work on the streams of a fake device that records its turn.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "fake_device.hpp"

namespace tidemark::test {

/// The turns that works took. It lives until they have run.
class stream_turns {
 public:
  explicit stream_turns(fake_device& device) : device_{device} {}
  stream_turns(stream_turns const&) = delete;
  stream_turns& operator=(stream_turns const&) = delete;

  /// Puts work on a stream that writes down its name when it runs.
  void put_on(gpu::stream_handle stream, char const* name) {
    works_.push_back({this, name});
    ASSERT_EQ(device_.launch_on_host(
                  stream,
                  [](void* of) {
                    auto const& [turns, own_name] = *static_cast<work*>(of);
                    turns->taken_.push_back(own_name);
                  },
                  &works_.back()),
              gpu::status::success);
  }
  /// The names of the works that have run, in order.
  [[nodiscard]] std::vector<std::string> const& taken() const { return taken_; }

 private:
  struct work {
    stream_turns* turns;
    std::string name;
  };

  fake_device& device_;
  std::deque<work> works_;  // a deque, because work on streams points to its elements
  std::vector<std::string> taken_;
};

}  // namespace tidemark::test
