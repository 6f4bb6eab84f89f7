// SPDX-License-Identifier: Apache-2.0
// Assumptions of the library and its fake driver about real drivers, as programs that confirm or refute them.
// `tidemark_gpu_rules` tests one rule per process, because some rules end the context.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <future>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/stream.hpp>

#include "measure.hpp"

namespace tidemark::test {

/// An observation, and whether it confirms the rule.
struct answer {
  bool is_confirmed = false;
  std::string seen;
};

struct rule {
  char const* name;
  char const* says;
  answer (*run)();  ///< throws if a call fails that is not part of the question
};

std::span<rule const> rules_of_captures();
std::span<rule const> rules_of_streams();
std::span<rule const> rules_of_memory();

inline gpu::driver& driver() { return gpu::system_driver(); }

/// A result in the driver's words.
inline std::string text(gpu::status result) {
  return result == gpu::status::success ? "allowed" : driver().error_name(result);
}

/// Launches a kernel that keeps one thread of the device busy for this number of its cycles.
void launch_spin(cudaStream_t stream, long long cycles);

/// Work that goes on for about a fifth of a second. Its kernel is loaded before, which may wait for the
/// device.
inline void keep_busy(cudaStream_t stream) {
  launch_spin(stream, 1);
  require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  launch_spin(stream, 400'000'000);
}
inline bool is_busy(cudaStream_t stream) {
  const cudaError_t now = cudaStreamQuery(stream);
  if (now != cudaErrorNotReady) require(now, "cudaStreamQuery");
  (void)cudaGetLastError();
  return now == cudaErrorNotReady;
}

/// A capture that a separate thread begins and ends.
class capture_in_a_thread {
 public:
  capture_in_a_thread(gpu::stream_handle stream, gpu::capture_mode mode)
      : thread_{[this, stream, mode, may_end = may_end_.get_future()]() mutable {
          gpu::status now = driver().make_current(0);
          if (now == gpu::status::success) now = driver().begin_capture(stream, mode);
          begun_.set_value(now);
          may_end.wait();
          gpu::graph_handle graph = nullptr;
          ended_ = driver().end_capture(stream, graph);
          if (ended_ == gpu::status::success) (void)driver().destroy_graph(graph);
        }} {
    if (const gpu::status begun = begun_.get_future().get(); begun != gpu::status::success) {
      (void)end();
      throw std::runtime_error{"cuStreamBeginCapture: " + text(begun)};
    }
  }
  ~capture_in_a_thread() { (void)end(); }

  /// Returns true if the capture completed and was not invalidated.
  bool end() {
    if (thread_.joinable()) {
      may_end_.set_value();
      thread_.join();
      (void)cudaGetLastError();
    }
    return ended_ == gpu::status::success;
  }

 private:
  std::promise<gpu::status> begun_;
  std::promise<void> may_end_;
  gpu::status ended_ = gpu::status::unknown;
  std::thread thread_;
};

/// The result of a call while a stream captures, in this thread or another, and the fate of the capture.
struct in_capture {
  gpu::status result;
  bool survives;

  [[nodiscard]] bool disturbs() const { return result != gpu::status::success || !survives; }
  [[nodiscard]] std::string seen() const { return text(result) + (survives ? "" : ", and ends the capture"); }
};
template <class Call>
in_capture call_in_own_capture(gpu::stream_handle captured, gpu::capture_mode mode, Call call) {
  gpu::status result = driver().begin_capture(captured, mode);
  if (result != gpu::status::success) throw std::runtime_error{"cuStreamBeginCapture: " + text(result)};
  result = call();
  gpu::graph_handle graph = nullptr;
  const gpu::status ended = driver().end_capture(captured, graph);
  if (ended == gpu::status::success) (void)driver().destroy_graph(graph);
  (void)cudaGetLastError();
  return {result, ended == gpu::status::success};
}
template <class Call>
in_capture call_beside_capture(gpu::stream_handle captured, gpu::capture_mode mode, Call call) {
  capture_in_a_thread other{captured, mode};
  const gpu::status result = call();
  return {result, other.end()};
}

}  // namespace tidemark::test
