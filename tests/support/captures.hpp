// SPDX-License-Identifier: Apache-2.0
// Captures on the fake device: graphs of work, and a capture that a resource must neither invalidate nor add
// to.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>

#include <tidemark/cuda/driver/driver.hpp>

#include "fake_device.hpp"

namespace tidemark::test {

/// The graph of what `body` puts on a stream.
inline gpu::graph_handle captured(fake_device& device, gpu::stream_handle on, gpu::capture_mode mode,
                                  std::function<void()> const& body) {
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(on, mode), gpu::status::success);
  body();
  EXPECT_EQ(device.end_capture(on, graph), gpu::status::success);
  return graph;
}
/// Captures what `body` puts on a stream, which no call may invalidate, and destroys the graph.
inline void in_capture(fake_device& device, gpu::stream_handle on, gpu::capture_mode mode,
                       std::function<void()> const& body) {
  EXPECT_EQ(device.destroy_graph(captured(device, on, mode, body)), gpu::status::success);
}
inline gpu::executable_handle instantiated(fake_device& device, gpu::graph_handle graph) {
  gpu::executable_handle executable = nullptr;
  EXPECT_EQ(device.instantiate(graph, executable), gpu::status::success);
  return executable;
}

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
