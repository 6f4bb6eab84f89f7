// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture` of a CUDA stream: the work of a body as a graph. Owns nothing after it returns.
#pragma once

#include <memory>
#include <utility>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/graph/capture.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {

/// How a stream is captured.
struct stream_capture_options {
  /// What the capture forbids. By default only unsafe calls of the capturing thread: other threads are not
  /// disturbed.
  gpu::capture_mode mode = gpu::capture_mode::thread_local_;
  /// The stream's device; -1: the device that is current when the capture begins.
  gpu::device_number device = -1;
  /// The driver's calls; null: `gpu::default_driver()`.
  gpu::driver* driver = nullptr;
};

namespace gpu {

/// Captures a stream into a CUDA graph. Use it through `capture`. Owns nothing between captures.
///
/// The graph of `end` is launched with `cuGraphLaunch`. Each launch records an event, so that the end of
/// the graph, and of the memory that it uses, can wait for the last launch. A launch on a capturing stream
/// throws cuda_error and leaves that capture as it was. An executable whose graph ends during a capture is
/// destroyed after it, because that would invalidate captures of mode `global`.
///
/// Thread-safety: one thread at a time; a capture ends on the thread that began it.
class capture_backend final : public graph_backend {
 public:
  /// @param stream to be captured; not the default stream, which CUDA cannot capture
  explicit capture_backend(stream_handle stream, stream_capture_options const& options = {}) noexcept
      : stream_{stream},
        mode_{options.mode},
        device_{options.device},
        driver_{options.driver != nullptr ? options.driver : &default_driver()} {}

  [[nodiscard]] bool supports_capture() const noexcept override { return true; }
  /// @throws cuda_error, for instance if the stream is capturing already.
  void begin() override;
  /// @throws cuda_error, for instance if a call of the body has invalidated the capture; empty_capture;
  /// std::bad_alloc. The capture has ended then without a graph.
  [[nodiscard]] std::unique_ptr<graph_instance> end() override;
  /// Puts the graph into the executable of `instance` (`cuGraphExecUpdate`), where the driver can, and else
  /// instantiates it: launches of the new executable come behind those of the old one.
  /// @return whether it was put into the old one
  /// @throws as `end`; the instance is as it was then.
  bool end_into(std::unique_ptr<graph_instance>& instance) override;
  void abandon() noexcept override;

 private:
  stream_handle stream_;
  capture_mode mode_;
  device_number device_;
  driver* driver_;
};

}  // namespace gpu

/// Runs `body(arena, inputs, outputs)` once while `stream` captures: the work that it puts on the stream
/// becomes a graph and does not run. `body` allocates its temporaries from the arena, which does not call
/// the driver.
///
/// ```cpp
/// device_pool pool{{.stream = stream}};
/// gpu::device_resource device;
/// graph_layout const layout = rehearse([&](auto& memory) { body(memory, x, y); }, &pool);  // a real run
/// auto arena = std::make_unique<graph_arena>(layout, &device);
/// auto step = capture(stream, std::move(arena), std::move(x), std::move(y), body);
/// for (int i = 0; i < 1000; ++i) step.launch();
/// step.update(other_body);                        // captures the same stream, which must still be there
/// ```
/// @throws as `capture_with`; cuda_error; empty_capture if body put nothing on the stream. The capture has
/// ended then, and the stream can be used.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(gpu::stream_handle stream,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body,
                                                      stream_capture_options const& options = {}) {
  return detail::capture_by([&] { return std::make_unique<gpu::capture_backend>(stream, options); }, nullptr,
                            arena, inputs, outputs, body, stream);
}
/// The same for a body that allocates through a switch.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(gpu::stream_handle stream, capture_switch& memory,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body,
                                                      stream_capture_options const& options = {}) {
  return detail::capture_by([&] { return std::make_unique<gpu::capture_backend>(stream, options); }, &memory,
                            arena, inputs, outputs, body, stream);
}

}  // namespace tidemark
