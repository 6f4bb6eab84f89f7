// SPDX-License-Identifier: Apache-2.0
// Strategy: the driver's table and the handles over it. Without a device the real table must reject every
// call. The other tests run on a fake device, which reports the calls and makes each call fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/cuda.hpp>

#include "caught.hpp"
#include "fake_device.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

void add_one(void* number) { ++*static_cast<int*>(number); }

struct on_one_device : ::testing::Test {
  /// The next call of the driver's function `name` fails in `body`, whose error names it.
  void expect_named(char const* name, std::function<void()> const& body) {
    device.fail_next(name, status::illegal_address);
    const cuda_error error = caught<cuda_error>(body);
    EXPECT_EQ(error.status(), status::illegal_address);
    EXPECT_STREQ(error.call(), name);
  }

  fake_device device;
  gpu::stream queue{device};
};

using cuda_error_text = on_one_device;
using cuda_stream = on_one_device;
using cuda_event = on_one_device;
using cuda_fence = on_one_device;

// ---- the real table without a device ----

/// Skips if a device exists, because the calls would then take something from it.
class cuda_system_driver : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (device.device_count(count) == status::success && count > 0) GTEST_SKIP() << "there is a device here";
  }
  gpu::driver& device = gpu::system_driver();
};

TEST_F(cuda_system_driver, every_call_returns_an_error_and_leaves_its_outputs_unset) {
  int count = 7;
  gpu::device_number current = 7;
  gpu::memory_info info{.free_bytes = 7, .total_bytes = 7};
  std::size_t bytes = 7;
  byte_range range{.begin = 7, .size = 7};
  gpu::physical_handle physical = 7;
  std::uintptr_t block = 7;
  gpu::pool_handle pool = nullptr;
  gpu::stream_handle stream = nullptr;
  gpu::event_handle event = nullptr;
  gpu::graph_handle graph = nullptr;
  gpu::executable_handle executable = nullptr;
  gpu::context_handle context = nullptr;
  gpu::shareable_handle shared;
  bool capturing = false, can = false;
  const std::vector<status> results{
      device.device_count(count),
      device.make_current(0),
      device.synchronize(),
      device.memory(info),
      device.granularity(0, bytes),
      device.reserve(1 << 21, 0, range),
      device.free_reservation({.begin = 1 << 21, .size = 1 << 21}),
      device.create(0, 1 << 21, physical),
      device.release(1),
      device.map({.begin = 1 << 21, .size = 1 << 21}, 1),
      device.unmap({.begin = 1 << 21, .size = 1 << 21}),
      device.allow_access({.begin = 1 << 21, .size = 1 << 21}, 0),
      device.can_access_peer(1, 0, can),
      device.export_handle(1, gpu::handle_type::file_descriptor, shared),
      device.import_handle({.type = gpu::handle_type::file_descriptor, .file_descriptor = 7}, physical),
      device.allocate(1, block),
      device.free(256),
      device.allocate_managed(1, block),
      device.allocate_pinned(1, block),
      device.free_pinned(256),
      device.create_pool(0, pool),
      device.destroy_pool(nullptr),
      device.set_release_threshold(nullptr, 1),
      device.pool_reserved_bytes(nullptr, bytes),
      device.set_pool_access(nullptr, 1),
      device.trim_pool(nullptr, 0),
      device.allocate_async(1, nullptr, nullptr, block),
      device.free_async(256, nullptr),
      device.create_stream(stream),
      device.destroy_stream(nullptr),
      device.context_of(nullptr, context),
      device.synchronize(gpu::stream_handle{}),
      device.wait(nullptr, nullptr),
      device.create_event(event),
      device.destroy_event(nullptr),
      device.record(nullptr, nullptr),
      device.query(nullptr),
      device.synchronize(gpu::event_handle{}),
      device.launch_on_host(nullptr, &add_one, &count),
      device.begin_capture(nullptr, gpu::capture_mode::global),
      device.end_capture(nullptr, graph),
      device.is_capturing(nullptr, capturing),
      device.node_count(nullptr, bytes),
      device.instantiate(nullptr, executable),
      device.update(nullptr, nullptr),
      device.launch(nullptr, nullptr),
      device.destroy_executable(nullptr),
      device.destroy_graph(nullptr),
  };
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_NE(results[i], status::success) << i;
    EXPECT_NE(results[i], status::not_ready) << i;  // which would make somebody wait for ever
  }
  EXPECT_NE(device.current_device(current), status::success);
  EXPECT_TRUE(count == 7 && current == 7 && bytes == 7 && physical == 7 && block == 7);
  EXPECT_TRUE(info.free_bytes == 7 && info.total_bytes == 7);
  EXPECT_EQ(range, (byte_range{.begin = 7, .size = 7}));
  EXPECT_TRUE(pool == nullptr && stream == nullptr && event == nullptr && context == nullptr);
  EXPECT_TRUE(graph == nullptr && executable == nullptr && !capturing && !can);
  EXPECT_EQ(shared, gpu::shareable_handle{});
}

TEST_F(cuda_system_driver, returns_a_name_and_a_text_for_every_status) {
  using enum gpu::status;
  constexpr status all[] = {success,
                            invalid_value,
                            out_of_memory,
                            not_initialized,
                            deinitialized,
                            stub_library,
                            no_device,
                            invalid_device,
                            invalid_context,
                            contained,
                            invalid_handle,
                            illegal_state,
                            not_found,
                            not_ready,
                            illegal_address,
                            not_permitted,
                            not_supported,
                            client_terminated,
                            capture_unsupported,
                            capture_invalidated,
                            capture_merge,
                            capture_unmatched,
                            capture_unjoined,
                            capture_isolation,
                            capture_implicit,
                            captured_event,
                            capture_wrong_thread,
                            graph_update_failed,
                            unknown};
  std::vector<std::string> names, texts;
  for (const status each : all) {
    names.emplace_back(device.error_name(each));
    texts.emplace_back(device.error_string(each));
    EXPECT_EQ(names.back().find(each == success ? "CUDA_SUCCESS" : "CUDA_ERROR_"), 0u) << names.back();
    EXPECT_FALSE(texts.back().empty()) << names.back();
  }
  for (auto* each : {&names, &texts}) {
    std::ranges::sort(*each);
    EXPECT_EQ(std::ranges::adjacent_find(*each), each->end()) << "each says something of its own";
  }
  EXPECT_STREQ(device.error_name(out_of_memory), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(device.error_name(captured_event), "CUDA_ERROR_CAPTURED_EVENT");
  EXPECT_STREQ(device.error_name(status{12345}), "CUDA_ERROR_UNKNOWN");
  EXPECT_STREQ(device.error_string(status{12345}), device.error_string(unknown));
}

TEST_F(cuda_system_driver, creating_a_stream_or_event_throws_the_drivers_error) {
  EXPECT_THROW(gpu::event{device}, cuda_error);
  EXPECT_THROW((gpu::event{nullptr, device}), cuda_error);
  const cuda_error error = caught<cuda_error>([&] { const gpu::stream none{device}; });
  EXPECT_NE(error.status(), status::success);
  EXPECT_EQ(std::string{error.what()}.find("cuStreamCreate: CUDA_ERROR_"), 0u) << error.what();
}

TEST_F(cuda_system_driver, names_the_missing_option_of_a_build_without_cuda) {
  const cuda_error error = caught<cuda_error>([&] { const gpu::stream none{device}; });
  EXPECT_STREQ(error.what(),
               "cuStreamCreate: CUDA_ERROR_NO_DEVICE (tidemark was built without TIDEMARK_CUDA)");
  EXPECT_STREQ(device.error_string(status::out_of_memory), "out of memory");
  gpu::driver without_a_device;
  EXPECT_STREQ(without_a_device.error_string(status::no_device), "no CUDA device, or no driver for it");
}

// ---- the default table ----

TEST(cuda_default_driver, defaults_to_the_system_driver_and_null_restores_it) {
  EXPECT_EQ(&gpu::default_driver(), &gpu::system_driver());
  fake_device device, another;
  EXPECT_EQ(gpu::set_default_driver(&device), &gpu::system_driver());
  EXPECT_EQ(&gpu::default_driver(), &device);
  EXPECT_EQ(gpu::set_default_driver(&another), &device);
  EXPECT_EQ(gpu::set_default_driver(nullptr), &another);
  EXPECT_EQ(&gpu::default_driver(), &gpu::system_driver());
}

TEST(cuda_default_driver, existing_objects_keep_their_driver) {
  fake_device device;
  gpu::driver* const before = gpu::set_default_driver(&device);
  {
    const gpu::stream queue;
    gpu::event point{queue.get()};
    gpu::set_default_driver(before);
    queue.wait(point);
    queue.synchronize();
    point.record(queue);
    EXPECT_FALSE(point.done());
    point.wait();
  }
  EXPECT_EQ(device.count("cuStreamDestroy"), 1u);
  EXPECT_EQ(device.count("cuEventDestroy"), 1u);
}

// ---- cuda_error ----

TEST_F(cuda_error_text, truncates_the_call_to_127_characters) {
  for (std::size_t length : std::vector<std::size_t>{126, 127, 128, 1000}) {
    const std::string call(length, 'c');
    const cuda_error error{device, call.c_str(), status::out_of_memory};
    const std::string kept = call.substr(0, 127);
    EXPECT_EQ(error.call(), kept);
    EXPECT_EQ(error.what(), kept + ": CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  }
}

// ---- stream ----

TEST_F(cuda_stream, errors_name_the_failed_call) {
  const gpu::event point{device};
  expect_named("cuStreamCreate", [&] { const gpu::stream none{device}; });
  expect_named("cuStreamSynchronize", [&] { queue.synchronize(); });
  expect_named("cuStreamWaitEvent", [&] { queue.wait(point); });
}

// ---- event ----

TEST_F(cuda_event, becomes_done_when_the_earlier_work_is_done) {
  int runs = 0;
  EXPECT_EQ(device.launch_on_host(queue, &add_one, &runs), status::success);
  gpu::event point{queue, device};
  EXPECT_FALSE(point.done());
  device.run(queue);
  EXPECT_TRUE(point.done());
  EXPECT_EQ(runs, 1);
}

TEST_F(cuda_event, failed_query_counts_as_done_only_if_the_device_is_lost) {
  const gpu::event point{queue, device};
  for (const status refusal : {status::illegal_address, status::capture_unsupported, status::captured_event,
                               status::not_permitted}) {
    device.fail_next("cuEventQuery", refusal);
    EXPECT_EQ(point.done(), refusal == status::illegal_address) << device.error_name(refusal);
    EXPECT_FALSE(point.done());
  }
  device.run_all();
}

TEST_F(cuda_event, errors_name_the_failed_call_and_leak_nothing) {
  device.fail_next("cuEventCreate");
  EXPECT_THROW(gpu::event{device}, cuda_error);
  device.fail_next("cuEventRecord");
  EXPECT_THROW((gpu::event{queue, device}), cuda_error);  // the event itself was there
  EXPECT_EQ(device.count("cuEventDestroy"), 1u);

  gpu::event point{device};
  expect_named("cuEventRecord", [&] { point.record(queue); });
  EXPECT_TRUE(point.done()) << "at the old position";
  expect_named("cuEventSynchronize", [&] { point.wait(); });
}

// ---- fences ----

TEST_F(cuda_fence, queries_awaits_and_destroys_its_event) {
  int runs = 0;
  EXPECT_EQ(device.launch_on_host(queue, &add_one, &runs), status::success);
  gpu::event point{queue, device};
  reuse_fence fence = std::move(point).as_fence();
  EXPECT_EQ(point.get(), nullptr);  // NOLINT(bugprone-use-after-move): the fence has it
  EXPECT_FALSE(fence.empty());
  EXPECT_FALSE(fence.done());
  fence.wait();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(fence.done());
  EXPECT_EQ(device.count("cuEventDestroy"), 0u);
  fence.reset();
  EXPECT_EQ(device.count("cuEventDestroy"), 1u);
}

TEST_F(cuda_fence, wait_returns_if_the_driver_refuses_the_call) {
  const reuse_fence fence = gpu::event{queue, device}.as_fence();
  device.fail_next("cuEventSynchronize", status::illegal_address);
  fence.wait();
  EXPECT_EQ(device.count("cuEventSynchronize"), 1u);
  device.run_all();
}

}  // namespace
}  // namespace tidemark::test
