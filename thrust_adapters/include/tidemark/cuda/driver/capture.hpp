// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture` of a CUDA stream: captures the work of a body as a graph. Owns nothing after it returns.
#pragma once

#include <memory>
#include <utility>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/graph/capture.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {

/// Options of a stream capture.
struct stream_capture_options {
  /// Calls that the capture forbids. The default forbids only unsafe calls of the capturing thread and does
  /// not disturb other threads.
  gpu::capture_mode mode = gpu::capture_mode::thread_local_;
  /// Device of the stream; -1: the current device at the beginning of the capture.
  gpu::device_number device = -1;
  /// Table of driver calls; null: `gpu::default_driver()`.
  gpu::driver* driver = nullptr;
};

namespace gpu {

/// Captures a stream into a CUDA graph. Use it through `capture`. Owns nothing between captures.
///
/// `cuGraphLaunch` launches the graph of `end`. Each launch records an event. The end of the graph, and of
/// its memory, waits for the event of the last launch. A launch on a capturing stream throws cuda_error and
/// leaves the capture unchanged. A graph that ends during a capture destroys its executable after the
/// capture, because the call would invalidate captures of mode `global`.
///
/// Thread-safety: one thread at a time; a capture ends on the thread that began it.
class capture_backend final : public graph_backend {
 public:
  /// @param stream stream to capture; not the default stream, which CUDA cannot capture
  explicit capture_backend(stream_handle stream, stream_capture_options const& options = {}) noexcept
      : stream_{stream},
        mode_{options.mode},
        device_{options.device},
        driver_{options.driver != nullptr ? options.driver : &default_driver()} {}

  [[nodiscard]] bool supports_capture() const noexcept override { return true; }
  /// @throws cuda_error, for example if the stream is already capturing.
  void begin() override;
  /// @throws cuda_error, for example if a call of the body has invalidated the capture; empty_capture;
  /// std::bad_alloc. The capture has ended then, without a graph.
  [[nodiscard]] std::unique_ptr<graph_instance> end() override;
  /// Updates the executable of `instance` with the captured graph (`cuGraphExecUpdate`) if the driver can.
  /// Otherwise instantiates the graph; launches of the new executable run after those of the old one.
  /// @return true if the old executable was updated
  /// @throws as `end`; the instance has not changed then.
  bool end_into(std::unique_ptr<graph_instance>& instance) override;
  void abandon() noexcept override;

 private:
  stream_handle stream_;
  capture_mode mode_;
  device_number device_;
  driver* driver_;
};

}  // namespace gpu

/// Runs `body(arena, inputs, outputs)` once while `stream` captures. The work that the body enqueues becomes
/// a graph and does not run. `body` allocates its temporaries from the arena, which does not call the driver.
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
/// @throws as `capture_with`; cuda_error; empty_capture if the body enqueued no work. The capture has ended
/// then, and the stream is usable.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(gpu::stream_handle stream,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body,
                                                      stream_capture_options const& options = {}) {
  return captured_graph<Inputs, Outputs>::made_by(
      [&] { return std::make_unique<gpu::capture_backend>(stream, options); }, nullptr, arena, inputs,
      outputs, body, stream);
}
/// Captures a body that allocates through a switch.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(gpu::stream_handle stream, capture_switch& memory,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body,
                                                      stream_capture_options const& options = {}) {
  return captured_graph<Inputs, Outputs>::made_by(
      [&] { return std::make_unique<gpu::capture_backend>(stream, options); }, &memory, arena, inputs,
      outputs, body, stream);
}

}  // namespace tidemark
