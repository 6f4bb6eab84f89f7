// SPDX-License-Identifier: Apache-2.0
// A capture that a resource must neither invalidate nor add to.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>

#include <tidemark/cuda/driver/driver.hpp>

#include "fake_device.hpp"

namespace tidemark::test {

/// Captures a stream as long as it lives. Expects a valid graph without nodes at its end.
class empty_capture {
 public:
  empty_capture(fake_device& device, gpu::stream_handle stream) : device_{device}, stream_{stream} {
    EXPECT_EQ(device.begin_capture(stream, gpu::capture_mode::global), gpu::status::success);
  }
  empty_capture(empty_capture const&) = delete;
  empty_capture& operator=(empty_capture const&) = delete;
  ~empty_capture() {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device_.end_capture(stream_, graph), gpu::status::success);
    std::size_t nodes = 1;
    EXPECT_EQ(device_.node_count(graph, nodes), gpu::status::success);
    EXPECT_EQ(nodes, 0u);
    EXPECT_EQ(device_.destroy_graph(graph), gpu::status::success);
  }

 private:
  fake_device& device_;
  gpu::stream_handle stream_;
};

}  // namespace tidemark::test
