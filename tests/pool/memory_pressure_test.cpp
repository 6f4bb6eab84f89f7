// SPDX-License-Identifier: Apache-2.0
// Strategy: pressure by calls, and from files in the kernel's format that the test rewrites. The test also
// listens to the kernel's own files of this machine, but cannot make memory short on command.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/pool/pressure_monitor.hpp>
#include <tidemark/pool/synchronized_pool.hpp>

#include "recording_supply.hpp"
#include "temporary_folder.hpp"

namespace tidemark::test {
namespace {

// S2.24
TEST(memory_pressure, calls_subscribers_until_the_subscription_ends) {
  int first = 0, second = 0;
  pressure_subscription one = on_memory_pressure([&] { ++first; });
  {
    const pressure_subscription two = on_memory_pressure([&] { ++second; });
    EXPECT_GE(signal_memory_pressure(), 2u);
  }
  (void)signal_memory_pressure();
  EXPECT_EQ(first, 2);
  EXPECT_EQ(second, 1);
  pressure_subscription moved{std::move(one)};
  (void)signal_memory_pressure();
  EXPECT_EQ(first, 3);
  moved = pressure_subscription{};
  (void)signal_memory_pressure();
  EXPECT_EQ(first, 3);
}

template <class Pool>
class pools_under_pressure : public ::testing::Test {};
using all_pools = ::testing::Types<pool, synchronized_pool>;
TYPED_TEST_SUITE(pools_under_pressure, all_pools);

// S2.24
TYPED_TEST(pools_under_pressure, trim_in_the_next_allocation_of_each_thread) {
  recording_resource upstream;
  TypeParam memory{pool_options::tensor_classes(), &upstream};
  memory.deallocate(memory.allocate(64), 64);
  std::thread{[] { (void)signal_memory_pressure(); }}.join();
  EXPECT_EQ(memory.stats().cached_bytes, 277'504u) << "never from a foreign thread";
  void* block = memory.allocate(64);
  EXPECT_LT(memory.stats().cached_bytes, 8 * KiB);
  EXPECT_LT(upstream.outstanding, 8 * KiB);
  memory.deallocate(block, 64);
  memory.check_invariants();
}

TEST(memory_pressure, a_pool_trims_in_its_owners_next_deallocation) {
  pool memory{pool_options::tensor_classes()};
  void* block = memory.allocate(64);
  (void)signal_memory_pressure();
  memory.deallocate(block, 64);
  EXPECT_LE(memory.stats().cached_bytes, 1 * KiB) << "but for the slab that held the live block";
  memory.check_invariants();
  memory.deallocate(memory.allocate(64), 64);
  EXPECT_GT(memory.stats().cached_bytes, 0u) << "one signal is one trim";
}

TEST(memory_pressure, reaches_large_requests_too) {
  pool memory;
  memory.deallocate(memory.allocate(1 * MiB), 1 * MiB);
  (void)signal_memory_pressure();
  void* const block = memory.allocate(2 * MiB);
  EXPECT_EQ(memory.stats().cached_bytes, 0u) << "the block of 1 MiB went back too";
  (void)signal_memory_pressure();
  memory.deallocate(block, 2 * MiB);
  EXPECT_GE(memory.stats().cached_bytes, 2 * MiB) << "the block came back after the trim";
}

TEST(memory_pressure, is_forgotten_with_the_pool) {
  const std::size_t before = signal_memory_pressure();
  {
    const pool memory;
    const synchronized_pool shared;
    EXPECT_EQ(signal_memory_pressure(), before + 2);
  }
  EXPECT_EQ(signal_memory_pressure(), before);
}

/// A folder with files like the kernel's.
class pressure_files : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(char const* name) const { return folder_ / name; }
  void write(char const* name, std::string const& text) const { std::ofstream{path(name)} << text; }
  void write_psi(std::uint64_t stalled_microseconds) const {
    write("memory", "some avg10=0.12 avg60=0.01 avg300=0.00 total=" + std::to_string(stalled_microseconds) +
                        "\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=999999999\n");
  }
  void write_events(int high, int max, int kills) const {
    write("memory.events", "low 77\nhigh " + std::to_string(high) + "\nmax " + std::to_string(max) +
                               "\noom 0\noom_kill " + std::to_string(kills) + "\n");
  }

  temporary_folder folder_;
};

// S2.24
TEST_F(pressure_files, a_stall_beyond_the_threshold_is_pressure) {
  write_psi(1000);
  pressure_monitor monitor{{.psi_path = path("memory"),
                            .events_path = "",
                            .stall = std::chrono::microseconds{500},
                            .background = false}};
  EXPECT_TRUE(monitor.has_source());
  EXPECT_FALSE(monitor.poll());
  write_psi(1499);
  EXPECT_FALSE(monitor.poll());
  write_psi(1999);
  EXPECT_TRUE(monitor.poll());
  EXPECT_FALSE(monitor.poll()) << "told once";
  EXPECT_EQ(monitor.signal_count(), 1u);
}

TEST_F(pressure_files, a_cgroup_that_reaches_a_limit_is_pressure) {
  write_events(1, 0, 0);
  pressure_monitor monitor{{.psi_path = "", .events_path = path("memory.events"), .background = false}};
  EXPECT_TRUE(monitor.has_source());
  EXPECT_FALSE(monitor.poll());
  write("memory.events", "low 999\nhigh 1\nmax 0\noom 0\noom_kill 0\n");
  EXPECT_FALSE(monitor.poll()) << "memory.low is protection, not a limit";
  write_events(2, 0, 0);
  EXPECT_TRUE(monitor.poll());
  write_events(2, 1, 0);
  EXPECT_TRUE(monitor.poll());
  write_events(2, 1, 1);
  EXPECT_TRUE(monitor.poll());
  EXPECT_FALSE(monitor.poll());
}

TEST_F(pressure_files, background_monitor_detects_pressure) {
  write_events(0, 0, 0);
  write_psi(0);
  std::atomic<int> told{0};
  const pressure_subscription subscription = on_memory_pressure([&] { ++told; });
  const pressure_monitor monitor{{.psi_path = path("memory"),
                                  .events_path = path("memory.events"),
                                  .interval = std::chrono::milliseconds{5}}};
  write_psi(10'000'000);
  const auto wait_for = [&](int count) {
    for (int i = 0; i < 2000 && told < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{5});
  };
  wait_for(1);
  EXPECT_GE(told, 1);
  const int before = told;
  write_events(0, 3, 0);
  wait_for(before + 1);
  EXPECT_GT(told, before);
}

TEST_F(pressure_files, missing_or_malformed_files_leave_only_manual_signals) {
  write("memory", "nothing of the kind\n");
  write("memory.events", "high many\n");
  for (char const* psi : {"memory", "missing"}) {
    for (char const* events : {"memory.events", "missing"}) {
      pressure_monitor monitor{{.psi_path = path(psi), .events_path = path(events)}};
      EXPECT_FALSE(monitor.has_source());
      EXPECT_FALSE(monitor.poll());
    }
  }
}

TEST_F(pressure_files, a_file_that_vanishes_is_no_pressure) {
  write_psi(1000);
  pressure_monitor monitor{{.psi_path = path("memory"), .events_path = "", .background = false}};
  std::filesystem::remove(folder_ / "memory");
  EXPECT_FALSE(monitor.poll());
  write_psi(2'000'000);
  EXPECT_TRUE(monitor.poll()) << "the monitor counts from its last state";
}

TEST(pressure_monitor, starts_on_this_kernel_and_stops) {
  pressure_monitor monitor;
  const bool has_psi = std::filesystem::exists("/proc/pressure/memory") &&
                       std::ifstream{"/proc/pressure/memory"}.peek() != std::char_traits<char>::eof();
  if (has_psi) EXPECT_TRUE(monitor.has_source());
  EXPECT_EQ(monitor.is_listening(), monitor.has_source());
  (void)monitor.poll();
  EXPECT_LE(monitor.signal_count(), 1u);
}

}  // namespace
}  // namespace tidemark::test
