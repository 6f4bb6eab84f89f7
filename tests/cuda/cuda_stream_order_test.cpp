// SPDX-License-Identifier: Apache-2.0
// Strategy: streams of a fake device, whose work is host functions that record their order. Each stream runs
// by itself, so that a stream without a wait runs first. Every call fails in turn. Static assertions check
// the properties of all resource types.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/epoch/epoch_resource.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/pool.hpp>
#include <tidemark/telemetry.hpp>

#include "fake_device.hpp"
#include "stream_turns.hpp"

namespace tidemark::test {
namespace {

using gpu::memory_access;
using gpu::memory_access_of;
using gpu::put_behind;
using gpu::status;
using gpu::stream_bound;

// ---- properties of types ----------------------------------------------------------------------------------

template <class... Resources>
constexpr bool have_a_stream = (stream_bound<Resources> && ...);
template <class... Resources>
constexpr bool have_no_stream = (!stream_bound<Resources> && ...);
template <memory_access Access, class... Resources>
constexpr bool are_accessed_by = ((memory_access_of<Resources> == Access) && ...);

static_assert(have_a_stream<device_arena, device_pool, device_cache, gpu::async_resource>,
              "these hand out at once what was deallocated, to work of their one stream");
static_assert(have_no_stream<arena, pool, graph_arena>,
              "memory of the host, and of a graph, is of no stream");
static_assert(
    have_no_stream<pinned_arena, managed_arena, basic_arena<gpu::device_memory>, gpu::device_resource>,
    "the driver's blocks are for the work of any stream");
static_assert(have_no_stream<std::pmr::memory_resource, statistics_resource>,
              "a resource behind an interface, or below an adaptor, may have a stream, and does not tell");

static_assert(are_accessed_by<memory_access::host, arena, borrowed_arena, upstream_arena, pool,
                              synchronized_pool, epoch_resource, test_resource>,
              "most of these write into their memory");
static_assert(are_accessed_by<memory_access::device, borrowed_device_arena, upstream_device_arena,
                              device_arena, basic_arena<gpu::device_memory>, gpu::device_resource,
                              device_pool, device_cache, gpu::async_resource>,
              "whatever these are put on, they are made for memory that the host leaves alone");
static_assert(are_accessed_by<memory_access::host_and_device, pinned_arena, managed_arena,
                              gpu::pinned_resource, gpu::managed_resource>,
              "their address spaces say so");
static_assert(are_accessed_by<memory_access::unknown, graph_arena, reuse_cache, capture_switch,
                              statistics_resource, std::pmr::memory_resource>,
              "these leave memory alone, so that it may be anybody's");

// ---- which stream -----------------------------------------------------------------------------------------

TEST(stream_of, returns_the_stream_of_a_stream_ordered_resource) {
  fake_device device;
  const gpu::stream stream{device};
  const device_arena step{{.reserve = 2 * MiB}, stream.get(), device};
  EXPECT_EQ(gpu::stream_of(step), stream.get());
}

// ---- order ------------------------------------------------------------------------------------------------

/// Two streams of a fake device, and their work.
class stream_order : public ::testing::Test {
 protected:
  [[nodiscard]] bool is_captured(gpu::stream_handle stream) {
    bool captured = false;
    EXPECT_EQ(device_.is_capturing(stream, captured), status::success);
    return captured;
  }
  void begin_capture(gpu::stream_handle stream) {
    ASSERT_EQ(device_.begin_capture(stream, gpu::capture_mode::global), status::success);
  }
  /// Expects that the capture was not disturbed: it ends with a graph of all its work.
  void expect_lives_on(gpu::stream_handle stream, std::size_t nodes) {
    gpu::graph_handle graph = nullptr;
    ASSERT_EQ(device_.end_capture(stream, graph), status::success);
    std::size_t made = 0;
    EXPECT_EQ(device_.node_count(graph, made), status::success);
    EXPECT_EQ(made, nodes);
    EXPECT_EQ(device_.destroy_graph(graph), status::success);
  }
  void expect_no_event_left() { EXPECT_EQ(device_.count("cuEventCreate"), device_.count("cuEventDestroy")); }

  fake_device device_;
  stream_turns turns_{device_};
  gpu::stream earlier_{device_};
  gpu::stream later_{device_};
};

// A.9
TEST_F(stream_order, later_work_waits_for_earlier_work) {
  turns_.put_on(earlier_, "earlier");
  ASSERT_EQ(put_behind(device_, later_, earlier_), status::success);
  turns_.put_on(later_, "later");
  device_.run(later_);
  EXPECT_EQ(turns_.taken(), (std::vector<std::string>{"earlier", "later"}));
}

TEST_F(stream_order, later_work_does_not_wait_for_work_added_after_the_order) {
  turns_.put_on(earlier_, "earlier");
  ASSERT_EQ(put_behind(device_, later_, earlier_), status::success);
  turns_.put_on(earlier_, "afterwards");
  turns_.put_on(later_, "later");
  device_.run(later_);
  EXPECT_EQ(turns_.taken(), (std::vector<std::string>{"earlier", "later"}));
  device_.run_all();
}

TEST_F(stream_order, each_failed_call_is_reported_and_leaks_no_event) {
  const std::size_t begun = device_.calls;
  ASSERT_EQ(put_behind(device_, later_, earlier_), status::success);
  const std::size_t calls = device_.calls - begun;
  EXPECT_EQ(calls, 7u) << "two capture queries, the contexts, an event, its record, the wait";
  for (std::size_t i = 0; i < calls; ++i) {
    SCOPED_TRACE(::testing::Message() << "call " << i << " fails");
    device_.fail_from = device_.calls + i;
    device_.failure = status::unknown;
    EXPECT_EQ(put_behind(device_, later_, earlier_), status::unknown);
    device_.fail_from = supply::never;
    device_.run_all();
    EXPECT_EQ(device_.pending(later_), 0u);
  }
  EXPECT_EQ(device_.count("cuEventCreate"), device_.count("cuEventDestroy") + 1) << "one event was not made";
  EXPECT_EQ(put_behind(device_, later_, earlier_), status::success);
}

TEST_F(stream_order, a_destroyed_stream_is_reported) {
  gpu::stream_handle gone = nullptr;
  {
    const gpu::stream short_lived{device_};
    gone = short_lived;
  }
  EXPECT_EQ(put_behind(device_, later_, gone), status::invalid_handle);
  EXPECT_EQ(put_behind(device_, gone, earlier_), status::invalid_handle);
  EXPECT_EQ(device_.count("cuEventCreate"), 0u);
}

// ---- captures ---------------------------------------------------------------------------------------------

// A.10
TEST_F(stream_order, order_across_a_capture_boundary_fails_and_keeps_the_capture) {
  for (auto const& [later, earlier, captured] : {std::array{later_.get(), earlier_.get(), later_.get()},
                                                 {later_.get(), earlier_.get(), earlier_.get()},
                                                 {gpu::stream_handle{}, earlier_.get(), earlier_.get()}}) {
    begin_capture(captured);
    turns_.put_on(captured, "captured");
    EXPECT_EQ(put_behind(device_, later, earlier), status::capture_isolation);
    EXPECT_EQ(is_captured(later), later == captured) << "the work is not added to the capture";
    EXPECT_EQ(device_.count("cuEventCreate"), 0u);
    expect_lives_on(captured, 1);
  }
}

TEST_F(stream_order, unknown_capture_state_fails_without_a_further_call) {
  begin_capture(earlier_);
  // As it does of the default stream while a stream that waits for that one is captured.
  device_.fail_next("cuStreamIsCapturing", status::capture_implicit);
  EXPECT_EQ(put_behind(device_, nullptr, earlier_), status::capture_implicit);
  expect_lives_on(earlier_, 0);
}

// A.10
TEST_F(stream_order, order_within_a_capture_is_captured) {
  begin_capture(earlier_);
  gpu::event_handle fork = nullptr;
  ASSERT_EQ(device_.create_event(fork), status::success);
  ASSERT_EQ(device_.record(fork, earlier_), status::success);
  ASSERT_EQ(device_.wait(later_, fork), status::success);
  turns_.put_on(later_, "of the other stream");
  // A stream that was drawn in must be joined again, which put_behind does.
  ASSERT_EQ(put_behind(device_, earlier_, later_), status::success);
  expect_lives_on(earlier_, 1);
  EXPECT_EQ(device_.destroy_event(fork), status::success);
  expect_no_event_left();
}

TEST_F(stream_order, ordering_two_captures_fails) {
  begin_capture(earlier_);
  begin_capture(later_);
  EXPECT_EQ(put_behind(device_, later_, earlier_), status::capture_merge);
  expect_no_event_left();
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device_.end_capture(earlier_, graph), status::capture_invalidated);
  EXPECT_EQ(device_.end_capture(later_, graph), status::capture_invalidated);
}

}  // namespace
}  // namespace tidemark::test
