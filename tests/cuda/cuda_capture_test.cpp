// SPDX-License-Identifier: Apache-2.0
// Strategy: captures of a fake device's stream, with host functions as work over memory that the host may
// touch. A replay thus computes real results. Then every driver call fails in turn, and the state left behind
// is checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/pool/reuse_cache.hpp>

#include "caught.hpp"
#include "fake_device.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

constexpr std::size_t four = 4;
constexpr std::size_t four_ints = four * sizeof(int);

/// The arguments of the work on the stream. They must live as long as the graph.
struct addition {
  static void set_tens(void* of) {
    auto const& [in, tens, out, factor] = *static_cast<addition*>(of);
    for (std::size_t i = 0; i < four; ++i) tens[i] = factor * static_cast<int>(i + 1);
  }
  static void add(void* of) {
    auto const& [in, tens, out, factor] = *static_cast<addition*>(of);
    for (std::size_t i = 0; i < four; ++i) out[i] = in[i] + tens[i];
  }

  int const* in;
  int* tens;
  int* out;
  int factor = 10;
};

/// One stream of a fake device, and memory that work on it can touch.
class cuda_capture : public ::testing::Test {
 protected:
  /// out = in + factor * (1, 2, 3, 4) through a temporary, `times` times.
  auto step(int factor = 10, int times = 1) {
    return [=, this](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
      for (int i = 0; i < times; ++i) {
        addition& work = *works_.emplace_back(std::make_unique<addition>());
        work = {in.as<int>().data(), static_cast<int*>(memory.allocate(four_ints)), out.as<int>().data(),
                factor};
        for (auto* const function : {&addition::set_tens, &addition::add})
          gpu::require_success(device_, "cuLaunchHostFunc", device_.launch_on_host(stream_, function, &work));
        memory.deallocate(work.tens, four_ints);
      }
    };
  }

  std::unique_ptr<graph_arena> an_arena(std::size_t of_bytes = 4 * KiB) {
    return std::make_unique<graph_arena>(of_bytes, &host_);
  }
  unique_block a_block() { return {&host_, four_ints}; }
  template <class... Arguments>
  auto capture_of(Arguments&&... arguments) {
    return capture(stream_, std::forward<Arguments>(arguments)...,
                   stream_capture_options{.driver = &device_});
  }
  auto a_graph() { return capture_of(an_arena(), a_block(), a_block(), step()); }

  /// The results of a launch with these inputs.
  template <class Graph>
  std::vector<int> replayed(Graph& graph, std::array<int, four> const& values) {
    std::copy(values.begin(), values.end(), graph.inputs().template as<int>().begin());
    graph.launch();
    device_.run(stream_);
    const std::span<int> out = graph.outputs().template as<int>();
    return {out.begin(), out.end()};
  }
  /// The stream does not capture, and a capture succeeds; all memory is back.
  void expect_as_before() {
    bool capturing = true;
    EXPECT_EQ(device_.is_capturing(stream_, capturing), gpu::status::success);
    EXPECT_FALSE(capturing);
    EXPECT_EQ(host_.outstanding, 0u);
    auto graph = a_graph();
    EXPECT_EQ(replayed(graph, {1, 2, 3, 4}), (std::vector<int>{11, 22, 33, 44}));
  }

  fake_device device_;
  recording_resource host_;
  std::vector<std::unique_ptr<addition>> works_;
  gpu::stream stream_{device_};
};

TEST_F(cuda_capture, arena_makes_no_driver_call_while_the_stream_captures) {
  unique_block out = a_block();
  auto graph = capture_of(an_arena(64 * KiB), a_block(), std::move(out),
                          [&](std::pmr::memory_resource& memory, unique_block& in, unique_block& written) {
                            const std::size_t before = host_.calls;
                            for (int i = 0; i < 100; ++i) {
                              const unique_block temporary{&memory, 256};
                              const unique_block kept{&memory, 100};
                            }
                            EXPECT_EQ(host_.calls, before);
                            EXPECT_TRUE(device_.calls_during_capture().empty());
                            step()(memory, in, written);
                          });
  EXPECT_EQ(device_.calls_during_capture(),
            (std::vector<std::string>{"cuLaunchHostFunc", "cuLaunchHostFunc"}));
}

TEST_F(cuda_capture, body_without_work_throws_empty_capture) {
  EXPECT_THROW((void)capture_of(an_arena(), 0, 0, [](std::pmr::memory_resource&, int&, int&) {}),
               empty_capture);
  EXPECT_EQ(device_.count("cuGraphDestroy"), 1u);
  expect_as_before();
}

TEST_F(cuda_capture, invalidated_or_unjoined_capture_throws_when_it_ends) {
  gpu::stream other{device_};
  gpu::event fork{device_};
  const auto wait = [&] { EXPECT_EQ(device_.synchronize(stream_.get()), gpu::status::capture_unsupported); };
  const auto fork_and_never_join = [&] {
    fork.record(stream_);
    other.wait(fork);
    EXPECT_EQ(device_.launch_on_host(other, [](void*) {}, nullptr), gpu::status::success);
  };
  for (auto const& [ending, status] :
       {std::pair<std::function<void()>, gpu::status>{wait, gpu::status::capture_invalidated},
        {fork_and_never_join, gpu::status::capture_unjoined}}) {
    const cuda_error error = test::caught<cuda_error>([&] {
      (void)capture_of(an_arena(), a_block(), a_block(),
                       [&](std::pmr::memory_resource& arena, unique_block& in, unique_block& out) {
                         step()(arena, in, out);
                         ending();
                       });
    });
    EXPECT_EQ(error.status(), status);
    EXPECT_STREQ(error.call(), "cuStreamEndCapture");
    expect_as_before();
  }
}

TEST_F(cuda_capture, rejects_a_nested_capture_of_the_same_stream) {
  auto outer = capture_of(an_arena(), a_block(), a_block(),
                          [&](std::pmr::memory_resource& arena, unique_block& in, unique_block& out) {
                            EXPECT_THROW((void)a_graph(), cuda_error);
                            step()(arena, in, out);
                          });
  EXPECT_EQ(replayed(outer, {1, 2, 3, 4}), (std::vector<int>{11, 22, 33, 44}));
}

TEST_F(cuda_capture, failed_driver_call_changes_nothing) {
  const auto capture_and_launch = [this] {
    auto graph = a_graph();
    graph.launch();
    EXPECT_EQ(graph.launch_count(), 1u);
    device_.run(stream_);
  };
  const std::size_t begun = device_.calls;
  capture_and_launch();
  const std::size_t calls = device_.calls - begun;
  EXPECT_GE(calls, 8u);
  std::size_t thrown = 0;
  for (std::size_t i = 0; i < calls; ++i) {
    SCOPED_TRACE(::testing::Message() << "call " << i << " fails");
    device_.fail_from = device_.calls + i;
    device_.failure = gpu::status::unknown;
    try {
      capture_and_launch();
    } catch (cuda_error const& error) {
      EXPECT_EQ(error.status(), gpu::status::unknown) << error.what();
      ++thrown;
    }
    device_.fail_from = supply::never;
    expect_as_before();
  }
  // Failures that are not reported: a record behind a running launch, and the calls at the end of a graph for
  // the current device and the event. The end then waits for the device.
  EXPECT_GE(thrown + 3, calls);
}

TEST_F(cuda_capture, launch_synchronizes_the_stream_if_no_event_can_be_recorded) {
  auto graph = a_graph();
  device_.fail_next("cuEventRecord", gpu::status::unknown);
  graph.launch();
  EXPECT_EQ(device_.pending(stream_), 0u);
}

TEST_F(cuda_capture, graph_destructor_synchronizes_the_device_if_event_and_stream_fail) {
  auto graph = std::make_unique<decltype(a_graph())>(a_graph());
  device_.fail_next("cuEventRecord", gpu::status::unknown);
  device_.fail_next("cuStreamSynchronize", gpu::status::unknown);
  graph->launch();
  const std::size_t before = device_.count("cuCtxSynchronize");
  graph.reset();
  EXPECT_EQ(device_.count("cuCtxSynchronize"), before + 1);
  EXPECT_EQ(device_.pending(stream_), 0u);
}

// S1.24
TEST_F(cuda_capture, a_graph_can_be_launched_on_any_stream_and_from_any_thread) {
  auto graph = a_graph();
  gpu::stream other{device_};
  std::thread{[&] {
    auto moved = std::move(graph);
    moved.launch(other);
    device_.run(other);
    EXPECT_EQ(moved.launch_count(), 1u);
    EXPECT_EQ(moved.outputs().as<int>()[3], moved.inputs().as<int>()[3] + 40);
  }}.join();
  EXPECT_FALSE(graph);
  EXPECT_THROW(graph.launch(), std::logic_error);
}

TEST_F(cuda_capture, uses_the_capture_mode_of_the_options) {
  const auto refused_elsewhere = [&](gpu::capture_mode mode) {
    bool refused = false;
    try {
      (void)capture(stream_, an_arena(), a_block(), a_block(),
                    [&](std::pmr::memory_resource& arena, unique_block& in, unique_block& out) {
                      step()(arena, in, out);
                      std::thread{[&] {
                        std::uintptr_t block = 0;
                        refused = device_.allocate(256, block) != gpu::status::success;
                        if (!refused) EXPECT_EQ(device_.free(block), gpu::status::success);
                      }}.join();
                    },
                    {.mode = mode, .driver = &device_});
    } catch (cuda_error const&) {
      EXPECT_TRUE(refused);
    }
    return refused;
  };
  EXPECT_TRUE(refused_elsewhere(gpu::capture_mode::global));
  EXPECT_FALSE(refused_elsewhere(gpu::capture_mode::thread_local_));
  EXPECT_FALSE(refused_elsewhere(gpu::capture_mode::relaxed));
}

// ---- updates ----------------------------------------------------------------------------------------------

TEST_F(cuda_capture, update_with_the_same_nodes_changes_the_executable_in_place) {
  auto graph = a_graph();
  int const* const temporary = works_.back()->tens;
  const std::size_t instantiated = device_.count("cuGraphInstantiate");
  EXPECT_TRUE(graph.update(step(100)));
  EXPECT_EQ(device_.count("cuGraphExecUpdate"), 1u);
  EXPECT_EQ(device_.count("cuGraphInstantiate"), instantiated);
  EXPECT_EQ(works_.back()->tens, temporary);
  EXPECT_EQ(device_.count("cuGraphDestroy"), 2u) << "both graphs are destroyed, and the executable stays";
  EXPECT_EQ(replayed(graph, {1, 2, 3, 4}), (std::vector<int>{101, 202, 303, 404}));
}

TEST_F(cuda_capture, update_with_different_nodes_replaces_the_executable) {
  auto graph = a_graph();
  const std::size_t instantiated = device_.count("cuGraphInstantiate");
  EXPECT_FALSE(graph.update(step(100, 2)));
  EXPECT_EQ(device_.count("cuGraphExecUpdate"), 1u);
  EXPECT_EQ(device_.count("cuGraphInstantiate"), instantiated + 1);
  EXPECT_EQ(device_.count("cuGraphExecDestroy"), 1u);
  EXPECT_EQ(replayed(graph, {1, 2, 3, 4}), (std::vector<int>{101, 202, 303, 404}));
  EXPECT_TRUE(graph.update(step(100, 2))) << "the body has the nodes of the previous update";
  EXPECT_EQ(replayed(graph, {1, 2, 3, 4}), (std::vector<int>{101, 202, 303, 404}));
}

TEST_F(cuda_capture, update_makes_a_new_executable_if_the_driver_lacks_the_update_call) {
  for (const gpu::status missing : {gpu::status::not_found, gpu::status::not_supported}) {
    auto graph = a_graph();
    device_.fail_next("cuGraphExecUpdate", missing);
    EXPECT_FALSE(graph.update(step(100)));
    EXPECT_EQ(replayed(graph, {1, 2, 3, 4}), (std::vector<int>{101, 202, 303, 404}));
  }
}

TEST_F(cuda_capture, launch_before_an_update_replays_the_earlier_capture) {
  for (const bool same_nodes : {true, false}) {
    auto graph = a_graph();
    std::ranges::fill(graph.inputs().as<int>(), 1);
    graph.launch();
    EXPECT_EQ(graph.update(step(100, same_nodes ? 1 : 2)), same_nodes);
    EXPECT_NE(device_.pending(stream_), 0u) << "an update waits for nothing";
    device_.run(stream_);
    EXPECT_EQ(graph.outputs().as<int>()[3], 41);
    graph.launch();
    device_.run(stream_);
    EXPECT_EQ(graph.outputs().as<int>()[3], 401);
  }
}

TEST_F(cuda_capture, replacing_the_executable_waits_for_a_launch_without_an_event) {
  auto graph = a_graph();
  device_.fail_next("cuEventRecord", gpu::status::unknown);
  device_.fail_next("cuStreamSynchronize", gpu::status::unknown);
  graph.launch();
  EXPECT_TRUE(graph.update(step(100)));
  EXPECT_NE(device_.pending(stream_), 0u) << "launches of one executable are ordered";
  EXPECT_FALSE(graph.update(step(100, 2)));
  EXPECT_EQ(device_.pending(stream_), 0u);
}

TEST_F(cuda_capture, throwing_update_body_leaves_the_graph_unchanged) {
  auto graph = a_graph();
  EXPECT_THROW(
      (void)graph.update([&](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
        step(100)(memory, in, out);
        throw std::runtime_error{"of the body"};
      }),
      std::runtime_error);
  EXPECT_THROW((void)graph.update([](std::pmr::memory_resource&, unique_block&, unique_block&) {}),
               empty_capture);
  EXPECT_THROW(
      (void)graph.update([&](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
        step(100)(memory, in, out);
        (void)device_.synchronize(stream_.get());
      }),
      cuda_error);
  EXPECT_EQ(device_.count("cuGraphExecUpdate"), 0u);
  EXPECT_EQ(replayed(graph, {1, 2, 3, 4}), (std::vector<int>{11, 22, 33, 44}));
  graph.arena().check_invariants();
}

TEST_F(cuda_capture, failing_driver_call_in_an_update_leaves_the_graph_unchanged) {
  for (const bool same_nodes : {true, false}) {
    std::size_t thrown = 0;
    bool is_over = false;
    for (std::size_t i = 0; !is_over; ++i) {
      ASSERT_LT(i, 100u);
      SCOPED_TRACE(::testing::Message() << "call " << i << " fails");
      auto graph = a_graph();
      const std::size_t first = device_.calls;
      device_.fail_from = first + i;
      device_.failure = gpu::status::unknown;
      try {
        (void)graph.update(step(100, same_nodes ? 1 : 2));
        is_over = device_.calls <= first + i;
        device_.fail_from = supply::never;
        EXPECT_EQ(replayed(graph, {1, 2, 3, 4}), (std::vector<int>{101, 202, 303, 404}));
      } catch (cuda_error const& error) {
        EXPECT_EQ(error.status(), gpu::status::unknown) << error.what();
        ++thrown;
        device_.fail_from = supply::never;
        EXPECT_EQ(replayed(graph, {1, 2, 3, 4}), (std::vector<int>{11, 22, 33, 44}));
      }
      graph.arena().check_invariants();
    }
    EXPECT_GE(thrown, same_nodes ? 6u : 7u);
  }
}

TEST_F(cuda_capture, update_replaces_a_graph_of_another_device) {
  auto graph = a_graph();
  fake_device another;
  {
    gpu::stream elsewhere{another};
    gpu::capture_backend backend{elsewhere, {.driver = &another}};
    auto of_another = a_graph();
    graph.launch();
    EXPECT_FALSE(of_another.update(backend, [&](std::pmr::memory_resource&, unique_block&, unique_block&) {
      EXPECT_EQ(another.launch_on_host(elsewhere, [](void*) {}, nullptr), gpu::status::success);
    }));
    EXPECT_EQ(another.count("cuGraphInstantiate"), 1u);
    of_another.launch(elsewhere);
  }
}

// ---- graphs that end, and other captures ------------------------------------------------------------------

TEST_F(cuda_capture, destroying_a_running_graph_leaves_another_streams_capture_valid) {
  for (const gpu::capture_mode mode : {gpu::capture_mode::thread_local_, gpu::capture_mode::global}) {
    auto running = std::make_unique<decltype(a_graph())>(a_graph());
    running->launch();
    EXPECT_NE(device_.pending(stream_), 0u);
    gpu::stream other{device_};
    auto captured =
        capture(other, an_arena(), a_block(), a_block(),
                [&](std::pmr::memory_resource&, unique_block&, unique_block&) {
                  running.reset();
                  EXPECT_EQ(device_.pending(stream_), 0u) << "its memory goes, so that it must have run";
                  EXPECT_EQ(device_.launch_on_host(other, [](void*) {}, nullptr), gpu::status::success);
                },
                {.mode = mode, .driver = &device_});
    EXPECT_TRUE(captured);
  }
}

TEST_F(cuda_capture, destroying_a_graph_that_was_never_launched_does_not_wait) {
  const std::size_t before = device_.count("cuEventSynchronize") + device_.count("cuCtxSynchronize");
  {
    auto graph = a_graph();
  }
  EXPECT_EQ(device_.count("cuEventSynchronize") + device_.count("cuCtxSynchronize"), before);
}

TEST_F(cuda_capture, reports_a_graph_whose_last_launch_cannot_be_awaited) {
  auto graph = std::make_unique<decltype(a_graph())>(a_graph());
  graph->launch();
  device_.run_all();
  device_.fail_next("cuEventSynchronize", gpu::status::invalid_handle);
  device_.fail_next("cuCtxSynchronize", gpu::status::invalid_context);
  const violation_recorder violations;
  graph.reset();
  EXPECT_EQ(violation_recorder::count(violation_kind::open_capture), 1u);
}

TEST(cuda_capture_devices, waits_for_a_graph_of_a_device_that_is_not_current) {
  fake_device devices{{.devices = 2}};
  ASSERT_EQ(devices.make_current(1), gpu::status::success);
  {
    gpu::stream of_1{devices};
    bool ran = false;
    recording_resource host;
    {
      auto graph = capture(of_1, std::make_unique<graph_arena>(4 * KiB, &host), 0, 0,
                           [&](std::pmr::memory_resource&, int&, int&) {
                             EXPECT_EQ(devices.launch_on_host(
                                           of_1, [](void* done) { *static_cast<bool*>(done) = true; }, &ran),
                                       gpu::status::success);
                           },
                           {.device = 1, .driver = &devices});
      ASSERT_EQ(devices.make_current(0), gpu::status::success);
      graph.launch();
      EXPECT_FALSE(ran);
    }
    EXPECT_TRUE(ran) << "before the arena's memory went";
    EXPECT_EQ(devices.current_now(), 0) << "the current device is as it was";
  }
}

TEST_F(cuda_capture, waits_for_the_fence_of_an_event_during_a_capture) {
  gpu::stream other{device_};
  bool ran = false;
  ASSERT_EQ(device_.launch_on_host(
                other, [](void* done) { *static_cast<bool*>(done) = true; }, &ran),
            gpu::status::success);
  reuse_cache cache{{.upstream = &host_}};
  cache.deallocate_after(cache.allocate(256, 256), 256, 256, gpu::event{other, device_}.as_fence());
  auto captured =
      capture_of(an_arena(), a_block(), a_block(),
                 [&](std::pmr::memory_resource& temporaries, unique_block& in, unique_block& out) {
                   cache.deallocate(cache.allocate(256, 256), 256, 256);  // queries the fence
                   EXPECT_EQ(cache.collect(true), 512u);
                   EXPECT_TRUE(ran);
                   step()(temporaries, in, out);
                 });
  EXPECT_TRUE(captured);
}

}  // namespace
}  // namespace tidemark::test
