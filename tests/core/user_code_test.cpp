// SPDX-License-Identifier: Apache-2.0
// Strategy: each user function that the library calls makes, uses and ends resources of each kind, uses the
// resource that calls it, and waits for another thread that does the same. A lock that the library holds
// meanwhile causes a deadlock, which the alarm ends. docs/reference/callbacks.md lists these calls.
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "calling_owner.hpp"
#include "calling_upstream.hpp"
#include "contains.hpp"
#include "report_recorder.hpp"
#include "thread_storm.hpp"
#include "unseen_write.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

void allocate_three_sizes(std::pmr::memory_resource& memory) {
  for (const std::size_t bytes : {std::size_t{64}, 4 * KiB, 3 * MiB})
    memory.deallocate(memory.allocate(bytes), bytes);
}

// Makes, uses and ends a resource of each kind.
void use_each_kind() {
  arena a;
  a.deallocate(a.allocate(64), 64);
  pool p;
  synchronized_pool s;
  reuse_cache r;
  epoch_resource e;
  test_resource t;
  tracking_resource k{std::pmr::new_delete_resource(), "k"};
  statistics_resource n{std::pmr::new_delete_resource(), "n"};
  capture_switch c{{.upstream = std::pmr::new_delete_resource()}};
  compat::synchronized_pool_resource standard{std::pmr::new_delete_resource()};
  for (std::pmr::memory_resource* const each :
       std::initializer_list<std::pmr::memory_resource*>{&p, &s, &r, &e, &t, &k, &n, &c, &standard})
    allocate_three_sizes(*each);
  const arena::scope temporary = scratch(no_conflicts);
  workspace w;
  workspace::scope in{w};
  (void)in.acquire<float>(16);
  const pressure_subscription nothing = on_memory_pressure([] {});
  const pressure_monitor monitor{{.background = false}};
}

// Runs an action that user functions may do: on its own thread, and on another thread that it waits for.
void on_both_threads(std::function<void()> const& action) {
  action();
  std::thread{action}.join();
}

// Calls a function only once, even if the function causes further calls.
class once {
 public:
  explicit once(std::function<void()> action) : action_{std::move(action)} {}
  void operator()() {
    if (calls_.fetch_add(1) == 0) action_();
  }
  [[nodiscard]] int calls() const { return calls_; }

 private:
  std::function<void()> action_;
  std::atomic<int> calls_{0};
};

class user_code : public ::testing::Test {
 protected:
  void SetUp() override { ::alarm(60); }
  void TearDown() override { ::alarm(0); }
};

// ---- pressure callbacks -----------------------------------------------------------------------------------

struct pressure_callbacks : user_code {};

TEST_F(pressure_callbacks, make_use_and_end_resources_of_each_kind) {
  int calls = 0;
  const pressure_subscription subscription = on_memory_pressure([&] {
    ++calls;
    on_both_threads(use_each_kind);
  });
  EXPECT_GE(signal_memory_pressure(), 1u);
  EXPECT_EQ(calls, 1);
}

TEST_F(pressure_callbacks, end_resources_that_subscribe_themselves) {
  auto one = std::make_unique<pool>();
  auto two = std::make_unique<synchronized_pool>();
  auto three = std::make_unique<synchronized_pool>();
  const pressure_subscription subscription = on_memory_pressure([&] {
    one.reset();
    two.reset();
    std::thread{[&] { three.reset(); }}.join();
  });
  (void)signal_memory_pressure();
  EXPECT_EQ(one, nullptr);
  EXPECT_EQ(two, nullptr);
  EXPECT_EQ(three, nullptr);
}

TEST_F(pressure_callbacks, end_their_own_subscription) {
  int calls = 0;
  auto const alive = std::make_shared<int>(7);
  pressure_subscription subscription;
  subscription = on_memory_pressure([&, alive] {
    ++calls;
    subscription = {};
    EXPECT_EQ(*alive, 7) << "objects of the callback live until it returns";
  });
  (void)signal_memory_pressure();
  (void)signal_memory_pressure();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST_F(pressure_callbacks, end_the_subscriptions_of_others_and_make_new_ones) {
  int others = 0, late = 0;
  bool is_first = true;
  pressure_subscription added;
  pressure_subscription other;
  const pressure_subscription first = on_memory_pressure([&] {
    if (std::exchange(is_first, false)) {
      other = {};
      added = on_memory_pressure([&] { ++late; });
    }
  });
  other = on_memory_pressure([&] { ++others; });
  (void)signal_memory_pressure();
  EXPECT_EQ(others, 0) << "ended before its turn";
  EXPECT_EQ(late, 0) << "subscribed behind the signal";
  (void)signal_memory_pressure();
  EXPECT_EQ(late, 1);
}

TEST_F(pressure_callbacks, signal_again_on_the_same_thread_without_effect) {
  int first = 0, second = 0;
  std::size_t called = 1;
  const pressure_subscription one = on_memory_pressure([&] {
    ++first;
    called = signal_memory_pressure();
  });
  const pressure_subscription two = on_memory_pressure([&] {
    ++second;
    (void)signal_memory_pressure();
  });
  (void)signal_memory_pressure();
  EXPECT_EQ(called, 0u);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

TEST_F(pressure_callbacks, are_skipped_by_a_signal_of_a_thread_that_they_wait_for) {
  std::atomic<int> running{0}, calls{0};
  const pressure_subscription one = on_memory_pressure([&] {
    EXPECT_EQ(++running, 1);
    ++calls;
    std::thread{[] { (void)signal_memory_pressure(); }}.join();
    --running;
  });
  (void)signal_memory_pressure();
  EXPECT_EQ(calls, 1);
}

/// A callback that another thread runs for a while.
struct slow_callback {
  std::atomic<bool> entered{false}, returned{false};
  pressure_subscription subscription = on_memory_pressure([this] {
    entered = true;
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    returned = true;
  });
  std::thread signals{[] { (void)signal_memory_pressure(); }};

  slow_callback() {
    while (!entered) std::this_thread::yield();
  }
};

TEST_F(pressure_callbacks, end_each_others_subscriptions_while_several_threads_signal) {
  for (const std::size_t n : {std::size_t{2}, std::size_t{3}}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<pressure_subscription> subscriptions(n);
      std::atomic<int> calls{0};
      for (std::size_t i = 0; i < n; ++i) {
        subscriptions[i] = on_memory_pressure([&, i] {
          ++calls;
          subscriptions[(i + 1) % n] = {};
        });
      }
      on_threads([](std::size_t) { (void)signal_memory_pressure(); }, n);
      EXPECT_GE(calls, 1);
      EXPECT_EQ(signal_memory_pressure(), signal_memory_pressure()) << "no signal stays active";
    }
  }
}

TEST_F(pressure_callbacks, run_on_one_thread_at_a_time) {
  slow_callback slow;
  const pressure_subscription other = on_memory_pressure([&] { EXPECT_TRUE(slow.returned); });
  EXPECT_EQ(signal_memory_pressure(), 0u) << "another thread signals";
  slow.signals.join();
  EXPECT_GE(signal_memory_pressure(), 2u);
}

TEST_F(pressure_callbacks, are_awaited_by_the_end_of_their_subscription) {
  slow_callback slow;
  slow.subscription = {};
  EXPECT_TRUE(slow.returned);
  slow.signals.join();
}

TEST_F(pressure_callbacks, may_throw_through_the_signal) {
  pressure_subscription throws = on_memory_pressure([] { throw std::bad_alloc{}; });
  EXPECT_THROW((void)signal_memory_pressure(), std::bad_alloc);
  throws = {};
  int calls = 0;
  const pressure_subscription other = on_memory_pressure([&] { ++calls; });
  (void)signal_memory_pressure();
  EXPECT_EQ(calls, 1);
}

TEST_F(pressure_callbacks, use_and_destroy_the_monitor_that_signals) {
  const std::string path = ::testing::TempDir() + "user_code_pressure_" + std::to_string(::getpid());
  const auto write = [&](int total) { std::ofstream{path} << "some avg10=0.00 total=" << total << "\n"; };
  for (const bool background : {false, true}) {
    write(1);
    std::atomic<bool> is_destroyed{false};
    auto monitor =
        std::make_unique<pressure_monitor>(pressure_monitor_options{.psi_path = path,
                                                                    .events_path = "",
                                                                    .interval = std::chrono::milliseconds{1},
                                                                    .background = background});
    pressure_monitor* const signalling = monitor.get();
    const pressure_subscription subscription = on_memory_pressure([&] {
      if (is_destroyed) return;
      EXPECT_FALSE(signalling->poll()) << "read already";
      monitor.reset();
      is_destroyed = true;
    });
    write(10'000'000);
    if (!background) EXPECT_TRUE(signalling->poll());
    while (!is_destroyed) std::this_thread::yield();
  }
  ::unlink(path.c_str());
}

// ---- fences, and owners of caches -------------------------------------------------------------------------

// A fence whose functions call the test.
struct calling_fence {
  std::function<void()> call = [] {};
  std::atomic<bool> is_done{false};
  std::array<std::atomic<int>, 4> calls{};
  void const* caller_of_count = nullptr;

  reuse_fence make() {
    static constexpr reuse_fence::functions functions{
        .done = [](void* of) noexcept { return self(of).count(0), self(of).is_done.load(); },
        .wait = [](void* of) noexcept { self(of).count(1), self(of).is_done = true; },
        .destroy = [](void* of) noexcept { self(of).count(2); },
        .order = [](void* of) noexcept { return self(of).count(3), self(of).caller_of_count; }};
    return {functions, this};
  }

 private:
  static calling_fence& self(void* of) { return *static_cast<calling_fence*>(of); }
  void count(std::size_t function) {
    ++calls[function];
    call();
  }
};

struct fences : user_code {
  // Uses the cache in each function of a fence, and a second thread meanwhile.
  void use_in_each_function(void const* order) {
    reuse_cache cache{{.max_cached_bytes = 1 * MiB, .upstream = std::pmr::new_delete_resource()}};
    calling_fence fence;
    fence.caller_of_count = order;
    bool is_calling = false;
    fence.call = [&] {
      if (std::exchange(is_calling, true)) return;
      on_both_threads([&] {
        allocate_three_sizes(cache);
        cache.deallocate(cache.allocate(512), 512);
        (void)cache.stats();
        (void)cache.collect(false);
      });
      use_each_kind();
      is_calling = false;
    };
    cache.deallocate_after(cache.allocate(512), 512, 16, fence.make());
    void* const other = cache.allocate(512);
    cache.deallocate(other, 512);
    fence.is_done = true;
    allocate_three_sizes(cache);
    (void)cache.collect(false);
    (void)cache.collect(true);
    cache.check_invariants();
    EXPECT_GT(fence.calls[0], 0);
    EXPECT_EQ(fence.calls[2], 1);
    EXPECT_EQ(fence.calls[3], 1) << "the order is queried once, without the lock";
    EXPECT_EQ(cache.stats().held_bytes, 0u);
  }
};

TEST_F(fences, use_their_cache_in_each_function) { use_in_each_function(nullptr); }

TEST_F(fences, use_their_cache_in_each_function_if_ordered) { use_in_each_function(this); }

TEST_F(fences, are_queried_by_one_thread_at_a_time) {
  calling_fence fence;
  reuse_cache cache{std::pmr::new_delete_resource()};
  std::atomic<bool> is_calling{false};
  std::size_t pending = 0, collected = 1;
  fence.call = [&] {
    if (is_calling.exchange(true)) return;
    std::thread{[&] {
      pending = cache.stats().pending_bytes;
      collected = cache.collect(true);
      cache.deallocate(cache.allocate(512), 512);
    }}.join();
  };
  cache.deallocate_after(cache.allocate(512), 512, 16, [&] {
    is_calling = true;  // not in `order`
    return fence.make();
  }());
  is_calling = false;
  void* const block = cache.allocate(512);
  EXPECT_EQ(pending, 512u);
  EXPECT_EQ(collected, 0u) << "the block of a queried fence stays";
  EXPECT_EQ(fence.calls[0], 1);
  cache.deallocate(block, 512);
  cache.check_invariants();
  fence.call = [] {};
}

TEST_F(fences, are_queried_by_many_threads_of_one_cache) {
  reuse_cache cache{{.max_cached_bytes = 1 * MiB, .upstream = std::pmr::new_delete_resource()}};
  std::array<calling_fence, 64> all;
  on_threads([&](std::size_t t) {
    for (std::size_t i = 0; i < 16; ++i) {
      calling_fence& own = all[t * 16 + i];
      own.caller_of_count = i % 2 == 0 ? &cache : nullptr;
      own.call = [] { std::this_thread::yield(); };
      cache.deallocate_after(cache.allocate(512), 512, 16, own.make());
      cache.deallocate(cache.allocate(512), 512);
      own.is_done = true;
      (void)cache.collect(i % 4 == 0);
    }
  });
  (void)cache.collect(true);
  for (calling_fence const& each : all) EXPECT_EQ(each.calls[2], 1);
  EXPECT_EQ(cache.stats().held_bytes, 0u);
  cache.check_invariants();
}

TEST_F(user_code, owner_that_relieves_uses_its_cache) {
  calling_upstream limited;
  reuse_cache* used = nullptr;
  int calls = 0;
  calling_owner owner;
  owner.relief = [&] {
    ++calls;
    on_both_threads([&] {
      (void)used->collect(true);
      (void)used->stats();
    });
    use_each_kind();
    return true;
  };
  reuse_cache cache{{.upstream = &limited}, &owner};
  used = &cache;
  cache.deallocate(cache.allocate(600), 600);
  bool is_refused = false;
  limited.on_allocate = [&] {
    if (!std::exchange(is_refused, true)) throw std::bad_alloc{};
  };
  cache.deallocate(cache.allocate(700), 700);
  EXPECT_EQ(calls, 1);
}

TEST_F(user_code, owner_that_queries_uses_its_cache) {
  reuse_cache* used = nullptr;
  int calls = 0;
  calling_owner owner;
  owner.around = [&](std::function<void()> const& queries) {
    if (++calls == 1) {
      on_both_threads([&] { allocate_three_sizes(*used); });
      use_each_kind();
    }
    queries();
  };
  reuse_cache cache{{.upstream = std::pmr::new_delete_resource()}, &owner};
  used = &cache;
  calling_fence fence;
  cache.deallocate_after(cache.allocate(512), 512, 16, fence.make());
  cache.deallocate(cache.allocate(512), 512);
  EXPECT_GE(calls, 1);
  (void)cache.collect(true);
}

// ---- handlers ---------------------------------------------------------------------------------------------

std::function<void(violation const&)> on_violation;
std::function<void(warning const&)> on_warning;

struct handlers : user_code {
  handlers() {
    (void)set_violation_handler([](violation const& found) { on_violation(found); });
    (void)set_warning_handler([](warning const& found) { on_warning(found); });
  }
  ~handlers() override {
    (void)set_violation_handler(nullptr);
    (void)set_warning_handler(nullptr);
    on_violation = nullptr;
    on_warning = nullptr;
  }

  // Calls `misuse`, whose report is handled by `handle`. @return how many reports there were.
  static int reports(std::function<void()> const& handle, std::function<void()> const& misuse) {
    std::atomic<int> calls{0};
    on_violation = [&](violation const&) {
      if (++calls > 1) return;
      handle();
      use_each_kind();
    };
    misuse();
    return calls;
  }
  template <class Resource>
  static void use_in_report_of_a_wrong_deallocation(Resource& memory) {
    if (check_level < 2 && !std::is_same_v<Resource, tracking_resource> &&
        !std::is_same_v<Resource, test_resource>)
      return;
    alignas(64) std::array<std::byte, 64> foreign;
    const auto use = [&] { allocate_three_sizes(memory); };
    const auto handle = [&] { std::is_same_v<Resource, pool> ? use() : on_both_threads(use); };
    EXPECT_EQ(reports(handle, [&] { memory.deallocate(foreign.data(), 64); }), 1);
    use();
  }
};

TEST_F(handlers, use_the_resource_that_reports) {
  pool alone;
  synchronized_pool shared;
  reuse_cache cache;
  tracking_resource tracked{std::pmr::new_delete_resource(), "k"};
  test_resource tested;
  use_in_report_of_a_wrong_deallocation(alone);
  use_in_report_of_a_wrong_deallocation(shared);
  use_in_report_of_a_wrong_deallocation(cache);
  use_in_report_of_a_wrong_deallocation(tracked);
  use_in_report_of_a_wrong_deallocation(tested);
}
TEST_F(handlers, use_the_test_resource_whose_guards_were_overwritten) {
  test_resource memory;
  const auto overrun = [&] {
    auto* const block = static_cast<std::byte*>(memory.allocate(64));
    test::write_unseen(block, 64, 1);
    return block;
  };
  std::byte* const live = overrun();
  std::byte* const freed = overrun();
  const auto handle = [&] { on_both_threads([&] { allocate_three_sizes(memory); }); };
  EXPECT_EQ(reports(handle, [&] { memory.deallocate(freed, 64); }), 1);
  EXPECT_EQ(reports(handle, [&] { EXPECT_EQ(memory.check_guards(), 1u); }), 1);
  memory.deallocate(live, 64);
}

TEST_F(handlers, receive_all_reports_of_one_guard_check) {
  test_resource memory;
  std::array<std::byte*, 5> blocks{};
  for (std::byte*& block : blocks) {
    block = static_cast<std::byte*>(memory.allocate(64));
    test::write_unseen(block, -1, 1);
    test::write_unseen(block, 64, 1);
  }
  EXPECT_EQ(reports([] {}, [&] { EXPECT_EQ(memory.check_guards(), 5u); }), 10);
  for (std::byte* const block : blocks) memory.deallocate(block, 64);
}

TEST_F(handlers, use_the_test_resource_whose_loop_reports_a_leak) {
  test_resource memory;
  std::vector<void*> leaked;
  std::atomic<int> runs{0};
  const auto body = [&] {
    if (runs++ == 0) leaked.push_back(memory.allocate(16));
  };
  EXPECT_GE(reports([&] { on_both_threads([&] { allocate_three_sizes(memory); }); },
                    [&] {
                      (void)fail_each_allocation(memory, [&] {
                        leaked.push_back(memory.allocate(16));
                        body();
                      });
                    }),
            1);
  for (void* const block : leaked) memory.deallocate(block, 16);
}

TEST_F(handlers, use_the_capture_switch_that_reports) {
  capture_switch memory{{.upstream = std::pmr::new_delete_resource()}};
  graph_arena region{64 * KiB, std::pmr::new_delete_resource()};
  memory.install_arena(region);
  memory.freeze();
  void* const block = memory.allocate(64);
  memory.deallocate(block, 64);
  const auto handle = [&] {
    std::thread{[&] {
      allocate_three_sizes(memory);
      (void)memory.stats();
    }}.join();
    (void)memory.stats();
  };
  EXPECT_EQ(reports(handle, [&] { memory.deallocate(block, 64); }), 1) << "the arena's report";
  (void)memory.clear_arena();
  (void)memory.unfreeze();
}

TEST_F(handlers, use_the_epoch_resource_that_reports) {
  if (check_level < 2) GTEST_SKIP() << "level 2 finds it";
  epoch_resource memory;
  void* block = nullptr;
  with_epoch(memory, [&] { block = memory.allocate(64); });
  EXPECT_EQ(reports([&] { on_both_threads([&] { allocate_three_sizes(memory); }); },
                    [&] { memory.deallocate(block, 64); }),
            1);
}

TEST_F(handlers, make_workspaces_in_the_warning_about_their_default_options) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the options are read once in a process
  EXPECT_EXIT(
      {
        ::alarm(20);
        ::setenv("TIDEMARK_WORKSPACE_CACHE_WAYS", "many", 1);
        int warnings = 0;
        on_warning = [&](warning const&) {
          ++warnings;
          on_both_threads([] {
            workspace w;
            (void)default_workspace_options();
          });
        };
        (void)default_workspace_options();
        std::_Exit(warnings == 1 ? 7 : warnings);
      },
      ::testing::ExitedWithCode(7), "");
}

// ---- upstreams --------------------------------------------------------------------------------------------

struct upstreams : user_code {
  violation_recorder recorder;
};

TEST_F(upstreams, can_use_every_other_resource) {
  calling_upstream upstream;
  bool is_calling = false;
  upstream.on_each([&] {
    if (std::exchange(is_calling, true)) return;
    use_each_kind();
    (void)signal_memory_pressure();
    is_calling = false;
  });
  {
    synchronized_pool memory{{}, &upstream};
    allocate_three_sizes(memory);
    compat::synchronized_pool_resource standard{&upstream};
    allocate_three_sizes(standard);
    reuse_cache cache{&upstream};
    allocate_three_sizes(cache);
    test_resource checked{&upstream};
    allocate_three_sizes(checked);
    epoch_resource epochs{{}, &upstream};
    allocate_three_sizes(epochs);
  }
  EXPECT_TRUE(recorder.reports().empty());
}

TEST_F(upstreams, calling_their_synchronized_pool_are_reported) {
  calling_upstream upstream;
  synchronized_pool memory{{}, &upstream};
  std::vector<std::function<void()>> const calls{
      [&] { EXPECT_THROW((void)memory.allocate(1 << 20), std::bad_alloc); },
      [&] { EXPECT_THROW((void)memory.allocate(64), std::bad_alloc); },
      [&] { EXPECT_EQ(memory.trim(), 0u); },
      [&] { EXPECT_EQ(memory.stats().held_bytes, 0u); },
      [&] { memory.reset_stats(); },
      [&] { memory.release(); },
      [&] { memory.check_invariants(); }};
  for (auto const& call : calls) {
    recorder.reports().clear();
    bool is_calling = false;
    upstream.on_each([&] {
      if (!std::exchange(is_calling, true)) call();
    });
    void* const block = memory.allocate(8 << 20);
    EXPECT_TRUE(is_calling);
    EXPECT_PRED2(contains, recorder.only(violation_kind::reentry), "is called by the pool's own upstream");
    upstream.on_each([] {});
    memory.deallocate(block, 8 << 20);
    memory.clear();
  }
  recorder.reports().clear();
  allocate_three_sizes(memory);
  memory.check_invariants();
  EXPECT_TRUE(recorder.reports().empty()) << "the pool is as good as before";
}

template <class Resource>
void expect_reentry_is_reported(violation_recorder& recorder) {
  calling_upstream upstream;
  Resource memory{&upstream};
  upstream.on_each([&] { (void)memory.allocate(64); });
  EXPECT_THROW((void)memory.allocate(64), std::system_error);
  EXPECT_EQ(recorder.count(violation_kind::reentry), 1u);
  upstream.on_each([] {});
  allocate_three_sizes(memory);
}
TEST_F(upstreams, calling_their_standard_pool_are_reported) {
  expect_reentry_is_reported<compat::synchronized_pool_resource>(recorder);
}
TEST_F(upstreams, calling_their_test_resource_are_reported) {
  expect_reentry_is_reported<test_resource>(recorder);
}

TEST_F(upstreams, for_records_that_call_their_reuse_cache_are_reported) {
  calling_upstream bookkeeping;
  reuse_cache memory{{.upstream = std::pmr::new_delete_resource(), .bookkeeping = &bookkeeping}};
  bookkeeping.on_each([&] { (void)memory.stats().used_bytes; });
  // `stats` throws nothing, so that the program ends behind the report.
  EXPECT_DEATH(
      {
        (void)set_violation_handler(nullptr);
        memory.deallocate(memory.allocate(64), 64);
      },
      "is called by its own upstream, bookkeeping resource or callback");
  bookkeeping.on_each([] {});
}

}  // namespace
}  // namespace tidemark::test
