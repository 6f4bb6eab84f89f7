// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture` of a CUDA stream: a body's work as a graph that is replayed. Owns nothing once it has returned.
#pragma once

#include <memory>
#include <utility>

#include <tidemark/capture.hpp>
#include <tidemark/cuda/capture_backend.hpp>

namespace tidemark {

/// How a stream is captured.
struct stream_capture_options {
  /// What is refused of the program meanwhile: see `cuda::capture_backend`.
  cuda::capture_mode mode = cuda::capture_mode::thread_local_;
  /// The stream's device; -1: the one that is current.
  cuda::device_number device = -1;
  /// The driver's calls; null: `cuda::default_driver()`.
  cuda::driver* driver = nullptr;
};

/// Runs `body(arena, inputs, outputs)` once while `stream` captures: what it puts on the stream becomes a
/// graph and does not run. `body` allocates its temporaries from the arena, which makes no call to the
/// driver.
///
/// ```cpp
/// device_pool pool{{.stream = stream}};
/// cuda::device_resource device;
/// graph_layout const layout = rehearse([&](auto& memory) { body(memory, x, y); }, &pool);  // a real run
/// auto arena = std::make_unique<graph_arena>(layout, &device);
/// auto step = capture(stream, std::move(arena), std::move(x), std::move(y), body);
/// for (int i = 0; i < 1000; ++i) step.launch();
/// ```
/// @throws as `capture_with`; besides cuda_error, and empty_capture where body put nothing on the stream. In
/// each case the stream does not capture any more, and can be used.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(cuda::stream_handle stream,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body,
                                                      stream_capture_options const& options = {}) {
  cuda::capture_backend backend{stream, options.mode, options.device,
                                options.driver != nullptr ? *options.driver : cuda::default_driver()};
  return capture_with(backend, nullptr, std::move(arena), std::move(inputs), std::move(outputs),
                      std::forward<Body>(body), stream);
}
/// The same, where the body allocates through a switch.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(cuda::stream_handle stream, capture_switch& memory,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body,
                                                      stream_capture_options const& options = {}) {
  cuda::capture_backend backend{stream, options.mode, options.device,
                                options.driver != nullptr ? *options.driver : cuda::default_driver()};
  return capture_with(backend, &memory, std::move(arena), std::move(inputs), std::move(outputs),
                      std::forward<Body>(body), stream);
}

}  // namespace tidemark
