// SPDX-License-Identifier: Apache-2.0
// Strategy: makes a second program of examples/graph_replay, which uses the device path on a machine without
// a device. Operations are host functions that a fake device runs when a caller waits for their stream. Work
// that a capture records does not run; a replay runs it with its recorded addresses. A forgotten wait leaves
// the results out.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <string_view>
#include <utility>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/driver.hpp>

#include "fake_device.hpp"
#include "operations.hpp"

namespace {

using namespace tidemark;

/// The default driver, unless devices are hidden.
struct fake_computer {
  test::fake_device device{{.touchable = true}};

  fake_computer() {
    char const* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible == nullptr || *visible != '\0') gpu::set_default_driver(&device);
  }
  ~fake_computer() { gpu::set_default_driver(nullptr); }
} computer;

class fake_machine final : public machine {
 public:
  explicit fake_machine(gpu::stream_handle stream) : stream_{stream} {}

  void run(operation const& work) override {
    enqueue([work] {
      std::visit(
          [](auto const& loop) {
            for (std::size_t i = 0; i < loop.threads(); ++i) loop(i);
          },
          work);
    });
  }
  void copy(void const* from, void* to, std::size_t bytes) override {
    enqueue([=] { std::memcpy(to, from, bytes); });
  }
  void finish() override {
    gpu::require_success(computer.device, "cuStreamSynchronize", computer.device.synchronize(stream_));
  }

 private:
  void enqueue(std::function<void()> work) {
    gpu::require_success(
        computer.device, "cuLaunchHostFunc",
        computer.device.launch_on_host(
            stream_, [](void* function) { (*static_cast<std::function<void()>*>(function))(); },
            &works_.emplace_back(std::move(work))));
  }

  gpu::stream_handle stream_;
  std::list<std::function<void()>> works_;  // graphs know them by their addresses
};

}  // namespace

std::unique_ptr<machine> cuda_machine(gpu::stream_handle stream) {
  return std::make_unique<fake_machine>(stream);
}
