// SPDX-License-Identifier: Apache-2.0
// Strategy: every rule of epochs on one thread, once over memory that the host touches and once over
// inaccessible memory like a device's. An upstream that knows every block checks that each is returned once.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <tidemark/core/violation.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/pool/pool.hpp>

#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "rewound_resource.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

struct host_memory {
  static constexpr bool may_be_touched = true;
  recording_resource upstream;
};
struct device_memory {
  static constexpr bool may_be_touched = false;
  made_up_memory device;
  recording_resource upstream{&device};
};

template <class Memory>
class epochs : public testing::Test {
 protected:
  static constexpr std::size_t n = 4096;

  /// Fills a buffer with this value, if its memory may be written.
  static void fill(buffer<float> const& b, float value) {
    if constexpr (Memory::may_be_touched) std::ranges::fill(b.span(), value);
  }
  static void expect_sum(buffer<float> const& b, float sum) {
    if constexpr (Memory::may_be_touched) EXPECT_EQ(std::accumulate(b.begin(), b.end(), 0.0F), sum);
  }
  void TearDown() override { memory.check_invariants(); }

  Memory source;
  // Blocks are returned at once, so that the upstream's counts can be checked.
  epoch_resource memory{{.host_memory = Memory::may_be_touched}, &source.upstream};
};
using sources = testing::Types<host_memory, device_memory>;
TYPED_TEST_SUITE(epochs, sources, );

// S3.1 S3.28
TYPED_TEST(epochs, reclaim_unkept_buffers_although_handles_exist) {
  std::vector<buffer<float>> handles;
  {
    epoch e{this->memory, "step"};
    for (int i = 0; i < 10; ++i) handles.emplace_back(this->memory, this->n);
    EXPECT_EQ(this->source.upstream.outstanding, 10 * this->n * sizeof(float));
    const epoch_summary end = e.end();
    EXPECT_EQ(end.reclaimed, 10u);
    EXPECT_EQ(end.reclaimed_bytes, 10 * this->n * sizeof(float));
    EXPECT_EQ(end.promoted, 0u);
  }
  EXPECT_EQ(this->source.upstream.outstanding, 0u);
}

TYPED_TEST(epochs, deallocating_null_does_nothing) {
  const epoch_stats before = this->memory.stats();
  const auto with_null = [&] {
    for (const std::size_t bytes : {0u, 64u}) this->memory.deallocate(nullptr, bytes);
  };
  with_null();
  with_epoch(this->memory, "step", with_null);
  EXPECT_EQ(this->memory.stats().deallocations, before.deallocations);
  EXPECT_EQ(this->memory.stats().late, 0u);
  EXPECT_EQ(this->source.upstream.outstanding, 0u);
}

// S3.2 S3.35
TYPED_TEST(epochs, count_four_rounds_of_64_buffers_exactly) {
  const buffer<float> before{this->memory, this->n};
  for (std::uint64_t round = 1; round <= 4; ++round) {
    const std::size_t live_bytes = this->source.upstream.outstanding;
    std::vector<buffer<float>> handles;
    handles.reserve(64);
    epoch e{this->memory};
    for (int i = 0; i < 64; ++i) handles.emplace_back(this->memory, this->n);
    epoch_stats stats = this->memory.stats();
    EXPECT_EQ(stats.allocations, 64 * round);
    EXPECT_EQ(stats.deallocations + stats.reclaimed, 64 * (round - 1));
    EXPECT_EQ(stats.used_blocks, 64u);
    EXPECT_EQ(stats.used_bytes, 64 * this->n * sizeof(float));
    e.end();
    stats = this->memory.stats();
    EXPECT_EQ(stats.allocations, 64 * round);
    EXPECT_EQ(stats.deallocations, 0u);
    EXPECT_EQ(stats.reclaimed, 64 * round);
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.peak_bytes, 64 * this->n * sizeof(float));
    EXPECT_EQ(this->source.upstream.outstanding, live_bytes);
  }
}

// S3.3
TYPED_TEST(epochs, a_kept_buffer_survives_with_its_contents) {
  buffer<float> kept;
  {
    epoch outer{this->memory, "outer"};
    {
      epoch inner{this->memory, "inner"};
      kept = buffer<float>{this->memory, this->n};
      const buffer<float> dropped{this->memory, this->n};
      this->fill(kept, 2);
      this->fill(dropped, 3);
      EXPECT_EQ(inner.keep(kept), 1u);
      const epoch_summary end = inner.end();
      EXPECT_EQ(end.promoted, 1u);
      EXPECT_EQ(end.promoted_bytes, this->n * sizeof(float));
      EXPECT_EQ(end.reclaimed, 1u);
    }
    EXPECT_EQ(kept.size(), this->n);
    this->expect_sum(kept, 2 * 4096);
    EXPECT_EQ(this->memory.stats().used_blocks, 1u) << "the outer epoch has it";
  }
  EXPECT_FALSE(kept.is_live()) << "promoted once, not for ever";
}

// S3.4
TYPED_TEST(epochs, block_kept_by_the_outermost_epoch_is_freed_by_its_holder) {
  buffer<float> kept;
  {
    epoch e{this->memory};
    kept = buffer<float>{this->memory, this->n};
    this->fill(kept, 2);
    e.keep(kept);
  }
  this->expect_sum(kept, 2 * 4096);
  const epoch_stats stats = this->memory.stats();
  EXPECT_EQ(stats.promoted, 1u);
  EXPECT_EQ(stats.let_go, 1u);
  EXPECT_EQ(stats.used_blocks, 0u);
  EXPECT_EQ(this->source.upstream.outstanding, this->n * sizeof(float));
  EXPECT_TRUE(kept.release());
  EXPECT_FALSE(kept.release());
  EXPECT_EQ(this->source.upstream.outstanding, 0u);
}

// S3.5
TYPED_TEST(epochs, promoted_buffer_ends_with_the_parent_unless_kept_again) {
  buffer<int> once, twice;
  {
    epoch a{this->memory};
    {
      epoch b{this->memory};
      {
        epoch c{this->memory};
        once = {this->memory, 8};
        twice = {this->memory, 8};
        EXPECT_EQ(c.keep(once, twice), 2u);
      }
      EXPECT_EQ(b.keep(twice), 1u);
    }
    EXPECT_FALSE(once.is_live());
    EXPECT_TRUE(twice.is_live());
  }
  EXPECT_FALSE(twice.is_live());
}

// S3.6
TYPED_TEST(epochs, keeping_a_foreign_buffer_does_nothing) {
  const buffer<int> untracked{this->memory, 8};
  void* const raw_untracked = this->memory.allocate(8);
  epoch outer{this->memory};
  const buffer<int> of_outer{this->memory, 8};
  const buffer<int> nothing;
  buffer<int> released{this->memory, 8};
  released.release();
  epoch_resource other{this->memory.options()};
  epoch elsewhere{other};
  const buffer<int> of_other{other, 8};
  epoch inner{this->memory};
  const buffer<int> mine{this->memory, 8};
  int local = 0;
  EXPECT_EQ(inner.keep(of_outer, untracked, nothing, released, of_other, raw_untracked, &local), 0u);
  EXPECT_EQ(inner.keep(static_cast<void*>(nullptr)), 0u);
  EXPECT_EQ(inner.keep(of_outer.storage().address), 0u);
  EXPECT_EQ(outer.keep(mine), 0u) << "the block belongs to the inner epoch";
  EXPECT_EQ(inner.keep(mine, mine), 1u);
  EXPECT_EQ(inner.keep(mine), 0u) << "twice is once";
  inner.end();
  EXPECT_EQ(outer.keep(mine), 1u);
  outer.end();
  EXPECT_TRUE(untracked.is_live());
  EXPECT_TRUE(mine.is_live());
  EXPECT_TRUE(of_other.is_live());
  EXPECT_FALSE(of_outer.is_live());
  this->memory.deallocate(raw_untracked, 8);
  elsewhere.end();
}

// S3.7
TYPED_TEST(epochs, ignore_buffers_freed_early) {
  epoch e{this->memory};
  buffer<int> released{this->memory, 100};
  {
    const buffer<int> destroyed{this->memory, 200};
  }
  void* const raw = this->memory.allocate(3000, 64);
  const buffer<int> left{this->memory, 400};
  EXPECT_TRUE(released.release());
  this->memory.deallocate(raw, 3000, 64);
  EXPECT_EQ(this->source.upstream.outstanding, 400 * sizeof(int));
  EXPECT_EQ(e.end().reclaimed, 1u);
  const epoch_stats stats = this->memory.stats();
  EXPECT_EQ(stats.allocations, 4u);
  EXPECT_EQ(stats.deallocations, 3u);
  EXPECT_EQ(stats.reclaimed, 1u);
  EXPECT_FALSE(left.is_live());
}

// S3.8
TYPED_TEST(epochs, end_if_the_body_throws) {
  std::vector<buffer<int>> handles;
  bool kept_was_asked = false;
  EXPECT_THROW(with_epoch(
                   this->memory, "step",
                   [&] {
                     handles.emplace_back(this->memory, 100);
                     with_epoch(this->memory, [&] {
                       handles.emplace_back(this->memory, 100);
                       throw std::runtime_error{"body"};
                     });
                   },
                   [&] {
                     kept_was_asked = true;
                     return handles.data();
                   }),
               std::runtime_error);
  EXPECT_FALSE(kept_was_asked);
  EXPECT_EQ(this->memory.depth(), 0u);
  EXPECT_EQ(this->source.upstream.outstanding, 0u);
  EXPECT_FALSE(handles[0].is_live());
  EXPECT_FALSE(handles[1].is_live());
}

// S3.9
TYPED_TEST(epochs, ended_twice_do_not_end_the_parent) {
  epoch outer{this->memory};
  const buffer<int> of_outer{this->memory, 8};
  epoch inner{this->memory, "inner"};
  inner.end();
  EXPECT_FALSE(inner.is_open());
  EXPECT_EQ(inner.depth(), 0u);
  const violation_recorder recorder;
  const epoch_summary again = inner.end();
  EXPECT_EQ(again.reclaimed, 0u);
  EXPECT_EQ(violation_recorder::count(violation_kind::scope_order), check_level >= 2 ? 1u : 0u);
  EXPECT_EQ(this->memory.depth(), 1u);
  EXPECT_TRUE(of_outer.is_live());
  EXPECT_EQ(inner.keep(of_outer), 0u) << "an ended epoch keeps nothing";
}

// S3.10
TYPED_TEST(epochs, ended_out_of_order_are_reported_and_end_with_the_innermost_epoch) {
  epoch outer{this->memory, "outer"};
  const buffer<int> of_outer{this->memory, 8};
  epoch inner{this->memory, "inner"};
  const buffer<int> of_inner{this->memory, 8};
  {
    const violation_recorder recorder;
    EXPECT_EQ(outer.end().reclaimed, 0u);
    EXPECT_EQ(
        violation_recorder::only(violation_kind::scope_order),
        "epoch_resource 'epochs': epoch 1 \"outer\" was ended while epoch 2 \"inner\" inside it was still "
        "open");
  }
  EXPECT_TRUE(of_outer.is_live());
  EXPECT_TRUE(of_inner.is_live());
  inner.end();
  EXPECT_FALSE(of_inner.is_live());
  EXPECT_FALSE(of_outer.is_live());
  EXPECT_EQ(this->memory.depth(), 0u);
}

TYPED_TEST(epochs, several_can_end_out_of_order) {
  epoch first{this->memory, "first"};
  epoch second{this->memory, "second"};
  epoch third{this->memory, "third"};
  const buffer<int> of_third{this->memory, 8};
  const violation_recorder recorder;
  third.keep(of_third);
  first.end();
  second.end();
  EXPECT_EQ(violation_recorder::reports().size(), 2u);
  EXPECT_EQ(third.end().promoted, 1u);
  EXPECT_EQ(this->memory.depth(), 0u);
  EXPECT_FALSE(of_third.is_live()) << "the block was not kept again";
}

// S3.12
TYPED_TEST(epochs, do_not_track_empty_buffers) {
  epoch e{this->memory};
  const buffer<int> empty{this->memory, 0};
  EXPECT_EQ(this->memory.stats().allocations, 0u);
  EXPECT_EQ(this->source.upstream.calls, 0u);
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_EQ(e.end().reclaimed, 0u);
}

// S3.13
TYPED_TEST(epochs, a_reclaimed_handle_is_empty_and_safe) {
  buffer<int> gone;
  {
    epoch e{this->memory};
    gone = {this->memory, 8};
  }
  EXPECT_EQ(gone.size(), 0u);
  EXPECT_EQ(gone.size_bytes(), 0u);
  EXPECT_TRUE(gone.empty());
  EXPECT_FALSE(gone);
  EXPECT_EQ(gone.data(), nullptr);
  EXPECT_TRUE(gone.span().empty());
  EXPECT_EQ(gone.begin(), gone.end());
  EXPECT_FALSE(gone.copy().is_live());
  // Its memory is somebody else's by now.
  const buffer<int> successor{this->memory, 8};
  EXPECT_FALSE(gone.is_live());
  EXPECT_FALSE(gone.release());
  buffer<int> moved{std::move(gone)};
  moved = {};
  EXPECT_TRUE(successor.is_live());
  EXPECT_EQ(this->source.upstream.outstanding, 8 * sizeof(int));
}

// S3.21
TYPED_TEST(epochs, keep_the_storage_of_views_pointers_and_spans) {
  buffer<int> by_view, by_pointer, by_interior_pointer, by_span, by_array_of_pointers, by_array_of_views,
      by_array_of_spans, not_kept;
  {
    epoch e{this->memory};
    for (buffer<int>* b : {&by_view, &by_pointer, &by_interior_pointer, &by_span, &by_array_of_pointers,
                           &by_array_of_views, &by_array_of_spans, &not_kept}) {
      *b = {this->memory, 100};
    }
    EXPECT_EQ(e.keep(by_view.view(90, 10).view(5, 2), by_view.view()), 1u);
    EXPECT_EQ(e.keep(by_pointer.data()), 1u);
    EXPECT_EQ(e.keep(by_interior_pointer.data() + 99), 1u);
    EXPECT_EQ(e.keep(by_span.span().subspan(50)), 1u);
    EXPECT_EQ(e.keep(std::array<int const volatile*, 2>{nullptr, by_array_of_pointers.data() + 1}), 1u);
    EXPECT_EQ(e.keep(std::vector{by_array_of_views.view(50, 1)}), 1u);
    EXPECT_EQ(e.keep(std::array{by_array_of_spans.span()}), 1u);
    EXPECT_EQ(e.keep(not_kept.data() + 100), 0u) << "one byte past its end";
    EXPECT_EQ(e.end().promoted, 7u);
  }
  for (buffer<int>* b : {&by_view, &by_pointer, &by_interior_pointer, &by_span, &by_array_of_pointers,
                         &by_array_of_views, &by_array_of_spans}) {
    EXPECT_EQ(b->size(), 100u);
  }
  EXPECT_FALSE(not_kept.is_live());
}

template <class T>
concept is_kept = keepable<T> && keepable<T const&>;
static_assert(is_kept<void*> && is_kept<std::pmr::string*> && is_kept<std::nullptr_t>);
static_assert(is_kept<std::pmr::vector<std::byte>> && is_kept<std::u8string_view> && is_kept<int[3]>);
static_assert(!is_kept<int> && !is_kept<void (*)()> && !is_kept<std::optional<void*>>);
static_assert(!is_kept<std::unique_ptr<int>> && !is_kept<std::shared_ptr<int>>);
static_assert(!is_kept<std::tuple<void*>> && !is_kept<std::pair<int*, int*>>);
static_assert(!is_kept<std::vector<buffer<int>>> && !is_kept<std::vector<std::string>>);
static_assert(!is_kept<std::vector<std::byte>> && !is_kept<std::string> && is_kept<std::array<int, 3>>);
static_assert(is_kept<std::vector<int*>> && is_kept<std::vector<std::span<int>>>, "keeps what they refer to");
static_assert(!is_kept<std::pmr::list<int*>> && !is_kept<std::pmr::deque<int>> &&
              !is_kept<std::vector<bool>>);
static_assert(!is_kept<std::pmr::map<int, int>> && !is_kept<std::pmr::set<int>>);

// S3.26
TYPED_TEST(epochs, repeating_128_steps_needs_no_more_memory) {
  const auto steps = [&] {
    for (int step = 0; step < 128; ++step) {
      std::vector<buffer<float>> handles;
      handles.reserve(5);
      epoch e{this->memory, "step"};
      for (int i = 0; i < 5; ++i) handles.emplace_back(this->memory, this->n);
    }
  };
  const std::size_t baseline = this->source.upstream.outstanding;
  steps();
  const epoch_stats once = this->memory.stats();
  EXPECT_EQ(once.reclaimed, 640u);
  EXPECT_EQ(this->source.upstream.outstanding, baseline);
  steps();
  const epoch_stats twice = this->memory.stats();
  EXPECT_EQ(twice.reclaimed, 1280u);
  EXPECT_EQ(twice.peak_bytes, once.peak_bytes);
  EXPECT_EQ(this->source.upstream.outstanding, baseline);
}

// S3.27
TYPED_TEST(epochs, account_for_the_end_of_all_4096_buffer_lifetimes) {
  for (int i = 0; i < 4096; ++i) {
    const buffer<float> outside{this->memory, 16};
    epoch e{this->memory};
    buffer<float> inside{this->memory, 16};
    buffer<float> moved{std::move(inside)};
    if (i % 3 == 0) moved.release();
    if (i % 3 == 1) e.keep(moved);
  }
  const epoch_stats stats = this->memory.stats();
  EXPECT_EQ(stats.allocations, 4096u);
  EXPECT_EQ(stats.allocations, stats.deallocations + stats.reclaimed + stats.let_go);
  EXPECT_EQ(this->source.upstream.outstanding, 0u);
}

// S3.29
TYPED_TEST(epochs, release_returns_true_only_once) {
  epoch e{this->memory};
  buffer<float> scratch{this->memory, 8};
  EXPECT_TRUE(scratch.release());
  EXPECT_FALSE(scratch.release());
  buffer<float> kept{this->memory, 8};
  e.keep(kept);
  EXPECT_TRUE(kept.release()) << "also for a kept block";
  buffer<float> temporary{this->memory, 8};
  const buffer<float> result = release_then(temporary, buffer<float>{this->memory, 4});
  EXPECT_FALSE(temporary.is_live());
  EXPECT_EQ(result.size(), 4u);
  EXPECT_EQ(e.end().reclaimed, 1u);
}

TYPED_TEST(epochs, lose_no_block_if_there_is_no_memory_for_records) {
  recording_resource bookkeeping;
  std::size_t all_refused = 0;
  for (std::size_t failing = 0; failing < 12; ++failing) {
    bookkeeping.fail_from = bookkeeping.calls + failing;
    epoch_options options = this->memory.options();
    options.bookkeeping = &bookkeeping;
    std::size_t refused = 0;
    try {
      epoch_resource memory{options};
      std::vector<buffer<int>> handles;
      epoch e{memory};
      for (int i = 0; i < 200; ++i) {
        const std::size_t before = this->source.upstream.outstanding;
        try {
          handles.emplace_back(memory, 10);
        } catch (std::bad_alloc const&) {
          ++refused;
          EXPECT_EQ(this->source.upstream.outstanding, before);
        }
      }
      memory.check_invariants();
    } catch (std::bad_alloc const&) {
      ++refused;  // the resource or the epoch itself
    }
    EXPECT_LE(refused, 1u);
    all_refused += refused;
    EXPECT_EQ(this->source.upstream.outstanding, 0u);
  }
  EXPECT_GE(all_refused, 6u) << "the test needs several failures";
}

// ---- with_epoch -------------------------------------------------------------------------------------------

/// All blocks have records and no slabs, so the upstream may be rewound while an epoch is open.
class rewound_epochs : public testing::Test {
 protected:
  void TearDown() override { memory.check_invariants(); }

  rewound_resource upstream;
  epoch_resource memory{{.host_memory = false}, &upstream};
};

TEST_F(rewound_epochs, return_blocks_newest_first) {
  std::vector<void*> blocks(5);
  epoch e{memory};
  for (void*& block : blocks) block = memory.allocate(64);
  e.end();
  std::ranges::reverse(blocks);
  EXPECT_EQ(upstream.came_back, blocks);
}

TEST_F(rewound_epochs, treat_a_block_as_gone_after_its_address_is_reused) {
  epoch e{memory};
  const buffer<char> gone{memory, 64};
  upstream.rewind();
  const buffer<char> successor{memory, 100};
  EXPECT_FALSE(gone.is_live());
  EXPECT_TRUE(successor.is_live());
  EXPECT_EQ(memory.stats().used_bytes, 100u);
  const epoch_summary end = e.end();
  EXPECT_EQ(end.reclaimed, 1u);
  EXPECT_EQ(end.reclaimed_bytes, 100u);
}

TEST_F(rewound_epochs, do_not_keep_the_neighbour_of_an_empty_span) {
  epoch e{memory};
  const buffer<char> first{memory, 64}, second{memory, 64};
  ASSERT_EQ(first.end(), second.begin());
  EXPECT_EQ(e.keep(first.span().subspan(64)), 0u);
  std::pmr::vector<int> reserved{&memory};
  reserved.reserve(10);
  EXPECT_EQ(e.keep(reserved), 1u);
}

TEST_F(rewound_epochs, keep_a_block_by_an_address_that_once_began_another_block) {
  epoch e{memory};
  (void)memory.allocate(64);
  buffer<char> second{memory, 64};
  char* const inside = second.data();
  (void)second.release();
  upstream.rewind();
  const buffer<char> around{memory, 128};
  EXPECT_EQ(e.keep(inside), 1u);
  e.end();
  EXPECT_TRUE(around.is_live());
}

// S3.21
TEST(epoch_keep, keeps_the_storage_of_contiguous_ranges) {
  pool blocks;
  epoch_resource memory{&blocks};
  std::optional<std::pmr::vector<int>> numbers;
  std::optional<std::pmr::string> text;
  std::optional<std::pmr::vector<std::array<int, 3>>> rows;
  {
    epoch e{memory};
    numbers.emplace(100, &memory);
    text.emplace(100, 'x', &memory);
    rows.emplace(100, std::array{1, 2, 3}, &memory);
    EXPECT_EQ(e.keep(nullptr, std::pmr::string{"short"}, std::span<int>{}, std::array{1, 2}), 0u);
    EXPECT_EQ(e.keep(*numbers, std::string_view{*text}, *rows), 3u);
    EXPECT_EQ(e.end().promoted, 3u);
  }
  EXPECT_EQ(text->back(), 'x');
  EXPECT_EQ(rows->back()[2], 3);
}

// S3.1
TYPED_TEST(epochs, with_epoch_keeps_and_returns_the_result) {
  const buffer<int> kept = with_epoch(this->memory, [&] { return buffer<int>{this->memory, 8}; });
  EXPECT_EQ(kept.size(), 8u);
  EXPECT_EQ(with_epoch(this->memory, "sum", [] { return 42; }), 42);
}

TYPED_TEST(epochs, with_epoch_keeps_the_buffers_its_second_function_returns) {
  struct trained {
    buffer<int> loss, gradients;
  };
  const trained result = with_epoch(
      this->memory, "step",
      [&](epoch& e) {
        EXPECT_EQ(e.depth(), 1u);
        EXPECT_STREQ(e.name(), "step");
        return trained{{this->memory, 1}, {this->memory, 100}};
      },
      [](trained& all) { return std::tie(all.loss); });
  EXPECT_TRUE(result.loss.is_live());
  EXPECT_FALSE(result.gradients.is_live());
}

TYPED_TEST(epochs, with_epoch_keeps_tuple_elements_and_buffers_kept_by_the_body) {
  const auto [loss, rest] = with_epoch(this->memory, "step", [&] {
    return std::tuple{buffer<int>{this->memory, 1},
                      std::tuple{std::string{"text"}, buffer<int>{this->memory, 2}, 3}};
  });
  EXPECT_TRUE(loss.is_live() && std::get<1>(rest).is_live());
  const auto all = with_epoch(this->memory, [&](epoch& e) {
    std::vector<buffer<int>> made;
    for (int i = 0; i < 2; ++i) e.keep(made.emplace_back(this->memory, 1));
    return made;
  });
  EXPECT_TRUE(all[0].is_live() && all[1].is_live());
}

TYPED_TEST(epochs, with_epoch_supports_a_body_without_a_result) {
  buffer<int> a, b;
  with_epoch(
      this->memory,
      [&] {
        a = {this->memory, 8};
        b = {this->memory, 8};
      },
      [&] { return b.view(1, 2); });
  EXPECT_FALSE(a.is_live());
  EXPECT_TRUE(b.is_live());
}

}  // namespace
}  // namespace tidemark::test
