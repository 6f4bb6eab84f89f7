// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/capture_backend.hpp>

#include <utility>

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/detail/event_result.hpp>
#include <tidemark/cuda/detail/on_device.hpp>
#include <tidemark/cuda/event.hpp>
#include <tidemark/graph_errors.hpp>
#include <tidemark/violation.hpp>

#include "behind_event.hpp"

namespace tidemark::cuda {
namespace {

/// A graph that was captured, until it is destroyed.
class graph_owner {
 public:
  graph_owner(driver& driver, graph_handle graph) noexcept : driver_{driver}, graph_{graph} {}
  graph_owner(graph_owner const&) = delete;
  graph_owner& operator=(graph_owner const&) = delete;
  ~graph_owner() { (void)driver_.destroy_graph(graph_); }

 private:
  driver& driver_;
  graph_handle graph_;
};

class executable_graph final : public graph_instance {
 public:
  /// @pre the device is current.
  executable_graph(driver& driver, device_number device, graph_handle graph)
      : driver_{driver}, device_{device}, launched_{driver} {
    require(driver_, "cuGraphInstantiate", driver_.instantiate(graph, executable_));
  }
  executable_graph(executable_graph const&) = delete;
  executable_graph& operator=(executable_graph const&) = delete;
  // CUDA would let launches that still run go on, and the memory that they use ends next.
  ~executable_graph() override {
    const detail::on_device here{driver_, device_};
    if (state_ != state::idle) wait();
    (void)driver_.destroy_executable(executable_);
  }

  void launch(graph_stream stream) override {
    const detail::on_device here{driver_, device_};
    require(driver_, "cudaSetDevice", here.result());
    bool becomes_a_part = false;
    require(driver_, "cuStreamIsCapturing", driver_.is_capturing(stream, becomes_a_part));
    require(driver_, "cuGraphLaunch", driver_.launch(executable_, stream));
    if (becomes_a_part) return;
    // Launches of one executable run one after the other, so that the last one's end is that of all.
    const bool recorded = driver_.record(launched_.get(), stream) == status::success;
    state_ = recorded && state_ != state::untracked ? state::tracked : state::untracked;
  }
  [[nodiscard]] bool is_replay_capable() const noexcept override { return true; }

 private:
  enum class state {
    idle,       // never launched
    tracked,    // the event is behind all launches
    untracked,  // a launch may run that it is not behind
  };

  void wait() noexcept {
    status waited = status::not_ready;
    if (state_ == state::tracked) waited = detail::wait_for(driver_, launched_.get());
    if (waited != status::success) waited = driver_.synchronize();
    if (detail::shows_end_of_work(waited)) return;
    tidemark::detail::report_violation(
        violation_kind::open_capture, "captured_graph",
        "captured_graph: it ends and its last launch cannot be waited for (%s): the "
        "memory that it uses ends while it may run",
        driver_.error_name(waited));
  }

  driver& driver_;
  device_number device_;
  executable_handle executable_ = nullptr;
  event launched_;
  state state_ = state::idle;
};

}  // namespace

void capture_backend::begin() {
  if (device_ < 0) require(*driver_, "cuCtxGetDevice", driver_->current_device(device_));
  const detail::on_device here{*driver_, device_};
  require(*driver_, "cudaSetDevice", here.result());
  // Asked first, because a call that a capturing stream refuses could end the capture that goes on.
  bool captures_already = false;
  require(*driver_, "cuStreamIsCapturing", driver_->is_capturing(stream_, captures_already));
  if (captures_already)
    throw cuda_error{*driver_, "cuStreamBeginCapture of a stream that captures already",
                     status::illegal_state};
  if (stream_ == nullptr) {
    throw cuda_error{*driver_, "cuStreamBeginCapture of the default stream, which cannot be captured",
                     status::capture_unsupported};
  }
  require(*driver_, "cuStreamBeginCapture", driver_->begin_capture(stream_, mode_));
}

std::unique_ptr<graph_instance> capture_backend::end() {
  graph_handle graph = nullptr;
  require(*driver_, "cuStreamEndCapture", driver_->end_capture(stream_, graph));
  const graph_owner owner{*driver_, graph};
  std::size_t nodes = 0;
  require(*driver_, "cuGraphGetNodes", driver_->node_count(graph, nodes));
  if (nodes == 0) {
    throw empty_capture{"capture: nothing was put on the stream, so that there is nothing to replay"};
  }
  const detail::on_device here{*driver_, device_};
  require(*driver_, "cudaSetDevice", here.result());
  return std::make_unique<executable_graph>(*driver_, device_, graph);
}

void capture_backend::abandon() noexcept {
  graph_handle graph = nullptr;
  if (driver_->end_capture(stream_, graph) == status::success) (void)driver_->destroy_graph(graph);
}

}  // namespace tidemark::cuda
