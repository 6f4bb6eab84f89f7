// SPDX-License-Identifier: Apache-2.0
// Strategy: coroutines of every form over a resource that checks that it gets back exactly the blocks it
// returned, then over resources of every kind. Refused frames. At level 2, memory that is freed under a live
// coroutine.
#include <tidemark/coroutine/pmr_promise.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <coroutine>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <source_location>
#include <string>

#include <tidemark/tidemark.hpp>

#include "contains.hpp"
#include "coroutines.hpp"
#include "logged_upstream.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

struct recorded_frames : ::testing::Test {
  recording_resource memory;
};

generator<int> count_to(std::allocator_arg_t, frame_resource, int n) {
  for (int i = 1; i <= n; ++i) co_yield i;
}

template <class Generator>
int sum(Generator values) {
  int total = 0;
  for (int value : values) total += value;
  return total;
}

// ---- sources of frames ------------------------------------------------------------------------------------

struct sized_frames {
  static void* operator new(std::size_t bytes) { return ::operator new(last = bytes); }
  static void operator delete(void* frame) { ::operator delete(frame); }
  inline static std::size_t last = 0;
};

TEST_F(recorded_frames, adds_one_pointer_to_a_frame) {
  const auto with_pointer = [](std::allocator_arg_t, std::pmr::memory_resource*) -> generator<int> {
    co_yield 1;
  };
  static_assert(sizeof(generator<int>::promise_type) == sizeof(generator<int, sized_frames>::promise_type));
  const auto without = [](std::allocator_arg_t, std::pmr::memory_resource*) -> generator<int, sized_frames> {
    co_yield 1;
  };
  EXPECT_EQ(sum(with_pointer(std::allocator_arg, &memory)) + sum(without(std::allocator_arg, &memory)), 2);
  EXPECT_EQ(memory.largest, sized_frames::last + sizeof(void*));
}

TEST_F(recorded_frames, takes_a_frame_from_the_default_resource_if_no_resource_is_named) {
  const auto unnamed = []() -> generator<int> { co_yield 6; };
  const test::default_resource_scope scope{&memory};
  EXPECT_EQ(sum(unnamed()), 6);
  EXPECT_EQ(sum(count_to(std::allocator_arg, nullptr, 3)), 6);
  EXPECT_EQ(memory.calls, 2u);
}

template <class Memory>
generator<int> on(std::allocator_arg_t, Memory, int n) {
  co_yield n;
}
struct sequence {
  int first;
  generator<int> next(std::allocator_arg_t, frame_resource) const { co_yield first; }
};

// E.1
TEST_F(recorded_frames, accepts_every_kind_of_argument_and_function) {
  arena step;
  arena::scope scope{step};
  const std::pmr::polymorphic_allocator<> allocator{&memory};
  EXPECT_EQ(sum(on<std::pmr::memory_resource*>(std::allocator_arg, &memory, 1)), 1);
  EXPECT_EQ(sum(on<std::pmr::memory_resource&>(std::allocator_arg, memory, 2)), 2);
  EXPECT_EQ(sum(on<std::pmr::polymorphic_allocator<> const&>(std::allocator_arg, allocator, 3)), 3);
  EXPECT_EQ(sum(on<recording_resource&>(std::allocator_arg, memory, 4)), 4);
  EXPECT_EQ(sum(count_to(std::allocator_arg, allocator, 2)), 3);
  EXPECT_EQ(sum(sequence{10}.next(std::allocator_arg, memory)), 10);
  int factor = 2;
  const auto multiple = [&factor](std::allocator_arg_t, frame_resource, int n) -> generator<int> {
    co_yield n* factor;
  };
  EXPECT_EQ(sum(multiple(std::allocator_arg, memory, 3)), 6);
  EXPECT_EQ(memory.calls, 7u);
  EXPECT_EQ(memory.outstanding, 0u);
  EXPECT_EQ(sum(on<arena::scope const&>(std::allocator_arg, scope, 5)), 5);
  EXPECT_GT(step.stats().peak_bytes, 0u);
}

task<int> fibonacci(std::allocator_arg_t, frame_resource memory, int n) {
  if (n < 2) co_return n;
  const int before = co_await fibonacci(std::allocator_arg, memory, n - 1);
  co_return before + co_await fibonacci(std::allocator_arg, memory, n - 2);
}

// E.1
TEST(pmr_promise, takes_frames_from_resources_of_every_kind) {
  recording_resource upstream;
  arena bump;
  upstream_arena on_chunks{&upstream};
  shared_arena team;
  pool blocks{&upstream};
  synchronized_pool shared_blocks{{}, &upstream};
  epoch_resource epochs{&upstream};
  std::pmr::synchronized_pool_resource foreign{&upstream};
  tracking_resource tracked{&upstream};
  statistics_resource counted{&upstream};
  planned_arena planned{{.fallback = &upstream}};
  std::pmr::memory_resource* const all[] = {&bump,    &on_chunks,     &team,   &team.local(),
                                            &blocks,  &shared_blocks, &epochs, &foreign,
                                            &tracked, &counted,       &planned};
  for (std::pmr::memory_resource* memory : all) {
    EXPECT_EQ(fibonacci(std::allocator_arg, memory, 10).run(), 55);  // tasks that await tasks
    EXPECT_EQ(sum(count_to(std::allocator_arg, memory, 100)), 5050);
  }
  EXPECT_TRUE(tracked.leaks().empty());
  EXPECT_EQ(counted.stats().used_bytes, 0u);
  EXPECT_EQ(bump.position(), 0u);  // frames ended in the reverse order of their creation
}

// ---- alignment --------------------------------------------------------------------------------------------

struct alignas(64) line {
  int values[16];
};
template <class T>
bool is_aligned(T const& object) {
  return test::is_aligned(&object, alignof(T));
}

struct aligned_promise : pmr_promise<64> {
  line in_promise{};
};

TEST(pmr_promise, aligns_objects_in_a_frame_up_to_the_frame_alignment) {
  using aligned = generator<bool, aligned_promise>;
  const auto check = [](std::allocator_arg_t, frame_resource, line const argument) -> aligned {
    line local{};
    co_yield is_aligned(argument) && is_aligned(local);
    local.values[0] = argument.values[0];
    co_yield is_aligned(local) && local.values[0] == 7;
  };
  arena step;
  for (int i = 0; i < 10; ++i) {
    (void)step.allocate(16);
    aligned checked = check(std::allocator_arg, step, line{{7}});
    EXPECT_TRUE(is_aligned(checked.owner.get().promise().in_promise));
    EXPECT_TRUE(test::is_aligned(checked.owner.get().address(), 64));
    for (bool right : checked) EXPECT_TRUE(right);
  }
}

// ---- failures ---------------------------------------------------------------------------------------------

struct counted_argument {
  explicit counted_argument(int& count) : live{&count} { ++count; }
  counted_argument(counted_argument const& other) : live{other.live} { ++*live; }
  counted_argument& operator=(counted_argument const&) = delete;
  ~counted_argument() { --*live; }
  int* live;
};
generator<int> with_argument(std::allocator_arg_t, frame_resource, counted_argument argument) {
  co_yield *argument.live;
}

// E.3
TEST_F(recorded_frames, changes_nothing_without_memory) {
  int live = 0;
  memory.fail_from = 0;
  EXPECT_THROW((void)with_argument(std::allocator_arg, memory, counted_argument{live}), std::bad_alloc);
  EXPECT_EQ(live, 0);
  EXPECT_EQ(memory.outstanding, 0u);
  EXPECT_GT(sum(with_argument(std::allocator_arg, memory, counted_argument{live})), 0);
  EXPECT_EQ(live, 0);
}

struct throwing_promise : pmr_promise<> {
  throwing_promise() { throw 1; }
};

TEST_F(recorded_frames, returns_a_frame_whose_promise_throws) {
  const auto never = [](std::allocator_arg_t, frame_resource) -> generator<int, throwing_promise> {
    co_yield 1;
  };
  EXPECT_THROW((void)never(std::allocator_arg, memory), int);
  EXPECT_EQ(memory.calls, 1u);
  EXPECT_EQ(memory.outstanding, 0u);
}

// ---- memory that is freed under a live coroutine, at level 2 ----------------------------------------------

struct outlived_frames : ::testing::Test {
  void SetUp() override {
    if (check_level < 2) GTEST_SKIP() << "check level " << check_level << " does not know the live frames";
  }

  /// Makes a coroutine that nothing destroys, and notes its place.
  void escape(frame_resource memory, std::source_location where = std::source_location::current()) {
    line_ = where.line();
    handle = count_to(std::allocator_arg, memory, 3).owner.release();
  }
  /// Expects a single report that names the place of the coroutine and the call that freed its memory.
  void expect_report(std::string const& freed_by) {
    ASSERT_EQ(recorder.count(violation_kind::frame_outlived), 1u);
    ASSERT_EQ(recorder.reports().size(), 1u);
    std::string const& message = recorder.reports()[0].message;
    EXPECT_EQ(message.substr(0, freed_by.size()), freed_by) << message;
    EXPECT_PRED2(test::contains, message, "pmr_promise_test.cpp:" + std::to_string(line_));
    recorder.reports().clear();
  }

  violation_recorder recorder;
  std::coroutine_handle<> handle;

 private:
  unsigned line_ = 0;
};

// E.4
TEST_F(outlived_frames, are_reported_by_every_way_to_rewind_an_arena) {
  std::optional<arena> step{std::in_place, arena_options{.reserve = 64 * KiB, .name = "step"}};
  const arena_mark mark = step->mark();
  const auto expect_report_by = [&](auto free) {
    escape(*step);
    free();
    expect_report("arena 'step': memory of a live coroutine is freed: its frame of ");
  };
  {
    const arena::scope scope{*step};
    escape(scope);
  }
  expect_report("arena 'step'");
  expect_report_by([&] { step->rewind(mark); });
  expect_report_by([&] { step->pop(8); });
  expect_report_by([&] { step->reset(); });
  expect_report_by([&] {  // over chunks
    for (int i = 0; i < 5; ++i) (void)step->allocate(50 * KiB);
    EXPECT_EQ(sum(count_to(std::allocator_arg, *step, 3)), 6);
    step->rewind(mark);
  });
  expect_report_by([&] { step.reset(); });
}

// E.4
TEST_F(outlived_frames, are_reported_when_a_shared_arena_is_rewound) {
  shared_arena team{{.name = "team"}};
  {
    shared_arena::scope scope{team};
    escape(&team.local());
  }
  expect_report("arena 'team'");
}

// E.4
TEST_F(outlived_frames, are_reported_when_a_pool_ends_or_is_released) {
  const auto expect_reports_of = [&](auto make, std::string const& freed_by) {
    {
      auto blocks = make();
      escape(*blocks);
      blocks->release();
      expect_report(freed_by);
      escape(*blocks);
    }
    expect_report(freed_by);
  };
  expect_reports_of([] { return std::make_unique<pool>(pool_options{.name = "blocks"}); }, "pool 'blocks'");
  expect_reports_of([] { return std::make_unique<synchronized_pool>(pool_options{.name = "blocks"}); },
                    "synchronized_pool 'blocks'");
}

TEST_F(outlived_frames, are_reported_when_the_arena_below_their_pool_is_rewound) {
  arena step{{.name = "step"}};
  auto* const blocks =
      step.push<std::pmr::unsynchronized_pool_resource>(no_destructor, &step);  // never destroyed
  const arena_mark mark = step.mark();
  escape(*blocks);
  step.rewind(mark);
  expect_report("arena 'step'");
}

TEST_F(outlived_frames, are_reported_at_the_end_of_their_epoch) {
  pool upstream;
  for (const bool has_slabs : {false, true}) {
    limit_resource limited{&upstream, has_slabs ? 1 * MiB : 4 * KiB};  // no chunk fits into 4 KiB
    epoch_resource epochs{&limited};
    {
      epoch step{epochs, "step"};
      escape(epochs);
    }
    expect_report(has_slabs ? "epoch 'step'" : "epoch_resource 'epochs'");
  }
}

TEST_F(outlived_frames, are_each_reported_exactly_once) {
  arena step;
  generator<int> outside = count_to(std::allocator_arg, step, 3);
  {
    const arena::scope scope{step};
    for (int i = 0; i < 3; ++i) escape(scope);
    EXPECT_EQ(sum(count_to(std::allocator_arg, scope, 3)), 6);  // ended, so not reported
  }
  step.reset();  // and with it `outside`
  EXPECT_EQ(recorder.count(violation_kind::frame_outlived), 4u);
  (void)outside.owner.release();
  step.release();
  EXPECT_EQ(recorder.reports().size(), 4u);
}

// ---- frames of unwatched resources ------------------------------------------------------------------------

using leaky_resource = std::pmr::monotonic_buffer_resource;

TEST_F(outlived_frames, are_not_reported_for_an_arena_on_reused_memory) {
  alignas(16) std::array<std::byte, 8 * KiB> buffer;
  const auto expect_no_report_of = [&](auto make) {
    leaky_resource leaky{buffer.data(), buffer.size()}, upstream{buffer.data(), buffer.size()};
    for (int i = 0; i < 3; ++i) escape(leaky);
    {
      auto step = make(&upstream);
      const typename decltype(step)::scope scope{step};
      EXPECT_EQ(step.allocate(3 * KiB), buffer.data());
    }
    EXPECT_TRUE(recorder.reports().empty());
  };
  expect_no_report_of([&](auto*) { return borrowed_arena{buffer.data(), buffer.size()}; });
  expect_no_report_of([&](auto*) { return upstream_arena{buffer.data(), buffer.size()}; });
  expect_no_report_of([](auto* upstream) { return upstream_arena{upstream}; });
}

TEST_F(outlived_frames, are_not_reported_for_a_pool_at_a_reused_address) {
  alignas(synchronized_pool) static std::byte place[std::max(sizeof(synchronized_pool), sizeof(pool))];
  const auto leak = [&] {
    auto* const leaky = ::new (place) leaky_resource;
    escape(*leaky);
    leaky->~leaky_resource();
  };
  leak();
  (::new (place) pool)->~pool();
  leak();
  (::new (place) synchronized_pool)->~synchronized_pool();
  EXPECT_TRUE(recorder.reports().empty());
}

TEST_F(outlived_frames, are_forgotten_when_another_frame_reuses_their_memory) {
  alignas(16) std::array<std::byte, 4 * KiB> buffer;
  leaky_resource leaky{buffer.data(), buffer.size()}, next{buffer.data(), buffer.size()};
  void* const stale = detail::allocate_recorded(leaky, 64, 16, {});
  void* const also_stale = detail::allocate_recorded(leaky, 64, 16, {});
  void* const alive = detail::allocate_recorded(next, 96, 16, {});
  ASSERT_EQ(alive, stale);
  EXPECT_FALSE(detail::untrack_frame(also_stale));
  EXPECT_TRUE(detail::untrack_frame(alive));
}

// The range that the scope frees lies in the frame of the coroutine that has the buffer.
TEST_F(outlived_frames, are_not_reported_for_an_arena_in_the_coroutine_frame) {
  const auto sums_in_its_buffer = [](std::allocator_arg_t, frame_resource) -> generator<int> {
    alignas(16) std::array<std::byte, 4 * KiB> buffer;
    borrowed_arena step{buffer.data(), buffer.size()};
    for (int i = 0; i < 2; ++i) {
      const borrowed_arena::scope scope{step};
      (void)step.allocate(1000);
      co_yield sum(count_to(std::allocator_arg, scope, 3));
    }
  };
  EXPECT_EQ(sum(sums_in_its_buffer(std::allocator_arg, std::pmr::new_delete_resource())), 12);
  EXPECT_TRUE(recorder.reports().empty());
}

// ---- the report -------------------------------------------------------------------------------------------

TEST_F(outlived_frames, may_be_destroyed_by_the_handler_of_the_report) {
  static std::coroutine_handle<> escaped;
  int live = 0;
  const violation_handler recording = set_violation_handler([](violation const&) { escaped.destroy(); });
  arena step;
  {
    const arena::scope scope{step};
    escaped = with_argument(std::allocator_arg, scope, counted_argument{live}).owner.release();
    EXPECT_EQ(live, 1);
  }
  EXPECT_EQ(live, 0);
  EXPECT_EQ(step.position(), 0u);
  set_violation_handler(recording);
}

TEST_F(outlived_frames, are_recorded_with_their_location_by_tracking_resource) {
  tracking_resource tracked;
  const unsigned here = __LINE__ + 1;
  generator<int> values = count_to(std::allocator_arg, tracked, 3);
  ASSERT_EQ(tracked.leaks().size(), 1u);
  EXPECT_EQ(tracked.leaks()[0].site.line(), here);
  EXPECT_STREQ(tracked.leaks()[0].label, "a coroutine's frame");
}

// ---- frame_resource ---------------------------------------------------------------------------------------

static_assert(sizeof(frame_resource) == sizeof(void*) || sizeof(detail::call_site) > 1,
              "below level 2 it is one pointer; at level 2 and in ASan builds it is a place as well");

}  // namespace
}  // namespace tidemark::test
