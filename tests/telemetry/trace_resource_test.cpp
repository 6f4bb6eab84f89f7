// SPDX-License-Identifier: Apache-2.0
// Strategy: one fact of `trace_resource` and `trace_slice` per test, seen in the files that they leave.
// Threads run on real memory, and their trace is replayed.
#include <tidemark/telemetry/trace_resource.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/telemetry/trace_log.hpp>

#include "contains.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "thread_storm.hpp"
#include "trace_files.hpp"

namespace {

// Outside of namespace tidemark, and not inlined: its name is the place of its allocations.
[[gnu::noinline]] void allocate_in_a_function_of_the_program(tidemark::trace_resource& traced) {
  traced.deallocate(traced.allocate(8), 8);
}

}  // namespace

namespace tidemark::test {
namespace {

using values = std::vector<std::size_t>;

constexpr std::chrono::hours never_again{1000};  // as an interval of counters

/// The CSV of what `body(log)` does.
template <class Body>
std::string file_of(Body body, trace_log_options options = {}) {
  trace_files files;
  options.csv = files.csv();
  {
    trace_log log{options};
    body(log);
  }
  return text_of(files.csv());
}

/// Its rows for events, without names of resources and places.
template <class Body>
std::string csv_of(Body body) {
  trace_files files;
  {
    trace_log log{{.csv = files.csv()}};
    body(log);
  }
  return events_of(files.csv());
}

/// The points of the Chrome trace of what `body(traced, log)` does with a resource.
template <class Body>
values drawn_with(std::chrono::nanoseconds interval, Body body) {
  trace_files files;
  {
    trace_log log{{.chrome = files.chrome(), .counter_interval = interval}};
    trace_resource traced{std::pmr::new_delete_resource(), log, "heap"};
    body(traced, log);
  }
  return files.counter("heap");
}

struct trace_resource_files : ::testing::Test {
  trace_files files;
};
using trace_slice_files = trace_resource_files;

// ---- the CSV ----

TEST(trace_resource, writes_the_recorded_format) {
  EXPECT_EQ(csv_of([](trace_log& log) {
              trace_resource traced{log};
              void* const first = traced.allocate(100);
              void* const second = traced.allocate(0);
              traced.deallocate(first, 100);
              void* const third = traced.allocate(7, 64);
              traced.deallocate(third, 7, 64);
              traced.deallocate(second, 0);
            }),
            "op,id,bytes,thread\na,0,100,0\na,1,0,0\nf,0,0,0\na,2,7,0\nf,2,0,0\nf,1,0,0\n");
}

TEST(trace_resource, writes_each_change_of_the_resource) {
  EXPECT_EQ(file_of([](trace_log& log) {
              trace_resource one{log, "one"}, other{log, "\"the\",\nother"};
              void* const first = one.allocate(1);
              void* const second = one.allocate(2);
              void* const third = other.allocate(3);
              one.deallocate(first, 1);
              other.deallocate(third, 3);
              one.deallocate(one.allocate(4), 4);
              one.deallocate(second, 2);
            }),
            "op,id,bytes,thread\nr,0,one,0\na,0,1,0\na,1,2,0\nr,1,'the';?other,0\na,2,3,0\nf,0,0,0\nf,2,0,0\n"
            "r,0,,0\na,3,4,0\nf,3,0,0\nf,1,0,0\n");
}

TEST(trace_resource, writes_each_change_of_the_place) {
  const std::string file = file_of([](trace_log& log) {
    trace_resource traced{log, "heap"};
    const auto use = [&] { traced.deallocate(traced.allocate(8), 8); };
    {
      const allocation_site outer{"weights"};
      use();
      const allocation_site inner;
      use();
      use();
    }
    use();
  });
  const std::string here = std::string{__FILE__} + ":";
  const std::size_t first = file.find("p,1," + here), second = file.find("p,2," + here);
  ASSERT_NE(first, std::string::npos) << file;
  ASSERT_NE(second, std::string::npos) << file;
  EXPECT_NE(file.find(" (weights),0\nr,0,heap,0\na,0,8,0\n", first), std::string::npos) << file;
  EXPECT_NE(file.find(",0\na,1,8,0\nf,1,0,0\na,2,8,0\nf,2,0,0\np,0,,0\na,3,8,0\n", second), std::string::npos)
      << file;
}

TEST(trace_resource, finds_the_calling_functions) {
  const std::string file = file_of(
      [](trace_log& log) {
        trace_resource traced{log, "heap"};
        allocate_in_a_function_of_the_program(traced);
        allocate_in_a_function_of_the_program(traced);
      },
      {.finds_callers = true});
  const std::size_t place = file.find("p,1,");
  ASSERT_NE(place, std::string::npos) << file;
  EXPECT_EQ(file.find("p,2,"), std::string::npos) << file;
  EXPECT_NE(file.find("allocate_in_a_function_of_the_program", place), std::string::npos) << file;
}

TEST(trace_resource, as_observer_writes_the_blocks_of_an_arena) {
  EXPECT_EQ(file_of([](trace_log& log) {
              trace_resource traced{log, "step"};
              arena memory{{.observer = &traced}};
              arena::scope scope{memory};
              (void)scope.push_array<double>(2);
              (void)scope.push_string("abc");
            }),
            "op,id,bytes,thread\nr,0,step,0\na,0,16,0\na,1,4,0\nf,1,0,0\nf,0,0,0\n");
}

TEST(trace_resource, as_observer_writes_the_steps_of_a_planned_arena) {
  EXPECT_EQ(file_of([](trace_log& log) {
              trace_resource traced{log, "train"};
              planned_arena memory{planned_arena_options{.observer = &traced}};
              for (int i = 0; i < 2; ++i) {
                planned_arena::step step{memory, 128};
                memory.deallocate(memory.allocate(100), 100);
              }
            }),
            "op,id,bytes,thread\ns,0,train kind 128,0\nr,0,train,0\na,0,100,0\nf,0,0,0\ne,0,0,0\n"
            "s,1,train kind 128,0\na,1,100,0\nf,1,0,0\ne,1,0,0\n");
}

TEST(trace_resource, numbers_threads_by_first_appearance_and_no_thread_twice) {
  EXPECT_EQ(csv_of([](trace_log& log) {
              trace_resource traced{log};
              std::vector<void*> blocks;
              // One after the other, so that the system gives their identities to the next.
              for (int i = 0; i < 3; ++i) std::thread{[&] { blocks.push_back(traced.allocate(8)); }}.join();
              for (void* block : blocks) traced.deallocate(block, 8);
            }),
            "op,id,bytes,thread\na,0,8,0\na,1,8,1\na,2,8,2\nf,0,0,3\nf,1,0,3\nf,2,0,3\n");
}

// T.13
TEST_F(trace_resource_files, writes_a_replayable_trace_of_four_threads) {
  constexpr std::size_t threads = 4, rounds = 5000;
  std::size_t left = 0;  // blocks that no working thread gave back
  resource_stats stats;
  {
    trace_log log{{.csv = files.csv(), .chrome = files.chrome()}};
    trace_resource traced{std::pmr::new_delete_resource(), log};
    struct exchange_place {
      std::mutex mutex;
      void* block = nullptr;
      std::size_t bytes = 0;
    };
    std::array<exchange_place, 64> places;  // where one thread leaves a block for the next thread
    test::on_threads(
        [&](std::size_t t) {
          std::minstd_rand random{static_cast<unsigned>(t + 1)};
          trace_slice slice{log, "thread"};
          for (std::size_t i = 0; i < rounds; ++i) {
            std::size_t bytes = 1 + random() % 500;
            void* block = traced.allocate(bytes);
            exchange_place& place = places[random() % places.size()];
            {
              const std::scoped_lock lock{place.mutex};
              std::swap(place.block, block);
              std::swap(place.bytes, bytes);
            }
            if (block != nullptr) traced.deallocate(block, bytes);
          }
        },
        threads);
    traced.check_invariants();
    for (exchange_place& place : places) {
      if (place.block == nullptr) continue;
      traced.deallocate(place.block, place.bytes);
      ++left;
    }
    EXPECT_GT(left, 0u);
    stats = traced.stats();
  }
  const replayed_trace trace{files.csv()};
  EXPECT_EQ(trace.allocations, threads * rounds);
  EXPECT_EQ(trace.deallocations, threads * rounds);
  EXPECT_EQ(trace.threads.size(), threads + 1);  // besides them the one that cleaned up
  EXPECT_EQ(*trace.threads.rbegin(), threads);
  EXPECT_GE(trace.freed_by_another_thread, left);
  EXPECT_EQ(trace.live_bytes, 0u);
  EXPECT_EQ(trace.max_live_bytes, stats.peak_bytes);
  EXPECT_EQ(trace.max_live_blocks, stats.peak_blocks);
}

// T.5
TEST_F(trace_resource_files, writes_the_end_of_a_block_before_its_address_is_reused) {
  constexpr std::size_t rounds = 5000;
  {
    trace_log log{{.csv = files.csv()}};
    test::made_up_memory memory;
    limit_resource upstream{&memory, 16};  // the same block each time
    trace_resource traced{&upstream, log};
    const auto work = [&] {
      for (std::size_t done = 0; done < rounds;) {
        try {
          traced.deallocate(traced.allocate(16), 16);
          ++done;
        } catch (std::bad_alloc const&) {
          std::this_thread::yield();
        }
      }
    };
    std::thread other{work};
    work();
    other.join();
    EXPECT_EQ(traced.stats().deallocations, 2 * rounds);
  }
  const replayed_trace trace{files.csv()};
  EXPECT_EQ(trace.allocations, 2 * rounds);
  EXPECT_EQ(trace.max_live_blocks, 1u);
  EXPECT_EQ(trace.freed_by_another_thread, 0u);  // no end was invented when the address came again
}

// ---- the upstream ----

TEST_F(trace_resource_files, an_allocation_that_fails_is_counted_and_not_written) {
  recording_resource upstream;
  {
    trace_log log{{.csv = files.csv(), .chrome = files.chrome(), .counter_interval = {}}};
    trace_resource traced{&upstream, log, "heap"};
    upstream.fail_from = 0;
    EXPECT_THROW((void)traced.allocate(1), std::bad_alloc);
    EXPECT_EQ(traced.stats().refused, 1u);
    EXPECT_EQ(traced.stats().allocations, 0u);
    traced.deallocate(traced.allocate(2), 2);
  }
  EXPECT_EQ(text_of(files.csv()), "op,id,bytes,thread\nr,0,heap,0\na,0,2,0\nf,0,0,0\n");
  EXPECT_EQ(files.counter("heap"), (values{0, 2, 0}));
}

TEST_F(trace_resource_files, an_unknown_pointer_is_passed_on_and_not_written) {
  recording_resource upstream;
  {
    trace_log log{{.csv = files.csv()}};
    trace_resource traced{&upstream, log};
    traced.deallocate(upstream.allocate(32), 32);
    EXPECT_EQ(upstream.outstanding, 0u);
    EXPECT_EQ(traced.stats().deallocations, 0u);
  }
  EXPECT_EQ(text_of(files.csv()), "op,id,bytes,thread\n");
}

TEST(trace_resource, rewound_blocks_end_when_their_memory_is_reused) {
  EXPECT_EQ(csv_of([](trace_log& log) {
              arena step;
              trace_resource traced{&step, log};
              (void)traced.allocate(64);  // 0 stays
              const arena_mark mark = step.mark();
              (void)traced.allocate(32);  // 1
              (void)traced.allocate(32);  // 2
              (void)traced.allocate(64);  // 3; the middle is allocated again
              step.rewind(mark);
              (void)traced.allocate(96);  // 4 lies on 1 and 2, and on the first half of 3
              EXPECT_EQ(traced.stats().used_bytes, 160u);
              traced.check_invariants();
              step.rewind(mark);
              (void)traced.allocate(16);  // 5 lies on the beginning of 4
              (void)traced.allocate(16);  // 6 lies on nothing that is left
              traced.check_invariants();
              log.close();
            }),
            "op,id,bytes,thread\na,0,64,0\na,1,32,0\na,2,32,0\na,3,64,0\n"
            "f,1,0,0\nf,2,0,0\nf,3,0,0\na,4,96,0\nf,4,0,0\na,5,16,0\na,6,16,0\n");
}

/// Allocates from a buffer, from its end to its beginning.
class descending_resource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t) override { return buffer_ + (left_ -= bytes); }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  std::size_t left_ = 1024;
  alignas(16) std::byte buffer_[1024];
};

TEST(trace_resource, blocks_that_touch_do_not_end_each_other) {
  EXPECT_EQ(csv_of([](trace_log& log) {
              descending_resource upstream;
              trace_resource traced{&upstream, log};
              for (int i = 0; i < 3; ++i) (void)traced.allocate(16);
            }),
            "op,id,bytes,thread\na,0,16,0\na,1,16,0\na,2,16,0\n");
}

TEST(trace_resource, new_block_inside_a_rewound_block_ends_the_rewound_block) {
  EXPECT_EQ(csv_of([](trace_log& log) {
              arena step;
              trace_resource traced{&step, log};
              const arena_mark mark = step.mark();
              (void)traced.allocate(64);
              step.rewind(mark);
              (void)step.allocate(32);  // not traced
              (void)traced.allocate(0);
              traced.check_invariants();
            }),
            "op,id,bytes,thread\na,0,64,0\nf,0,0,0\na,1,0,0\n");
}

TEST_F(trace_resource_files, uses_the_default_resource_by_default_and_never_for_itself) {
  recording_resource upstream;
  std::pmr::memory_resource* const before = std::pmr::set_default_resource(&upstream);
  {
    trace_log log{{.csv = files.csv(), .chrome = files.chrome()}};
    trace_resource traced{log};
    trace_slice slice{log, "a name so long that it does not fit into the string itself"};
    EXPECT_EQ(traced.upstream_resource(), &upstream);
    traced.deallocate(traced.allocate(1), 1);
  }
  std::pmr::set_default_resource(before);
  EXPECT_EQ(upstream.calls, 1u);
}

// ---- counters of the Chrome trace ----

TEST(trace_resource, writes_every_change_of_live_bytes_with_an_interval_of_0) {
  EXPECT_EQ(drawn_with({},
                       [](trace_resource& traced, trace_log&) {
                         void* const first = traced.allocate(100);
                         void* const second = traced.allocate(20);
                         traced.deallocate(first, 100);
                         traced.deallocate(second, 20);
                       }),
            (values{0, 100, 120, 20, 0}));
}

TEST(trace_resource, keeps_the_peak_and_the_last_of_skipped_points) {
  EXPECT_EQ(drawn_with(never_again,
                       [](trace_resource& traced, trace_log& log) {
                         for (std::size_t bytes : {100u, 900u, 300u})
                           traced.deallocate(traced.allocate(bytes), bytes);
                         void* const left = traced.allocate(70);
                         log.close();
                         traced.deallocate(left, 70);
                       }),
            (values{0, 900, 70}));
}

TEST(trace_resource, writes_one_point_if_the_last_is_the_highest) {
  EXPECT_EQ(drawn_with(never_again,
                       [](trace_resource& traced, trace_log& log) {
                         traced.deallocate(traced.allocate(5), 5);
                         void* const left = traced.allocate(70);
                         log.close();
                         traced.deallocate(left, 70);
                       }),
            (values{0, 70}));
}

TEST(trace_resource, writes_pending_points_before_the_next_point) {
  EXPECT_EQ(drawn_with(std::chrono::milliseconds{200},
                       [](trace_resource& traced, trace_log&) {
                         traced.deallocate(traced.allocate(900), 900);
                         std::this_thread::sleep_for(std::chrono::milliseconds{250});
                         traced.deallocate(traced.allocate(40), 40);
                       }),
            (values{0, 900, 0, 40, 0}));
}

TEST_F(trace_resource_files, shares_no_counter_with_another_of_its_name) {
  {
    trace_log log{{.chrome = files.chrome(), .counter_interval = {}}};
    std::pmr::memory_resource* const heap = std::pmr::new_delete_resource();
    trace_resource one{heap, log, "heap"};
    {
      trace_resource other{heap, log, "heap"}, third{heap, log, "heap"};
      other.deallocate(other.allocate(20), 20);
      third.deallocate(third.allocate(30), 30);
    }
    trace_resource later{heap, log, "heap"};  // the name is free again
    later.deallocate(later.allocate(40), 40);
    one.deallocate(one.allocate(10), 10);
  }
  EXPECT_EQ(files.counter("heap"), (values{0, 10, 0}));
  EXPECT_EQ(files.counter("heap (2)"), (values{0, 20, 0, 0, 40, 0}));
  EXPECT_EQ(files.counter("heap (3)"), (values{0, 30, 0}));
}

// ---- slices ----

TEST_F(trace_slice_files, begins_and_ends_on_the_track_of_its_thread) {
  {
    trace_log log{{.chrome = files.chrome()}};
    trace_slice step{log, "step 3"};
    std::thread{[&] { trace_slice slice{log, "of another thread"}; }}.join();
    trace_slice inner{log, "forward"};
  }
  const std::vector<std::string> begins = files.events("B"), ends = files.events("E");
  ASSERT_EQ(begins.size(), 3u);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_NE(begins[0].find(R"("name":"step 3")"), std::string::npos) << begins[0];
  EXPECT_NE(begins[1].find(R"("name":"of another thread")"), std::string::npos) << begins[1];
  EXPECT_NE(begins[2].find(R"("name":"forward")"), std::string::npos) << begins[2];
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string thread = i == 1 ? R"("tid":1,)" : R"("tid":0,)";
    EXPECT_PRED2(test::contains, begins[i], thread);
  }
  EXPECT_NE(ends[0].find(R"("tid":1,)"), std::string::npos) << ends[0];
  EXPECT_NE(ends[1].find(R"("tid":0,)"), std::string::npos) << ends[1];
  EXPECT_EQ(files.events("M").size(), 3u);  // names of the process and of two threads
}

TEST_F(trace_slice_files, ends_on_its_own_track_if_another_thread_ends_it) {
  {
    trace_log log{{.chrome = files.chrome()}};
    std::optional<trace_slice> slice;
    slice.emplace(log, "handed over");
    std::thread{[&] {
      trace_slice own{log, "own"};
      slice.reset();
    }}.join();
  }
  const std::vector<std::string> ends = files.events("E");
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_NE(ends[0].find(R"("tid":0,)"), std::string::npos) << ends[0];
  EXPECT_NE(ends[1].find(R"("tid":1,)"), std::string::npos) << ends[1];
}

TEST_F(trace_slice_files, open_slice_ends_once_when_the_log_is_closed) {
  {
    trace_log log{{.chrome = files.chrome()}};
    trace_slice outer{log, "outer"}, inner{log, "inner"};
    log.close();
    trace_slice late{log, "late"};
  }
  EXPECT_EQ(files.events("B").size(), 2u);
  EXPECT_EQ(files.events("E").size(), 2u);
}

TEST(trace_slice, marks_steps_in_the_csv) {
  EXPECT_EQ(file_of([](trace_log& log) {
              trace_resource traced{log, "heap"};
              trace_slice outer{log, "epoch, first"};
              {
                trace_slice inner{log, "step"};
                traced.deallocate(traced.allocate(8), 8);
              }
              std::thread{[&] { trace_slice other{log, ""}; }}.join();
            }),
            "op,id,bytes,thread\ns,0,epoch; first,0\ns,1,step,0\nr,0,heap,0\na,0,8,0\nf,0,0,0\n"
            "e,1,0,0\ns,2,,1\ne,2,0,1\ne,0,0,0\n");
}

}  // namespace
}  // namespace tidemark::test
