// SPDX-License-Identifier: Apache-2.0
// Strategy: the real table of driver calls on a stand-in for libcuda.so.1, which counts refused calls:
// compute-sanitizer reports each of these as an error of the program. Each test uses new threads, which have
// no context.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <thread>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/stream.hpp>

#include "stand_in_driver.hpp"

namespace tidemark::test {
namespace {

stand_in_record& driver_record() {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return *static_cast<stand_in_record*>(::dlsym(library, "stand_in_calls"));
}

template <class Body>
void on_a_new_thread(Body body) {
  std::thread{body}.join();
}

// Calls of a new thread that leave it without a context, and that the driver accepts.
template <class Body>
void expect_no_context_from(Body body) {
  const int retained_before = driver_record().contexts_retained,
            refused_before = driver_record().refused_calls;
  on_a_new_thread([&] {
    body();
    gpu::context_handle context = nullptr;
    EXPECT_EQ(gpu::system_driver().current_context(context), gpu::status::success);
    EXPECT_EQ(context, nullptr);
  });
  EXPECT_EQ(driver_record().contexts_retained, retained_before);
  EXPECT_EQ(driver_record().refused_calls, refused_before);
}

TEST(system_driver, sets_a_context_before_the_first_call_of_a_thread) {
  const int refused_before = driver_record().refused_calls, calls_before = driver_record().calls_in_context;
  on_a_new_thread([] {
    gpu::stream_handle stream = nullptr;
    EXPECT_EQ(gpu::system_driver().create_stream(stream), gpu::status::success);
    EXPECT_NE(stream, nullptr);
  });
  on_a_new_thread([] { EXPECT_EQ(gpu::system_driver().record(nullptr, nullptr), gpu::status::success); });
  EXPECT_EQ(driver_record().calls_in_context, calls_before + 2);
  EXPECT_EQ(driver_record().refused_calls, refused_before);
}

TEST(system_driver, current_device_query_creates_no_context) {
  expect_no_context_from([] {
    gpu::device_number device = 7;
    EXPECT_EQ(gpu::system_driver().current_device(device), gpu::status::success);
    EXPECT_EQ(device, 0);
  });
}

TEST(system_driver, call_that_names_a_device_creates_no_context) {
  expect_no_context_from([] {
    gpu::physical_handle memory = 0;
    EXPECT_EQ(gpu::system_driver().create(1, std::size_t{2} << 20, memory), gpu::status::success);
  });
}

TEST(system_driver, calls_keep_the_context_of_the_thread) {
  on_a_new_thread([] {
    int own = 0;
    auto* const context = reinterpret_cast<gpu::context_handle>(&own);
    ASSERT_EQ(gpu::system_driver().set_context(context), gpu::status::success);
    gpu::stream_handle stream = nullptr;
    EXPECT_EQ(gpu::system_driver().create_stream(stream), gpu::status::success);
    gpu::context_handle now = nullptr;
    EXPECT_EQ(gpu::system_driver().current_context(now), gpu::status::success);
    EXPECT_EQ(now, context);
  });
}

TEST(system_driver, initializes_the_driver_once) {
  on_a_new_thread([] { (void)gpu::system_driver().record(nullptr, nullptr); });
  on_a_new_thread([] { (void)gpu::system_driver().record(nullptr, nullptr); });
  EXPECT_EQ(driver_record().initializations, 1);
}

TEST(system_driver, missing_driver_call_returns_an_error) {
  gpu::memory_info info;
  EXPECT_EQ(gpu::system_driver().memory(info), gpu::status::not_found);
}

}  // namespace
}  // namespace tidemark::test
