// SPDX-License-Identifier: Apache-2.0
// Strategy: an importer must see the same types, the same functions and one copy of every static, like an
// includer. This translation unit imports, the other one includes, and they exchange objects.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

import tidemark;

#include "included_side.hpp"

namespace {

TEST(module, an_importer_can_use_everything_that_the_readme_shows) {
  using namespace tidemark;
  arena step{{.reserve = 64 * MiB, .name = "imported"}};
  const arena_mark mark = step.mark();
  {
    arena::scope scope{step};
    const std::span<double> x = scope.push_array<double>(100);
    EXPECT_EQ(x[99], 0.0);
    EXPECT_EQ(*scope.push<int>(3), 3);
    scope.make<std::pmr::vector<int>>(10, &step);
    arena::scope temporary = scratch(step);
    EXPECT_NE(&temporary.arena(), &step);
  }
  {
    const std::pmr::vector<int> v({1, 2, 3}, &step);
    EXPECT_TRUE(step.owns(v.data()));
  }
  step.rewind(mark);
  EXPECT_EQ(step.stats().used_bytes, 0u);
  EXPECT_THROW((void)step.allocate(1ull << 60), out_of_memory);
  EXPECT_THROW(step.rewind(arena_mark{}), std::invalid_argument);
}

TEST(module, an_importer_can_use_views) {
  std::vector<double> numbers{3, 1, 2, 4};
  const tidemark::tensor_view<double, 2> table = tidemark::reshape(std::span{numbers}, 2, 2);
  EXPECT_EQ(table(1, 0), 2.0);
  const std::span<double> span = table.reshape(4);  // by what <ranges> knows of views, across the module
  EXPECT_EQ(span.data(), numbers.data());
  EXPECT_THROW((void)table.reshape(3), std::invalid_argument);
  std::uint64_t word = 0;
  const tidemark::bit_view<> bits{&word, {10}};
  bits.fill(true);
  EXPECT_EQ(bits.count(), 10u);
  EXPECT_EQ(tidemark::dl_data_type_of<float>.bits, 32);
}

// T.7
TEST(module, an_importer_can_trace) {
  tidemark::trace_log log{{.csv = "/dev/null", .chrome = "/dev/./null"}};
  tidemark::arena step;
  tidemark::trace_resource traced{&step, log, "step"};
  {
    tidemark::trace_slice slice{log, "slice"};
    const std::pmr::vector<int> v({1, 2, 3}, &traced);
  }
  const tidemark::resource_stats stats = traced.stats();
  EXPECT_EQ(stats.peak_bytes, 3 * sizeof(int));
  EXPECT_EQ(stats.used_bytes, 0u);
  log.close();
}

// S2.26
TEST(module, an_importer_can_use_the_pools) {
  tidemark::pool nodes{{.max_cached_bytes = 1 * tidemark::MiB, .name = "nodes"}};
  tidemark::synchronized_pool shared{&nodes};
  {
    const std::pmr::vector<int> v({1, 2, 3}, &shared);
    EXPECT_EQ(shared.stats().used_blocks, 1u);
  }
  tidemark::size_histogram sizes;
  sizes.record(100);
  const tidemark::pool_options fitted{.small_block_count = 16, .size_classes = sizes.suggest_size_classes()};
  const tidemark::pool_stats stats = tidemark::pool{fitted}.stats();
  EXPECT_EQ(stats.cached_bytes, 16u * 112);
  tidemark::pooled_free(tidemark::pooled_alloc(64), 64);
  EXPECT_GT(tidemark::global_pool().stats().allocations, 0u);
  bool told = false;
  const tidemark::pressure_subscription subscription = tidemark::on_memory_pressure([&] { told = true; });
  tidemark::pressure_monitor monitor{{.psi_path = "", .events_path = ""}};
  EXPECT_FALSE(monitor.has_source());
  (void)tidemark::signal_memory_pressure();
  EXPECT_TRUE(told);
}

TEST(module, an_importer_can_use_the_reuse_cache) {
  using namespace tidemark;
  static constexpr reuse_fence::functions flag_functions{
      .done = [](void* flag) noexcept { return *static_cast<bool*>(flag); },
      .wait = [](void* flag) noexcept { *static_cast<bool*>(flag) = true; },
      .destroy = nullptr};
  bool done = false;
  const std::size_t limit =
      byte_cap_from_environment("TIDEMARK_NO_SUCH_VARIABLE", parse_byte_cap("1048576").value());
  reuse_cache tensors{{.max_cached_bytes = limit, .name = "tensors"}};
  tensors.deallocate_after(tensors.allocate(4096, 256), 4096, 256, reuse_fence{flag_functions, &done});
  EXPECT_EQ(tensors.collect(), 0u);
  done = true;
  tensors.deallocate(tensors.allocate(4096, 256), 4096, 256);
  const reuse_cache_stats stats = tensors.stats();
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.cached_bytes, 4096u);
}

TEST(module, brings_the_standards_resources) {
  tidemark::compat::monotonic_buffer_resource lines{std::size_t{100}};
  tidemark::compat::unsynchronized_pool_resource nodes{&lines};
  tidemark::compat::synchronized_pool_resource shared{&nodes};
  EXPECT_NE(shared.allocate(10), nullptr);
}

TEST(module, importer_and_includer_share_types) {
  tidemark::arena step;
  EXPECT_EQ(included::allocate_on(step, 100), step.position());  // the includer's arena is this arena
  tidemark::upstream_arena upstream{&step};
  EXPECT_NE(upstream.allocate(10), nullptr);
}

TEST(module, importer_and_includer_share_statics) {
  // One violation handler, one table of system calls, one set of scratch arenas a thread, one source of
  // identities.
  EXPECT_EQ(tidemark::get_violation_handler(), included::violation_handler_there());
  EXPECT_EQ(&tidemark::default_os_memory(), included::os_memory_there());
  tidemark::arena::scope mine = tidemark::scratch(tidemark::no_conflicts);
  EXPECT_EQ(&mine.arena(), included::scratch_arena_there());
  EXPECT_EQ(tidemark::check_level, included::check_level_there());
}

TEST(module, an_exception_thrown_by_one_side_is_caught_by_the_other) {
  EXPECT_THROW(included::exhaust(), tidemark::out_of_memory);
}

/// 4 KiB, once.
struct tiny_memory : tidemark::committed_ranges {
  static constexpr tidemark::space_traits traits{.fresh_is_zero = true, .block_alignment = 64};
  tidemark::byte_range reserve(std::size_t least, std::size_t) {
    alignas(64) static std::byte storage[4096];
    return least <= 4096 ? tidemark::byte_range{reinterpret_cast<std::uintptr_t>(storage), 4096}
                         : tidemark::byte_range{};
  }
  void release(tidemark::byte_range) noexcept {}
  std::size_t chunk_bytes() const noexcept { return 4096; }
  std::size_t granularity() const noexcept { return 64; }
};

TEST(module, an_importer_can_bring_its_own_address_space) {
  static_assert(tidemark::address_space<tiny_memory>);
  tidemark::basic_arena<tiny_memory> tiny;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tiny.push<int>()) % 64, 0u);
  {
    tidemark::basic_arena<tiny_memory>::scope scope{tiny};
    (void)scope.push<int>(1);
  }
  EXPECT_EQ(tiny.position(), 64u);
  EXPECT_EQ(tiny.try_allocate(8192), nullptr);
}

TEST(module, an_importer_can_look_for_missed_blocks) {
  tidemark::arena step;
  const tidemark::expect_resource expected{&step, "imported"};
  const std::pmr::vector<int> v(10, 7);
  EXPECT_EQ(expected.missed_blocks(), 1u);
  EXPECT_EQ(expected.missed_bytes(), 10 * sizeof(int));
  EXPECT_NE(expected.report().find("from the default resource"), std::string::npos);
}

// T.7
TEST(module, an_importer_can_use_every_adaptor) {
  using namespace tidemark;
  statistics_resource counted{std::pmr::new_delete_resource(), "counted"};
  limit_resource limited{&counted, 100 * KiB};
  expect_no_upstream below{&limited};
  tracking_resource tracked{&below};
  test_resource tested{&tracked, test_resource_options{.guard_bytes = 8}};
  counted.push_counters();
  {
    const allocation_site here{"imported"};
    const std::pmr::vector<int> v(10, 7, &tested);
    const live_block block = tested.leaks().at(0);
    EXPECT_STREQ(block.label, "imported");
    EXPECT_NE(block.site.line(), 0u);
    EXPECT_EQ(tracked.leaks().size(), 1u);
    const auto quiet = below.expect_none();
    EXPECT_EQ(v[9], 7);
    EXPECT_EQ(quiet.unexpected(), 0u);
  }
  tested.empty_quarantine();
  EXPECT_THROW((void)tested.allocate(100 * KiB), out_of_memory);
  EXPECT_EQ(fail_each_allocation(tested, [&] { const std::pmr::vector<int> v(10, 7, &tested); }), 1u);
  tested.empty_quarantine();
  const resource_stats stats = counted.pop_counters();
  EXPECT_EQ(stats.allocations, 2u);
  EXPECT_EQ(stats.used_bytes, 0u);
}

TEST(module, an_importer_can_capture_a_graph) {
  using namespace tidemark;
  const auto body = [](std::pmr::memory_resource& memory, std::vector<int>& in, std::vector<int>& out) {
    std::pmr::vector<int> twice{&memory};
    for (const int x : in) twice.push_back(2 * x);
    out.assign(twice.begin(), twice.end());
  };
  std::vector<int> in{1, 2, 3}, out;
  const graph_layout layout = rehearse([&](std::pmr::memory_resource& memory) { body(memory, in, out); },
                                       std::pmr::new_delete_resource());
  capture_switch program{capture_switch_options{.without_arena = frozen_policy::refuse, .name = "imported"}};
  host_backend host;
  {
    captured_graph<std::vector<int>, std::vector<int>> graph =
        capture(host, program, std::make_unique<graph_arena>(layout, &program), in, std::vector<int>{}, body);
    graph.launch(graph_stream{});
    EXPECT_EQ(graph.outputs(), (std::vector<int>{2, 4, 6}));
    EXPECT_EQ(graph.arena().layout(), layout);
    EXPECT_EQ(graph.arena().stats().used_blocks, 0u);
    graph.inputs() = {4, 5, 6};
    EXPECT_FALSE(graph.update(body));
    EXPECT_EQ(graph.outputs(), (std::vector<int>{8, 10, 12}));
  }
  EXPECT_EQ(program.stats().used_blocks, 0u);
  EXPECT_THROW(
      (void)capture(host, std::make_unique<graph_arena>(layout, nullptr), std::vector<int>{}, out, body),
      layout_mismatch);
  program.freeze();
  EXPECT_THROW((void)unique_block(&program, 16), allocator_frozen);
  const baked_blocks baked = program.unfreeze();
  EXPECT_EQ(baked.size(), 0u);
}

TEST(module, an_importer_can_use_epochs) {
  using namespace tidemark;
  pool blocks;
  epoch_resource memory{epoch_options{.name = "imported"}, &blocks};
  buffer<float> kept, dropped;
  {
    epoch e{memory, "step"};
    kept = {memory, 16, 2.0F};
    dropped = {memory, 16};
    const buffer_view<float> row = kept.view(0, 4);
    static_assert(keepable<buffer_view<float>>);
    e.keep(row);
    const epoch_summary end = e.end();
    EXPECT_EQ(end.reclaimed, 1u);
  }
  EXPECT_EQ(kept[15], 2.0F);
  EXPECT_EQ(with_epoch(memory, "sum", [&] { return buffer<int>{memory, 3}; }).size(), 3u);
  buffer_group tape{memory, "tape"};
  tape.add(kept);
  EXPECT_EQ(tape.close_after([&] { return kept[0]; }), 2.0F);
  const epoch_stats stats = memory.stats();
  EXPECT_EQ(stats.used_blocks, 0u);

  const bool was_on = set_epoch_detector(true);
  const use_after_epoch_policy policy = set_use_after_epoch_policy(use_after_epoch_policy::throw_exception);
  EXPECT_TRUE(epoch_detector());
  EXPECT_THROW(require_live("mul", {{"lhs", kept}, {"rhs", dropped}}), use_after_epoch);
  set_use_after_epoch_policy(policy);
  set_epoch_detector(was_on);
  EXPECT_EQ(release_then(kept, 7), 7);
}

double residual_norm(tidemark::workspace& ws, std::span<double const> x) {
  tidemark::workspace::scope scope{ws};
  std::span<double> r = scope.acquire<double>(x.size());
  auto table = scope.zeros<float>(x.size(), 3);
  auto done = scope.falses(x.size());
  tidemark::dl_tensor* shared = tidemark::acquire_tensor<float>(scope, 64, 64);
  r[0] = x[0] + table(0, 2) + (done.any() ? 1 : 0) + shared->ndim;
  return r[0];
}

TEST(module, an_importer_can_use_workspaces) {
  using namespace tidemark;
  const std::vector<double> x(10, 1.5);
  workspace ws{workspace_options{.name = "imported"}};
  EXPECT_EQ(residual_norm(ws, x), 3.5);
  const std::size_t held_bytes = ws.stats().held_bytes;
  EXPECT_EQ(residual_norm(ws, x), 3.5);
  EXPECT_EQ(ws.stats().held_bytes, held_bytes);

  checked_workspace checked;
  const auto late = with_workspace<double>(checked, [](auto& scope) { return scope.ones(2, 2); });
  EXPECT_THROW((void)late(0, 0), stale_view);
  EXPECT_THROW((void)with_workspace(checked, [](auto& scope) { return std::vector{scope.ones(2).data()}; }),
               workspace_escape);
  EXPECT_EQ(with_workspace(ws, [](auto& scope) { return scope.trues(70).count(); }), 70u);
  {
    workspace own;
    workspace_binding bound{own};
    EXPECT_EQ(&this_thread_workspace(), &own);
  }
  tick_workspace_sweeps();
  EXPECT_EQ(ws.trim<packed_bits>().slot_count, 1u);
  EXPECT_FALSE(workspace_sweeps_enabled());
}

}  // namespace
