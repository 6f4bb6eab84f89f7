// SPDX-License-Identifier: Apache-2.0
// Strategy: the fake device enforces the rules of real drivers. Captures of other threads
// continue during all calls of resources, memory of graphs stays, memory in use is not reused, and threads
// get no contexts. Then random programs use all resources, and the fake device finds every race.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/telemetry.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "fake_device.hpp"
#include "fake_failures.hpp"
#include "fake_units.hpp"
#include "other_thread.hpp"
#include "seeds.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::capture_mode;
using gpu::status;

/// Base of tests during another thread's capture in the strictest mode, or during a capture on this thread.
struct cuda_rules : ::testing::Test {
  explicit cuda_rules(std::vector<test::fake_refusal> const& refusals = test::observed_refusals())
      : device{{.granularity_bytes = unit, .touchable = true, .devices = 2, .refusals = refusals}} {}

  /// Runs `body` while another thread captures in global mode. Expects that the capture completes.
  void beside_a_global_capture(std::function<void()> const& body) {
    device.threads_meet();
    thread.run([&] { EXPECT_EQ(device.begin_capture(foreign, capture_mode::global), status::success); });
    body();
    thread.run([&] {
      gpu::graph_handle graph = nullptr;
      EXPECT_EQ(device.end_capture(foreign, graph), status::success) << "the capture was invalidated";
      if (graph != nullptr) EXPECT_EQ(device.destroy_graph(graph), status::success);
    });
  }
  /// A graph of one kernel on `stream`.
  [[nodiscard]] std::unique_ptr<graph_instance> captured() {
    gpu::capture_backend backend{stream, {.driver = &device}};
    backend.begin();
    EXPECT_EQ(device.launch_kernel(stream, {.name = "captured", .reads = {}, .writes = {}}), status::success);
    return backend.end();
  }

  fake_device device;
  gpu::stream stream{device}, other{device}, foreign{device};
  test::other_thread thread;
};

/// The same on a driver that refuses more.
struct cuda_rules_of_a_stricter_driver : cuda_rules {
  cuda_rules_of_a_stricter_driver() : cuda_rules{test::stricter_refusals()} {}
};

// 1
TEST_F(cuda_rules, graph_ended_during_a_foreign_capture_is_destroyed_after_the_capture) {
  std::unique_ptr<graph_instance> graph = captured();
  gpu::capture_backend own{other, {.mode = capture_mode::global, .driver = &device}};
  own.begin();
  graph.reset();
  EXPECT_EQ(device.count("cuGraphExecDestroy"), 0u) << "the call would have invalidated the capture";
  EXPECT_EQ(device.retired().size(), 1u);
  EXPECT_EQ(device.launch_kernel(other, {.name = "k", .reads = {}, .writes = {}}), status::success);
  const std::unique_ptr<graph_instance> made = own.end();
  EXPECT_EQ(device.count("cuGraphExecDestroy"), 1u);
  EXPECT_EQ(device.retired().size(), 0u);
}

TEST_F(cuda_rules_of_a_stricter_driver, retries_an_executable_whose_destruction_a_capture_refused) {
  std::unique_ptr<graph_instance> first = captured(), second = captured();
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(foreign, capture_mode::global), status::success);
  first.reset();
  EXPECT_EQ(device.end_capture(foreign, graph), status::capture_invalidated)
      << "no call reports captures of other threads";
  EXPECT_EQ(device.retired().size(), 1u);
  second.reset();
  EXPECT_EQ(device.retired().size(), 0u);
}

TEST(cuda_retired_executables, capture_waits_for_a_destruction_in_progress) {
  struct slow_driver final : gpu::driver {
    status destroy_executable(gpu::executable_handle) noexcept override {
      begun.count_down();
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      is_done = true;
      return status::success;
    }
    std::latch begun{1};
    std::atomic<bool> is_done = false;
  } driver;
  driver.retired().reserve_one();
  const std::jthread ending{
      [&] { driver.retired().retire(driver, reinterpret_cast<gpu::executable_handle>(&driver)); }};
  driver.begun.wait();
  driver.retired().capture_begins();
  EXPECT_TRUE(driver.is_done);
  driver.retired().capture_ended(driver);
}

// 2
TEST_F(cuda_rules, launch_on_a_capturing_stream_throws_and_the_capture_stays_valid) {
  const std::unique_ptr<graph_instance> graph = captured();
  in_capture(device, other, capture_mode::relaxed, [&] {
    const cuda_error error = test::caught<cuda_error>([&] { graph->launch(other); });
    EXPECT_NE(std::string{error.what()}.find("capturing"), std::string::npos) << error.what();
  });
}

// 3
struct cuda_rules_of_each_driver : cuda_rules, ::testing::WithParamInterface<std::string> {
  cuda_rules_of_each_driver()
      : cuda_rules{GetParam() == "observed" ? test::observed_refusals() : test::stricter_refusals()} {}
};
INSTANTIATE_TEST_SUITE_P(each, cuda_rules_of_each_driver, ::testing::Values("observed", "stricter"),
                         [](auto const& which) { return which.param; });

// Operations that the random program does not perform.
TEST_P(cuda_rules_of_each_driver, resources_keep_captures_of_other_threads_valid) {
  beside_a_global_capture([&] {
    gpu::virtual_memory space{{.stream = stream}, device};
    const byte_range range = space.reserve(1, 4 * unit);
    EXPECT_TRUE(space.commit(range));
    EXPECT_TRUE(space.decommit(range));
    space.release(range);
    gpu::memory_pool pool{{}, device};
    pool.trim(0);
    gpu::pinned_resource pinned{{}, device};
    pinned.deallocate(pinned.allocate(1000), 1000);
    pinned_arena staging{{.reserve = unit}, 64 * KiB, device};
    (void)staging.allocate(100);
    const gpu::stream made{device};
    EXPECT_EQ(gpu::put_behind(device, made, stream), status::success);
  });
}

// 5
TEST_F(cuda_rules, cache_keeps_legacy_stream_blocks_until_the_stream_can_be_queried) {
  gpu::stream_handle const blocking = device.create_blocking_stream();
  {
    device_cache cache{{.stream = stream}, device};
    void* const block = cache.allocate(unit);
    stream.synchronize();
    device.write(nullptr, block, unit);
    in_capture(device, blocking, capture_mode::thread_local_, [&] {
      cache.deallocate(block, unit, 256, nullptr);
      EXPECT_EQ(cache.release_captured(), 0u);
      EXPECT_EQ(cache.stats().used_bytes, unit);
    });
    EXPECT_EQ(cache.collect(), 0u) << "its work has not run";
    EXPECT_EQ(cache.stats().pending_bytes, unit);
    device.run_all();
    EXPECT_EQ(cache.collect(), unit);
  }
  EXPECT_EQ(device.destroy_stream(blocking), status::success);
}

// 6
TEST_F(cuda_rules, earlier_block_freed_in_a_capture_lives_as_long_as_the_graph) {
  device_cache cache{{.stream = stream}, device};
  capture_switch memory{&cache};
  gpu::device_resource plain{{}, device};
  void* const block = memory.allocate(unit, 256);
  {
    auto graph = capture(stream, memory, std::make_unique<graph_arena>(unit, &plain), 0, 0,
                         [&](std::pmr::memory_resource& of_body, int, int) {
                           device.write(stream, block, unit, "captured");
                           of_body.deallocate(block, unit, 256);
                         },
                         {.driver = &device});
    EXPECT_EQ(cache.stats().used_bytes, unit);
    void* const meanwhile = memory.allocate(unit, 256);
    EXPECT_NE(meanwhile, block);
    graph.launch();
    memory.deallocate(meanwhile, unit, 256);
  }
  EXPECT_EQ(cache.stats().used_bytes, 0u);
}

// 7
/// A body of `kernels` kernels that write all of the arena's memory.
auto kernels_on(fake_device& device, gpu::stream_handle stream, int kernels, std::size_t bytes = unit) {
  return [&device, stream, kernels, bytes](std::pmr::memory_resource& memory, int, int) {
    const unique_block temporary{&memory, bytes, 256};
    for (int i = 0; i < kernels; ++i) device.write(stream, temporary.data(), bytes, "of the graph");
  };
}

TEST_F(cuda_rules, update_during_a_launch_is_ordered_before_the_next_launch) {
  gpu::device_resource plain{{}, device};
  auto graph = capture(stream, std::make_unique<graph_arena>(unit, &plain), 0, 0,
                       kernels_on(device, stream, 1), {.driver = &device});
  for (int kernels : {1, 2, 2, 1}) {
    graph.launch();
    (void)graph.update(kernels_on(device, stream, kernels));
    graph.launch(other);  // the fake reports a race if it may overlap with the one before
  }
  EXPECT_NE(device.pending(stream), 0u) << "nothing was waited for";
}

TEST_F(cuda_rules, update_returns_blocks_of_the_replaced_graph_after_its_launches) {
  gpu::device_resource plain{{}, device};  // frees at once
  capture_switch memory{&plain};
  for (int kernels : {1, 2}) {
    void* const block = memory.allocate(unit, 256);
    auto graph = capture(stream, memory, std::make_unique<graph_arena>(unit, &plain), 0, 0,
                         [&](std::pmr::memory_resource& of_body, int, int) {
                           device.write(stream, block, unit, "captured");
                           of_body.deallocate(block, unit, 256);
                         },
                         {.driver = &device});
    graph.launch();
    EXPECT_EQ(plain.stats().used_blocks, 2u);
    EXPECT_EQ(graph.update(kernels_on(device, stream, kernels)), kernels == 1);
    EXPECT_EQ(plain.stats().used_blocks, 1u);
  }
}

TEST_F(cuda_rules, update_in_place_leaves_a_capture_of_another_thread_valid) {
  gpu::device_resource plain{{}, device};
  auto graph = capture(stream, std::make_unique<graph_arena>(unit, &plain), 0, 0,
                       kernels_on(device, stream, 1), {.driver = &device});
  // The body's own work is a matter of the capture: in relaxed mode, as the library's calls are.
  beside_a_global_capture([&] { EXPECT_TRUE(graph.update(kernels_on(device, stream, 1))); });
}

TEST_F(cuda_rules, graphs_on_shared_memory_must_be_launched_in_order) {
  gpu::device_resource plain{{}, device};
  auto shared = std::make_shared<unique_block>(&plain, unit, 256);
  const auto graph_on = [&](gpu::stream_handle on) {
    return capture(on, std::make_unique<graph_arena>(shared), 0, 0, kernels_on(device, on, 1),
                   {.driver = &device});
  };
  auto first = graph_on(stream), second = graph_on(other);
  EXPECT_EQ(plain.stats().used_bytes, unit) << "both graphs have one block";
  shared.reset();
  first.launch();
  second.launch(stream);  // one stream
  EXPECT_EQ(gpu::put_behind(device, other, stream), status::success);
  first.launch(other);
  second.launch();
  const std::string race = failures_of([&] { first.launch(); });
  EXPECT_NE(race.find("race: 'of the graph' writes"), std::string::npos)
      << "the stream alone does not order the work";
}

TEST_F(cuda_rules, single_stream_resources_reject_the_per_thread_stream) {
  gpu::memory_pool const pool{{}, device};
  gpu::stream_handle const own = gpu::per_thread_stream;
  const std::function<void()> makers[] = {
      [&] { device_cache{{.stream = own}, device}; },
      [&] { device_pool{{.stream = own}, device}; },
      [&] { gpu::virtual_memory{{.stream = own}, device}; },
      [&] { gpu::async_resource{{.pool = pool, .stream = own}, device}; },
  };
  for (auto const& make : makers) {
    const std::invalid_argument refusal = test::caught<std::invalid_argument>([&] { make(); });
    EXPECT_NE(std::string{refusal.what()}.find("cudaStreamPerThread"), std::string::npos) << refusal.what();
  }
}

TEST_F(cuda_rules, legacy_stream_has_two_handles_and_per_thread_stream_differs) {
  device_cache cache{{.stream = nullptr}, device};
  cache.deallocate(cache.allocate(unit), unit, 256, gpu::legacy_stream);
  EXPECT_EQ(cache.stats().pending_bytes, 0u);
  EXPECT_EQ(gpu::put_behind(device, nullptr, gpu::legacy_stream), status::success);
  EXPECT_EQ(device.count("cuEventCreate"), 0u);
  void* const block = cache.allocate(unit);
  device.write(gpu::per_thread_stream, block, unit);
  cache.deallocate(block, unit, 256, gpu::per_thread_stream);
  EXPECT_EQ(cache.stats().pending_bytes, unit);
}

TEST_F(cuda_rules, pool_returns_plain_blocks_only_after_the_capture_of_its_stream) {
  gpu::device_resource plain{{}, device};
  device_pool pool{{.stream = stream, .upstream = &plain}, device};
  void* const small = pool.allocate(1000);
  void* const large = pool.allocate(4 * MiB);  // a separate chunk
  pool.deallocate(small, 1000);
  in_capture(device, stream, capture_mode::thread_local_, [&] {
    EXPECT_GT(pool.trim(), 0u);
    pool.deallocate(large, 4 * MiB);
    EXPECT_GT(pool.trim(), 0u);
    EXPECT_EQ(plain.stats().used_blocks, 2u);
  });
  pool.deallocate(pool.allocate(1000), 1000);
  (void)pool.trim();
  EXPECT_EQ(plain.stats().used_blocks, 0u);
}

TEST_F(cuda_rules, pool_destroyed_during_a_capture_reports_the_lost_bytes) {
  const test::violation_recorder violations;
  gpu::device_resource plain{{}, device};
  tracking_resource chunks{&plain};
  auto pool =
      std::make_unique<device_pool>(device_pool_options{.stream = stream, .upstream = &chunks}, device);
  void* const block = pool->allocate(700);
  device.write(stream, block, 700);
  in_capture(device, stream, capture_mode::thread_local_, [&] {
    pool.reset();
    EXPECT_EQ(violations.count(violation_kind::open_capture), 1u);
    EXPECT_EQ(plain.stats().used_blocks, 1u) << "work may use it";
  });
  stream.synchronize();
  for (live_block const& lost : chunks.leaks())
    chunks.deallocate(const_cast<void*>(lost.address), lost.bytes, lost.align);
}

TEST_F(cuda_rules, stream_ordered_upstream_receives_memory_without_a_wait) {
  device_cache below{{.stream = stream}, device};
  device_pool pool{{.stream = stream, .upstream = &below}, device};
  void* const block = pool.allocate(1000);
  device.write(stream, block, 1000);
  pool.deallocate(block, 1000);
  EXPECT_EQ(device.count("cuStreamSynchronize"), 0u);
  EXPECT_EQ(pool.upstream_resource(), &below);
}

// 9
TEST(cuda_contexts, thread_without_a_chosen_device_gets_no_context_of_device_0) {
  fake_device device{{.granularity_bytes = unit, .devices = 2}};
  EXPECT_EQ(device.make_current(1), status::success);
  {
    const gpu::stream stream{device};
    device_cache cache{{.stream = stream, .device = 1}, device};
    device_pool pool{{.stream = stream, .device = 1}, device};
    device_arena arena{
        {.reserve = 4 * unit}, gpu::virtual_memory_options{.device = 1, .stream = stream}, device};
    std::thread{[&] {
      cache.deallocate(cache.allocate(1000), 1000);
      pool.deallocate(pool.allocate(1000), 1000);
      (void)arena.allocate(1000);
      pool.release_thread_ownership();
      arena.release_thread_ownership();
      gpu::context_handle context = nullptr;
      EXPECT_EQ(device.current_context(context), status::success);
      EXPECT_EQ(context, nullptr) << "the context is unchanged";
    }}.join();
  }
  EXPECT_EQ(device.contexts(), (std::set<gpu::device_number>{1}));
}

// 10
TEST_F(cuda_rules, legacy_stream_resources_keep_a_blocking_streams_capture_valid) {
  const test::warning_recorder warnings;
  gpu::stream_handle const blocking = device.create_blocking_stream();
  {
    device_cache cache{{.stream = nullptr}, device};
    void* const block = cache.allocate(unit);
    device_cache of_other{{.stream = other}, device};
    void* const used_there = of_other.allocate(unit);
    device_arena arena{{.reserve = 4 * unit}, gpu::virtual_memory_options{}, device};
    (void)arena.allocate(100);
    gpu::memory_pool pool{{}, device};
    gpu::async_resource async{{.pool = pool, .stream = nullptr}, device};
    void* const of_driver = async.allocate(1000);
    in_capture(device, blocking, capture_mode::relaxed, [&] {
      cache.deallocate(block, unit);
      EXPECT_EQ(cache.collect(true), 0u);
      of_other.deallocate(used_there, unit, 256, nullptr);
      arena.reset();
      arena.trim(0);
      EXPECT_THROW(arena.suspend(), cuda_error);
      EXPECT_NE(gpu::put_behind(device, other, nullptr), status::success);
      async.deallocate(of_driver, 1000);
      EXPECT_EQ(warnings.count(warning_kind::refused_return), 1u) << "the free cannot wait";
    });
    EXPECT_EQ(device.free_async(reinterpret_cast<std::uintptr_t>(of_driver), nullptr), status::success);
  }
  EXPECT_EQ(device.destroy_stream(blocking), status::success);
}

// 14
TEST_F(cuda_rules, fatal_device_errors_end_waits_and_a_forked_child_reports_nothing) {
  for (status error : {status::contained, status::client_terminated}) {
    EXPECT_TRUE(gpu::detail::shows_end_of_work(error)) << device.error_name(error);
  }
  EXPECT_STREQ(device.error_name(status::contained), "CUDA_ERROR_CONTAINED");
  EXPECT_STREQ(device.error_name(status::client_terminated), "CUDA_ERROR_MPS_CLIENT_TERMINATED");
  const test::warning_recorder warnings;
  const test::violation_recorder violations;
  {
    const std::unique_ptr<graph_instance> graph = captured();
    graph->launch(stream);
    device.lose(status::not_initialized);  // as in a child
  }
  static auto* const parent = new fake_device;  // never destroyed: no process frees its memory
  {
    const gpu::stream own{*parent};
    device_cache cache{{.stream = own}, *parent};
    device_pool pool{{.stream = own}, *parent};
    cache.deallocate(cache.allocate(1000), 1000);
    pool.deallocate(pool.allocate(1000), 1000);
    parent->lose(status::not_initialized);
  }
  EXPECT_EQ(warnings.reports().size(), 0u);
  EXPECT_EQ(violations.reports().size(), 0u);
  device.recover();
}

TEST_F(cuda_rules, memory_of_a_lost_device_is_returned_without_reports) {
  const test::warning_recorder warnings;
  const test::violation_recorder violations;
  {
    device_pool pool{{.stream = stream}, device};
    device_cache cache{{.stream = stream}, device};
    device_arena arena{{.reserve = 4 * unit}, gpu::virtual_memory_options{.stream = stream}, device};
    void* const of_pool = pool.allocate(1000);
    void* const of_cache = cache.allocate(1000);
    stream.synchronize();
    device_arena::scope scope{arena};
    (void)arena.allocate(1000);
    device.lose(status::illegal_address);
    pool.deallocate_after(of_pool, 1000, 256, other);
    EXPECT_EQ(pool.stats().used_blocks, 0u);
    cache.deallocate(of_cache, 1000, 256, other);
    EXPECT_EQ(cache.stats().used_bytes, 0u);
    scope.end_after(other);
    EXPECT_EQ(arena.stats().used_bytes, 0u);
    device.recover();
    device.run_all();
  }
  EXPECT_EQ(warnings.reports().size(), 0u);
  EXPECT_EQ(violations.reports().size(), 0u);
}

TEST_F(cuda_rules, exportable_memory_is_requested_with_its_handle_type) {
  gpu::virtual_memory space{
      {.stream = stream, .exported_as = gpu::handle_type::fabric, .gpu_direct_rdma = true}, device};
  EXPECT_TRUE(space.commit(space.reserve(1, 4 * unit)));
  EXPECT_EQ(device.last_wanted(), gpu::memory_properties(0, gpu::handle_type::fabric, true));
  const gpu::memory_pool pool{{.device = 1, .exported_as = gpu::handle_type::file_descriptor}, device};
  EXPECT_EQ(device.last_wanted(), gpu::memory_properties(1, gpu::handle_type::file_descriptor));
  const gpu::memory_pool plain{{}, device};
  EXPECT_EQ(device.last_wanted(), gpu::memory_properties(0));
}

// ---- random programs --------------------------------------------------------------------------------------

/// Allocates, uses and frees blocks of every resource on several streams by their contracts, in scopes,
/// planned steps, epochs and graphs. Beside it others capture in mode global.
class random_program {
 public:
  explicit random_program(std::uint64_t seed)
      : random_{seed},
        device_{{.capacity_bytes = 1 * GiB,
                 .granularity_bytes = unit,
                 .touchable = true,
                 .refusals = seed % 2 == 0 ? test::observed_refusals() : test::stricter_refusals()}} {}

  random_program(random_program const&) = delete;
  random_program& operator=(random_program const&) = delete;
  ~random_program() {
    if (is_capturing()) end_capture();
    end_graph();
    end_graph_of_own();
    while (!live_.empty()) free_one(0);
    arena_.reset();
    EXPECT_EQ(device_.synchronize(), status::success);
    for (gpu::stream_handle each : blocking_) EXPECT_EQ(device_.destroy_stream(each), status::success);
  }

  [[nodiscard]] std::size_t refusals() const { return refusals_; }

  void step() {
    act();
    EXPECT_EQ(device_.budget(0).held_bytes(), device_.used_bytes())
        << "the budget counts other memory than is held";
  }
  void act() {
    using self = random_program;
    static constexpr void (self::* acts[])() = {
        &self::allocate,          &self::allocate,          &self::allocate,     &self::use_on_own,
        &self::use_on_own,        &self::free_any,          &self::free_any,     &self::use_on_another,
        &self::in_scope,          &self::return_memory,     &self::run_a_stream, &self::planned_step,
        &self::in_epoch,          &self::use_graph,         &self::use_graph,    &self::use_graph_of_own,
        &self::on_another_thread, &self::capture_elsewhere, &self::step_of_pools};
    (this->*acts[below(std::size(acts))])();
  }
  void check_contents() {
    cache_.check_invariants();
    pool_.check_invariants();
    plain_pool_.check_invariants();
    plain_cache_.check_invariants();
    stacked_.check_invariants();
    pools_.check_invariants();
  }

 private:
  enum class source { cache, plain_cache, stacked, pool, plain_pool, async, streams, count };
  struct block {
    source from;
    void* first;
    std::size_t bytes;
    std::set<gpu::stream_handle> used_on;  // other than the resources' stream
  };

  std::size_t below(std::size_t n) { return random_() % n; }
  // Not the legacy stream beside a capture of a blocking one, which any work on it would end.
  [[nodiscard]] gpu::stream_handle others() { return others_[below(capturing_ == blocking_[1] ? 4 : 5)]; }
  [[nodiscard]] bool is_capturing() const { return capturing_ != nullptr; }

  void allocate() {
    if (live_.size() > 40) return free_any();
    const auto from = static_cast<source>(below(static_cast<std::size_t>(source::count)));
    const std::size_t bytes = std::size_t{256} << below(9);
    if (below(8) == 0)
      device_.budget(0).set_limit(device_.budget(0).held_bytes() / (below(4) + 1) + below(2 * unit));
    try {
      live_.push_back({from, resource(from).allocate(bytes, 256), bytes, {}});
      use(stream_, live_.back(), true);
    } catch (out_of_memory const&) {
      ++refusals_;
    }
    device_.budget(0).set_limit(gpu::device_budget::unlimited);
  }
  void use(gpu::stream_handle on, block const& what, bool writes) {
    const byte_range range{reinterpret_cast<std::uintptr_t>(what.first), what.bytes};
    test::fake_kernel kernel{.name = "program", .reads = {}, .writes = {}};
    (writes ? kernel.writes : kernel.reads).push_back(range);
    EXPECT_EQ(device_.launch_kernel(on, kernel), status::success);
  }
  void use_on_own() {
    if (live_.empty()) return;
    block const& what = live_[below(live_.size())];
    if (what.used_on.empty()) use(stream_, what, below(2) == 0);
  }
  // The program orders its own work: the stream comes behind the resources' stream before it uses a block.
  void use_on_another() {
    if (live_.empty()) return;
    block& what = live_[below(live_.size())];
    gpu::stream_handle const on = others();
    if (!what.used_on.empty() && !what.used_on.contains(on)) return;
    EXPECT_EQ(gpu::put_behind(device_, on, stream_), status::success);
    use(on, what, true);
    what.used_on.insert(on);
  }
  void free_any() {
    if (!live_.empty()) free_one(below(live_.size()));
  }
  void free_one(std::size_t index) {
    const block gone = live_[index];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    if (gone.used_on.empty()) return resource(gone.from).deallocate(gone.first, gone.bytes, 256);
    gpu::stream_handle const on = *gone.used_on.begin();
    if (gone.from == source::cache) return cache_.deallocate(gone.first, gone.bytes, 256, on);
    if (gone.from == source::plain_cache) return plain_cache_.deallocate(gone.first, gone.bytes, 256, on);
    if (gone.from == source::stacked) return stacked_.deallocate(gone.first, gone.bytes, 256, on);
    if (gone.from == source::streams) return pools_.deallocate(gone.first, gone.bytes, 256, on);
    // Beside that capture only a cache can hold the block until later.
    if (on == nullptr && capturing_ == blocking_[1]) return live_.push_back(gone);
    const auto deallocate = [&](auto& from) {
      if (below(2) == 0) return from.deallocate_after(gone.first, gone.bytes, 256, on);
      const gpu::event point{on, device_};
      from.deallocate_after(gone.first, gone.bytes, 256, point);
    };
    if (gone.from == source::async) return deallocate(async_);
    deallocate(gone.from == source::pool ? pool_ : plain_pool_);
  }
  void run_a_stream() { device_.run(below(2) == 0 ? stream_.get() : others()); }
  void in_scope() {
    device_arena::scope scope{arena_};
    const std::size_t bytes = std::size_t{1000} << below(9);
    const block part{source::count, arena_.allocate(bytes), bytes, {}};
    use(stream_, part, true);
    if (below(2) == 0) return;
    gpu::stream_handle const on = others();
    EXPECT_EQ(gpu::put_behind(device_, on, stream_), status::success);
    use(on, part, true);
    if (below(2) == 0) return scope.end_after(on);
    const gpu::event point{on, device_};
    scope.end_after(point);
  }
  void step_of_pools() { below(4) == 0 ? pools_.end_step() : pools_.begin_step(below(2)); }
  // Steps of two kinds, so that plans are made and dropped.
  void planned_step() {
    const device_planned_arena::step step{planned_};
    const std::size_t bytes = below(8) == 0 ? 3 * unit : unit;
    std::vector<block> blocks;
    for (int i = 0; i < 5; ++i) {
      blocks.push_back({source::count, planned_.allocate(bytes, 256), bytes, {}});
      use(stream_, blocks.back(), true);
      if (i >= 2) planned_.deallocate(blocks[blocks.size() - 3].first, bytes, 256);
    }
    for (std::size_t i = 3; i < 5; ++i) planned_.deallocate(blocks[i].first, bytes, 256);
  }
  void in_epoch() {
    const epoch step{epochs_};
    for (std::size_t i = below(4) + 1; i > 0; --i) {
      const std::size_t bytes = std::size_t{256} << below(6);
      const block part{source::count, epochs_.allocate(bytes, 256), bytes, {}};
      use(stream_, part, true);
      if (below(3) == 0) epochs_.deallocate(part.first, bytes, 256);
    }
  }
  void use_graph() {
    if (graph_ == nullptr) return capture_graph();
    if (below(4) == 0) return end_graph();
    if (below(4) == 0) return update_graph();
    EXPECT_EQ(gpu::put_behind(device_, graph_stream_, stream_), status::success);
    graph_->launch();
  }
  // The graph's work uses memory of its own arena, and an older block, which it may free.
  void capture_graph() {
    const std::size_t bytes = std::size_t{256} << below(8);
    const block before{source::count, switch_.allocate(bytes, 256), bytes, {}};
    const bool frees_inside = below(2) == 0;
    graph_ = std::make_unique<captured_graph<int, int>>(
        capture(graph_stream_, switch_, std::make_unique<graph_arena>(4 * unit, &plain_), 0, 0,
                [&](std::pmr::memory_resource& memory, int, int) {
                  const block in_arena{source::count, memory.allocate(unit, 256), unit, {}};
                  use(graph_stream_, in_arena, true);
                  use(graph_stream_, before, true);
                  memory.deallocate(in_arena.first, unit, 256);
                  if (frees_inside) memory.deallocate(before.first, bytes, 256);
                },
                {.driver = &device_}));
    if (!frees_inside) used_by_graph_ = before;
  }
  // Other work, of the same nodes or of others, while launches run. May destroy an executable, as the next.
  void update_graph() {
    if (is_capturing()) return;
    (void)graph_->update([&](std::pmr::memory_resource& memory, int, int) {
      for (std::size_t i = below(3) + 1; i > 0; --i) {
        const std::size_t bytes = std::size_t{256} << below(8);
        const block in_arena{source::count, memory.allocate(bytes, 256), bytes, {}};
        use(graph_stream_, in_arena, true);
        memory.deallocate(in_arena.first, bytes, 256);
      }
    });
  }
  // Waits for the graph's launches. Skipped during captures of others, which no call reports: see above.
  void end_graph() {
    if (is_capturing()) return;
    graph_.reset();
    if (used_by_graph_.bytes != 0) switch_.deallocate(used_by_graph_.first, used_by_graph_.bytes, 256);
    used_by_graph_.bytes = 0;
  }
  // A capture of the resources' own stream. Its work uses memory of the caches, and returns it inside.
  void use_graph_of_own() {
    if (graph_of_own_ == nullptr) return capture_own();
    if (below(4) == 0) return end_graph_of_own();
    EXPECT_EQ(device_.launch(graph_of_own_, stream_), status::success);
  }
  void capture_own() {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device_.begin_capture(stream_, capture_mode::thread_local_), status::success);
    for (std::size_t i = below(4) + 1; i > 0; --i) {
      device_cache& from = below(2) == 0 ? cache_ : plain_cache_;
      const std::size_t bytes = std::size_t{256} << below(9);
      try {
        const block part{source::count, from.allocate(bytes), bytes, {}};
        use(stream_, part, true);
        from.deallocate(part.first, bytes, 256, stream_);
      } catch (out_of_memory const&) {  // nothing is ready, and the memory would be the graph's
      }
    }
    (void)pool_.trim(below(unit));
    (void)plain_pool_.trim();
    EXPECT_EQ(device_.end_capture(stream_, graph), status::success) << "the program has invalidated it";
    EXPECT_EQ(device_.instantiate(graph, graph_of_own_), status::success);
    EXPECT_EQ(device_.destroy_graph(graph), status::success);
  }
  void end_graph_of_own() {
    if (graph_of_own_ == nullptr || is_capturing()) return;
    EXPECT_EQ(device_.destroy_executable(graph_of_own_), status::success);
    graph_of_own_ = nullptr;
    (void)cache_.release_captured();
    (void)plain_cache_.release_captured();
  }
  // Locks order the work of the threads, so the device treats the threads as having met.
  void on_another_thread() {
    device_.threads_meet();
    std::thread{[&] {
      for (device_cache* from : {&cache_, &plain_cache_}) {
        const std::size_t bytes = std::size_t{256} << below(9);
        const block part{source::count, from->allocate(bytes), bytes, {}};
        use(stream_, part, true);
        EXPECT_EQ(gpu::put_behind(device_, gpu::per_thread_stream, stream_), status::success);
        use(gpu::per_thread_stream, part, true);
        from->deallocate(part.first, bytes, 256, gpu::per_thread_stream);
      }
    }}.join();
    device_.threads_meet();
  }
  void return_memory() {
    const std::function<void()> ways[] = {[&] { (void)cache_.collect(below(2) == 0); },
                                          [&] { (void)plain_cache_.collect(below(2) == 0); },
                                          [&] { (void)pool_.trim(below(unit)); },
                                          [&] { (void)plain_pool_.trim(); },
                                          [&] { (void)pools_.trim(); },
                                          [&] { (void)arena_.trim(0); },
                                          [&] { arena_.suspend(), arena_.resume(); }};
    ways[below(std::size(ways))]();
  }
  void capture_elsewhere() { is_capturing() ? end_capture() : begin_capture(); }
  void begin_capture() {
    capturing_ = below(2) == 0 ? foreign_.get() : blocking_[1];
    foreign_thread_.run(
        [&] { EXPECT_EQ(device_.begin_capture(capturing_, capture_mode::global), status::success); });
  }
  void end_capture() {
    foreign_thread_.run([&] {
      gpu::graph_handle graph = nullptr;
      EXPECT_EQ(device_.end_capture(capturing_, graph), status::success) << "the program has invalidated it";
      if (graph != nullptr) EXPECT_EQ(device_.destroy_graph(graph), status::success);
    });
    capturing_ = nullptr;
  }
  std::pmr::memory_resource& resource(source of) {
    if (of == source::cache) return cache_;
    if (of == source::plain_cache) return plain_cache_;
    if (of == source::stacked) return stacked_;
    if (of == source::async) return async_;
    if (of == source::streams) return *pools_.on(stream_);
    return of == source::pool ? pool_ : plain_pool_;
  }

  std::mt19937_64 random_;
  fake_device device_;
  gpu::stream stream_{device_}, foreign_{device_};
  gpu::stream other_streams_[2]{gpu::stream{device_}, gpu::stream{device_}};
  gpu::stream_handle blocking_[2] = {device_.create_blocking_stream(), device_.create_blocking_stream()};
  gpu::stream_handle others_[5] = {other_streams_[0], other_streams_[1], blocking_[0], gpu::per_thread_stream,
                                   nullptr};
  gpu::memory_pool driver_pool_{{}, device_};
  gpu::device_resource plain_{{}, device_};
  gpu::async_resource async_{{.pool = driver_pool_, .stream = stream_}, device_};
  device_cache cache_{{.stream = stream_, .max_cached_bytes = 16 * unit}, device_};
  device_cache plain_cache_{{.stream = stream_, .max_cached_bytes = 8 * unit, .upstream = &plain_}, device_};
  device_pool pool_{{.stream = stream_, .max_cached_bytes = 8 * unit}, device_};
  device_pool plain_pool_{{.stream = stream_, .max_cached_bytes = 8 * unit, .upstream = &plain_}, device_};
  device_pools pools_{{.max_cached_bytes = 8 * unit, .plans = true}, device_};
  device_arena arena_{{.reserve = 64 * unit}, gpu::virtual_memory_options{.stream = stream_}, device_};
  device_cache stacked_{{.stream = stream_, .max_cached_bytes = 8 * unit, .upstream = &plain_pool_}, device_};
  device_planned_arena planned_{{.fallback = &pool_}};
  epoch_resource epochs_{{.host_memory = false}, &pool_};
  capture_switch switch_{&cache_};
  gpu::stream graph_stream_{device_};
  std::unique_ptr<captured_graph<int, int>> graph_;
  block used_by_graph_{source::count, nullptr, 0, {}};  // and not freed by it
  std::vector<block> live_;
  gpu::executable_handle graph_of_own_ = nullptr;
  gpu::stream_handle capturing_ = nullptr;  // by another thread
  test::other_thread foreign_thread_;
  std::size_t refusals_ = 0;
};

TEST(cuda_random_program, finds_no_race_and_no_broken_capture_across_all_resources) {
  std::size_t refusals = 0;
  test::run_for_seeds(
      [&](std::uint64_t seed, auto const& run) {
        random_program program{seed};
        run(program);
        refusals += program.refusals();
      },
      4000);
  EXPECT_GT(refusals, 0u) << "the limit was never reached";
}

}  // namespace
}  // namespace tidemark::test
