// SPDX-License-Identifier: Apache-2.0
// Stands in for system_driver.cpp where tidemark is built without a CUDA toolkit.
#include <tidemark/cuda/driver.hpp>

#include "status_text.hpp"

namespace tidemark::cuda {
namespace {

class absent_driver final : public driver {
 public:
  status device_count(int&) noexcept override { return none; }
  status make_current(device_number) noexcept override { return none; }
  status current_device(device_number&) noexcept override { return none; }
  status synchronize() noexcept override { return none; }
  status memory(memory_info&) noexcept override { return none; }
  status granularity(device_number, std::size_t&) noexcept override { return none; }
  status reserve(std::size_t, std::size_t, byte_range&) noexcept override { return none; }
  status free_reservation(byte_range) noexcept override { return none; }
  status create(device_number, std::size_t, physical_handle&) noexcept override { return none; }
  status release(physical_handle) noexcept override { return none; }
  status map(byte_range, physical_handle) noexcept override { return none; }
  status unmap(byte_range) noexcept override { return none; }
  status allow_access(byte_range, device_number) noexcept override { return none; }
  status allocate(std::size_t, std::uintptr_t&) noexcept override { return none; }
  status free(std::uintptr_t) noexcept override { return none; }
  status allocate_managed(std::size_t, std::uintptr_t&) noexcept override { return none; }
  status allocate_pinned(std::size_t, std::uintptr_t&) noexcept override { return none; }
  status free_pinned(std::uintptr_t) noexcept override { return none; }
  status create_pool(device_number, pool_handle&) noexcept override { return none; }
  status destroy_pool(pool_handle) noexcept override { return none; }
  status set_release_threshold(pool_handle, std::size_t) noexcept override { return none; }
  status trim_pool(pool_handle, std::size_t) noexcept override { return none; }
  status allocate_async(std::size_t, pool_handle, stream_handle, std::uintptr_t&) noexcept override {
    return none;
  }
  status free_async(std::uintptr_t, stream_handle) noexcept override { return none; }
  status create_stream(stream_handle&) noexcept override { return none; }
  status destroy_stream(stream_handle) noexcept override { return none; }
  status synchronize(stream_handle) noexcept override { return none; }
  status wait(stream_handle, event_handle) noexcept override { return none; }
  status create_event(event_handle&) noexcept override { return none; }
  status destroy_event(event_handle) noexcept override { return none; }
  status record(event_handle, stream_handle) noexcept override { return none; }
  status query(event_handle) noexcept override { return none; }
  status synchronize(event_handle) noexcept override { return none; }
  status launch_on_host(stream_handle, void (*)(void*), void*) noexcept override { return none; }
  status begin_capture(stream_handle, capture_mode) noexcept override { return none; }
  status end_capture(stream_handle, graph_handle&) noexcept override { return none; }
  status is_capturing(stream_handle, bool&) noexcept override { return none; }
  status exchange_capture_mode(capture_mode&) noexcept override { return none; }
  status node_count(graph_handle, std::size_t&) noexcept override { return none; }
  status instantiate(graph_handle, executable_handle&) noexcept override { return none; }
  status launch(executable_handle, stream_handle) noexcept override { return none; }
  status destroy_executable(executable_handle) noexcept override { return none; }
  status destroy_graph(graph_handle) noexcept override { return none; }
  char const* error_name(status result) noexcept override { return fallback_name(result); }
  char const* error_string(status result) noexcept override { return fallback_string(result); }

 private:
  static constexpr status none = status::no_device;
};

}  // namespace

driver& system_driver() noexcept {
  static absent_driver table;
  return table;
}

}  // namespace tidemark::cuda
