// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/capture.hpp>

#include <cstddef>
#include <memory>
#include <utility>

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/graph/graph_errors.hpp>

#include "behind_event.hpp"

namespace tidemark::gpu {
namespace {

bool require_is_capturing(driver& driver, stream_handle stream) {
  bool is_capturing = false;
  require_success(driver, "cuStreamIsCapturing", driver.is_capturing(stream, is_capturing));
  return is_capturing;
}

class executable_graph final : public graph_instance {
 public:
  /// @pre The device is current.
  executable_graph(driver& driver, device_number device, graph_handle graph)
      : driver_{driver}, device_{device}, launched_{driver}, executable_{instantiated(driver, graph)} {}
  // CUDA does not wait for launches, and their memory is freed next.
  ~executable_graph() override {
    const detail::on_device here{driver_, device_};
    if (is_launched_) wait_here();
    driver_.retired().retire(driver_, executable_);
  }

  [[nodiscard]] bool is_of(driver const& calls, device_number device) const noexcept {
    return &driver_ == &calls && device_ == device;
  }
  /// @return as `capture_backend::end_into`. @pre The device is current.
  bool update(graph_handle graph) {
    const status updated = driver_.update(executable_, graph);
    if (updated == status::success) return true;
    // A driver may lack the call, or not support it for this graph.
    if (updated != status::graph_update_failed && updated != status::not_supported &&
        updated != status::not_found)
      require_success(driver_, "cuGraphExecUpdate", updated);
    const executable_handle made = instantiated(driver_, graph);
    // Launches of one executable run one after the other, but launches of two executables do not. Without an
    // event behind the running launches, only the host can wait for them.
    if (is_launched_ && !is_tracked_) wait_here();
    is_behind_another_ = is_launched_;
    // The driver destroys an executable with running launches after they have ended.
    driver_.retired().retire(driver_, std::exchange(executable_, made));
    return false;
  }
  void wait() noexcept override {
    if (!is_launched_) return;
    const detail::on_device here{driver_, device_};
    wait_here();
  }

  void launch(graph_stream stream) override {
    const detail::on_device here{driver_, device_};
    require_success(driver_, "cudaSetDevice", here.result());
    // Checked first, because the driver's refusal would end that capture.
    if (require_is_capturing(driver_, stream)) {
      throw cuda_error{driver_, "cuGraphLaunch on a stream that is capturing; launches cannot be captured",
                       status::capture_unsupported};
    }
    if (is_behind_another_)
      require_success(driver_, "cuStreamWaitEvent", driver_.wait(stream, launched_.get()));
    require_success(driver_, "cuGraphLaunch", driver_.launch(executable_, stream));
    // Launches run one after the other: the end of the last launch is the end of all.
    is_launched_ = true;
    is_behind_another_ = false;
    is_tracked_ = driver_.record(launched_.get(), stream) == status::success ||
                  detail::shows_end_of_work(driver_.synchronize(stream));
  }
  [[nodiscard]] bool is_replay_capable() const noexcept override { return true; }

 private:
  // @throws cuda_error; std::bad_alloc. No executable is left then.
  static executable_handle instantiated(driver& driver, graph_handle graph) {
    driver.retired().reserve_one();
    executable_handle executable = nullptr;
    const status made = driver.instantiate(graph, executable);
    if (made != status::success) driver.retired().retire(driver, nullptr);
    require_success(driver, "cuGraphInstantiate", made);
    return executable;
  }
  void wait_here() noexcept {
    status waited = status::not_ready;
    if (is_tracked_) waited = detail::wait_for(driver_, launched_.get());
    // Last resort: the wait ends captures on the device, but memory in use is not freed early.
    if (waited != status::success) waited = driver_.synchronize();
    if (detail::shows_end_of_work(waited)) return;
    tidemark::detail::report_violation(
        violation_kind::open_capture, "captured_graph",
        "captured_graph: its destructor frees memory that the last launch may still use, because a wait "
        "for the launch failed (%s)",
        driver_.error_name(waited));
  }

  driver& driver_;
  device_number device_;
  event launched_;
  executable_handle executable_;  // made last, because nothing destroys it if the constructor throws
  bool is_launched_ = false;
  bool is_tracked_ = true;          // the event is behind all launches that may still run
  bool is_behind_another_ = false;  // the next launch must wait for launches of a replaced executable
};

}  // namespace

void capture_backend::begin() {
  if (device_ < 0) require_success(*driver_, "cuCtxGetDevice", driver_->current_device(device_));
  const detail::on_device here{*driver_, device_};
  require_success(*driver_, "cudaSetDevice", here.result());
  // Checked first, because a failing call on a capturing stream may end its capture.
  if (require_is_capturing(*driver_, stream_)) {
    throw cuda_error{*driver_, "cuStreamBeginCapture of a stream that captures already",
                     status::illegal_state};
  }
  if (is_same_stream(stream_, nullptr)) {
    throw cuda_error{*driver_, "cuStreamBeginCapture of the default stream, which cannot be captured",
                     status::capture_unsupported};
  }
  driver_->retired().capture_begins();
  const status begun = driver_->begin_capture(stream_, mode_);
  if (begun != status::success) driver_->retired().capture_ended(*driver_);
  require_success(*driver_, "cuStreamBeginCapture", begun);
}

std::unique_ptr<graph_instance> capture_backend::end() {
  std::unique_ptr<graph_instance> made;
  (void)end_into(made);
  return made;
}

bool capture_backend::end_into(std::unique_ptr<graph_instance>& instance) {
  graph_handle graph = nullptr;
  const status ended = driver_->end_capture(stream_, graph);
  driver_->retired().capture_ended(*driver_);
  require_success(*driver_, "cuStreamEndCapture", ended);
  const detail::unique_handle<graph_handle, &driver::destroy_graph> owner{*driver_, graph};
  std::size_t nodes = 0;
  require_success(*driver_, "cuGraphGetNodes", driver_->node_count(graph, nodes));
  if (nodes == 0) {
    throw empty_capture{"capture: no work was enqueued on the stream, so there is nothing to replay"};
  }
  const detail::on_device here{*driver_, device_};
  require_success(*driver_, "cudaSetDevice", here.result());
  auto* const known = dynamic_cast<executable_graph*>(instance.get());
  if (known != nullptr && known->is_of(*driver_, device_)) return known->update(graph);
  instance = std::make_unique<executable_graph>(*driver_, device_, graph);
  return false;
}

void capture_backend::abandon() noexcept {
  graph_handle graph = nullptr;
  if (driver_->end_capture(stream_, graph) == status::success) (void)driver_->destroy_graph(graph);
  driver_->retired().capture_ended(*driver_);
}

}  // namespace tidemark::gpu
