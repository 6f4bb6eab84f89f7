// SPDX-License-Identifier: Apache-2.0
// A fake device for tests without a device: every call of the driver's table, with CUDA's documented rules.
// If the documentation leaves a rule open, the stricter reading holds, so that passing code has the best
// chance on a real device. Each such place has a comment.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

#include <tidemark/cuda/driver/driver.hpp>

#include "fake_calls.hpp"
#include "fake_captures.hpp"
#include "fake_memory.hpp"
#include "fake_pools.hpp"
#include "fake_streams.hpp"

namespace tidemark::test {

/// A machine with fake devices.
///
/// ```cpp
/// fake_device device{{.granularity_bytes = 64 * KiB}};
/// device.fail_in("cuMemMap", 1);                        // the second call of it
/// EXPECT_THROW(grow_twice(device), out_of_memory);
/// EXPECT_EQ(device.count("cuMemRelease"), 1u);
/// ```
/// It checks facts that a real device does not report (fake_accesses.hpp). `launch_kernel` names the memory
/// that work touches, and unordered accesses fail the test. fake_refusals.hpp has the calls that captures
/// reject.
///
/// Work on streams runs only by `run`, `run_all` and calls that wait for it, in the calling thread. A host
/// function that calls the driver gets `not_permitted`.
///
/// Failure: `fail_from` and `fail_count` count all calls except those that return something (frees, releases,
/// unmapping, destroying). A test that fails each call in turn thus still expects that nothing is left.
/// `fail_in` fails any call. A failed call does nothing else, except `cuStreamEndCapture`, which ends the
/// capture without a graph.
///
/// `outstanding`: bytes of physical memory and of live blocks, without addresses (`reserved_bytes`).
///
/// The destructor expects that nothing is left. Thread-safety: any thread, except the members of `supply`,
/// which require that no other thread calls.
class fake_device : public gpu::driver, public fake_calls {
 public:
  using status = gpu::status;

  explicit fake_device(fake_device_options const& options = {})
      : options_{options},
        memory_{options},
        pools_{memory_, options.pool_granule_bytes},
        captures_{memory_, accesses_},
        streams_{options.devices} {
    accesses_.aliases_of = [this](byte_range range) { return memory_.aliases_of(range); };
    streams_.run_kernel = [this](fake_kernel const& kernel, gpu::device_number on) {
      run_kernel(kernel, on);
    };
  }

  // ---- queries of tests ----

  /// Runs the work of a stream, and the work that it waits for. Null: the default stream of the current
  /// device.
  void run(gpu::stream_handle stream) {
    fake_streams::lock held{mutex_};
    const auto on = streams_.stream(stream, current());
    ASSERT_NE(on, nullptr) << "there is no such stream";
    streams_.run(held, on);
    update_counts();
  }
  /// Runs the work of all streams of all devices.
  void run_all() {
    fake_streams::lock held{mutex_};
    streams_.run_all(held);
    update_counts();
  }
  /// Works on a stream that have not run: functions of the host, records, waits, frees.
  [[nodiscard]] std::size_t pending(gpu::stream_handle stream) {
    const std::scoped_lock held{mutex_};
    const auto on = streams_.stream(stream, current());
    return on == nullptr ? 0 : on->queue.size();
  }

  /// Launches a kernel on a stream with its read and written ranges. Fails the test if its accesses are not
  /// ordered after others to the same bytes, or if memory is missing when it runs. It then touches the
  /// memory, if the host can. On a capturing stream it becomes a node.
  status launch_kernel(gpu::stream_handle stream, fake_kernel kernel) {
    return call("cuLaunchKernel", [&] {
      const auto on = streams_.stream(stream, current());
      // Programming guide, 'Stream and Event Behavior' of several devices.
      if (on == nullptr || on->device != current()) return status::invalid_handle;
      auto launched = std::make_shared<fake_kernel const>(std::move(kernel));
      if (on->capture != nullptr)
        return captures_.add(*on, {.what = fake_node::kind::kernel, .kernel = std::move(launched)});
      if (const status refused = before_work(*on); refused != status::success) return refused;
      accesses_.touch(*launched, now_on(*on));
      on->queue.push_back({.what = fake_work::kind::kernel, .kernel = std::move(launched)});
      return status::success;
    });
  }
  /// Puts a kernel that writes these bytes on a stream.
  void write(gpu::stream_handle stream, byte_range range, std::string const& name = "writer") {
    EXPECT_EQ(launch_kernel(stream, {.name = name, .reads = {}, .writes = {range}}), status::success);
  }
  void write(gpu::stream_handle stream, void const* block, std::size_t bytes,
             std::string const& name = "writer") {
    write(stream, {reinterpret_cast<std::uintptr_t>(block), bytes}, name);
  }
  /// A stream as `cudaStreamCreate` makes it, which waits for the legacy default stream, and that for it.
  [[nodiscard]] gpu::stream_handle create_blocking_stream() {
    return locked([&] { return streams_.create_stream(current(), true); });
  }
  /// Each thread now knows the work of the others: they have met, by a barrier or a join.
  void threads_meet() {
    locked([&] { streams_.threads_meet(); });
  }
  /// Returns the properties of the last request for memory or a pool.
  [[nodiscard]] gpu::memory_properties last_wanted() const {
    return locked([&] { return last_wanted_; });
  }
  /// Devices for which a context was made, by whatever call.
  [[nodiscard]] std::set<gpu::device_number> contexts() const {
    return locked([&] { return contexts_; });
  }
  /// The device that is current on the calling thread.
  [[nodiscard]] gpu::device_number current_now() const {
    return locked([&] { return current(); });
  }
  /// From here on every call returns this: what an error of work does to its context.
  void lose(status error) {
    locked([&] { lost_ = error; });
  }
  /// The device is as if nothing had been lost, so that a test can clear up.
  void recover() {
    locked([&] { lost_ = status::success; });
  }

  /// Bytes that a pool of the driver's holds of the device, in blocks and free.
  [[nodiscard]] std::size_t pool_reserved_bytes(gpu::pool_handle pool) const {
    return locked([&] { return pools_.reserved_bytes(pool); });
  }
  [[nodiscard]] std::size_t release_threshold(gpu::pool_handle pool) const {
    return locked([&] { return pools_.threshold_bytes(pool); });
  }
  /// Bytes of a device's memory that were handed out and not taken back, free memory of pools among them.
  [[nodiscard]] std::size_t used_bytes(gpu::device_number device = 0) const {
    return locked([&] { return memory_.used(device); });
  }
  /// Bytes of the block that begins there; 0 if none does.
  [[nodiscard]] std::size_t block_bytes_at(std::uintptr_t first) const {
    return locked([&] { return memory_.bytes_of(first); });
  }
  /// Bytes of addresses that are reserved.
  [[nodiscard]] std::size_t reserved_bytes() const {
    return locked([&] { return memory_.reserved_bytes(); });
  }
  /// Bytes of physical memory, mapped or not.
  [[nodiscard]] std::size_t physical_bytes() {
    const std::scoped_lock held{mutex_};
    memory_.collect();
    return memory_.physical_bytes();
  }
  /// Bytes of addresses with memory behind them.
  [[nodiscard]] std::size_t mapped_bytes() const {
    return locked([&] { return memory_.mapped_bytes(); });
  }
  /// Returns true if work on a device may touch all of these bytes.
  [[nodiscard]] bool accessible(void const* first, std::size_t bytes, gpu::device_number device = 0) const {
    const std::scoped_lock held{mutex_};
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    return memory_.accessible({begin, bytes}, device) && !pools_.freed(begin);
  }

  // ---- devices ----

  status device_count(int& count) noexcept override {
    return call("cuDeviceGetCount", [&] {
      count = options_.devices;
      return status::success;
    });
  }
  status make_current(gpu::device_number device) noexcept override {
    return call("cudaSetDevice", [&] {
      if (!exists(device)) return status::invalid_device;
      current_[std::this_thread::get_id()] = device;
      contexts_.insert(device);
      return status::success;
    });
  }
  status current_context(gpu::context_handle& context) noexcept override {
    return call("cuCtxGetCurrent", [&] {
      const auto found = current_.find(std::this_thread::get_id());
      context = found == current_.end() ? nullptr : context_of(found->second);
      return status::success;
    });
  }
  status set_context(gpu::context_handle context) noexcept override {
    return release_call("cuCtxSetCurrent", [&] {
      if (context == nullptr) {
        current_.erase(std::this_thread::get_id());
        return status::success;
      }
      for (gpu::device_number device : contexts_) {
        if (context_of(device) != context) continue;
        current_[std::this_thread::get_id()] = device;
        return status::success;
      }
      return status::invalid_context;
    });
  }
  status current_device(gpu::device_number& device) noexcept override {
    return call("cuCtxGetDevice", [&] {
      device = current();
      return status::success;
    });
  }
  status can_access_peer(gpu::device_number device, gpu::device_number owner, bool& can) noexcept override {
    return call("cuDeviceCanAccessPeer", [&] {
      if (!exists(device) || !exists(owner)) return status::invalid_device;
      can = memory_.are_peers(device, owner);
      return status::success;
    });
  }
  status synchronize() noexcept override {
    return call("cuCtxSynchronize", [&](fake_streams::lock& held) {
      const status refused = captures_.refuse_synchronization(current());
      if (refused != status::success) return refused;
      streams_.run_all(held, current());
      streams_.join_all(current());
      return synchronized();
    });
  }
  status memory(gpu::memory_info& info) noexcept override {
    return call("cuMemGetInfo", [&] {
      info = {.free_bytes = memory_.capacity() - memory_.used(current()), .total_bytes = memory_.capacity()};
      return status::success;
    });
  }

  // ---- addresses and the memory behind them ----

  status granularity(gpu::memory_properties const& wanted, std::size_t& bytes) noexcept override {
    return call("cuMemGetAllocationGranularity", [&] {
      if (!exists(wanted.device)) return status::invalid_device;
      bytes = memory_.granularity();
      return status::success;
    });
  }
  status reserve(std::size_t bytes, std::size_t align, byte_range& range) noexcept override {
    return call("cuMemAddressReserve", [&] { return memory_.reserve(bytes, align, range); });
  }
  status free_reservation(byte_range range) noexcept override {
    return release_call("cuMemAddressFree", [&] { return memory_.free_reservation(range); });
  }
  status create(gpu::memory_properties const& wanted, std::size_t bytes,
                gpu::physical_handle& handle) noexcept override {
    return call("cuMemCreate", [&] {
      last_wanted_ = wanted;
      return exists(wanted.device) ? memory_.create(wanted, bytes, handle) : status::invalid_device;
    });
  }
  status release(gpu::physical_handle handle) noexcept override {
    return release_call("cuMemRelease", [&] { return memory_.release(handle); });
  }
  status map(byte_range range, gpu::physical_handle handle) noexcept override {
    return call("cuMemMap", [&] { return memory_.map(range, handle); });
  }
  status unmap(byte_range range) noexcept override {
    return release_call("cuMemUnmap", [&] {
      const status result = memory_.unmap(range);
      if (result == status::success) accesses_.end(range, "cuMemUnmap", streams_.of_thread());
      return result;
    });
  }
  status allow_access(byte_range range, gpu::device_set devices) noexcept override {
    return call("cuMemSetAccess", [&] {
      accesses_.appear(range);
      return exist(devices) ? memory_.allow_access(range, devices) : status::invalid_device;
    });
  }
  status export_handle(gpu::physical_handle handle, gpu::handle_type type,
                       gpu::shareable_handle& shared) noexcept override {
    return call("cuMemExportToShareableHandle", [&] { return memory_.export_handle(handle, type, shared); });
  }
  status import_handle(gpu::shareable_handle const& shared, gpu::physical_handle& handle) noexcept override {
    return call("cuMemImportFromShareableHandle", [&] { return memory_.import_handle(shared, handle); });
  }

  // ---- blocks ----

  status allocate(std::size_t bytes, std::uintptr_t& block) noexcept override {
    return call("cuMemAlloc", [&] { return allocate(block_kind::device, bytes, block); });
  }
  status free(std::uintptr_t block) noexcept override {
    return release_call("cuMemFree", [&] {
      if (block == 0) return status::success;
      accesses_.end(bytes_at(block), "cuMemFree", streams_.of_thread());
      if (pools_.deallocate(block, nullptr) || captures_.free_block(block)) return status::success;
      if (pools_.freeing_plain(block)) return status::invalid_value;
      return value(memory_.deallocate(block_kind::device, block) ||
                   memory_.deallocate(block_kind::managed, block));
    });
  }
  status allocate_managed(std::size_t bytes, std::uintptr_t& block) noexcept override {
    return call("cuMemAllocManaged", [&] { return allocate(block_kind::managed, bytes, block); });
  }
  status allocate_pinned(std::size_t bytes, std::uintptr_t& block) noexcept override {
    return call("cuMemHostAlloc", [&] { return allocate(block_kind::pinned, bytes, block); });
  }
  status free_pinned(std::uintptr_t block) noexcept override {
    return release_call("cuMemFreeHost", [&] {
      if (block == 0) return status::success;
      accesses_.end(bytes_at(block), "cuMemFreeHost", streams_.of_thread());
      return value(memory_.deallocate(block_kind::pinned, block));
    });
  }

  // ---- the driver's stream-ordered allocator ----

  status create_pool(gpu::memory_properties const& wanted, gpu::pool_handle& pool) noexcept override {
    return call("cuMemPoolCreate", [&] {
      last_wanted_ = wanted;
      if (!exists(wanted.device)) return status::invalid_device;
      pool = pools_.create(wanted.device);
      return status::success;
    });
  }
  status destroy_pool(gpu::pool_handle pool) noexcept override {
    return release_call("cuMemPoolDestroy", [&] { return value(pools_.destroy(pool)); });
  }
  status set_release_threshold(gpu::pool_handle pool, std::size_t bytes) noexcept override {
    return call("cuMemPoolSetAttribute", [&] { return value(pools_.set_threshold(pool, bytes)); });
  }
  status pool_reserved_bytes(gpu::pool_handle pool, std::size_t& bytes) noexcept override {
    return call("cuMemPoolGetAttribute", [&] {
      if (!pools_.exists(pool)) return status::invalid_value;
      bytes = pools_.reserved_bytes(pool);
      return status::success;
    });
  }
  status set_pool_access(gpu::pool_handle pool, gpu::device_set devices) noexcept override {
    return call("cuMemPoolSetAccess", [&] {
      if (!pools_.exists(pool) || devices.empty() || !exist(devices)) return status::invalid_value;
      return pools_.allow_access(pool, devices);
    });
  }
  status trim_pool(gpu::pool_handle pool, std::size_t keep_bytes) noexcept override {
    return call("cuMemPoolTrimTo", [&] { return value(pools_.trim(pool, keep_bytes)); });
  }
  status allocate_async(std::size_t bytes, gpu::pool_handle pool, gpu::stream_handle stream,
                        std::uintptr_t& block) noexcept override {
    return call_on("cuMemAllocFromPoolAsync", stream, [&](auto const& on) {
      if (!pools_.exists(pool)) return refused_on(*on, status::invalid_value);
      if (on->capture != nullptr) {
        const status result = captures_.allocate(*on, pools_.device(pool), bytes, block);
        if (result == status::success) accesses_.appear({block, bytes});
        return result;
      }
      if (const status refused = before_work(*on); refused != status::success) return refused;
      const status result = pools_.allocate(bytes, pool, *on, block);
      if (result == status::success) accesses_.begin({block, bytes}, "cuMemAllocFromPoolAsync", now_on(*on));
      return result;
    });
  }
  status free_async(std::uintptr_t block, gpu::stream_handle stream) noexcept override {
    return release_call_on("cuMemFreeAsync", stream, [&](auto const& on) {
      if (on->capture != nullptr) return captures_.deallocate(*on, block);
      if (const status refused = before_work(*on); refused != status::success) return refused;
      accesses_.free(bytes_at(block), "cuMemFreeAsync", on->known);
      if (pools_.deallocate(block, on.get()) || captures_.free_block(block)) return status::success;
      if (!memory_.holds(block_kind::device, block) || pools_.freeing_plain(block))
        return status::invalid_value;
      pools_.deallocate_plain(block, *on);
      return status::success;
    });
  }

  // ---- streams and events ----

  status create_stream(gpu::stream_handle& stream) noexcept override {
    return call("cuStreamCreate", [&] {
      stream = streams_.create_stream(current());
      return status::success;
    });
  }
  status destroy_stream(gpu::stream_handle stream) noexcept override {
    return release_call("cuStreamDestroy", [&] {
      const bool is_default = gpu::is_same_stream(stream, nullptr) || stream == gpu::per_thread_stream;
      const auto gone = is_default ? nullptr : streams_.stream(stream, current());
      if (gone == nullptr) return status::invalid_handle;
      captures_.lose(*gone);
      streams_.destroy_stream(stream);
      return status::success;
    });
  }
  status context_of(gpu::stream_handle stream, gpu::context_handle& context) noexcept override {
    return call_on("cuStreamGetCtx", stream, [&](auto const& on) {
      context = fake_device::context_of(on->device);
      return status::success;
    });
  }
  status synchronize(gpu::stream_handle stream) noexcept override {
    return call("cuStreamSynchronize", [&](fake_streams::lock& held) {
      const auto on = streams_.stream(stream, current());
      if (on == nullptr) return status::invalid_handle;
      if (on->capture != nullptr) return fake_captures::violate(*on->capture, status::capture_unsupported);
      status refused = refused_as_unsafe("cuStreamSynchronize");
      if (refused == status::success) refused = captures_.refuse_legacy(*on);
      if (refused != status::success) return refused;
      streams_.run(held, on);
      streams_.of_thread().join(on->known);
      return synchronized();
    });
  }
  status wait(gpu::stream_handle stream, gpu::event_handle event) noexcept override {
    return call("cuStreamWaitEvent", [&] {
      const auto on = streams_.stream(stream, current());
      fake_event const* const behind = streams_.event(event);
      if (on == nullptr || behind == nullptr) return status::invalid_handle;
      if (on->capture != nullptr || behind->capture != nullptr) return fake_captures::wait(on, *behind);
      if (const status refused = before_work(*on); refused != status::success) return refused;
      if (behind->last != nullptr) fake_streams::wait(*on, behind->last);
      return status::success;
    });
  }
  status create_event(gpu::event_handle& event) noexcept override {
    return call("cuEventCreate", [&] {
      event = streams_.create_event(current());
      return status::success;
    });
  }
  status destroy_event(gpu::event_handle event) noexcept override {
    return release_call("cuEventDestroy", [&] {
      return streams_.destroy_event(event) ? status::success : status::invalid_handle;
    });
  }
  status record(gpu::event_handle event, gpu::stream_handle stream) noexcept override {
    return call("cuEventRecord", [&] {
      const auto on = streams_.stream(stream, current());
      fake_event* const recorded = streams_.event(event);
      if (on == nullptr || recorded == nullptr || on->device != recorded->device)
        return status::invalid_handle;
      if (on->capture != nullptr) return fake_captures::record(*recorded, *on);
      if (const status refused = before_work(*on); refused != status::success) return refused;
      recorded->capture = nullptr;
      recorded->last = fake_streams::record(on);
      return status::success;
    });
  }
  status query(gpu::event_handle event) noexcept override {
    return call("cuEventQuery", [&] {
      fake_event const* const asked = streams_.event(event);
      const status refused = refused_event(asked, "cuEventQuery");
      if (refused != status::success) return refused;
      if (asked->last == nullptr) return status::success;
      if (!asked->last->reached) return status::not_ready;
      streams_.of_thread().join(asked->last->known);
      return status::success;
    });
  }
  status synchronize(gpu::event_handle event) noexcept override {
    return call("cuEventSynchronize", [&](fake_streams::lock& held) {
      fake_event const* const asked = streams_.event(event);
      const status refused = refused_event(asked, "cuEventSynchronize");
      if (refused != status::success) return refused;
      if (const auto moment = asked->last; moment != nullptr) {
        streams_.run(held, moment);
        streams_.of_thread().join(moment->known);
      }
      return synchronized();
    });
  }
  status launch_on_host(gpu::stream_handle stream, void (*function)(void*),
                        void* argument) noexcept override {
    return call_on("cuLaunchHostFunc", stream, [&](auto const& on) {
      if (function == nullptr) return refused_on(*on, status::invalid_value);
      if (on->capture != nullptr)
        return fake_captures::add(
            *on, {.what = fake_node::kind::host_function, .function = function, .argument = argument});
      if (const status refused = before_work(*on); refused != status::success) return refused;
      on->queue.push_back(
          {.what = fake_work::kind::host_function, .function = function, .argument = argument});
      return status::success;
    });
  }

  // ---- graphs ----

  status begin_capture(gpu::stream_handle stream, gpu::capture_mode mode) noexcept override {
    return call("cuStreamBeginCapture", [&] {
      const auto on = streams_.stream(stream, current());
      return on == nullptr ? status::invalid_handle : captures_.begin(on, mode);
    });
  }
  status end_capture(gpu::stream_handle stream, gpu::graph_handle& graph) noexcept override {
    return call("cuStreamEndCapture", [&](fake_streams::lock&, status failing) {
      const auto on = options_.devices == 0 ? nullptr : streams_.stream(stream, current());
      if (failing != status::success) {
        if (on != nullptr) captures_.abandon(*on);
        return failing;
      }
      return on == nullptr ? status::invalid_handle : captures_.end(*on, graph);
    });
  }
  status is_capturing(gpu::stream_handle stream, bool& capturing) noexcept override {
    return call_on("cuStreamIsCapturing", stream, [&](auto const& on) {
      if (captures_.disturbed_by(*on)) return status::capture_implicit;
      capturing = on->capture != nullptr;
      return status::success;
    });
  }
  status exchange_capture_mode(gpu::capture_mode& mode) noexcept override {
    return release_call("cuThreadExchangeStreamCaptureMode", [&] {
      captures_.exchange_mode(mode);
      return status::success;
    });
  }
  status node_count(gpu::graph_handle graph, std::size_t& nodes) noexcept override {
    return call("cuGraphGetNodes", [&] {
      const auto asked = captures_.graph(graph);
      if (asked == nullptr) return status::invalid_value;
      nodes = asked->nodes.size();
      return status::success;
    });
  }
  status instantiate(gpu::graph_handle graph, gpu::executable_handle& executable) noexcept override {
    return call("cuGraphInstantiate", [&] { return captures_.instantiate(graph, executable); });
  }
  status update(gpu::executable_handle executable, gpu::graph_handle graph) noexcept override {
    return call("cuGraphExecUpdate", [&] { return captures_.update(executable, graph); });
  }
  status launch(gpu::executable_handle executable, gpu::stream_handle stream) noexcept override {
    return call_on("cuGraphLaunch", stream, [&](auto const& on) {
      if (on->capture == nullptr) {
        const status refused = before_work(*on);
        if (refused != status::success) return refused;
      }
      return captures_.launch(executable, on);
    });
  }
  status destroy_executable(gpu::executable_handle executable) noexcept override {
    return release_call("cuGraphExecDestroy", [&] { return value(captures_.destroy(executable)); });
  }
  status destroy_graph(gpu::graph_handle graph) noexcept override {
    return release_call("cuGraphDestroy", [&] { return value(captures_.destroy(graph)); });
  }

  // ---- errors: no work of the device, and not counted ----

  char const* error_name(status result) noexcept override { return gpu::system_driver().error_name(result); }
  char const* error_string(status result) noexcept override {
    return gpu::system_driver().error_string(result);
  }

 private:
  using block_kind = fake_memory::block_kind;

  [[nodiscard]] bool exists(gpu::device_number device) const {
    return device >= 0 && device < options_.devices;
  }
  [[nodiscard]] bool exist(gpu::device_set devices) const {
    for (gpu::device_number each = options_.devices; each < gpu::device_set::max_devices; ++each)
      if (devices.contains(each)) return false;
    return true;
  }
  [[nodiscard]] gpu::device_number current() const {
    const auto found = current_.find(std::this_thread::get_id());
    return found == current_.end() ? 0 : found->second;
  }
  // Work is about to be put on a stream that does not capture.
  status before_work(fake_stream& on) {
    const status refused = captures_.refuse_legacy(on);
    if (refused == status::success) streams_.enqueue(on);
    return refused;
  }
  static fake_accesses::moment now_on(fake_stream const& on) {
    return {on.identity, on.known.number(on.identity), on.known};
  }
  static gpu::context_handle context_of(gpu::device_number device) {
    return reinterpret_cast<gpu::context_handle>(std::uintptr_t{0xC0DE'0000} +
                                                 16 * (static_cast<unsigned>(device) + 1));
  }
  /// Calls about devices and threads, which need no context and also work after a context is lost.
  static bool is_of_contexts(std::string_view name) {
    constexpr std::string_view all[] = {"cuDeviceGetCount", "cudaSetDevice",
                                        "cuCtxGetDevice",   "cuCtxGetCurrent",
                                        "cuCtxSetCurrent",  "cuThreadExchangeStreamCaptureMode"};
    return std::ranges::find(all, name) != std::end(all);
  }
  /// Returns true if a call makes a context for a thread without one. Calls that name a device, or memory of
  /// one, do not.
  static bool needs_context(std::string_view name) {
    constexpr std::string_view of_current[] = {
        "cuMemGetInfo",   "cuMemAlloc",    "cuMemFree",      "cuMemAllocManaged",
        "cuMemHostAlloc", "cuMemFreeHost", "cuMemFreeAsync", "cuMemAllocFromPoolAsync"};
    if (name.starts_with("cuMem")) return std::ranges::find(of_current, name) != std::end(of_current);
    return !is_of_contexts(name) && name != "cuDeviceCanAccessPeer";
  }
  status allocate(block_kind kind, std::size_t bytes, std::uintptr_t& block) {
    const status result = memory_.allocate(kind, current(), bytes, block);
    if (result == status::success) accesses_.appear({block, bytes});
    return result;
  }
  [[nodiscard]] byte_range bytes_at(std::uintptr_t block) const { return {block, memory_.bytes_of(block)}; }
  void run_kernel(fake_kernel const& kernel, gpu::device_number on) {
    const auto touch = [&](byte_range range, bool writes) {
      if (!memory_.accessible(range, on)) {
        ADD_FAILURE() << "'" << kernel.name << "' runs and its memory is not there";
        lost_ = status::illegal_address;
        return;
      }
      if (options_.touchable) fake_memory::touch(range, writes);
    };
    for (byte_range const& range : kernel.reads) touch(range, false);
    for (byte_range const& range : kernel.writes) touch(range, true);
  }
  static status value(bool known) { return known ? status::success : status::invalid_value; }

  // One call of the driver: noted, made to fail, refused, or carried out by the body.
  template <class Body>
  status call(char const* name, Body body) noexcept {
    return carry_out(name, true, body);
  }
  template <class Body>
  status release_call(char const* name, Body body) noexcept {
    return carry_out(name, false, body);
  }
  // The same of a stream, which there must be.
  template <class Body>
  status call_on(char const* name, gpu::stream_handle stream, Body body) noexcept {
    return call(name, [&] { return on_stream(stream, body); });
  }
  template <class Body>
  status release_call_on(char const* name, gpu::stream_handle stream, Body body) noexcept {
    return release_call(name, [&] { return on_stream(stream, body); });
  }
  template <class Body>
  status on_stream(gpu::stream_handle stream, Body& body) {
    const auto on = streams_.stream(stream, current());
    return on == nullptr ? status::invalid_handle : body(on);
  }
  template <class Body>
  status carry_out(char const* name, bool can_fail, Body body) noexcept {
    fake_streams::lock held{mutex_};
    status result = record_call(name, can_fail, captures_.captures_here());
    if (fake_streams::inside_host_function()) result = status::not_permitted;
    if (options_.devices == 0) result = status::no_device;
    if (result == status::success && needs_context(name)) {
      current_.try_emplace(std::this_thread::get_id(), 0);
      contexts_.insert(current());
    }
    const auto is_lost = [&] { return lost_ != status::success && !is_of_contexts(name); };
    if (is_lost() && can_fail) result = lost_;
    if constexpr (std::is_invocable_v<Body, fake_streams::lock&, status>) {
      result = body(held, result);
    } else {
      if (result == status::success && !checks_captures_itself(name)) result = refused_as_unsafe(name);
      if (result == status::success) {
        if constexpr (std::is_invocable_v<Body, fake_streams::lock&>) {
          result = body(held);
        } else {
          result = body();
        }
      }
    }
    update_counts();
    return is_lost() ? lost_ : result;  // also by work that this call ran
  }
  // Calls that report more if their argument belongs to a capture.
  static bool checks_captures_itself(std::string_view name) {
    return name == "cuStreamSynchronize" || name == "cuEventQuery" || name == "cuEventSynchronize";
  }
  status refused_as_unsafe(std::string_view name) {
    const auto rule = std::ranges::find(options_.refusals, name, &fake_refusal::call);
    return rule == options_.refusals.end() ? status::success : captures_.refuse(*rule);
  }
  status refused_event(fake_event const* event, std::string_view name) {
    if (event == nullptr) return status::invalid_handle;
    const status refused = fake_captures::refuse_captured(*event);
    return refused != status::success ? refused : refused_as_unsafe(name);
  }
  // An invalid operation on a capturing stream invalidates the capture.
  static status refused_on(fake_stream& on, status result) {
    return on.capture == nullptr ? result : fake_captures::violate(*on.capture, result);
  }
  status synchronized() {
    pools_.release_surplus();
    return status::success;
  }
  // Updates the counts at the end of each call and each run of work.
  void update_counts() {
    pools_.collect();
    memory_.collect();
    outstanding = memory_.physical_bytes() + memory_.block_bytes(block_kind::device) +
                  memory_.block_bytes(block_kind::managed) + memory_.block_bytes(block_kind::pinned) +
                  memory_.block_bytes(block_kind::graph) + pools_.live_bytes();
  }

  fake_device_options options_;
  std::map<std::thread::id, gpu::device_number> current_;  // of threads that have a context
  std::set<gpu::device_number> contexts_;                  // that were made
  status lost_ = status::success;                          // the result of every call, or success
  gpu::memory_properties last_wanted_;
  fake_accesses accesses_;
  fake_memory memory_;
  fake_pools pools_;        // over the memory
  fake_captures captures_;  // over the memory
  fake_streams streams_;    // whose work holds graphs and their memory
};

}  // namespace tidemark::test
