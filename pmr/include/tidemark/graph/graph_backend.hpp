// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_backend` and `graph_instance`: what can capture, and what it makes. The host's, which runs at once.
#pragma once

#include <memory>

// The toolkit's own structure: a `cudaStream_t` is a `graph_stream`.
struct CUstream_st;

namespace tidemark {

/// Where a graph is launched; null: the backend's default.
using graph_stream = ::CUstream_st*;

/// What a capture has recorded, ready to be launched. Owned by a `captured_graph`, which ends it first of all
/// it owns. One thread at a time.
class graph_instance {
 public:
  graph_instance() = default;
  graph_instance(graph_instance const&) = delete;
  graph_instance& operator=(graph_instance const&) = delete;
  /// Waits for launches that still run, if the memory that they use could go otherwise.
  virtual ~graph_instance() = default;

  /// The same, and it can be launched again: memory that launches so far use is about to go.
  virtual void wait() noexcept = 0;

  /// Runs it once more, behind what is on `stream`. @throws what the backend throws; it can be tried again.
  virtual void launch(graph_stream stream) = 0;
  /// Whether a launch does what the capture recorded.
  [[nodiscard]] virtual bool is_replay_capable() const noexcept = 0;
};

/// Records what a body does between `begin` and `end`. Derive from it to capture with something else than
/// CUDA; `capture` sees to the order of calls: `begin`, and if that did not throw, one of `end`, `end_into`
/// and `abandon`.
class graph_backend {
 public:
  graph_backend() = default;
  graph_backend(graph_backend const&) = delete;
  graph_backend& operator=(graph_backend const&) = delete;
  virtual ~graph_backend() = default;

  /// Whether `end` gives something that can be replayed.
  [[nodiscard]] virtual bool supports_capture() const noexcept = 0;
  /// @throws if nothing can be captured now; nothing is then.
  virtual void begin() = 0;
  /// The capture is over. @return what it recorded, never null. @throws if it recorded nothing, or nothing
  /// that can be used; it is over all the same.
  [[nodiscard]] virtual std::unique_ptr<graph_instance> end() = 0;
  /// The capture is over, as by `end`, and from now on `instance` does what it recorded. Launches that still
  /// run are not affected, and later ones come behind them. By default the result of `end` replaces the
  /// instance.
  /// @param instance what an earlier capture recorded, of whatever backend; not null
  /// @return whether it is the same object, which the backend has changed in place
  /// @throws as `end`, and std::logic_error if that returns null; the instance is as it was then.
  virtual bool end_into(std::unique_ptr<graph_instance>& instance);
  /// The capture is over, and what it recorded is dropped: the body has thrown.
  virtual void abandon() noexcept = 0;
};

/// The backend of the host, for programs that shall run without a device, too: the body runs at once, when it
/// is captured, and a launch does nothing.
class host_backend final : public graph_backend {
 public:
  [[nodiscard]] bool supports_capture() const noexcept override { return false; }
  void begin() override {}
  [[nodiscard]] std::unique_ptr<graph_instance> end() override;
  void abandon() noexcept override {}
};

}  // namespace tidemark
