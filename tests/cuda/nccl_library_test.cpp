// SPDX-License-Identifier: Apache-2.0
// Strategy: a missing library, and a library that is not NCCL. tests/cuda/nccl uses the real NCCL.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include <tidemark/cuda.hpp>

#include "caught.hpp"
#include "fake_device.hpp"

namespace tidemark {
namespace {

using gpu::nccl_library;
using gpu::nccl_status;

// R.11
TEST(nccl_library, every_call_returns_not_installed_if_the_library_is_missing) {
  nccl_library absent{"libnccl-which-is-not-here.so.2"};
  EXPECT_FALSE(absent.is_loaded());
  std::uintptr_t block = 7;
  gpu::device_number device = 7;
  nccl_status now = nccl_status::timeout;
  void* handle = &block;
  gpu::nccl_window window = nullptr;
  for (const nccl_status each :
       {absent.allocate(100, block), absent.free(block), absent.device_of(nullptr, device),
        absent.progress(nullptr, now), absent.register_buffer(nullptr, {}, handle),
        absent.deregister_buffer(nullptr, handle),
        absent.register_window(nullptr, {}, gpu::nccl_window_flags::none, window),
        absent.deregister_window(nullptr, window)})
    EXPECT_EQ(each, nccl_status::not_installed);
  EXPECT_TRUE(block == 7 && device == 7 && now == nccl_status::timeout) << "nothing is set";
  EXPECT_TRUE(handle == &block && window == nullptr);
}

TEST(nccl_library, rejects_a_library_that_is_not_nccl) {
  nccl_library other{"libc.so.6"};
  EXPECT_FALSE(other.is_loaded());
  std::uintptr_t block = 0;
  EXPECT_EQ(other.allocate(100, block), nccl_status::not_installed);
  EXPECT_STREQ(other.error_string(nccl_status::not_installed),
               "libc.so.6 is not NCCL, or older than 2.19: it has no ncclMemAlloc");
}

TEST(nccl_library, returns_a_name_and_a_text_for_every_result) {
  gpu::nccl none;
  for (int number = -2; number <= 8; ++number) {
    const auto result = static_cast<nccl_status>(number);
    EXPECT_STRNE(gpu::nccl::error_name(result), "unknown error of NCCL") << number;
    EXPECT_STRNE(none.error_string(result), "") << number;
  }
  EXPECT_STREQ(gpu::nccl::error_name(nccl_status::invalid_usage), "ncclInvalidUsage");
  EXPECT_STREQ(gpu::nccl::error_name(nccl_status{77}), "unknown error of NCCL");
  EXPECT_STREQ(none.error_string(nccl_status{77}), "NCCL has no text for it");
}

TEST(nccl_library, missing_library_makes_arenas_and_registrars_throw_not_installed) {
  test::fake_device device;
  nccl_library absent{"libnccl-which-is-not-here.so.2"};
  gpu::nccl_memory space{{}, absent, device};
  const nccl_error error = test::caught<nccl_error>([&] { (void)space.reserve(100, 100); });
  EXPECT_EQ(error.status(), nccl_status::not_installed);
  const std::string message = error.what();
  EXPECT_TRUE(message.starts_with(
      "ncclMemAlloc: NCCL is not installed (libnccl-which-is-not-here.so.2 cannot be loaded: "))
      << message;
  EXPECT_NE(message.find("cannot open shared object file"), std::string::npos) << message;
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(device.budget(0).held_bytes(), 0u);
  EXPECT_THROW((gpu::nccl_registrar{nullptr, nullptr, absent, device}), nccl_error);
}

}  // namespace
}  // namespace tidemark
