// SPDX-License-Identifier: Apache-2.0
// Strategy: returns of memory, and exhausted memory, at both check levels. The upstream records each block,
// and checks that each block is returned once. Compaction runs on addresses that crash on access. Failures
// are injected one by one into the upstream and into the memory of records.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <optional>
#include <stdexcept>
#include <string>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/telemetry/test_resource.hpp>
#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "caught.hpp"
#include "made_up_memory.hpp"
#include "violation_recorder.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

template <class Workspace>
class workspace_memory : public workspace_suite<Workspace> {};
TYPED_TEST_SUITE(workspace_memory, both_levels, );

/// Lets the first slot of T have room for `capacity` elements, and `used` as its newest request.
template <class T, class Workspace>
void make_wide(Workspace& ws, std::size_t capacity, std::size_t used) {
  for (const std::size_t n : {capacity, used}) {
    typename Workspace::template scope<> scope{ws};
    (void)acquire_from<T>(scope, n);
  }
}

// ---- reset ----

// S4.28
TYPED_TEST(workspace_memory, is_not_reset_under_an_open_scope) {
  auto outside = this->ws.fill(1.5, 10);
  typename TypeParam::template scope<> scope{this->ws};
  auto inside = scope.fill(2.5, 10);
  EXPECT_EQ(message_of<std::logic_error>([&] { this->ws.reset(); }),
            "workspace 'test': reset is not allowed while a scope is open; end the scope first");
  EXPECT_EQ(message_of<std::logic_error>([&] { this->ws.release(); }),
            "workspace 'test': release is not allowed while a scope is open; end the scope first");
  EXPECT_EQ(message_of<std::logic_error>([&] { this->ws.template reset<double>(); }),
            "workspace 'test': reset of float64 is not allowed while a scope or checkpoint is open; end it "
            "first");
  EXPECT_EQ(this->ws.stats().active_slots, 2u);
  EXPECT_EQ(this->ws.stats().saved_counts, 1u);
  EXPECT_EQ(this->ws.depth(), 1u);
  EXPECT_EQ(outside[9], 1.5);
  EXPECT_EQ(inside[9], 2.5);
}

// ---- release ----

// S4.29
TYPED_TEST(workspace_memory, is_entirely_freed_by_release) {
  recording_resource records;
  TypeParam ws{workspace_options{.bookkeeping = &records, .upstream = &this->upstream}};
  for (int pass = 0; pass < 2; ++pass) {
    (void)acquire_from<double>(ws, 10);
    (void)acquire_from<numbered<3>>(ws, 10);
    (void)ws.bits(100);
    (void)acquire_tensor<float>(ws, 3, 4);
    ws.checkpoint();
    EXPECT_GT(this->upstream.outstanding, 0u);
    EXPECT_GT(records.outstanding, 0u);
    ws.release();
    EXPECT_EQ(this->upstream.outstanding, 0u);
    EXPECT_EQ(records.outstanding, 0u);
    const workspace_stats now = ws.stats();
    EXPECT_EQ(now.types + now.slot_count + now.held_bytes + now.tensor_headers + now.depth + now.saved_counts,
              0u);
    ws.check_invariants();
  }
}

// ---- trim ----

// S4.30
TYPED_TEST(workspace_memory, trim_and_reset_of_an_unused_type_create_no_list) {
  recording_resource records;
  TypeParam ws{workspace_options{.bookkeeping = &records, .upstream = &this->upstream}};
  EXPECT_EQ(ws.template trim<numbered<70>>().slot_count, 0u);
  EXPECT_EQ(ws.template trim<double>().slot_count, 0u);
  EXPECT_EQ(ws.trim().slot_count, 0u);
  ws.template reset<numbered<71>>();
  EXPECT_EQ(records.calls, 0u);
}

// ---- compact ----

// S4.32 S4.77
TYPED_TEST(workspace_memory, shrinks_only_if_both_thresholds_are_reached) {
  struct wide_slot {
    std::size_t capacity, used;
    compact_options options;
    bool shrinks;
  };
  constexpr std::size_t mib = 1 << 20;
  for (wide_slot const& one : {
           wide_slot{200'000, 20'000, {}, true},   // 10 times, and 1.36 MB go
           wide_slot{199'999, 20'000, {}, false},  // not quite 10 times
           wide_slot{200'001, 20'000, {}, true},
           wide_slot{mib / 8 + 2, 1, {}, true},   // 1 MiB exactly: 2 elements stay
           wide_slot{mib / 8 + 1, 1, {}, false},  // 8 bytes less
           wide_slot{100, 40, {.factor = 2.5, .least_bytes = 40 * 8}, true},
           wide_slot{100, 40, {.factor = 2.5, .least_bytes = 40 * 8 + 1}, false},
           wide_slot{100, 67, {.factor = 1, .least_bytes = 0}, false},  // 1.5 * 67 exceeds the capacity
           wide_slot{100, 66, {.factor = 1, .least_bytes = 8}, true},
       }) {
    SCOPED_TRACE(std::to_string(one.capacity) + " for " + std::to_string(one.used));
    make_wide<double>(this->ws, one.capacity, one.used);
    const std::size_t before = this->ws.stats().held_bytes, calls = this->upstream.calls;
    EXPECT_EQ(this->ws.compact(one.options).slot_count, one.shrinks ? 1u : 0u);
    if (!one.shrinks) {
      EXPECT_EQ(this->ws.stats().held_bytes, before);
      EXPECT_EQ(this->upstream.calls, calls);
    } else {
      EXPECT_EQ(static_cast<double>(this->ws.stats().held_bytes),
                8 * std::ceil(static_cast<double>(one.used) * one.options.headroom));
    }
    this->ws.check_invariants();
    this->ws.release();
  }
}

// S4.32
TYPED_TEST(workspace_memory, keeps_its_slot_if_the_upstream_refuses_a_smaller_block) {
  make_wide<double>(this->ws, 2'000'000, 1000);
  make_wide<float>(this->ws, 2'000'000, 1000);
  const std::size_t held = this->ws.stats().held_bytes;
  this->upstream.fail_from = this->upstream.calls;  // the next call
  const compact_summary summary = this->ws.compact();
  EXPECT_EQ(summary.slot_count, 1u);
  EXPECT_EQ(summary.failed, 1u);
  EXPECT_EQ(this->ws.stats().held_bytes, held - summary.bytes);
  EXPECT_EQ(stats_of(this->ws, "float64").held_bytes, 2'000'000 * sizeof(double));
  const std::size_t calls = this->upstream.calls;
  (void)this->ws.ones(2'000'000);
  EXPECT_EQ(this->upstream.calls, calls);
}

// S4.35
TYPED_TEST(workspace_memory, survives_compaction_with_any_options) {
  constexpr double inf = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  constexpr std::array factors{0.0, -0.0, -1.0, 1e-300, 0.5, 1.0, 10.0, 1e6, 1e300, -1e300, inf, -inf, nan};
  auto& ws = this->ws;
  for (const double factor : factors) {
    for (const double headroom : factors) {
      for (const std::size_t least_bytes : {std::size_t{0}, std::size_t{1}, SIZE_MAX}) {
        for (const std::size_t used : {0u, 1u, 100u, 1000u}) {
          make_wide<double>(ws, 1000, used);
          typename TypeParam::template scope<> scope{ws};
          (void)acquire_from<float>(scope, used);
          const std::size_t before = ws.stats().held_bytes;
          const compact_summary summary =
              ws.compact({.factor = factor, .least_bytes = least_bytes, .headroom = headroom});
          ws.check_invariants();
          const std::size_t capacity = stats_of(ws, "float64").held_bytes / sizeof(double);
          SCOPED_TRACE(std::to_string(factor) + ", " + std::to_string(least_bytes) + ", " +
                       std::to_string(headroom) + " for " + std::to_string(used));
          EXPECT_GE(capacity, used);
          EXPECT_EQ(ws.stats().held_bytes + summary.bytes, before);
          if (least_bytes == SIZE_MAX || factor >= 1e6 || std::isnan(factor) || std::isnan(headroom) ||
              headroom >= 1e6) {
            // No slot can be too large for such a limit, so compaction saves nothing. The exception is a slot
            // that used 0 bytes.
            if (used > 0 || least_bytes == SIZE_MAX) EXPECT_EQ(summary.bytes, 0u);
          }
          (void)acquire_from<double>(scope, 1000);
        }
      }
    }
  }
}

// S4.34
TYPED_TEST(workspace_memory, is_neither_read_nor_written_by_compaction) {
  made_up_memory device;  // who touches it crashes
  recording_resource upstream{&device};
  TypeParam ws{workspace_options{.host_memory = false, .upstream = &upstream}};
  make_wide<double>(ws, 2'000'000, 1000);
  make_wide<numbered<3>>(ws, 2'000'000, 1000);
  for (const std::size_t n : {2'000'000u, 1000u}) {
    typename TypeParam::template scope<> scope{ws};
    (void)scope.bits(n * 64);
    ASSERT_TRUE(made_up_memory::is_made_up(acquire_from<float>(scope, n).data()));
  }
  EXPECT_EQ(ws.compact().slot_count, 4u);
  EXPECT_EQ(ws.trim().slot_count, 4u);
}

// ---- nothing grows ----

// S4.75
TYPED_TEST(workspace_memory, requests_growing_by_one_element_make_few_upstream_calls) {
  statistics_resource counted{&this->upstream};
  TypeParam ws{workspace_options{.upstream = &counted}};
  constexpr std::size_t n_max = 100'000;
  for (std::size_t n = 1; n <= n_max; ++n) {
    typename TypeParam::template scope<> scope{ws};
    (void)acquire_from<std::int32_t>(scope, n);
  }
  const auto doublings = static_cast<std::uint64_t>(std::log2(n_max));
  EXPECT_LE(counted.stats().allocations, 2 * doublings) << "log to the base of one and a half, at most";
  EXPECT_LE(counted.stats().total_bytes, 4 * ws.stats().held_bytes);
  EXPECT_LE(ws.stats().held_bytes, n_max * sizeof(std::int32_t) * 3 / 2);
  EXPECT_EQ(ws.stats().slot_count, 1u);
}

// ---- alignment ----

struct alignas(256) over_aligned {
  char bytes[256];
};

// S4.76
TYPED_TEST(workspace_memory, follows_the_alignment_option) {
  EXPECT_THROW((TypeParam{workspace_options{.alignment = 48}}), std::invalid_argument);
  EXPECT_THROW((TypeParam{workspace_options{.alignment = 0}}), std::invalid_argument);
  for (std::size_t align = 8; align <= 4096; align *= 2) {
    TypeParam ws{workspace_options{.alignment = align, .upstream = &this->upstream}};
    for (int i = 0; i < 3; ++i) {
      for (void* each : {static_cast<void*>(acquire_from<double>(ws, 3).data()),
                         static_cast<void*>(acquire_from<bool>(ws, 1).data()),
                         static_cast<void*>(ws.bits(3).words().data()),
                         static_cast<void*>(acquire_from<numbered<0>>(ws, 5).data()),
                         static_cast<void*>(acquire_from<over_aligned>(ws, 2).data())}) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(each) % align, 0u) << align;
      }
      auto const* const wanted = acquire_from<over_aligned>(ws, 3).data();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(wanted) % alignof(over_aligned), 0u) << align;
    }
  }
}

// ---- a limit ----

// S4.76
TYPED_TEST(workspace_memory, requests_beyond_the_limit_throw_with_the_numbers) {
  TypeParam ws{workspace_options{.max_held_bytes = 10'000, .upstream = &this->upstream, .name = "small"}};
  make_wide<float>(ws, 1000, 1000);
  auto kept = ws.fill(1.5, 500);
  EXPECT_EQ(message_of<out_of_memory>([&] { (void)ws.ones(751); }),
            "small: out of memory: 6008 bytes aligned to 64 requested, 4000 used of 4000 committed and 10000 "
            "reserved; the largest that would fit is 6000 bytes");
  EXPECT_EQ(ws.stats().active_slots, 1u);
  EXPECT_EQ(ws.stats().held_bytes, 4000u) << "idle memory was returned";
  EXPECT_EQ(kept[499], 1.5);
  (void)ws.ones(750);
  EXPECT_EQ(ws.stats().held_bytes, 10'000u);
  ws.check_invariants();
}

// S4.76
TYPED_TEST(workspace_memory, one_slot_can_grow_to_the_limit) {
  TypeParam ws{workspace_options{.max_held_bytes = 8000, .upstream = &this->upstream}};
  for (const std::size_t n : {600u, 601u, 950u, 1000u}) {  // half as much again would be too much
    typename TypeParam::template scope<> scope{ws};
    (void)scope.ones(n);
    EXPECT_LE(ws.stats().held_bytes, 8000u);
  }
  typename TypeParam::template scope<> scope{ws};
  EXPECT_THROW((void)scope.ones(1001), out_of_memory);
  EXPECT_EQ(ws.stats().active_slots, 0u);
  ws.check_invariants();
}

// ---- failures ----

/// One use of each function. Each step may fail, changes nothing then, and succeeds when it is repeated.
template <class Workspace>
class fallible_run {
 public:
  /// @param goes_on the resource whose requests fail until the run stops them; null: each request fails once
  fallible_run(std::pmr::memory_resource& records, test_resource& upstream, test_resource* goes_on = nullptr)
      : upstream_{upstream},
        goes_on_{goes_on},
        ws_{workspace_options{.bookkeeping = &records, .upstream = &upstream, .name = "run"}} {}

  void run() {
    for (int pass = 0; pass < 3; ++pass) {
      nest(0, pass);
      ws_.check_invariants();
      EXPECT_EQ(ws_.depth(), 0u);
      EXPECT_EQ(ws_.stats().active_slots, 0u);
      if (pass == 0) ws_.trim();
      if (pass == 1) ws_.compact({.factor = 1, .least_bytes = 0});
      EXPECT_EQ(ws_.stats().held_bytes, upstream_.stats().used_bytes);
    }
    outside();
  }
  std::size_t failures = 0;

 private:
  static constexpr int deepest = 20;  // the log grows on the way

  template <class Step>
  void attempt(Step step) {
    const workspace_stats before = ws_.stats();
    try {
      step();
    } catch (std::bad_alloc const&) {
      ++failures;
      if (goes_on_ != nullptr) goes_on_->stop_failing();
      const workspace_stats after = ws_.stats();
      EXPECT_EQ(after.active_slots, before.active_slots);
      EXPECT_EQ(after.elements, before.elements);
      EXPECT_EQ(after.used_bytes, before.used_bytes);
      EXPECT_EQ(after.depth, before.depth);
      EXPECT_LE(after.saved_counts, before.saved_counts + 1) << "only the count of the requested type";
      EXPECT_EQ(after.held_bytes, upstream_.stats().used_bytes);
      ws_.check_invariants();
      step();
    }
  }

  void nest(int level, int pass) {
    if (level == deepest) return;
    const auto n = static_cast<std::size_t>(10 + level + 3 * pass);
    std::optional<typename Workspace::template scope<double, numbered<3>>> scope;
    attempt([&] { scope.emplace(ws_); });
    std::optional<decltype(scope->zeros(n))> mine;
    attempt([&] { mine.emplace(scope->fill(static_cast<double>(level), n)); });
    attempt([&] { (void)acquire_from<float>(*scope, n); });
    attempt([&] { (void)scope->trues(64 * n); });
    attempt([&] { (void)acquire_from<numbered<3>>(ws_, n); });
    attempt([&] { (void)acquire_tensor<std::int32_t>(*scope, n, 2); });
    attempt([&] { ws_.template checkpoint<std::int64_t, numbered<4>>(); });
    attempt([&] { (void)acquire_from<std::int64_t>(ws_, n); });
    ws_.rewind();
    nest(level + 1, pass);
    for (const double x : *mine) ASSERT_EQ(x, level);
  }

  void outside() {
    for (int i = 0; i < 20; ++i) attempt([&] { (void)acquire_from<numbered<5>>(ws_, i); });
    EXPECT_EQ(ws_.stats().active_slots, 20u);
    workspace_options options = ws_.options();
    options.pooling = false;
    Workspace unpooled{options};
    attempt([&] { unpooled.checkpoint(); });
    attempt([&] { (void)acquire_from<double>(unpooled, 3); });
    EXPECT_EQ(unpooled.stats().active_slots, 1u);
    unpooled.rewind();
    ws_.reset();
    ws_.release();
    EXPECT_EQ(upstream_.stats().used_bytes, 0u);
    attempt([&] { (void)ws_.ones(10); });
  }

  test_resource& upstream_;
  test_resource* goes_on_;
  Workspace ws_;
};

// S4.69
TYPED_TEST(workspace_memory, any_single_failed_request_leaves_no_trace) {
  const violation_recorder violations;
  test_resource upstream, records;
  for (test_resource* failing : {&upstream, &records}) {
    std::size_t thrown = 0;
    const std::size_t failed = fail_each_allocation(*failing, [&] {
      fallible_run<TypeParam> one{records, upstream};
      one.run();
      thrown += one.failures;
    });
    EXPECT_GT(failed, 40u);
    EXPECT_GT(thrown, 10u) << "the others were made good by giving back what was idle";
  }
  EXPECT_TRUE(violations.reports().empty());
}

// S4.69
TYPED_TEST(workspace_memory, any_series_of_failed_requests_leaves_no_trace) {
  const violation_recorder violations;
  test_resource upstream, records;
  for (test_resource* failing : {&upstream, &records}) {
    std::size_t n = 0, thrown = 0;
    for (bool fails = true; fails;) {
      const std::uint64_t before = failing->injected_failures();
      failing->fail_allocations_from(++n);
      fallible_run<TypeParam> one{records, upstream, failing};
      one.run();
      thrown += one.failures;
      fails = failing->injected_failures() != before;
      failing->stop_failing();
    }
    EXPECT_GT(n, 40u);
    EXPECT_GT(thrown, 40u);
  }
  EXPECT_EQ(upstream.stats().used_blocks, 0u);
  EXPECT_EQ(records.stats().used_blocks, 0u);
  EXPECT_TRUE(violations.reports().empty());
}

}  // namespace
}  // namespace tidemark::test
