// SPDX-License-Identifier: Apache-2.0
// Strategy: captures by a backend whose kernels are functions of the
// host, so that a replay is real and can be counted; probes that tell when each part ends; each step of a
// capture failing in turn, with the state before and after; and the host's backend, which runs at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/pool/reuse_cache.hpp>
#include <tidemark/telemetry/test_resource.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "recording_supply.hpp"
#include "replaying_backend.hpp"
#include "threaded_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

graph_stream stream_number(std::uintptr_t number) { return reinterpret_cast<graph_stream>(number); }

/// A resource that reports when its blocks are deallocated.
class noting_resource final : public detail::distinct_resource {
 public:
  noting_resource(event_log& log, std::string name) : log_{&log}, name_{std::move(name)} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return exact_.allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    log_->push_back(name_ + " ends");
    exact_.deallocate(block, bytes, align);
  }

  recording_resource exact_;
  event_log* log_;
  std::string name_;
};

/// outputs = inputs + 10 * (1, 2, 3, ...), with two temporaries that are deallocated inside the body.
auto step_on(replaying_backend& backend) {
  return [&backend](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
    const std::size_t n = in.bytes() / sizeof(float);
    auto* const tens = static_cast<float*>(memory.allocate(n * sizeof(float)));
    backend.enqueue([=] {
      for (std::size_t i = 0; i < n; ++i) tens[i] = 10 * static_cast<float>(i + 1);
    });
    auto* const sums = static_cast<float*>(memory.allocate(n * sizeof(float)));
    backend.enqueue([=, x = in.as<float>()] {
      for (std::size_t i = 0; i < n; ++i) sums[i] = x[i] + tens[i];
    });
    backend.enqueue([=, y = out.as<float>()] {
      for (std::size_t i = 0; i < n; ++i) y[i] = sums[i];
    });
    memory.deallocate(tens, n * sizeof(float));
    memory.deallocate(sums, n * sizeof(float));
  };
}

void copy_to(unique_block const& to, std::vector<float> const& values) {
  std::copy(values.begin(), values.end(), to.as<float>().begin());
}
std::vector<float> get(unique_block const& from) {
  const std::span<float> values = from.as<float>();
  return {values.begin(), values.end()};
}

struct captures : ::testing::Test {
  violation_recorder violations;
  recording_resource upstream;  // of everything
  capture_switch memory{capture_switch_options{.name = "program", .upstream = &upstream}};
  replaying_backend backend;

  std::unique_ptr<graph_arena> new_arena(std::size_t bytes = 4 * KiB) {
    return std::make_unique<graph_arena>(bytes, &upstream);
  }
  unique_block floats(std::size_t n) { return {&upstream, n * sizeof(float)}; }

  /// A capture of `step_on`.
  auto step_graph(std::size_t n, std::unique_ptr<graph_arena> arena) {
    return capture_with(backend, &memory, std::move(arena), floats(n), floats(n), step_on(backend), nullptr);
  }
  auto step_graph(std::size_t n = 4) { return step_graph(n, new_arena(1 * MiB)); }

  void expect_idle() {
    EXPECT_FALSE(backend.is_capturing());
    EXPECT_FALSE(memory.is_frozen());
    EXPECT_FALSE(memory.has_arena());
    EXPECT_EQ(memory.stats().frozen_threads, 0u);
    EXPECT_EQ(memory.stats().deferred_blocks, 0u);
    memory.check_invariants();
    EXPECT_TRUE(violation_recorder::reports().empty()) << violation_recorder::reports().front().message;
  }
  void expect_all_returned() {
    expect_idle();
    EXPECT_EQ(backend.counts().instances, 0);
    EXPECT_EQ(memory.stats().used_blocks, 0u);
    EXPECT_EQ(upstream.outstanding, 0u);
  }
};

// ---- replays ----------------------------------------------------------------------------------------------

// S1.19
TEST_F(captures, read_inputs_changed_in_place_at_each_replay) {
  auto graph = step_graph();
  EXPECT_TRUE(graph.is_replay_capable());
  copy_to(graph.outputs(), {0, 0, 0, 0});
  copy_to(graph.inputs(), {1, 2, 3, 4});
  EXPECT_EQ(get(graph.outputs()), (std::vector<float>{0, 0, 0, 0})) << "a capture records, and runs nothing";
  graph.launch();
  EXPECT_EQ(get(graph.outputs()), (std::vector<float>{11, 22, 33, 44}));
  copy_to(graph.inputs(), {5, 6, 7, 8});
  graph.launch();
  EXPECT_EQ(get(graph.outputs()), (std::vector<float>{15, 26, 37, 48}));
  EXPECT_EQ(graph.launch_count(), 2u);
}

TEST_F(captures, report_a_recursive_launch_by_the_backend) {
  std::function<void()> call = [] {};
  auto graph = capture_with(
      backend, &memory, new_arena(), floats(4), floats(4),
      [&](std::pmr::memory_resource&, unique_block&, unique_block&) { backend.enqueue([&] { call(); }); },
      nullptr);
  call = [&] {
    EXPECT_THROW(graph.launch(), std::system_error);
    EXPECT_THROW((void)graph.launch_count(), std::system_error);
  };
  graph.launch();
  EXPECT_EQ(violations.count(violation_kind::reentry), 2u);
  violation_recorder::reports().clear();
  call = [] {};
  graph.launch();
  EXPECT_EQ(graph.launch_count(), 2u);
  EXPECT_TRUE(violation_recorder::reports().empty());
}

// S1.18
TEST_F(captures, keep_their_addresses_over_1000_replays_despite_other_allocations) {
  auto graph = step_graph();
  void const *const in = graph.inputs().data(), *const out = graph.outputs().data();
  const byte_range range = graph.arena().range();
  for (int i = 0; i < 1000; ++i) {
    const auto x = static_cast<float>(i);
    copy_to(graph.inputs(), {x, 2 * x, 3 * x, 4 * x});
    // Blocks that an ordinary allocator would place at the temporaries, which the body has deallocated.
    std::vector<unique_block> others;
    for (const std::size_t bytes : {16u, 256u, 4096u}) {
      others.emplace_back(&memory, bytes);
      for (unsigned char& byte : others.back().as<unsigned char>()) byte = 0xFF;
    }
    graph.launch();
    ASSERT_EQ(get(graph.outputs()), (std::vector<float>{x + 10, 2 * x + 20, 3 * x + 30, 4 * x + 40})) << i;
    for (unique_block const& other : others) {
      EXPECT_FALSE(range.contains(reinterpret_cast<std::uintptr_t>(other.data())));
      for (const unsigned char byte : other.as<unsigned char>())
        ASSERT_EQ(byte, 0xFF) << "a replay wrote in it";
    }
  }
  EXPECT_EQ(graph.inputs().data(), in);
  EXPECT_EQ(graph.outputs().data(), out);
  EXPECT_EQ(graph.arena().range(), range);
  EXPECT_EQ(graph.arena().high_water_bytes(), 512u);
  EXPECT_EQ(graph.launch_count(), 1000u);
}

TEST_F(captures, launch_on_the_stream_of_the_capture_or_on_another) {
  auto graph =
      capture_with(backend, nullptr, new_arena(), floats(4), floats(4), step_on(backend), stream_number(8));
  graph.launch();
  EXPECT_EQ(backend.counts().last_stream, stream_number(8));
  graph.launch(stream_number(16));
  EXPECT_EQ(backend.counts().last_stream, stream_number(16));
  graph.launch();
  EXPECT_EQ(backend.counts().last_stream, stream_number(8));
}

// S1.24
TEST_F(captures, do_not_count_a_launch_that_throws) {
  auto graph = step_graph();
  graph.launch();
  backend.counts().launch_throws = true;
  EXPECT_THROW(graph.launch(), replaying_backend::launch_error);
  EXPECT_EQ(graph.launch_count(), 1u);
  backend.counts().launch_throws = false;
  graph.launch();
  EXPECT_EQ(graph.launch_count(), 2u) << "the launch can be repeated";
}

// S1.20
TEST_F(captures, free_their_memory_for_reuse_once_the_graph_has_ended) {
  reuse_cache cache{&upstream};  // reuses returned blocks at once
  capture_switch cached{&cache};
  void const* arena_begin = nullptr;
  {
    auto graph =
        capture_with(backend, &cached, std::make_unique<graph_arena>(8 * KiB, &cache),
                     unique_block{&cached, 16}, unique_block{&cached, 16}, step_on(backend), nullptr);
    arena_begin = graph.arena().range().data();
    graph.launch();
    const unique_block beside{&cached, 8 * KiB, 256};
    EXPECT_NE(beside.data(), arena_begin);
  }
  const unique_block first{&cached, 8 * KiB, 256}, second{&cached, 8 * KiB, 256};
  EXPECT_TRUE(first.data() == arena_begin || second.data() == arena_begin) << "an ordinary block now";
  for (float& value : first.as<float>()) value = 1;
  for (float& value : second.as<float>()) value = 2;
  EXPECT_EQ(first.as<float>()[2047], 1);
}

// ---- ownership --------------------------------------------------------------------------------------------

/// A graph whose parts each record their end.
auto probed_graph(event_log& log, replaying_backend& backend, capture_switch* memory,
                  std::pmr::memory_resource& arena_memory) {
  return capture_with(
      backend, memory, std::make_unique<graph_arena>(1024, &arena_memory), ending_probe{log, "inputs"},
      ending_probe{log, "outputs"},
      [&](std::pmr::memory_resource&, ending_probe&, ending_probe&) {
        if (memory != nullptr) {
          graph_arena* const arena = memory->clear_arena();
          memory->deallocate(memory->allocate(100), 100);
          memory->install_arena(*arena);
        }
        backend.enqueue([] {});
      },
      nullptr);
}

// S1.17
TEST_F(captures, end_graph_then_inputs_then_outputs_then_arena_then_baked_blocks) {
  event_log log;
  noting_resource arena_memory{log, "arena"}, other_memory{log, "baked block"};
  capture_switch own{&other_memory};
  replaying_backend noting{&log};
  {
    const auto graph = probed_graph(log, noting, &own, arena_memory);
    EXPECT_EQ(log, (event_log{"begin", "end"}));
    log.clear();
  }
  EXPECT_EQ(log, (event_log{"graph ends", "inputs ends", "outputs ends", "arena ends", "baked block ends"}));
}

// S1.18
TEST_F(captures, keep_the_addresses_of_their_parts_when_moved) {
  auto graph = step_graph();
  unique_block const* const in = &graph.inputs();
  graph_arena const* const arena = &graph.arena();
  auto moved = std::move(graph);
  EXPECT_EQ(&moved.inputs(), in);
  EXPECT_EQ(&moved.arena(), arena);
  copy_to(moved.inputs(), {1, 2, 3, 4});
  moved.launch();
  EXPECT_EQ(get(moved.outputs()), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(moved.launch_count(), 1u);
  auto const& seen = moved;
  EXPECT_EQ(&seen.inputs(), in);
  EXPECT_EQ(&seen.outputs(), &moved.outputs());
}

TEST_F(captures, throw_after_being_moved_from) {
  auto graph = step_graph();
  EXPECT_TRUE(graph);
  const auto moved = std::move(graph);
  EXPECT_FALSE(graph);
  EXPECT_TRUE(moved);
  EXPECT_THROW(graph.launch(), std::logic_error);
  EXPECT_THROW(graph.launch(nullptr), std::logic_error);
  EXPECT_THROW((void)graph.launch_count(), std::logic_error);
  EXPECT_THROW((void)graph.is_replay_capable(), std::logic_error);
  EXPECT_THROW((void)graph.inputs(), std::logic_error);
  EXPECT_THROW((void)graph.arena(), std::logic_error);
  EXPECT_STREQ(test::caught<std::logic_error>([&] { (void)std::as_const(graph).outputs(); }).what(),
               "captured_graph: it was moved from, and is empty");
}

TEST_F(captures, hold_any_movable_inputs_and_outputs) {
  using nothing = std::array<int, 0>;
  auto graph = capture_with(
      backend, &memory, new_arena(), std::make_unique<int>(7), nothing{},
      [&](std::pmr::memory_resource&, std::unique_ptr<int>& in, nothing&) {
        backend.enqueue([x = in.get()] { ++*x; });
      },
      nullptr);
  graph.launch();
  graph.launch();
  EXPECT_EQ(*graph.inputs(), 9);
  using graph_type = decltype(graph);
  static_assert(std::is_nothrow_move_constructible_v<graph_type> &&
                std::is_nothrow_move_assignable_v<graph_type>);
  static_assert(!std::is_copy_constructible_v<graph_type> && !std::is_copy_assignable_v<graph_type>);
}

// ---- layouts ----------------------------------------------------------------------------------------------

/// Allocates and deallocates, and enqueues something.
auto allocating(replaying_backend& backend, std::vector<std::pair<std::size_t, std::size_t>> requests) {
  return [&backend, requests = std::move(requests)](std::pmr::memory_resource& memory, int&, int&) {
    for (auto const& [bytes, align] : requests)
      memory.deallocate(memory.allocate(bytes, align), bytes, align);
    backend.enqueue([] {});
  };
}

// S1.23
TEST_F(captures, succeed_with_the_rehearsed_size_and_fail_with_256_bytes_less) {
  unique_block in = floats(1000), out = floats(1000);
  const graph_layout layout =
      rehearse([&](std::pmr::memory_resource& given) { step_on(backend)(given, in, out); }, &upstream);
  EXPECT_EQ(layout.bytes, 2u * 4096);
  EXPECT_THROW((void)step_graph(1000, new_arena(layout.bytes - 256)), out_of_memory);
  expect_idle();
  EXPECT_EQ(upstream.outstanding, 2u * 4000) << "inputs and outputs of the rehearsal alone";
  auto graph = step_graph(1000, new_arena(layout.bytes));
  EXPECT_EQ(graph.arena().high_water_bytes(), layout.bytes);
  auto expecting = step_graph(1000, std::make_unique<graph_arena>(layout, &upstream));
  EXPECT_EQ(expecting.arena().layout(), layout);
}

// S1.23
TEST_F(captures, throw_layout_mismatch_with_both_layouts_if_not_rehearsed) {
  using requests = std::vector<std::pair<std::size_t, std::size_t>>;
  const requests rehearsed{{300, 8}, {1000, 1024}, {10, 8}};
  int nothing = 0;
  const graph_layout layout = rehearse(
      [&](std::pmr::memory_resource& given) { allocating(backend, rehearsed)(given, nothing, nothing); });
  for (requests const& other :
       {requests{}, requests{{300, 8}, {1000, 1024}}, requests{{300, 8}, {1000, 8}, {10, 8}},
        requests{{300, 8}, {10, 1024}, {1000, 8}}, requests{{100, 8}, {1000, 1024}, {10, 8}}}) {
    try {
      (void)capture_with(
          backend, &memory,
          std::make_unique<graph_arena>(layout, &upstream, graph_arena_options{.name = "step"}), 0, 0,
          allocating(backend, other), nullptr);
      ADD_FAILURE() << other.size();
    } catch (layout_mismatch const& error) {
      EXPECT_EQ(error.expected(), layout);
      EXPECT_EQ(error.found(), rehearse([&](std::pmr::memory_resource& given) {
                  allocating(backend, other)(given, nothing, nothing);
                }));
      EXPECT_PRED2(begins_with, error.what(),
                   "capture: graph_arena 'step' was made for a rehearsal of 3 blocks in 2304 bytes, "
                   "and the capture had " +
                       std::to_string(other.size()) + " in ");
    }
    expect_all_returned();
  }
}

TEST_F(captures, accept_other_requests_with_the_rehearsed_addresses) {
  const graph_layout layout = rehearse([](std::pmr::memory_resource& given) {
    (void)given.allocate(250, 4096);
    (void)given.allocate(512);
  });
  const auto graph = capture_with(backend, nullptr, std::make_unique<graph_arena>(layout, &upstream), 0, 0,
                                  allocating(backend, {{256, 8}, {300, 8}}), nullptr);
  EXPECT_NE(graph.arena().layout(), layout) << "another alignment was asked for, and needed no other place";
  EXPECT_EQ(graph.arena().layout().hash, layout.hash);
}

// ---- on shared memory -------------------------------------------------------------------------------------

TEST_F(captures, on_shared_memory_run_in_launch_order) {
  const auto shared = std::make_shared<unique_block>(&upstream, 512, 256);
  const auto made = [&] { return step_graph(4, std::make_unique<graph_arena>(shared)); };
  auto first = made(), second = made();
  EXPECT_EQ(first.arena().range(), second.arena().range());
  for (auto* graph : {&first, &second, &first}) {
    copy_to(graph->inputs(), {1, 2, 3, 4});
    graph->launch();
    EXPECT_EQ(get(graph->outputs()), (std::vector<float>{11, 22, 33, 44}));
  }
  EXPECT_EQ(memory.stats().used_blocks, 0u) << "each block was deallocated in its own arena";
  (void)first.update(backend, step_on(backend));
  EXPECT_EQ(first.arena().stats().used_blocks + second.arena().stats().used_blocks, 0u);
  expect_idle();
}

TEST_F(captures, on_shared_memory_reject_a_block_that_outlives_the_body) {
  const auto shared = std::make_shared<unique_block>(&upstream, 4 * KiB, 256);
  EXPECT_THROW((void)capture_with(
                   backend, &memory, std::make_unique<graph_arena>(shared), 0, std::pmr::vector<int>{&memory},
                   [&](std::pmr::memory_resource& given, int&, std::pmr::vector<int>& out) {
                     out = std::pmr::vector<int>(4, 0, &given);
                     backend.enqueue([] {});
                   },
                   nullptr),
               allocator_busy);
  expect_idle();
}

// ---- updates ----------------------------------------------------------------------------------------------

/// outputs = factor * inputs, by way of one temporary.
auto times_on(replaying_backend& backend, float factor) {
  return [&backend, factor](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
    const unique_block temporary{&memory, in.bytes(), 8};
    backend.enqueue([x = in.as<float>(), products = temporary.as<float>(), factor] {
      for (std::size_t i = 0; i < x.size(); ++i) products[i] = factor * x[i];
    });
    backend.enqueue([y = out.as<float>(), products = temporary.as<float>()] {
      std::copy(products.begin(), products.end(), y.begin());
    });
  };
}

/// A graph of `step_on` that is updated, and its required state if the update fails.
struct updates : captures {
  captured_graph<unique_block, unique_block> graph = step_graph();

  std::vector<float> launched() {
    copy_to(graph.inputs(), {1, 2, 3, 4});
    copy_to(graph.outputs(), {0, 0, 0, 0});
    graph.launch();
    return get(graph.outputs());
  }
  /// An update that throws `Error` changes nothing.
  template <class Error, class Body>
  void expect_refused(Body body) {
    const graph_layout layout = graph.arena().layout();
    const std::size_t outstanding = upstream.outstanding;
    EXPECT_THROW((void)graph.update(backend, body), Error);
    backend.begin_throws = backend.end_throws = backend.end_is_null = false;
    EXPECT_EQ(graph.arena().layout(), layout);
    EXPECT_EQ(upstream.outstanding, outstanding);
    EXPECT_EQ(backend.counts().instances, 1);
    EXPECT_EQ(launched(), (std::vector<float>{11, 22, 33, 44}));
    graph.arena().check_invariants();
    expect_idle();
  }
};

TEST_F(updates, replay_the_new_body_at_the_same_addresses) {
  for (const bool in_place : {false, true}) {
    backend.updates_in_place = in_place;
    copy_to(graph.inputs(), {1, 2, 3, 4});
    graph.launch();
    const std::uint64_t launches = graph.launch_count();
    void const* first = nullptr;
    EXPECT_EQ(graph.update(backend,
                           [&](std::pmr::memory_resource& given, unique_block& in, unique_block& out) {
                             first = in.data();
                             times_on(backend, 3)(given, in, out);
                           }),
              in_place);
    EXPECT_EQ(first, graph.inputs().data());
    EXPECT_EQ(get(graph.outputs())[0], in_place ? 3 : 11) << "an update records, and runs nothing";
    EXPECT_EQ(graph.arena().high_water_bytes(), 256u) << "one temporary, at the address of the first";
    EXPECT_EQ(graph.arena().stats().allocations, 1u);
    EXPECT_EQ(graph.arena().stats().peak_blocks, 1u);
    EXPECT_EQ(launched(), (std::vector<float>{3, 6, 9, 12}));
    EXPECT_EQ(graph.launch_count(), launches + 1);
    EXPECT_EQ(backend.counts().instances, 1);
    graph.arena().check_invariants();
    expect_idle();
  }
}

TEST_F(updates, leave_the_graph_unchanged_if_they_fail) {
  const auto times = times_on(backend, 3);
  expect_refused<std::runtime_error>(
      [&](std::pmr::memory_resource& given, unique_block& in, unique_block& out) {
        times(given, in, out);
        const unique_block more{&given, 64 * KiB};
        throw std::runtime_error{"body"};
      });
  expect_refused<out_of_memory>([](std::pmr::memory_resource& given, unique_block&, unique_block&) {
    const unique_block more{&given, 2 * MiB};
  });
  expect_refused<empty_capture>([](std::pmr::memory_resource&, unique_block&, unique_block&) {});
  backend.begin_throws = true;
  expect_refused<replaying_backend::begin_error>(times);
  for (const bool in_place : {false, true}) {
    backend.updates_in_place = in_place;
    backend.end_throws = true;
    expect_refused<replaying_backend::end_error>(times);
  }
  backend.updates_in_place = false;
  backend.end_is_null = true;
  expect_refused<std::logic_error>(times);
  memory.freeze();
  EXPECT_THROW((void)graph.update(backend, times), std::logic_error);
  EXPECT_TRUE(memory.is_frozen());
  (void)memory.unfreeze();
  expect_refused<std::logic_error>(
      [&](std::pmr::memory_resource&, unique_block&, unique_block&) { (void)graph.update(backend, times); });
}

TEST_F(updates, require_the_rehearsed_layout) {
  const graph_layout layout = rehearse([](std::pmr::memory_resource& given) {
    const unique_block first{&given, 16, 8}, second{&given, 16, 8};
  });
  graph = step_graph(4, std::make_unique<graph_arena>(layout, &upstream));
  expect_refused<layout_mismatch>(times_on(backend, 3));
  EXPECT_FALSE(graph.update(backend, step_on(backend)));
  EXPECT_EQ(graph.arena().layout(), layout);
}

TEST_F(updates, keep_blocks_that_a_failed_body_left_in_the_arena) {
  void* left = nullptr;
  const auto leaving = [&](std::pmr::memory_resource& given, unique_block&, unique_block&) {
    left = given.allocate(4 * KiB);
    throw std::runtime_error{"body"};
  };
  EXPECT_THROW((void)graph.update(backend, leaving), std::runtime_error);
  EXPECT_EQ(graph.arena().stats().used_blocks, 1u);
  EXPECT_EQ(graph.arena().stats().allocations, 3u) << "two of the graph's, and this one";
  graph.arena().check_invariants();
  EXPECT_EQ(launched(), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_THROW((void)graph.update(backend, times_on(backend, 3)), allocator_busy);
  memory.deallocate(left, 4 * KiB);
  (void)graph.update(backend, times_on(backend, 3));
  EXPECT_EQ(launched(), (std::vector<float>{3, 6, 9, 12}));
  expect_idle();
}

TEST_F(updates, are_rejected_while_blocks_of_the_body_are_in_use) {
  auto kept = capture_with(
      backend, &memory, new_arena(), floats(4), std::pmr::vector<float>{&memory},
      [&](std::pmr::memory_resource& given, unique_block& x, std::pmr::vector<float>& y) {
        y = std::pmr::vector<float>(4, 0.0F, &given);
        backend.enqueue([&x, &y] { std::copy_n(x.as<float>().begin(), 4, y.begin()); });
      },
      nullptr);
  const auto body = [&](std::pmr::memory_resource&, unique_block& x, std::pmr::vector<float>& y) {
    y.resize(4);
    backend.enqueue([&x, &y] { y[0] = -x.as<float>()[0]; });
  };
  const allocator_busy error = test::caught<allocator_busy>([&] { (void)kept.update(backend, body); });
  EXPECT_EQ(error.blocks(), 1u);
  copy_to(kept.inputs(), {1, 2, 3, 4});
  kept.launch();
  EXPECT_EQ(kept.outputs()[3], 4);
  kept.outputs() = std::pmr::vector<float>{&memory};
  (void)kept.update(backend, body);
  kept.launch();
  EXPECT_EQ(kept.outputs()[0], -1);
  expect_idle();
}

TEST_F(updates, keep_blocks_that_were_in_the_arena_before_the_body) {
  auto arena = new_arena();
  graph_arena& in_graph = *arena;
  unique_block in{&in_graph, 16}, out{&in_graph, 16};
  graph = capture_with(backend, &memory, std::move(arena), std::move(in), std::move(out), step_on(backend),
                       nullptr);
  EXPECT_EQ(in_graph.high_water_bytes(), 4u * 256);
  (void)graph.update(backend, times_on(backend, 3));
  EXPECT_EQ(in_graph.high_water_bytes(), 3u * 256);
  EXPECT_EQ(in_graph.stats().used_blocks, 2u);
  EXPECT_EQ(launched(), (std::vector<float>{3, 6, 9, 12}));
  in_graph.check_invariants();
}

TEST_F(updates, release_blocks_of_the_replaced_graph_after_its_launches) {
  const auto baking = [this](std::pmr::memory_resource&, unique_block&, unique_block&) {
    graph_arena* const arena = memory.clear_arena();
    memory.deallocate(memory.allocate(100), 100);
    memory.install_arena(*arena);
    backend.enqueue([] {});
  };
  backend.updates_in_place = true;
  (void)graph.update(backend, baking);
  EXPECT_EQ(backend.counts().waits, 0) << "nothing was held before";
  EXPECT_EQ(memory.stats().deferred_blocks, 1u);
  EXPECT_THROW((void)graph.update(backend,
                                  [&](std::pmr::memory_resource& given, unique_block& in, unique_block& out) {
                                    baking(given, in, out);
                                    throw std::runtime_error{"body"};
                                  }),
               std::runtime_error);
  EXPECT_EQ(memory.stats().deferred_blocks, 1u) << "the graph's, and not what the body has taken";
  EXPECT_EQ(backend.counts().waits, 0);
  (void)graph.update(backend, times_on(backend, 3));
  EXPECT_EQ(backend.counts().waits, 1);
  EXPECT_EQ(memory.stats().deferred_blocks, 0u);
  expect_idle();
}

TEST_F(updates, require_a_backend_of_the_graph_or_of_the_caller) {
  EXPECT_THROW((void)graph.update(times_on(backend, 3)), std::logic_error);
  const auto moved = std::move(graph);
  EXPECT_THROW((void)graph.update(backend, times_on(backend, 3)), std::logic_error);
}

TEST_F(updates, allow_concurrent_launches_by_another_thread) {
  std::atomic<bool> is_over{false};
  std::latch launching{1};
  std::uint64_t launched_there = 0;
  std::thread launcher{[&] {
    do {
      graph.launch();
      ++launched_there;
      if (launched_there == 1) launching.count_down();
    } while (!is_over);
  }};
  launching.wait();
  for (int i = 0; i < 20; ++i) {
    backend.updates_in_place = i % 2 == 0;
    (void)graph.update(backend, times_on(backend, 3));
  }
  is_over = true;
  launcher.join();
  EXPECT_EQ(graph.launch_count(), launched_there);
  EXPECT_EQ(backend.counts().overlaps, 0);
  EXPECT_EQ(launched(), (std::vector<float>{3, 6, 9, 12}));
}

// ---- captures that fail -----------------------------------------------------------------------------------

/// Each step of a capture fails in turn. Its body deallocates an earlier block, allocates a block of the
/// upstream, and leaves a block in the arena that is never deallocated.
struct failing_captures : captures {
  event_log log;
  noting_resource arena_memory{log, "arena"};
  replaying_backend noting{&log};
  unique_block before{&memory, 64};
  graph_arena other{byte_range{0x1'0000'0000, 1024}};

  /// With this done at its end.
  template <class Last>
  auto capture_of(std::unique_ptr<graph_arena> arena, Last last) {
    return capture_with(
        noting, &memory, std::move(arena), ending_probe{log, "inputs"}, ending_probe{log, "outputs"},
        [&](std::pmr::memory_resource& given, ending_probe&, ending_probe&) {
          before.reset();
          (void)given.allocate(100);
          graph_arena* const installed = memory.clear_arena();
          const unique_block baked{&memory, 100};
          memory.install_arena(*installed);
          last(given);
        },
        nullptr);
  }
  template <class Last>
  auto capture_of(Last last) {
    return capture_of(std::make_unique<graph_arena>(1024, &arena_memory), last);
  }
  auto good_capture() {
    return capture_of([&](std::pmr::memory_resource&) { noting.enqueue([] {}); });
  }

  /// Expects an unchanged state, ended parts of the capture in their order, and a working next capture.
  void expect_undone(event_log calls) {
    calls.insert(calls.end(), {"inputs ends", "outputs ends", "arena ends"});
    EXPECT_EQ(log, calls);
    EXPECT_FALSE(noting.is_capturing());
    EXPECT_EQ(noting.counts().instances, 0);
    before.reset();
    expect_all_returned();
    noting.begin_throws = noting.end_throws = noting.end_is_null = false;
    {
      auto graph = good_capture();
      graph.launch();
    }
    expect_all_returned();
  }
};

// S1.16
TEST_F(failing_captures, stop_at_the_failing_step) {
  const auto expect_failure = [&]<class Error>(std::type_identity<Error>, event_log const& calls, auto last) {
    EXPECT_THROW((void)capture_of(last), Error);
    expect_undone(calls);
    log.clear();
    before = unique_block{&memory, 64};
  };
  const auto enqueue = [&](std::pmr::memory_resource&) { noting.enqueue([] {}); };
  noting.begin_throws = true;
  expect_failure(std::type_identity<replaying_backend::begin_error>{}, {"begin"}, enqueue);
  noting.end_throws = true;
  expect_failure(std::type_identity<replaying_backend::end_error>{}, {"begin", "end"}, enqueue);
  noting.end_is_null = true;
  expect_failure(std::type_identity<std::logic_error>{}, {"begin", "end"}, enqueue);
  expect_failure(std::type_identity<empty_capture>{}, {"begin", "end"}, [](std::pmr::memory_resource&) {});
  const event_log abandoned{"begin", "abandon"};
  expect_failure(std::type_identity<std::runtime_error>{}, abandoned, [&](std::pmr::memory_resource& given) {
    enqueue(given);
    throw std::runtime_error{"body"};
  });
  expect_failure(std::type_identity<out_of_memory>{}, abandoned,
                 [](std::pmr::memory_resource& given) { (void)given.allocate(1024); });
  expect_failure(std::type_identity<std::logic_error>{}, abandoned,
                 [&](std::pmr::memory_resource&) { memory.install_arena(other); });
  EXPECT_THROW((void)capture_of(std::make_unique<graph_arena>(graph_layout{.bytes = 1024, .allocations = 9},
                                                              &arena_memory),
                                enqueue),
               layout_mismatch);
  expect_undone(abandoned);
}

TEST_F(failing_captures, do_not_begin_if_the_switch_is_frozen_or_has_an_arena) {
  memory.freeze();
  EXPECT_THROW((void)good_capture(), std::logic_error);
  EXPECT_TRUE(memory.is_frozen());
  EXPECT_FALSE(memory.has_arena());
  memory.unfreeze().release();
  memory.install_arena(other);
  log.clear();
  EXPECT_THROW((void)good_capture(), std::logic_error);
  EXPECT_FALSE(memory.is_frozen());
  EXPECT_EQ(memory.clear_arena(), &other);
  expect_undone({});
}

TEST_F(failing_captures, nested_in_another_capture_leave_the_outer_capture_unchanged) {
  {
    auto graph = capture_of([&](std::pmr::memory_resource& given) {
      const std::vector<std::string> before_it = log;
      EXPECT_THROW((void)step_graph(), std::logic_error) << "of the same switch";
      EXPECT_FALSE(backend.is_capturing());
      EXPECT_TRUE(memory.is_frozen());
      EXPECT_TRUE(memory.has_arena());
      EXPECT_EQ(log, before_it);
      given.deallocate(given.allocate(10), 10);
      noting.enqueue([] {});
    });
    EXPECT_EQ(graph.arena().stats().allocations, 2u);
    graph.launch();
  }
  EXPECT_EQ(log, (event_log{"begin", "end", "graph ends", "inputs ends", "outputs ends", "arena ends"}));
  expect_all_returned();
}

TEST_F(failing_captures, without_an_arena_do_not_begin) {
  EXPECT_STREQ(test::caught<std::invalid_argument>([&] {
                 (void)capture_of(nullptr, [](std::pmr::memory_resource&) {});
               }).what(),
               "capture: the arena is null");
  EXPECT_EQ(log, (event_log{"inputs ends", "outputs ends"}));
  expect_idle();
}

/// An error whose identity matters.
struct own_error : std::runtime_error {
  explicit own_error(char const* text) : std::runtime_error{text} {}
};

// S1.22
TEST_F(captures, rethrow_the_exception_of_the_body) {
  const std::exception_ptr thrown = std::make_exception_ptr(own_error{"what the body said"});
  own_error const* object = nullptr;
  try {
    std::rethrow_exception(thrown);
  } catch (own_error const& error) {
    object = &error;
  }
  host_backend host;
  const auto expect_it = [&](auto run) {
    try {
      run([&](std::pmr::memory_resource&, int&, int&) { std::rethrow_exception(thrown); });
      ADD_FAILURE();
    } catch (own_error const& error) {
      EXPECT_EQ(&error, object) << "not a copy";
      EXPECT_STREQ(error.what(), "what the body said");
    }
    expect_all_returned();
  };
  expect_it([&](auto body) { (void)capture_with(backend, &memory, new_arena(), 0, 0, body, nullptr); });
  expect_it([&](auto body) { (void)capture_with(backend, nullptr, new_arena(), 0, 0, body, nullptr); });
  expect_it([&](auto body) { (void)capture(host, memory, new_arena(), 0, 0, body); });
  expect_it([&](auto body) { (void)capture(host, new_arena(), 0, 0, body); });
  EXPECT_THROW(
      (void)capture(host, new_arena(), 0, 0, [](std::pmr::memory_resource&, int&, int&) { throw 42; }), int);
}

// S1.16
TEST_F(captures, leak_nothing_after_any_failed_allocation) {
  test_resource failing;
  capture_switch own{&failing};
  std::size_t made = 0;
  const std::size_t failures = fail_each_allocation(failing, [&] {
    EXPECT_FALSE(own.is_frozen());
    EXPECT_FALSE(own.has_arena());
    EXPECT_FALSE(backend.is_capturing());
    const unique_block before{&own, 10};
    auto graph = capture_with(
        backend, &own, std::make_unique<graph_arena>(4 * KiB, &failing), unique_block{&failing, 16},
        unique_block{&own, 16},
        [&](std::pmr::memory_resource& given, unique_block& in, unique_block& out) {
          graph_arena* const arena = own.clear_arena();
          const unique_block first_baked{&own, 100}, second_baked{&own, 100};
          own.install_arena(*arena);
          step_on(backend)(given, in, out);
        },
        nullptr);
    graph.launch();
    ++made;
  });
  EXPECT_EQ(failures, 6u);
  EXPECT_EQ(made, 1u) << "every run but the last met a failure";
  EXPECT_EQ(own.stats().used_blocks, 0u);
  EXPECT_EQ(backend.counts().instances, 0);
}

// ---- threads ----------------------------------------------------------------------------------------------

// S1.24
TEST_F(captures, can_be_launched_by_two_threads) {
  constexpr int launches = 2000;
  auto graph = step_graph();
  copy_to(graph.inputs(), {1, 2, 3, 4});
  std::latch both_ready{2};
  const auto launch_often = [&] {
    both_ready.arrive_and_wait();
    for (int i = 0; i < launches; ++i) {
      graph.launch();
      if (i % 100 == 0) EXPECT_GT(graph.launch_count(), 0u);
    }
  };
  std::thread second{launch_often};
  launch_often();
  second.join();
  EXPECT_EQ(graph.launch_count(), 2u * launches);
  EXPECT_EQ(backend.counts().launches, 2 * launches);
  EXPECT_EQ(backend.counts().overlaps, 0) << "calls of the instance never overlap";
  EXPECT_EQ(get(graph.outputs()), (std::vector<float>{11, 22, 33, 44}));
}

// ---- on the host ------------------------------------------------------------------------------------------

struct host_captures : captures {
  host_backend host;
  int calls = 0;
  /// outputs = 2 * inputs, by way of a temporary.
  auto doubling() {
    return [this](std::pmr::memory_resource& given, std::vector<int>& in, std::vector<int>& out) {
      ++calls;
      std::pmr::vector<int> twice{&given};
      for (const int x : in) twice.push_back(2 * x);
      out.assign(twice.begin(), twice.end());
    };
  }
};

// S1.21
TEST_F(host_captures, run_the_body_immediately_and_launches_do_nothing) {
  EXPECT_FALSE(host.supports_capture());
  auto graph = capture(host, new_arena(), std::vector<int>{1, 2, 3}, std::vector<int>{}, doubling());
  EXPECT_EQ(graph.is_replay_capable(), host.supports_capture());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(graph.outputs(), (std::vector<int>{2, 4, 6}));
  EXPECT_GT(graph.arena().high_water_bytes(), 0u);
  graph.inputs() = {7};
  graph.launch();
  graph.launch(stream_number(8));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(graph.outputs(), (std::vector<int>{2, 4, 6}));
  EXPECT_EQ(graph.launch_count(), 2u) << "launches without work count too";
}

TEST_F(host_captures, run_the_body_of_an_update_immediately) {
  auto graph = capture(host, new_arena(), std::vector<int>{1, 2, 3}, std::vector<int>{}, doubling());
  const std::size_t high_water_bytes = graph.arena().high_water_bytes();
  graph.inputs() = {4, 5, 6};
  EXPECT_FALSE(graph.update(doubling()));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(graph.outputs(), (std::vector<int>{8, 10, 12}));
  EXPECT_EQ(graph.arena().high_water_bytes(), high_water_bytes);
  EXPECT_FALSE(graph.is_replay_capable());
}

TEST_F(host_captures, accept_a_temporary_backend) {
  const auto graph =
      capture(host_backend{}, new_arena(), std::vector<int>{1}, std::vector<int>{}, doubling());
  EXPECT_EQ(graph.outputs(), std::vector<int>{2});
  const auto frozen =
      capture(host_backend{}, memory, new_arena(), std::vector<int>{2}, std::vector<int>{}, doubling());
  EXPECT_EQ(frozen.outputs(), std::vector<int>{4});
}

// S1.21
TEST_F(host_captures, freeze_the_switch) {
  {
    auto graph = capture(host, memory, new_arena(), std::vector<int>{1}, std::vector<int>{},
                         [&](std::pmr::memory_resource& given, std::vector<int>& in, std::vector<int>& out) {
                           EXPECT_TRUE(memory.is_frozen());
                           const std::pmr::vector<int> through_the_switch(10, 1, &memory);
                           doubling()(given, in, out);
                         });
    EXPECT_EQ(graph.arena().stats().allocations, 2u);
    EXPECT_EQ(graph.outputs(), std::vector<int>{2});
  }
  expect_all_returned();
}

}  // namespace
}  // namespace tidemark::test
