// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_backend` and `graph_instance`: interfaces of a capture and of a recorded graph. `host_backend` runs
/// bodies at once.
#pragma once

#include <memory>

// Declared by the CUDA toolkit: a `cudaStream_t` is a `graph_stream`.
struct CUstream_st;

namespace tidemark {

/// A stream for launches; null: the backend's default.
using graph_stream = ::CUstream_st*;

/// A recorded graph, ready to be launched. A `captured_graph` owns it and destroys it before its other
/// members. One thread at a time.
class graph_instance {
 public:
  graph_instance() = default;
  graph_instance(graph_instance const&) = delete;
  graph_instance& operator=(graph_instance const&) = delete;
  /// Waits for running launches if their memory could otherwise be freed.
  virtual ~graph_instance() = default;

  /// Waits for running launches, because their memory is about to be freed. The graph can be launched again.
  virtual void wait() noexcept = 0;

  /// Runs the graph once more, after the work on `stream`. @throws whatever the backend throws; the launch
  /// can be tried again
  virtual void launch(graph_stream stream) = 0;
  /// True if a launch repeats the recorded work.
  [[nodiscard]] virtual bool is_replay_capable() const noexcept = 0;
};

/// Records the work of a body between `begin` and `end`. Derive from it to capture with another system than
/// CUDA. `capture` calls `begin` and, if that did not throw, exactly one of `end`, `end_into` and `abandon`.
class graph_backend {
 public:
  graph_backend() = default;
  graph_backend(graph_backend const&) = delete;
  graph_backend& operator=(graph_backend const&) = delete;
  virtual ~graph_backend() = default;

  /// True if the result of `end` can be replayed.
  [[nodiscard]] virtual bool supports_capture() const noexcept = 0;
  /// Begins a capture. @throws if nothing can be captured now; no capture is active then
  virtual void begin() = 0;
  /// Ends the capture. @return the recorded graph, never null. @throws if the capture recorded nothing
  /// usable; it has ended then, too
  [[nodiscard]] virtual std::unique_ptr<graph_instance> end() = 0;
  /// Ends the capture, and puts the recorded graph into `instance`. Running launches are not affected, and
  /// later launches follow them. The default implementation replaces the instance by the result of `end`.
  /// @param instance recorded by an earlier capture of any backend; not null
  /// @return true if the backend changed the same object in place
  /// @throws as `end`; std::logic_error if `end` returns null. The instance is unchanged then.
  virtual bool end_into(std::unique_ptr<graph_instance>& instance);
  /// Ends the capture and drops the recorded work, because the body has thrown.
  virtual void abandon() noexcept = 0;
};

/// The host's backend, for programs that must also run without a device. The body runs at once during the
/// capture, and a launch does nothing.
class host_backend final : public graph_backend {
 public:
  [[nodiscard]] bool supports_capture() const noexcept override { return false; }
  void begin() override {}
  [[nodiscard]] std::unique_ptr<graph_instance> end() override;
  void abandon() noexcept override {}
};

}  // namespace tidemark
