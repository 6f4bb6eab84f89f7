// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::capture_backend`: records what is put on a stream into a CUDA graph. Owns nothing between captures.
#pragma once

#include <memory>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/graph_backend.hpp>

namespace tidemark::cuda {

/// The backend of a stream. Most use it through `capture`.
///
/// The graph that `end` gives is launched with `cuGraphLaunch`; each launch leaves an event behind, so that
/// whoever ends the graph, and with it the memory that it uses, can wait for the last one. A launch on a
/// stream that captures becomes part of that capture; then the graph must outlive the one it has become part
/// of.
///
/// Thread-safety: one thread at a time; a capture ends on the thread that began it.
class capture_backend final : public graph_backend {
 public:
  /// @param stream to be captured; not the default stream, which CUDA cannot capture
  /// @param mode what is refused of the program while the capture goes on. By default unsafe calls of the
  /// capturing thread: a capture is a matter of one thread in tidemark, and others go on as ever.
  /// @param device of the stream; -1: the one that is current when the capture begins
  explicit capture_backend(stream_handle stream, capture_mode mode = capture_mode::thread_local_,
                           device_number device = -1, driver& driver = default_driver()) noexcept
      : stream_{stream}, mode_{mode}, device_{device}, driver_{&driver} {}

  [[nodiscard]] bool supports_capture() const noexcept override { return true; }
  /// @throws cuda_error, for instance of a stream that captures already.
  void begin() override;
  /// @throws cuda_error, for instance where a call of the body has invalidated the capture; empty_capture;
  /// std::bad_alloc. The stream does not capture any more, and nothing is left of the graph.
  [[nodiscard]] std::unique_ptr<graph_instance> end() override;
  void abandon() noexcept override;

 private:
  stream_handle stream_;
  capture_mode mode_;
  device_number device_;
  driver* driver_;
};

}  // namespace tidemark::cuda
