// SPDX-License-Identifier: Apache-2.0
// Strategy: excerpts on pages stand here word for word; a test in CMakeLists.txt checks this. Each excerpt is
// compiled with the code that its page leaves to the surrounding program. It runs if it needs neither another
// process nor an optional library.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>

#include "fake_device.hpp"

// clang-format off: pages have comments in columns

// ---- what programs have around the excerpts
using namespace tidemark;

// The stand-in of a call of NCCL, whose header may be missing.
enum { ncclFloat, ncclSum };
void ncclAllReduce(float const*, float*, std::size_t, int, int, ncclComm*, gpu::stream_handle);
void ncclAllReduce(float const*, float*, std::size_t, int, int, ncclComm*, gpu::stream_handle) {}

namespace {

double solve(std::span<double const> x, auto const&...) { return x[0]; }
void train(std::pmr::memory_resource& memory) { std::pmr::vector<float>{&memory}.resize(100); }
void train(std::pmr::memory_resource* memory) { train(*memory); }
struct batch {
  int length;
};
void train(batch const&, std::pmr::memory_resource& memory) { train(memory); }
void forward(float*, std::size_t, gpu::stream_handle) {}
void backward(float*, std::size_t, gpu::stream_handle) {}

// Work on a stream, as a kernel would be, with a temporary of the step.
void train(gpu::stream_handle stream, std::pmr::memory_resource& memory, unique_block&, unique_block&, double = 1) {
  unique_block const hidden{&memory, 1000, 256};
  gpu::driver& driver = gpu::default_driver();
  gpu::require_success(driver, "cuLaunchHostFunc", driver.launch_on_host(stream, [](void*) {}, nullptr));
}

/// A device of the tests is the default one.
class excerpts : public testing::Test {
 protected:
  test::fake_device device_{{.touchable = true}};
  gpu::driver* before_ = gpu::set_default_driver(&device_);
  pool blocks;
  static constexpr std::size_t n = 1000;

  ~excerpts() override { gpu::set_default_driver(before_); }
};

}  // namespace

// ---- docs/arena.md

// D.19
TEST_F(excerpts, arena_loop_leaves_the_arena_empty) {
  arena step{{.reserve = 1 * GiB, .name = "step"}};
  for (int i = 0; i < 1000; ++i) {
    arena::scope scope{step};                             // everything below vanishes at the brace
    std::span<float> x = scope.push_array<float>(4096);   // zeroed
    std::pmr::vector<int> indices{scope.resource()};      // std::pmr containers as well
  }
  EXPECT_EQ(step.position(), 0u);
}

namespace excerpt_of_the_shared_arena {
void run() {
  shared_arena team{{.reserve = 8 * GiB, .name = "step"}};
  for (int i = 0; i < 1000; ++i) {
    shared_arena::scope step{team};                       // what all threads allocate below vanishes at the brace
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&team] {
        local_arena& local = team.local();                // this thread's part
        std::span<float> x = local.push_array<float>(4096);
        std::pmr::vector<int> indices{&local};            // or {&team}
      });
    }
  }
}
}  // namespace excerpt_of_the_shared_arena

namespace excerpt_of_traps {
void run() {
  arena step{{.name = "step", .trap = {.one_in = 1000}}};   // in production: one scope in a thousand; in tests: 1
}

void on_fault(int number, siginfo_t* info, void*) {
  if (info->si_code > 0) tidemark::report_use_after_rewind(info->si_addr);
  signal(number, SIG_DFL);
  if (info->si_code <= 0) raise(number);  // it was sent; a fault comes again by itself
}
}  // namespace excerpt_of_traps

// ---- docs/finding_faults.md

namespace excerpt_of_finders {
void run() {
  arena step;
  pool pool;
  expect_resource expected{&step, "step"};                 // in the scope that should use only `step`
  tracking_resource tracked{&pool, "weights"};             // allocate from `tracked` instead of `pool`
  arena batch{{.name = "batch", .trap = {.one_in = 1000}}};  // traps one scope in 1000
}
}  // namespace excerpt_of_finders

// ---- docs/compat.md

TEST_F(excerpts, standard_resource_uses_the_buffer) {
  std::byte buffer[4096];
  compat::monotonic_buffer_resource lines{buffer, sizeof buffer, std::pmr::null_memory_resource()};
  std::pmr::vector<int> line{&lines};
  line.resize(1000);  // it would throw if it needed more than the buffer
  EXPECT_EQ(line.size(), 1000u);
}

// ---- docs/core.md

TEST_F(excerpts, histogram_fits_a_pool_to_its_sizes) {
  std::vector<std::size_t> const requests_of_a_run(100, 48);
  size_histogram sizes;
  for (std::size_t bytes : requests_of_a_run) sizes.record(bytes);
  pool fitted{{.size_classes = sizes.suggest_size_classes(12)}};
  void* const block = fitted.allocate(48);
  EXPECT_EQ(fitted.stats().used_bytes, 48u);
  fitted.deallocate(block, 48);
}

// ---- docs/cuda.md

TEST_F(excerpts, device_arena_loop_leaves_the_arena_empty) {
  gpu::stream stream;
  device_arena step{{.reserve = 16 * GiB, .name = "step"}, stream};
  for (int i = 0; i < 1000; ++i) {
    device_arena::scope scope{step};
    float* x = scope.push_array<float>(n, uninitialized).data();
    forward(x, n, stream);                              // kernel<<<blocks, threads, 0, stream>>>(x, n)
  }                                                     // the next iteration gets the same addresses
  EXPECT_EQ(step.position(), 0u);
}

TEST_F(excerpts, a_driver_counts_its_devices) {
  int devices = 0;                                      // stays 0 without a driver, a device or TIDEMARK_CUDA
  bool const has_device = gpu::default_driver().device_count(devices) == gpu::status::success && devices > 0;
  EXPECT_TRUE(has_device);
  class : public gpu::driver {
  } without_device;
  gpu::set_default_driver(&without_device);
  EXPECT_EQ(gpu::default_driver().device_count(devices = 0), gpu::status::no_device);
  EXPECT_EQ(devices, 0);
}

namespace excerpt_of_nccl {
void run(ncclComm* comm, gpu::stream_handle stream, std::size_t n) {
  using nccl_arena = basic_arena<registered_memory<gpu::nccl_memory, gpu::nccl_window_registrar>>;
  nccl_arena step{{.reserve = 256 * MiB, .name = "step"},
                  gpu::nccl_memory{{.stream = stream}}, gpu::nccl_window_registrar{comm, stream}};
  for (int i = 0; i < 1000; ++i) {
    nccl_arena::scope scope{step};
    float* gradients = scope.push_array<float>(n, uninitialized).data();
    backward(gradients, n, stream);
    ncclAllReduce(gradients, gradients, n, ncclFloat, ncclSum, comm, stream);
  }                                                     // no call but those of the program
}
}  // namespace excerpt_of_nccl

// ---- docs/epoch.md

TEST_F(excerpts, epoch_keeps_only_the_loss) {
  epoch_resource memory{&blocks};
  buffer<float> hidden, loss;                 // declared before the epoch: their destructors free their blocks
  {
    epoch e{memory, "step"};
    hidden = buffer<float>{memory, 4096};
    loss = buffer<float>{memory, 1};
    e.keep(loss);
  }                                           // here hidden is empty, and loss is unchanged
  EXPECT_EQ(hidden.data(), nullptr);
  EXPECT_NE(loss.data(), nullptr);
}

// ---- docs/graph.md

TEST_F(excerpts, graph_arena_fits_the_rehearsed_layout) {
  gpu::device_resource device;
  auto const body = [](std::pmr::memory_resource& memory) { unique_block const block{&memory, 1000, 256}; };
  graph_layout const layout = rehearse(body, &device); // how much memory does it need?
  graph_arena memory{layout, &device};                 // exactly this size, from a gpu::device_resource
  body(memory);                                        // while a stream captures
  EXPECT_EQ(memory.layout().bytes, layout.bytes);
}

TEST_F(excerpts, graphs_that_share_memory_are_launched_in_order) {
  gpu::stream stream;
  gpu::device_resource device;
  auto const body = [&](std::pmr::memory_resource& memory, unique_block& x, unique_block& y) {
    train(stream, memory, x, y);
  };
  auto const prefill_step = body, decode_step = body;
  unique_block prompt, states, token, logits;
  graph_layout const prefill_layout = rehearse([&](auto& memory) { body(memory, prompt, states); }, &device);
  graph_layout const decode_layout = prefill_layout;
  double const learning_rate = 0.1;

  auto memory = std::make_shared<unique_block>(&device, std::max(prefill_layout.bytes, decode_layout.bytes), 256);
  auto prefill = capture(stream, std::make_unique<graph_arena>(prefill_layout, memory),
                         std::move(prompt), std::move(states), prefill_step);
  auto decode = capture(stream, std::make_unique<graph_arena>(decode_layout, memory),
                        std::move(token), std::move(logits), decode_step);
  prefill.launch();
  decode.launch();                                     // behind it: the same stream

  auto& step = decode;
  step.update([&](auto& memory, auto& x, auto& y) { train(stream, memory, x, y, learning_rate / 2); });
  EXPECT_EQ(decode.launch_count(), 1u);
}

// ---- docs/plan.md

TEST_F(excerpts, planned_arena_runs_all_steps_but_one_by_a_plan) {
  const std::vector<batch> batches(1000, {128});
  planned_arena memory{{.fallback = &blocks, .name = "step"}};   // any resource, such as a pool
  for (batch const& b : batches) {
    planned_arena::step step{memory, b.length};                  // the first of a length is recorded, the others run by its plan
    train(b, memory);
  }
  planned_arena_stats s = memory.stats();                        // steps planned, partly planned and unplanned, height and bound
  EXPECT_EQ(s.planned_steps, 999u);
}

TEST_F(excerpts, saved_plan_serves_the_first_step) {
  {
    planned_arena memory{&blocks};
    for (int length : {128, 256, 128, 256}) {
      planned_arena::step step{memory, length};
      train(memory);
    }
    for (step_plan const& plan : memory.plans()) save_plan(plan, "step" + std::to_string(plan.kind) + ".csv");   // at the end
  }
  planned_arena memory{&blocks};
  for (int length : {128, 256}) memory.use(load_step_plan("step" + std::to_string(length) + ".csv"), length);
  for (int length : {128, 256}) {
    planned_arena::step step{memory, length};
    train(memory);
  }
  EXPECT_EQ(memory.stats().planned_steps, 2u);
  std::remove("step128.csv");
  std::remove("step256.csv");
}

// ---- docs/plan_tools.md

TEST_F(excerpts, make_plan_places_blocks_without_an_arena) {
  std::vector<lifetime> const blocks{{.lower = 0, .upper = 2, .size = 10}, {.lower = 1, .upper = 3, .size = 20}, {.lower = 2, .upper = 4, .size = 30}};
  memory_plan const plan = make_plan(blocks, 1);   // plan.height is 50
  EXPECT_EQ(plan.height, 50u);
}

TEST_F(excerpts, trace_log_writes_a_file) {
  pool nodes;
  {
    tidemark::trace_log log{{.csv = "run.csv", .chrome = "run.json"}};   // run.json opens in ui.perfetto.dev
    tidemark::trace_resource traced{&nodes, log, "nodes"};
    train(&traced);
    EXPECT_EQ(nodes.stats().used_blocks, 0u);
  }
  std::FILE* const written = std::fopen("run.csv", "r");
  ASSERT_NE(written, nullptr);
  std::fclose(written);
  std::remove("run.csv");
  std::remove("run.json");
}

// ---- docs/pool.md

TEST_F(excerpts, pool_reuses_a_block) {
  pool nodes{{.max_cached_bytes = 64 * MiB, .name = "nodes"}};
  std::pmr::map<int, double> table{&nodes};
  void* tensor = nodes.allocate(4096);
  nodes.deallocate(tensor, 4096);  // the next allocate(4096) returns the same address
  void* const next = nodes.allocate(4096);
  EXPECT_EQ(next, tensor);
  nodes.deallocate(next, 4096);
}

// ---- docs/process.md

namespace excerpt_of_process {
void run() {
  // the writer
  process_arena memory{{.reserve = 1 * GiB, .path = "/dev/shm/prices"}};
  using price_table = std::pmr::map<int, std::pmr::string>;
  auto* prices = memory.push<price_table>(&memory);
  prices->emplace(1, "one");
  memory.publish(*prices);  // generation 1
  memory.link();            // now it has its name

  // a reader
  process_view view{"/dev/shm/prices"};
  std::puts(view.root<price_table>().at(1).c_str());  // one
}
}  // namespace excerpt_of_process

// ---- docs/telemetry.md

TEST_F(excerpts, statistics_resource_counts_the_peak) {
  pool pool;
  statistics_resource counted{&pool, "weights"};
  counted.push_counters();
  train(&counted);
  std::printf("one epoch peaks at %zu bytes\n", counted.pop_counters().peak_bytes);
  EXPECT_EQ(counted.stats().peak_bytes, 400u);
}

// ---- docs/traces.md

TEST_F(excerpts, observers_count_limit_and_trace) {
  trace_log log{{.csv = "run.csv", .finds_callers = true}};
  trace_resource nodes{log, "nodes"};            // the name in the file
  arena memory{{.observer = &nodes}};            // also in workspace_options and planned_arena_options
  for (int i = 0; i < 3; ++i) {
    trace_slice step{log, "step " + std::to_string(i)};   // before the scope, so that the step includes its end
    arena::scope scope{memory};
    (void)scope.push_array<float>(1000);
  }
  limit_resource budget{64 * MiB, "tape"};
  arena limited{{.observer = &budget}};          // push throws out_of_memory beyond 64 MiB, and names "tape"
  statistics_resource counted;
  observer_list both{&budget, &counted};         // if one rejects a block, the other does not count it
  workspace ws{workspace_options{.observer = &both}};
  EXPECT_EQ(nodes.stats().allocations, 3u);
  (void)ws.acquire<double>(2);
  EXPECT_EQ(counted.stats().used_bytes, 16u);
  EXPECT_THROW((void)limited.push_array<std::byte>(64 * MiB + 1), out_of_memory);
  std::remove("run.csv");
}

// ---- docs/workspace.md

namespace excerpt_of_the_workspace {
double residual(workspace& ws, std::span<double const> x) {
  workspace::scope scope{ws};
  std::span<double> r = scope.acquire<double>(x.size());   // the same memory in each call
  auto hessian = scope.zeros<float>(x.size(), x.size());   // hessian(i, j)
  auto converged = scope.falses(x.size());                 // packed bits
  return solve(x, r, hessian, converged);
}                                                          // and here they are free again
}  // namespace excerpt_of_the_workspace

TEST_F(excerpts, workspace_allocates_only_the_first_time) {
  statistics_resource counted{&blocks};
  workspace ws{&counted};
  std::vector<double> const x(100, 2.0);
  EXPECT_EQ(excerpt_of_the_workspace::residual(ws, x), 2.0);
  auto const first = counted.stats().allocations;
  EXPECT_EQ(excerpt_of_the_workspace::residual(ws, x), 2.0);
  EXPECT_EQ(counted.stats().allocations, first);
}

TEST_F(excerpts, shared_arena_stays_usable) { excerpt_of_the_shared_arena::run(); }
