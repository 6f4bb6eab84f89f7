// SPDX-License-Identifier: Apache-2.0
// Strategy: a fake device with the driver's rules, whose memory must not be touched. The tests compare all
// calls with their arguments, in order. Each call fails once. Mapped memory is read from the device, not from
// the address space.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "fake_units.hpp"
#include "seeds.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

// How every function begins: which device is current, and does the stream capture?
const call_names first_calls{"cuCtxGetDevice", "cuStreamIsCapturing"};

/// Returns the memory that the destructor of an address space could not return. The fake device otherwise
/// reports a leak. It numbers its handles from 1.
void return_lost_memory(fake_device& device, byte_range range, std::size_t units) {
  for (std::size_t i = 0; i < units; ++i) {
    EXPECT_EQ(device.unmap(units_of(range, i, 1)), status::success);
    EXPECT_EQ(device.release(i + 1), status::success);
  }
  EXPECT_EQ(device.free_reservation(range), status::success);
}

static_assert(std::is_nothrow_move_constructible_v<gpu::virtual_memory> &&
              std::is_nothrow_move_assignable_v<gpu::virtual_memory> &&
              !std::is_copy_constructible_v<gpu::virtual_memory>);

/// A space with no memory yet.
struct cuda_virtual_memory : ::testing::Test {
  fake_device device{in_units()};
  gpu::virtual_memory space{{}, device};
};

// ---- construction ----

TEST(cuda_virtual_memory_setups, chunk_size_is_the_device_capacity_rounded_up_to_its_granularity) {
  fake_device device{{.capacity_bytes = 10 * unit + 1, .granularity_bytes = unit}};
  const gpu::virtual_memory space{{}, device};
  EXPECT_EQ(space.granularity(), unit);
  EXPECT_EQ(space.chunk_bytes(), 11 * unit);
  EXPECT_EQ(space.device(), 0);
  EXPECT_EQ(space.stream(), nullptr);
}

TEST(cuda_virtual_memory_setups, context_creation_without_memory_throws_out_of_memory) {
  for (std::size_t n = 0;; ++n) {
    fake_device device{in_units()};
    device.fail_from = n;
    try {
      const gpu::virtual_memory space{{}, device};
      EXPECT_EQ(n, 4u) << "device twice, granularity, memory";
      break;
    } catch (out_of_memory const& error) {
      EXPECT_STREQ(error.report().resource, "device memory");
    }
  }
}

// ---- the calls ----

TEST_F(cuda_virtual_memory, reserve_allocates_whole_units_of_addresses_and_no_memory) {
  byte_range range;
  EXPECT_EQ(calls_of(device, [&] { range = space.reserve(1, 3 * unit + 1); }),
            joined({first_calls, {"cuMemAddressReserve"}}));
  EXPECT_EQ(range.size, 4 * unit);
  EXPECT_EQ(range.begin % unit, 0u);
  EXPECT_EQ(device.reserved_bytes(), 4 * unit);
  EXPECT_EQ(device.physical_bytes(), 0u);
  EXPECT_EQ(space.reserve(5 * unit, 1).size, 5 * unit) << "the larger of the two";
}

TEST_F(cuda_virtual_memory, reserves_nothing_beyond_the_address_space) {
  EXPECT_TRUE(space.reserve(SIZE_MAX, 1).empty());
  EXPECT_TRUE(space.reserve(1, SIZE_MAX - unit).empty());
  device.fail_next("cuMemAddressReserve");
  EXPECT_TRUE(space.reserve(1, unit).empty());
  EXPECT_STREQ(space.refusal(),
               "the driver has no addresses left: reserve less, or raise RLIMIT_AS (ulimit -v)");
}

TEST(cuda_virtual_memory_setups, halves_a_refused_reservation_down_to_the_minimum) {
  for (std::size_t refusals = 0; refusals <= 4; ++refusals) {
    fake_device device{in_units()};
    gpu::virtual_memory space{{}, device};
    device.fail_in("cuMemAddressReserve", 0, status::out_of_memory, refusals);
    const byte_range range = space.reserve(3 * unit, 64 * unit);
    EXPECT_EQ(range.size, std::max(3 * unit, 64 * unit >> refusals)) << refusals;
    EXPECT_TRUE(space.commit(units_of(range, 0, 3)));
    space.release(range);
  }
}

TEST_F(cuda_virtual_memory, reservation_refused_for_another_reason_throws_cuda_error) {
  device.fail_next("cuMemAddressReserve", status::not_supported);
  EXPECT_THROW((void)space.reserve(1, unit), cuda_error);
  EXPECT_EQ(device.reserved_bytes(), 0u);
}

TEST(cuda_virtual_memory_setups, handles_grow_to_a_quarter_of_the_committed_prefix) {
  for (auto const& [handle_bytes, handles] :
       {std::pair<std::size_t, std::size_t>{0, 8 + 4 + 4 + 4}, {4 * unit, 8 + 4 + 4 + 8}, {unit, 64}}) {
    fake_device device{in_units()};
    gpu::virtual_memory space{{.handle_bytes = handle_bytes}, device};
    const byte_range range = space.reserve(1, 64 * unit);
    EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.commit(range)); }),
              joined({first_calls, times(handles, {"cuMemCreate", "cuMemMap"}), {"cuMemSetAccess"}}));
    EXPECT_EQ(device.mapped_bytes(), 64 * unit);
    EXPECT_TRUE(device.accessible(range.data(), range.size));
  }
}

TEST(cuda_virtual_memory_setups, largest_handle_has_64_mib_by_default) {
  fake_device device{{.capacity_bytes = 4 * GiB}};
  gpu::virtual_memory space{{}, device};
  const byte_range range = space.reserve(1, 4 * GiB);
  EXPECT_TRUE(space.commit({range.begin, 2 * GiB}));
  const std::size_t before = device.count("cuMemCreate");
  EXPECT_TRUE(space.commit({range.begin + 2 * GiB, 1 * GiB}));
  EXPECT_EQ(device.count("cuMemCreate") - before, 16u);
}

TEST_F(cuda_virtual_memory, handles_are_aligned_to_their_size_and_end_with_the_commit) {
  const byte_range range = space.reserve(1, 64 * unit);
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.commit(units_of(range, 33, 13))); }),
            joined({first_calls, times(1 + 1 + 1 + 1 + 1, {"cuMemCreate", "cuMemMap"}), {"cuMemSetAccess"}}))
      << "handles of 1, 2, 4, 4 and 2 units";
  EXPECT_EQ(device.physical_bytes(), 13 * unit);
}

TEST_F(cuda_virtual_memory, tries_smaller_handles_if_a_large_handle_fails) {
  const byte_range range = space.reserve(1, 64 * unit);
  device.fail_in("cuMemCreate", 0, status::out_of_memory, 2);
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.commit(units_of(range, 32, 8))); }),
            joined({first_calls,
                    {"cuMemCreate", "cuMemCreate"},
                    times(3, {"cuMemCreate", "cuMemMap"}),
                    {"cuMemSetAccess"}}))
      << "handles of 2, 2 and 4 units, not of 8 and 4";
  EXPECT_TRUE(device.accessible(units_of(range, 32, 8).data(), 8 * unit));

  device.fail_next("cuMemCreate", status::unknown);
  EXPECT_EQ(calls_of(device, [&] { EXPECT_FALSE(space.commit(units_of(range, 40, 8))); }),
            joined({first_calls, {"cuMemCreate"}}))
      << "another error is not about the size";
}

TEST_F(cuda_virtual_memory, decommit_waits_once_and_unmaps_with_one_call) {
  const byte_range range = space.reserve(1, 10 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 5)));
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.decommit(units_of(range, 2, 3))); }),
            joined({first_calls, {"cuStreamSynchronize", "cuMemUnmap"}, times(3, {"cuMemRelease"})}));
  EXPECT_EQ(device.mapped_bytes(), 2 * unit);
  EXPECT_EQ(device.physical_bytes(), 2 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 2, 1))) << "the addresses are still ours";
}

TEST_F(cuda_virtual_memory, unmaps_mappings_one_by_one_if_unmapping_all_at_once_fails) {
  const byte_range range = space.reserve(1, 16 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 10)));
  device.fail_next("cuMemUnmap", status::invalid_value);
  EXPECT_EQ(
      calls_of(device, [&] { EXPECT_TRUE(space.decommit(units_of(range, 6, 4))); }),
      joined(
          {first_calls, {"cuStreamSynchronize"}, times(1 + 3, {"cuMemUnmap"}), times(3, {"cuMemRelease"})}));
  EXPECT_EQ(device.physical_bytes(), 6 * unit);
}

TEST_F(cuda_virtual_memory, keeps_a_partly_decommitted_handle_and_recommits_without_a_call) {
  const byte_range range = space.reserve(1, 64 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 40)));  // the last handle is of 8 units
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.decommit(units_of(range, 34, 6))); }),
            joined({first_calls, {"cuStreamSynchronize"}}));
  EXPECT_EQ(space.held_bytes(), 40 * unit);
  EXPECT_TRUE(device.accessible(range.data(), 34 * unit));
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.commit(units_of(range, 34, 4))); }), first_calls);
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.decommit(units_of(range, 32, 6))); }),
            joined({first_calls, {"cuStreamSynchronize", "cuMemUnmap", "cuMemRelease"}}))
      << "the whole part is decommitted";
  EXPECT_EQ(space.held_bytes(), 32 * unit);
  EXPECT_EQ(device.physical_bytes(), 32 * unit);
}

// ---- commits of as much as there is ----

TEST(cuda_virtual_memory_setups, partial_commit_keeps_enough_memory_and_maps_nothing_twice) {
  fake_device device{in_units(43)};
  gpu::virtual_memory space{{}, device};
  const byte_range range = space.reserve(1, 64 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 32)));
  std::size_t committed = 0;
  EXPECT_EQ(calls_of(device, [&] { committed = space.commit(units_of(range, 32, 20), 2 * unit); }),
            joined({first_calls,
                    {"cuMemCreate", "cuMemMap"},     // of 8
                    {"cuMemCreate", "cuMemCreate"},  // not of 8 and of 4
                    {"cuMemCreate", "cuMemMap"},     // of 2
                    {"cuMemCreate"},                 // not of 2
                    {"cuMemCreate", "cuMemMap"},     // of 1
                    {"cuMemCreate", "cuMemUnmap"},   // and none is left
                    times(2, {"cuMemRelease"}),
                    {"cuMemSetAccess"}}));
  EXPECT_EQ(committed, 8 * unit) << "up to the end of a handle, so that no more is held";
  EXPECT_EQ(space.held_bytes(), 40 * unit);
  EXPECT_EQ(device.mapped_bytes(), 40 * unit);
  EXPECT_TRUE(device.accessible(range.data(), 40 * unit));
}

TEST(cuda_virtual_memory_setups, partial_commit_commits_all_if_the_device_has_memory) {
  fake_device device{in_units(43)};
  gpu::virtual_memory space{{}, device};
  const byte_range range = space.reserve(1, 64 * unit);
  EXPECT_EQ(space.commit(units_of(range, 0, 32), unit), 32 * unit);
  EXPECT_EQ(space.commit(units_of(range, 32, 20), 12 * unit), 0u) << "more than the free memory";
  EXPECT_STREQ(space.refusal(),
               "the device memory is exhausted: free some, or return the part that caches keep (relieve)");
  EXPECT_EQ(device.physical_bytes(), 32 * unit);
}

TEST(cuda_virtual_memory_setups, failed_commit_changes_nothing_and_can_be_retried) {
  const std::size_t once = 1, always = fake_device::never;
  for (auto const& [failure, count, least] : {std::tuple{status::out_of_memory, once, 2 * unit},
                                              {status::out_of_memory, always, 2 * unit},
                                              {status::unknown, always, 2 * unit},
                                              {status::unknown, once, 3 * unit}}) {
    for (std::size_t n = 0;; ++n) {
      SCOPED_TRACE(::testing::Message() << "call " << n << " fails");
      ASSERT_LT(n, 40u);
      fake_device device{in_units(43)};
      gpu::virtual_memory space{{}, device};
      const byte_range range = space.reserve(1, 64 * unit);
      ASSERT_TRUE(space.commit(units_of(range, 0, 32)));
      device.fail_from = device.calls + n;
      device.failure = failure;
      device.fail_count = count;
      const std::size_t before = device.calls;
      const std::size_t committed = space.commit(units_of(range, 32, least == 3 * unit ? 3 : 20), least);
      const bool done = device.calls - before <= n;
      device.fail_from = fake_device::never;
      EXPECT_TRUE(committed == 0 || committed >= least);
      EXPECT_EQ(device.physical_bytes(), 32 * unit + committed);
      EXPECT_EQ(device.mapped_bytes(), 32 * unit + committed);
      EXPECT_TRUE(device.accessible(range.data(), 32 * unit + committed));
      if (done) break;
      EXPECT_TRUE(space.commit(units_of(range, 32, 3)));
    }
  }
}

TEST_F(cuda_virtual_memory, releasing_frees_addresses_and_mapped_memory) {
  const byte_range range = space.reserve(1, 10 * unit), other = space.reserve(1, 10 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 2)) && space.commit(units_of(range, 5, 1)));
  EXPECT_EQ(calls_of(device, [&] { space.release(range); }), joined({first_calls,
                                                                     {"cuStreamSynchronize"},
                                                                     times(2, {"cuMemUnmap"}),
                                                                     times(3, {"cuMemRelease"}),
                                                                     {"cuMemAddressFree"}}));
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(calls_of(device, [&] { space.release(other); }), joined({first_calls, {"cuMemAddressFree"}}))
      << "without memory there is nothing to wait for, and a run without a gap is unmapped by one call";
}

TEST(cuda_virtual_memory_setups, move_transfers_the_ranges_and_assignment_frees_the_old_ranges) {
  fake_device device{in_units()};
  gpu::virtual_memory first{{}, device};
  const byte_range range = first.reserve(1, 4 * unit);
  ASSERT_TRUE(first.commit(range));
  gpu::virtual_memory second{std::move(first)};
  EXPECT_TRUE(second.decommit(units_of(range, 2, 2)));
  gpu::virtual_memory third{{.handle_bytes = 2 * unit}, device};
  ASSERT_TRUE(third.commit(third.reserve(1, 8 * unit)));
  third = std::move(second);
  EXPECT_EQ(device.physical_bytes(), 2 * unit);
  third.release(range);
  EXPECT_EQ(device.outstanding, 0u);
}

// ---- waiting ----

TEST_F(cuda_virtual_memory, unmaps_nothing_if_the_stream_cannot_be_awaited) {
  const byte_range range = space.reserve(1, 2 * unit);
  ASSERT_TRUE(space.commit(range));
  device.fail_next("cuStreamSynchronize", status::illegal_address);
  EXPECT_FALSE(space.decommit(range));
  device.fail_next("cuStreamSynchronize", status::illegal_address);
  EXPECT_THROW(space.suspend(), cuda_error);
  EXPECT_FALSE(space.is_suspended());
  EXPECT_TRUE(device.accessible(range.data(), range.size));
  EXPECT_EQ(device.count("cuMemUnmap"), 0u);
}

TEST(cuda_virtual_memory_setups, every_call_runs_on_its_own_device_if_another_device_is_current) {
  fake_device device{in_units(64, 2)};
  gpu::virtual_memory space{{.device = 1}, device};
  const byte_range range = space.reserve(1, 4 * unit);
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.commit(range)); }),
            joined({{"cuCtxGetDevice", "cuCtxGetCurrent", "cudaSetDevice", "cuStreamIsCapturing"},
                    times(4, {"cuMemCreate", "cuMemMap"}),
                    {"cuMemSetAccess", "cuCtxSetCurrent"}}));
  EXPECT_TRUE(device.accessible(range.data(), range.size, 1));
  EXPECT_FALSE(device.accessible(range.data(), range.size, 0));

  // The default stream is that of device 1.
  EXPECT_EQ(device.make_current(1), status::success);
  const test::noting_work user{device, nullptr, range, 1};
  EXPECT_EQ(device.make_current(0), status::success);
  const test::noting_work bystander{device, nullptr};
  EXPECT_TRUE(space.decommit(range));
  EXPECT_TRUE(user.had_memory);
  EXPECT_FALSE(bystander.has_run);
  EXPECT_EQ(device.current_now(), 0);
  device.run_all();
}

// ---- each call fails once ----

TEST_F(cuda_virtual_memory, reuses_memory_that_a_failed_commit_could_not_unmap) {
  const byte_range range = space.reserve(1, 8 * unit);
  device.fail_next("cuMemSetAccess");
  device.fail_in("cuMemUnmap", 0);  // of all, so that they go one by one,
  device.fail_in("cuMemUnmap", 2);  // the second stays, too
  EXPECT_FALSE(space.commit(units_of(range, 0, 3)));
  EXPECT_EQ(device.mapped_bytes(), 2 * unit);
  EXPECT_EQ(device.physical_bytes(), 2 * unit);
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.commit(units_of(range, 0, 3))); }),
            joined({first_calls, {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}}));
  EXPECT_TRUE(device.accessible(range.data(), 3 * unit));
  space.release(range);
  EXPECT_EQ(device.outstanding, 0u);
}

TEST(cuda_virtual_memory_setups, failed_decommit_maps_the_same_memory_again) {
  for (std::size_t n = 0; n < 3; ++n) {
    fake_device device{in_units()};
    gpu::virtual_memory space{{}, device};
    const byte_range range = space.reserve(1, 8 * unit);
    ASSERT_TRUE(space.commit(units_of(range, 0, 4)));
    device.fail_in("cuMemUnmap", 0);  // of all, so that they go one by one
    device.fail_in("cuMemUnmap", 1 + n);
    EXPECT_EQ(calls_of(device, [&] { EXPECT_FALSE(space.decommit(units_of(range, 1, 3))); }),
              joined({first_calls,
                      {"cuStreamSynchronize"},
                      times(n + 2, {"cuMemUnmap"}),
                      times(n, {"cuMemMap"}),
                      n != 0 ? call_names{"cuMemSetAccess"} : call_names{}}))
        << "without new handles: what is in the memory is still there";
    EXPECT_FALSE(space.is_suspended());
    EXPECT_TRUE(device.accessible(range.data(), 4 * unit));
    EXPECT_TRUE(space.decommit(units_of(range, 1, 3)));
    EXPECT_EQ(device.physical_bytes(), unit);
  }
}

TEST(cuda_virtual_memory_setups, resume_maps_memory_that_a_failed_decommit_could_not_remap) {
  for (char const* failing : {"cuMemMap", "cuMemSetAccess"}) {
    fake_device device{in_units()};
    gpu::virtual_memory space{{}, device};
    const byte_range range = space.reserve(1, 8 * unit);
    ASSERT_TRUE(space.commit(units_of(range, 0, 4)));
    device.fail_in("cuMemUnmap", 0);  // of all, so that they go one by one
    device.fail_in("cuMemUnmap", 3);
    device.fail_next(failing);
    EXPECT_FALSE(space.decommit(units_of(range, 0, 4)));
    EXPECT_TRUE(space.is_suspended()) << "the memory is not there";
    EXPECT_FALSE(space.commit(units_of(range, 4, 1)));
    const std::size_t created = device.count("cuMemCreate");
    space.resume();
    EXPECT_EQ(device.count("cuMemCreate"), created) << "the handle was retained";
    EXPECT_TRUE(device.accessible(range.data(), 4 * unit));
    space.release(range);
    EXPECT_EQ(device.outstanding, 0u);
  }
}

TEST_F(cuda_virtual_memory, handle_with_a_failed_release_is_reused_or_released_later) {
  const byte_range range = space.reserve(1, 8 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 2)));
  device.fail_next("cuMemRelease", status::unknown);
  EXPECT_TRUE(space.decommit(units_of(range, 0, 2)));
  EXPECT_EQ(device.mapped_bytes(), 0u);
  EXPECT_EQ(device.physical_bytes(), unit);
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.commit(units_of(range, 0, 1))); }),
            joined({first_calls, {"cuMemMap", "cuMemSetAccess"}}));
  device.fail_next("cuMemRelease", status::unknown);
  EXPECT_TRUE(space.decommit(units_of(range, 0, 1)));
  space.release(range);
  EXPECT_EQ(device.outstanding, 0u);
}

TEST(cuda_virtual_memory_setups, next_call_frees_memory_that_could_not_be_released) {
  for (char const* failing : {"cuCtxGetDevice", "cuStreamIsCapturing", "cuStreamSynchronize", "cuMemUnmap",
                              "cuMemRelease", "cuMemAddressFree"}) {
    SCOPED_TRACE(failing);
    fake_device device{in_units()};
    gpu::virtual_memory space{{}, device};
    const byte_range range = space.reserve(1, 4 * unit);
    ASSERT_TRUE(space.commit(units_of(range, 0, 3)));
    device.fail_in(failing, device.count(failing), {}, failing == std::string{"cuMemUnmap"} ? 2 : 1);
    space.release(range);
    EXPECT_EQ(device.reserved_bytes(), 4 * unit);
    const byte_range next = space.reserve(1, unit);
    EXPECT_EQ(device.reserved_bytes(), unit);
    EXPECT_EQ(device.outstanding, 0u);
    space.release(next);
  }
}

TEST(cuda_virtual_memory_setups, leaked_memory_is_reported_unless_the_driver_has_shut_down) {
  for (auto const& [failing, failure] :
       {std::pair{"cuMemUnmap", status::illegal_address}, {"cuCtxGetDevice", status::deinitialized}}) {
    const test::warning_recorder warnings;
    fake_device device{in_units()};
    byte_range range;
    {
      gpu::virtual_memory space{{}, device};
      range = space.reserve(1, 4 * unit);
      ASSERT_TRUE(space.commit(units_of(range, 0, 3)));
      device.fail_in(failing, device.count(failing), failure, 2);
    }
    ASSERT_EQ(warnings.reports().size(), failure == status::deinitialized ? 0u : 1u);
    if (failure != status::deinitialized) {
      EXPECT_EQ(warnings.reports()[0].kind, warning_kind::refused_return);
      EXPECT_EQ(warnings.reports()[0].message,
                "device memory: 196608 bytes are lost, because the driver did not free them: cuMemUnmap: "
                "CUDA_ERROR_ILLEGAL_ADDRESS (illegal memory access)");
    }
    return_lost_memory(device, range, 3);
  }
}

// ---- captures ----

/// A space with two units of memory on a stream that captures.
class cuda_virtual_memory_capture : public ::testing::Test {
 protected:
  cuda_virtual_memory_capture() {
    EXPECT_TRUE(space_.commit(units_of(range_, 0, 2)));
    begin_capture();
  }
  void begin_capture() { capture_.emplace(device_, stream_); }
  /// The capture is valid, and no call but cuCtxGetDevice was made during it.
  void end_capture() {
    EXPECT_EQ(device_.calls_during_capture(),
              times(device_.calls_during_capture().size(), {"cuCtxGetDevice"}))
        << "no other call is made";
    capture_.reset();
  }

  fake_device device_{in_units()};
  gpu::stream stream_{device_};
  gpu::virtual_memory space_{stream_.get(), device_};
  byte_range range_ = space_.reserve(1, 8 * unit);
  std::optional<test::empty_capture> capture_;
};

TEST_F(cuda_virtual_memory_capture, maps_memory_and_leaves_the_capture_valid) {
  EXPECT_TRUE(space_.commit(units_of(range_, 2, 1)));
  EXPECT_TRUE(device_.accessible(range_.data(), 3 * unit));
  const byte_range other = space_.reserve(1, 4 * unit);
  EXPECT_TRUE(space_.commit(other));
  EXPECT_TRUE(device_.accessible(other.data(), 4 * unit));
  EXPECT_EQ(device_.physical_bytes(), 7 * unit) << "nothing of the probe is left";
  EXPECT_EQ(device_.reserved_bytes(), 12 * unit);
}

// A refused call would end the capture. The probe finds out the driver's behaviour, and ends only its own
// capture.
TEST(cuda_virtual_memory_setups, capture_stays_valid_if_the_driver_refuses_to_map_during_captures) {
  for (auto const& refusals : {test::stricter_refusals(), test::refusals_of_own_mappings()}) {
    fake_device device{{.capacity_bytes = 64 * unit, .granularity_bytes = unit, .refusals = refusals}};
    const gpu::stream stream{device};
    gpu::virtual_memory space{stream.get(), device};
    const byte_range range = space.reserve(1, 8 * unit);
    {
      const test::empty_capture graph{device, stream};
      for (int twice = 0; twice < 2; ++twice) {
        EXPECT_FALSE(space.commit(units_of(range, 0, 1)));
        EXPECT_STREQ(space.refusal(), "the driver cannot map memory while a stream is capturing");
        EXPECT_TRUE(space.reserve(1, unit).empty());
        EXPECT_STREQ(space.refusal(), "the driver cannot map memory while a stream is capturing");
      }
      EXPECT_EQ(device.count("cuStreamBeginCapture"), 2u);
    }
    EXPECT_TRUE(space.commit(units_of(range, 0, 1)));
    EXPECT_EQ(device.physical_bytes(), unit) << "nothing of the probe is left";
  }
}

TEST_F(cuda_virtual_memory_capture, refuses_to_decommit) {
  EXPECT_FALSE(space_.decommit(units_of(range_, 0, 2)));
  EXPECT_TRUE(device_.accessible(range_.data(), 2 * unit));
  end_capture();
  EXPECT_TRUE(space_.decommit(units_of(range_, 0, 2)));
}

TEST_F(cuda_virtual_memory_capture, refuses_to_suspend_and_to_resume) {
  EXPECT_THROW(space_.suspend(), std::logic_error);
  EXPECT_FALSE(space_.is_suspended());
  end_capture();
  space_.suspend();
  begin_capture();
  EXPECT_STREQ(test::caught<std::logic_error>([&] { space_.resume(); }).what(),
               "gpu::virtual_memory: resume while its stream is capturing");
  EXPECT_TRUE(space_.is_suspended());
  end_capture();
}

TEST_F(cuda_virtual_memory_capture, first_call_after_the_capture_frees_released_memory) {
  space_.release(range_);
  EXPECT_TRUE(device_.accessible(range_.data(), 2 * unit));
  EXPECT_EQ(device_.reserved_bytes(), 8 * unit);
  end_capture();
  (void)space_.reserve(1, unit);
  EXPECT_EQ(device_.reserved_bytes(), unit);
  EXPECT_EQ(device_.outstanding, 0u);
}

TEST_F(cuda_virtual_memory_capture, waits_once_for_all_ranges_released_during_the_capture) {
  end_capture();
  const byte_range other = space_.reserve(1, 4 * unit);
  ASSERT_TRUE(space_.commit(other));
  begin_capture();
  space_.release(range_);
  space_.release(other);
  end_capture();
  const std::size_t waits = device_.count("cuStreamSynchronize");
  (void)space_.reserve(1, unit);
  EXPECT_EQ(device_.count("cuStreamSynchronize"), waits + 1);
  EXPECT_EQ(device_.reserved_bytes(), unit);
}

TEST_F(cuda_virtual_memory_capture, blocks_decommit_but_not_commit_on_the_default_stream) {
  end_capture();
  gpu::virtual_memory other{{}, device_};
  const byte_range range = other.reserve(1, 4 * unit);
  device_.fail_next("cuStreamIsCapturing", status::capture_implicit);
  EXPECT_TRUE(other.commit(range)) << "mapping touches no stream";
  device_.fail_next("cuStreamIsCapturing", status::capture_implicit);
  EXPECT_FALSE(other.decommit(range));
}

TEST_F(cuda_virtual_memory_capture, destruction_during_a_capture_is_reported_and_leaks_the_memory) {
  const test::violation_recorder violations;
  {
    const gpu::virtual_memory gone = std::move(space_);
  }
  ASSERT_EQ(violations.reports().size(), 1u);
  EXPECT_EQ(violations.reports()[0].kind, violation_kind::open_capture);
  EXPECT_EQ(
      violations.reports()[0].message,
      "device memory: destroyed while its stream is capturing: 131072 bytes are lost, because a wait for "
      "their work would invalidate the capture");
  EXPECT_TRUE(device_.accessible(range_.data(), 2 * unit)) << "the graph may use it";
  end_capture();
  return_lost_memory(device_, range_, 2);
}

// ---- suspend and resume ----

TEST_F(cuda_virtual_memory, suspending_frees_all_memory_and_keeps_the_addresses) {
  const byte_range range = space.reserve(1, 8 * unit), other = space.reserve(1, 8 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 3)) && space.commit(units_of(other, 2, 2)));
  const test::noting_work user{device, nullptr, units_of(range, 0, 3)};
  EXPECT_EQ(
      calls_of(device, [&] { space.suspend(); }),
      joined({first_calls, {"cuStreamSynchronize"}, times(2, {"cuMemUnmap"}), times(5, {"cuMemRelease"})}));
  EXPECT_TRUE(space.is_suspended());
  EXPECT_TRUE(user.had_memory);
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(device.reserved_bytes(), 16 * unit);
}

TEST_F(cuda_virtual_memory, resume_maps_the_same_amount_at_the_same_addresses) {
  const byte_range range = space.reserve(1, 8 * unit), other = space.reserve(1, 8 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 3)) && space.commit(units_of(other, 0, 1)) &&
              space.commit(units_of(other, 2, 2)));
  space.suspend();
  EXPECT_EQ(calls_of(device, [&] { space.resume(); }), joined({first_calls,
                                                               times(3, {"cuMemCreate", "cuMemMap"}),
                                                               {"cuMemSetAccess"},
                                                               {"cuMemCreate", "cuMemMap", "cuMemSetAccess"},
                                                               times(2, {"cuMemCreate", "cuMemMap"}),
                                                               {"cuMemSetAccess"}}))
      << "access is granted once for each part without a gap";
  EXPECT_FALSE(space.is_suspended());
  EXPECT_TRUE(device.accessible(range.data(), 3 * unit));
  EXPECT_TRUE(device.accessible(other.data(), unit));
  EXPECT_TRUE(device.accessible(units_of(other, 2, 2).data(), 2 * unit));
  EXPECT_EQ(device.physical_bytes(), 6 * unit);
}

TEST_F(cuda_virtual_memory, suspended_memory_commits_nothing_and_keeps_freed_memory_free) {
  const byte_range range = space.reserve(1, 8 * unit), other = space.reserve(1, 8 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 4)) && space.commit(units_of(other, 0, 2)));
  space.suspend();
  EXPECT_FALSE(space.commit(units_of(range, 4, 1)));
  EXPECT_STREQ(space.refusal(), "it is suspended");
  EXPECT_TRUE(space.reserve(1, unit).empty());
  EXPECT_STREQ(space.refusal(), "it is suspended");
  EXPECT_EQ(calls_of(device, [&] { EXPECT_TRUE(space.decommit(units_of(range, 1, 3))); }), call_names{});
  space.release(other);
  EXPECT_EQ(device.reserved_bytes(), 8 * unit);
  space.resume();
  EXPECT_EQ(device.mapped_bytes(), unit);
  EXPECT_TRUE(device.accessible(range.data(), unit));
}

TEST(cuda_virtual_memory_setups, failed_suspend_keeps_the_memory_and_its_contents) {
  // The run of one range is refused, and then one of its handles.
  for (auto const& [run, n] : {std::pair<std::size_t, std::size_t>{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}}) {
    SCOPED_TRACE(::testing::Message() << "unmapping " << run << " and " << n << " fails");
    fake_device device{in_units()};
    gpu::virtual_memory space{{}, device};
    const byte_range range = space.reserve(1, 8 * unit), other = space.reserve(1, 8 * unit);
    ASSERT_TRUE(space.commit(units_of(range, 0, 3)) && space.commit(units_of(other, 0, 2)));
    const std::size_t created = device.count("cuMemCreate");
    device.fail_in("cuMemUnmap", run, status::unknown);
    device.fail_in("cuMemUnmap", n, status::unknown);
    const cuda_error error = test::caught<cuda_error>([&] { space.suspend(); });
    EXPECT_STREQ(error.call(), "cuMemUnmap");
    EXPECT_FALSE(space.is_suspended());
    EXPECT_EQ(device.count("cuMemCreate"), created) << "the same memory";
    EXPECT_EQ(device.count("cuMemRelease"), 0u);
    EXPECT_TRUE(device.accessible(range.data(), 3 * unit) && device.accessible(other.data(), 2 * unit));
  }
}

TEST(cuda_virtual_memory_setups, failed_resume_stays_suspended_and_allocates_nothing) {
  for (std::size_t n = 0;; ++n) {
    SCOPED_TRACE(::testing::Message() << "call " << n << " fails");
    ASSERT_LT(n, 30u);
    fake_device device{in_units()};
    gpu::virtual_memory space{{}, device};
    const byte_range range = space.reserve(1, 8 * unit), other = space.reserve(1, 8 * unit);
    ASSERT_TRUE(space.commit(units_of(range, 0, 3)) && space.commit(units_of(other, 0, 2)));
    space.suspend();
    device.fail_from = device.calls + n;
    device.failure = status::unknown;
    try {
      space.resume();
      EXPECT_EQ(n, 2 + 5 * 2 + 2u);
      device.fail_from = fake_device::never;
      break;
    } catch (cuda_error const& error) {
      EXPECT_EQ(error.status(), status::unknown);
    }
    EXPECT_TRUE(space.is_suspended());
    EXPECT_EQ(device.outstanding, 0u);
    space.resume();
    EXPECT_TRUE(device.accessible(range.data(), 3 * unit) && device.accessible(other.data(), 2 * unit));
  }
}

TEST(cuda_virtual_memory_setups, resume_beyond_the_device_memory_throws_out_of_memory_with_numbers) {
  fake_device device{in_units(8)};
  gpu::virtual_memory space{{}, device}, other{{}, device};
  const byte_range range = space.reserve(1, 16 * unit);
  ASSERT_TRUE(space.commit(units_of(range, 0, 6)));
  space.suspend();
  const byte_range taken = other.reserve(1, 16 * unit);
  ASSERT_TRUE(other.commit(units_of(taken, 0, 5)));
  const out_of_memory error = test::caught<out_of_memory>([&] { space.resume(); });
  EXPECT_EQ(error.report().requested_bytes, 6 * unit);
  EXPECT_EQ(error.report().reserved_bytes, 16 * unit);
  EXPECT_EQ(error.report().largest_bytes, 3 * unit);
  EXPECT_TRUE(space.is_suspended());
  EXPECT_EQ(device.physical_bytes(), 5 * unit);
  other.release(taken);
  space.resume();
  EXPECT_TRUE(device.accessible(range.data(), 6 * unit));
}

// ---- random programs ----

/// Commits and decommits random parts, suspends, and makes the driver refuse calls if `refuses`. Records the
/// committed units.
class virtual_memory_model {
 public:
  static constexpr std::size_t units = 128;

  virtual_memory_model(fake_device& device, std::uint64_t seed, bool refuses)
      : device_{device},
        random_{static_cast<unsigned>(seed)},
        refuses_{refuses},
        space_{{.handle_bytes = unit << seed % 6}, device} {}

  void step() {
    if (refuses_ && below(4) == 0) device_.fail_in("cuMemUnmap", device_.count("cuMemUnmap") + below(3));
    if (refuses_ && below(8) == 0) device_.fail_in("cuMemRelease", device_.count("cuMemRelease") + below(3));
    const std::size_t first = below(units), part = run_at(first);
    switch (below(8)) {
      case 0:
        return suspend();
      case 1:
        return committed_[first] ? decommit(0, units) : commit(first, part);
      default:
        return committed_[first] ? decommit(first, 1 + below(part)) : commit(first, 1 + below(part));
    }
  }
  void check_contents() {
    std::size_t committed = 0;
    for (std::size_t i = 0; i < units; ++i) {
      if (!committed_[i]) continue;
      ++committed;
      EXPECT_TRUE(device_.accessible(units_of(range_, i, 1).data(), unit));
    }
    EXPECT_EQ(space_.held_bytes(), device_.physical_bytes());
    EXPECT_GE(space_.held_bytes(), committed * unit);
    if (committed == 0 && !refuses_) {
      EXPECT_EQ(device_.physical_bytes(), 0u);
    }
  }

  /// Frees all memory, even if the driver first refuses to free it.
  void release() {
    committed_ = {};
    space_.release(range_);
    for (int i = 0; i < 100 && device_.reserved_bytes() != 0; ++i) suspend();
    EXPECT_EQ(device_.outstanding, 0u);
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  /// Number of following units in the same state as the first unit: committed or not.
  [[nodiscard]] std::size_t run_at(std::size_t first) const {
    std::size_t last = first;
    while (last < units && committed_[last] == committed_[first]) ++last;
    return last - first;
  }
  void set(std::size_t first, std::size_t n, bool committed) {
    for (std::size_t i = first; i < first + n; ++i) committed_[i] = committed;
    check_contents();
  }
  void commit(std::size_t first, std::size_t n) {
    const std::size_t least = 1 + below(n);
    const std::size_t got = space_.commit(units_of(range_, first, n), least * unit) / unit;
    EXPECT_TRUE(got == 0 || (got >= least && got <= n));
    set(first, got, true);
  }
  void decommit(std::size_t first, std::size_t n) {
    const bool done = space_.decommit(units_of(range_, first, n));
    if (done) set(first, n, false);
    else check_contents();
  }
  void suspend() {
    try {
      space_.suspend();
      space_.resume();
    } catch (std::exception const&) {
      EXPECT_TRUE(refuses_);
    }
    EXPECT_FALSE(space_.is_suspended());
    check_contents();
  }

  fake_device& device_;
  std::minstd_rand random_;
  bool refuses_;
  gpu::virtual_memory space_;
  byte_range range_ = space_.reserve(1, units* unit);
  std::array<bool, units> committed_{};
};

TEST(cuda_virtual_memory_setups, random_programs_can_access_their_committed_memory) {
  for (const bool refuses : {false, true}) {
    test::run_for_seeds(
        [&](std::uint64_t seed, auto&& run) {
          fake_device device{in_units(100)};
          virtual_memory_model model{device, seed, refuses};
          run(model);
          model.release();
        },
        2000);
  }
}

// ---- events ----

TEST(cuda_virtual_memory_setups, thread_waits_if_the_stream_cannot_wait) {
  fake_device device{in_units()};
  const gpu::stream other{device};
  gpu::virtual_memory space{{}, device};
  const test::noting_work user{device, other};
  const gpu::event used{other, device};
  device.fail_next("cuStreamWaitEvent");
  space.wait_before_reuse(used);
  EXPECT_TRUE(user.has_run);
}

}  // namespace
}  // namespace tidemark::test
