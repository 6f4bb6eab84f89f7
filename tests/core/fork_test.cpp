// SPDX-License-Identifier: Apache-2.0
// Strategy: a thread keeps a resource busy while the main thread forks children. Each child performs all
// operations of the resource. An alarm ends a child that hangs, so that the test fails instead of hanging.
// Without locking for the fork, nearly every run has such a child among its ten.
#include <gtest/gtest.h>

#include <alloca.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <semaphore>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <tidemark/compat.hpp>
#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/tidemark.hpp>

namespace tidemark::test {
namespace {

constexpr int children = 10;
constexpr unsigned watchdog_seconds = 10;

#if defined(__SANITIZE_THREAD__)
constexpr bool under_thread_sanitizer = true;
#elif defined(__has_feature)
constexpr bool under_thread_sanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool under_thread_sanitizer = false;
#endif

// Returns the fate of a child that runs `body`; empty if `body` returned true.
template <class Body>
std::string child_runs(Body body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(watchdog_seconds);
    bool holds = false;
    try {
      holds = body();
    } catch (...) {
    }
    ::_exit(holds ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return "there is no child";
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGALRM) return "the child hangs";
    return "the child was ended by signal " + std::to_string(WTERMSIG(status));
  }
  return WEXITSTATUS(status) == 0 ? "" : "the child found something wrong";
}

class fork : public ::testing::Test {
 protected:
  void SetUp() override {
    ::alarm(6 * watchdog_seconds);  // fork itself may hang
    usual_patience_ = detail::set_fork_patience(std::chrono::hours{1});
  }
  void TearDown() override {
    detail::set_fork_patience(usual_patience_);
    ::alarm(0);
  }

  // While another thread does `work` again and again.
  template <class Work, class Body>
  static void expect_of_children(Work work, Body body) {
    std::atomic<bool> busy{false};
    const std::jthread other{[&](std::stop_token const& stop) {
      while (!stop.stop_requested()) {
        work();
        busy = true;
      }
    }};
    while (!busy) std::this_thread::yield();
    expect_of_children(body);
  }
  template <class Body>
  static void expect_of_children(Body body) {
    for (int i = 0; i < children; ++i) ASSERT_EQ(child_runs(body), "") << "child " << i;
  }

 private:
  std::chrono::nanoseconds usual_patience_{};
};

// A thread that has done something, and stays there until this is destroyed.
class parked_thread {
 public:
  template <class Work>
  explicit parked_thread(Work work)
      : thread_{[this, work] {
          work([this] {
            there_.release();
            end_.acquire();
          });
        }} {
    there_.acquire();
  }
  ~parked_thread() { end_.release(); }

 private:
  std::binary_semaphore there_{0}, end_{0};
  std::jthread thread_;
};

constexpr std::array<std::size_t, 7> each_size{1, 64, 500, 9'000, 40'000, 100'000, 1'000'000};

void allocate_each_size(std::pmr::memory_resource& memory) {
  for (std::size_t bytes : each_size) {
    for (std::size_t align : {std::size_t{16}, std::size_t{256}}) {
      void* const block = memory.allocate(bytes, align);
      std::memset(block, 1, bytes);
      memory.deallocate(block, bytes, align);
    }
  }
}

// As many as fill a list and go to the depot.
void use_much(std::pmr::memory_resource& memory) {
  std::array<void*, 200> blocks{};
  for (void*& block : blocks) block = memory.allocate(4000);
  for (void* block : blocks) memory.deallocate(block, 4000);
  memory.deallocate(memory.allocate(100'000), 100'000);
}

// ---- pools ------------------------------------------------------------------------------------------------

// D.8
TEST_F(fork, a_child_uses_the_global_pool_while_a_thread_held_its_lock) {
  expect_of_children([] { pooled_free(pooled_alloc(100'000), 100'000); },
                     [] {
                       allocate_each_size(global_pool());
                       use_much(global_pool());
                       global_pool().clear();
                       global_pool().check_invariants();
                       return global_pool().stats().name != nullptr;
                     });
}

TEST_F(fork, a_child_uses_and_destroys_a_pool_whose_depot_was_busy) {
  auto pool = std::make_unique<synchronized_pool>(pool_options{.max_cached_bytes = 1 * MiB});
  expect_of_children([&] { use_much(*pool); },
                     [&] {
                       use_much(*pool);
                       allocate_each_size(*pool);
                       pool->check_invariants();
                       (void)signal_memory_pressure();
                       (void)pool->trim();
                       pool->check_invariants();
                       use_much(*pool);
                       pool.reset();
                       return true;
                     });
}

TEST_F(fork, child_counts_blocks_cached_by_other_threads_and_cannot_reuse_them) {
  synchronized_pool pool;
  void* const kept = pool.allocate(64);
  const parked_thread other{[&](auto stay) {
    use_much(pool);
    stay();
  }};
  const pool_stats before = pool.stats();
  EXPECT_EQ(pool.thread_count(), 2u);
  EXPECT_EQ(child_runs([&] {
              const pool_stats now = pool.stats();
              if (pool.thread_count() != 1 || now.cached_bytes != before.cached_bytes) return false;
              if (now.used_blocks != 1 || now.held_bytes != before.held_bytes) return false;
              if (now.allocations != 0 || now.deallocations != 0 || now.misses != 0) return false;
              if (now.held_bytes != now.used_bytes + now.cached_bytes + now.stranded_bytes) return false;
              pool.check_invariants();
              pool.deallocate(kept, 64);
              pool.clear();
              pool.check_invariants();
              if (pool.stats().used_blocks != 0 || pool.stats().held_bytes == 0) return false;
              pool.release();
              return pool.stats().held_bytes == 0;
            }),
            "");
  pool.deallocate(kept, 64);
}

TEST_F(fork, child_forks_again_while_pools_are_created_and_destroyed) {
  expect_of_children(
      [] {
        synchronized_pool pool;
        allocate_each_size(pool);
      },
      [] {
        return child_runs([] {
                 synchronized_pool pool;
                 allocate_each_size(pool);
                 allocate_each_size(global_pool());
                 return true;
               }) == "";
      });
}

// Passes everything to a resource that is named later.
class named_later final : public detail::distinct_resource {
 public:
  std::pmr::memory_resource* target = nullptr;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return target->allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    target->deallocate(block, bytes, align);
  }
};

TEST_F(fork, needs_no_order_among_the_locks_of_resources) {
  named_later between;
  auto older = std::make_unique<synchronized_pool>(pool_options{.keep_large_blocks = false}, &between);
  synchronized_pool newer;
  between.target = &newer;
  expect_of_children(
      [&] {
        older->deallocate(older->allocate(100'000), 100'000);
        newer.deallocate(newer.allocate(100'000), 100'000);
      },
      [&] {
        allocate_each_size(*older);
        allocate_each_size(newer);
        return true;
      });
  older.reset();
}

// Forks in the middle of a call, and its child again.
class forking_resource final : public detail::distinct_resource {
 public:
  int forks = 0;  // in the next call, each in the child of the one before
  // Ends a child with its own result. In the parent returns true if the child ended well.
  [[nodiscard]] bool end_children() const {
    int status = 1;
    const bool ended_well = child_ == 0 || (::waitpid(child_, &status, 0) == child_ && status == 0);
    if (is_in_child_) ::_exit(ended_well ? 0 : 1);
    return child_ > 0 && ended_well;
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    for (int left = std::exchange(forks, 0); left > 0; --left) {
      child_ = ::fork();
      if (child_ != 0) break;
      is_in_child_ = true;
      ::alarm(watchdog_seconds);
    }
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
  }

  bool is_in_child_ = false;
  pid_t child_ = 0;
};

// A fork while the forking thread has the locks of the resource that it is called by.
using fork_under_own_lock = fork;

TEST_F(fork_under_own_lock, is_possible_again_in_the_child_of_an_upstream_of_a_pool) {
  forking_resource upstream;
  synchronized_pool pool{&upstream};
  allocate_each_size(pool);
  upstream.forks = 2;
  void* const block = pool.allocate(3'000'000);
  pool.deallocate(block, 3'000'000);
  use_much(pool);
  pool.check_invariants();
  EXPECT_TRUE(upstream.end_children());
}

TEST_F(fork_under_own_lock, is_possible_again_in_the_child_of_a_pressure_callback) {
  std::string outcome = "the callback was not called";
  const pressure_subscription forks = on_memory_pressure(
      [&] { outcome = child_runs([] { return child_runs([] { return true; }).empty(); }); });
  (void)signal_memory_pressure();
  EXPECT_EQ(outcome, "");
}

TEST_F(fork_under_own_lock, is_possible_for_an_upstream_of_a_test_resource) {
  forking_resource upstream;
  test_resource tested{&upstream};
  upstream.forks = 2;
  void* const block = tested.allocate(64);
  const auto use_it = [&] { tested.deallocate(tested.allocate(64), 64); };
  if (under_thread_sanitizer) use_it();
  else std::thread{use_it}.join();
  tested.deallocate(block, 64);
  EXPECT_TRUE(upstream.end_children());
}

// ---- locks that never come free ---------------------------------------------------------------------------

// D.8
TEST_F(fork, proceeds_without_a_lock_that_another_thread_holds) {
  detail::fork_safe<> older, kept, newer;
  const parked_thread other{[&](auto stay) {
    const std::scoped_lock lock{kept};
    stay();
  }};
  detail::set_fork_patience(std::chrono::milliseconds{20});
  EXPECT_EQ(child_runs([&] {
              detail::set_fork_patience(std::chrono::hours{1});
              return !kept.try_lock() && child_runs([] { return true; }).empty();  // the second one at once
            }),
            "");
  EXPECT_FALSE(kept.try_lock()) << "the other thread still has it";
  for (auto* const free : {&older, &newer}) {
    ASSERT_TRUE(free->try_lock());
    free->unlock();
  }
}

// Like in a signal handler that forks, if the signal came while the lock was held.
TEST_F(fork, proceeds_without_a_lock_that_the_forking_thread_holds) {
  struct interrupted {
    void adapt_to_child() noexcept { has_adapted = true; }
    bool has_adapted = false;
    detail::fork_safe<detail::brief_lock> lock;
  } resource;
  resource.lock.adapt_with(resource);
  const std::scoped_lock lock{resource.lock};
  detail::set_fork_patience(std::chrono::milliseconds{20});
  EXPECT_EQ(child_runs([&] { return !resource.lock.try_lock() && !resource.has_adapted; }), "");
  EXPECT_FALSE(resource.lock.try_lock());
}

// ---- stacks -----------------------------------------------------------------------------------------------

TEST_F(fork, child_of_a_thread_recognizes_its_own_stack) {
  std::string outcome;
  std::thread{[&] {
    outcome = child_runs([] { return detail::stack_owner_of(__builtin_frame_address(0)) != 0; });
  }}.join();
  EXPECT_EQ(outcome, "");
}

TEST_F(fork, a_child_forgets_pools_on_the_stacks_of_other_threads) {
  if (under_thread_sanitizer) GTEST_SKIP() << "ThreadSanitizer starts no threads in a child";
  const parked_thread other{[](auto stay) {
    synchronized_pool on_the_stack;
    pool alone;
    reuse_cache cache;
    allocate_each_size(on_the_stack);
    allocate_each_size(alone);
    allocate_each_size(cache);
    stay();
  }};
  EXPECT_EQ(child_runs([] {
              // A new thread gets the stack, and overwrites its contents.
              std::thread{[] {
                constexpr std::size_t bytes = std::size_t{256} * KiB;
                auto* const frame = static_cast<unsigned char volatile*>(alloca(bytes));
                for (std::size_t i = 0; i < bytes; ++i) frame[i] = 0xFF;
              }}.join();
              (void)signal_memory_pressure();
              return child_runs([] { return true; }) == "";
            }),
            "");
}

// ---- other resources --------------------------------------------------------------------------------------

TEST_F(fork, a_child_uses_and_destroys_a_reuse_cache) {
  auto cache = std::make_unique<reuse_cache>();
  expect_of_children([&] { cache->deallocate(cache->allocate(64), 64); },
                     [&] {
                       allocate_each_size(*cache);
                       cache->check_invariants();
                       (void)cache->collect(true);
                       const reuse_cache_stats now = cache->stats();
                       if (now.cached_bytes != 0 || now.held_bytes != now.used_bytes) return false;
                       cache->check_invariants();
                       cache.reset();
                       return true;
                     });
}

TEST_F(fork, a_child_uses_a_reuse_cache_whose_fence_another_thread_queried) {
  static std::function<void()> in_query;
  static constexpr reuse_fence::functions parks_once{
      .done =
          [](void*) noexcept {
            if (const auto park = std::exchange(in_query, nullptr)) park();
            return true;
          },
      .wait = [](void*) noexcept {},
      .destroy = nullptr,
      .order = [](void* stream) noexcept -> void const* { return stream; }};
  reuse_cache cache;
  int stream = 0;
  void* const block = cache.allocate(64);
  cache.deallocate_after(block, 64, 16, reuse_fence{parks_once, &stream});
  const parked_thread querying{[&](auto park) {
    in_query = park;
    cache.deallocate(cache.allocate(64, 16), 64, 16);
  }};
  EXPECT_EQ(child_runs([&] {
              void* const again = cache.allocate(64, 16);
              cache.deallocate(again, 64, 16);
              (void)cache.collect(true);
              return again != block && cache.stats().held_bytes == 64;  // the queried block is lost
            }),
            "");
}

TEST_F(fork, a_child_uses_a_standard_pool_that_was_busy) {
  auto pool = std::make_unique<compat::synchronized_pool_resource>();
  expect_of_children([&] { pool->deallocate(pool->allocate(64), 64); },
                     [&] {
                       allocate_each_size(*pool);
                       pool->release();
                       allocate_each_size(*pool);
                       pool.reset();
                       return true;
                     });
}

// D.8
TEST_F(fork, a_child_uses_an_epoch_resource_that_was_busy) {
  synchronized_pool pool;
  auto memory = std::make_unique<epoch_resource>(&pool);
  buffer<int> shared{*memory, 10};
  std::array<void*, 100> small{};
  epoch of_parent{*memory};
  for (void*& block : small) block = memory->allocate(64);
  expect_of_children(
      [&] {
        epoch e{*memory};
        std::array<buffer<int>, 20> some;
        for (auto& one : some) one = buffer<int>{*memory, 100};
        for (int i = 0; i < 100; ++i) (void)memory->allocate(64);
      },
      [&] {
        for (std::size_t i = 0; i < small.size(); i += 2) memory->deallocate(small[i], 64);
        if (of_parent.end().reclaimed != small.size() / 2) return false;
        {
          epoch outer{*memory};
          buffer<int> kept{*memory, 100};
          {
            epoch inner{*memory};
            const buffer<int> dies{*memory, 100};
            allocate_each_size(*memory);
          }
        }
        buffer_group group{*memory};
        buffer<int> owned{*memory, 10};
        group.add(owned);
        group.close();
        memory->check_invariants();
        return true;
      });
}

TEST_F(fork, child_destroys_an_epoch_resource_in_use_by_another_thread) {
  auto memory = std::make_unique<epoch_resource>();
  buffer<int> of_the_other;
  const parked_thread other{[&](auto stay) {
    epoch e{*memory};
    of_the_other = buffer<int>{*memory, 10};
    const buffer_group group{*memory};
    stay();
  }};
  EXPECT_EQ(child_runs([&] {
              of_the_other = {};  // any thread may give a block back
              {
                epoch own{*memory};
                const buffer<int> dies{*memory, 10};
              }
              memory->check_invariants();
              memory.reset();
              return true;
            }),
            "");
}

TEST_F(fork, a_child_ends_the_epoch_that_was_open_on_the_forking_thread) {
  epoch_resource memory;
  epoch e{memory};
  buffer<int> dies{memory, 10};
  EXPECT_EQ(child_runs([&] { return e.end().reclaimed == 1 && dies.empty(); }), "");
  EXPECT_FALSE(dies.empty());
}

TEST_F(fork, a_child_uses_scopes_of_expect_resource) {
  const auto use_scope = [] {
    arena step;
    const expect_resource expected{&step, "step"};
    // A small block: AddressSanitizer's quarantine has a lock for larger ones that a fork does not take.
    std::pmr::memory_resource& elsewhere = *std::pmr::get_default_resource();
    elsewhere.deallocate(elsewhere.allocate(64), 64);
    return expected.report().starts_with("expect_resource 'step'");
  };
  expect_of_children([=] { (void)use_scope(); }, use_scope);
}

TEST_F(fork, a_child_uses_adaptors_that_were_busy) {
  statistics_resource counted{std::pmr::new_delete_resource()};
  tracking_resource tracked{std::pmr::new_delete_resource()};
  test_resource tested{std::pmr::new_delete_resource()};
  size_histogram requested_sizes;
  expect_of_children(
      [&] {
        counted.push_counters();
        (void)counted.pop_counters();
        tracked.deallocate(tracked.allocate(64), 64);
        tested.deallocate(tested.allocate(64), 64);
        requested_sizes.record(64);
      },
      [&] {
        for (int i = 0; i < 2; ++i) {  // the second time shows whether the first has given locks up
          counted.push_counters();
          (void)counted.pop_counters();
          allocate_each_size(tracked);
          allocate_each_size(tested);
          requested_sizes.record(64);
          (void)tracked.leaks();
          tested.check_guards();
        }
        return counted.frames() <= 1 && requested_sizes.requests() > 0;
      });
}

TEST_F(fork, a_child_uses_a_capture_switch_that_was_busy) {
  capture_switch memory{std::pmr::new_delete_resource()};
  expect_of_children(
      [&] {
        memory.freeze();
        memory.deallocate(memory.allocate(64), 64);
        (void)memory.unfreeze();
      },
      [&] {
        memory.freeze();
        allocate_each_size(memory);
        (void)memory.unfreeze();
        memory.check_invariants();
        return memory.stats().name != nullptr;
      });
}

TEST_F(fork, a_child_uses_workspaces_and_scratch_memory) {
  expect_of_children(
      [] {
        set_scratch_options({.name = "scratch"});
        set_default_workspace_options({});
        tick_workspace_sweeps();
        workspace ws;
        workspace::scope all{ws};
        (void)ws.acquire<double>(10);
      },
      [] {
        workspace& own = this_thread_workspace();
        workspace::scope all{own};
        (void)own.acquire<double>(10);
        set_scratch_options({.name = "scratch"});
        const arena::scope temporary = scratch(no_conflicts);
        tick_workspace_sweeps();
        return default_workspace_options().name != nullptr;
      });
}

// ---- resources with threads or files ----------------------------------------------------------------------

class fork_files : public fork {
 protected:
  fork_files()
      : folder_{std::filesystem::temp_directory_path() /
                ("tidemark_fork_" + std::to_string(::getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())} {
    std::filesystem::create_directories(folder_);
  }
  ~fork_files() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(char const* name) const { return (folder_ / name).string(); }
  static std::string text_of(std::string const& path) {
    std::ostringstream text;
    text << std::ifstream{path}.rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(fork_files, a_child_writes_nothing_to_its_parents_trace) {
  const std::string csv = path("run.csv");
  auto log = std::make_unique<trace_log>(trace_log_options{.csv = csv, .chrome = path("run.json")});
  auto traced = std::make_unique<trace_resource>(std::pmr::new_delete_resource(), *log, "traced");
  void* const first = traced->allocate(64);
  EXPECT_EQ(child_runs([&] {
              allocate_each_size(*traced);
              traced->deallocate(first, 64);
              if (log->error() || traced->stats().used_blocks != 0) return false;
              traced.reset();
              log->close();
              log.reset();
              return true;
            }),
            "");
  traced->deallocate(first, 64);
  log->close();
  EXPECT_EQ(text_of(csv), "op,id,bytes,thread\nr,0,traced,0\na,0,64,0\nf,0,0,0\n");
}

TEST_F(fork_files, a_child_uses_a_trace_that_was_busy) {
  trace_log log{{.csv = path("run.csv"), .chrome = {}}};
  trace_resource traced{std::pmr::new_delete_resource(), log, "traced"};
  expect_of_children([&] { traced.deallocate(traced.allocate(64), 64); },
                     [&] {
                       allocate_each_size(traced);
                       const trace_slice slice{log, "in the child"};
                       return !log.error();
                     });
}

TEST_F(fork_files, a_monitor_of_a_child_has_no_thread_and_can_be_checked_and_destroyed) {
  std::ofstream{path("memory")} << "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
  auto monitor = std::make_unique<pressure_monitor>(pressure_monitor_options{
      .psi_path = path("memory"), .events_path = {}, .interval = std::chrono::milliseconds{1}});
  EXPECT_TRUE(monitor->is_listening());
  expect_of_children([&] {
    if (monitor->is_listening() || monitor->poll()) return false;
    monitor.reset();
    return true;
  });
}

TEST_F(fork_files, a_monitor_is_destroyed_while_a_child_lives) {
  std::ofstream{path("memory")} << "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
  EXPECT_EQ(child_runs([&] {
              auto monitor = std::make_unique<pressure_monitor>(
                  pressure_monitor_options{.psi_path = path("memory"),
                                           .events_path = {},
                                           .interval = std::chrono::hours{1},
                                           .background = !under_thread_sanitizer});
              const pid_t sleeper = ::fork();
              if (sleeper == 0) {
                ::sleep(2 * watchdog_seconds);
                ::_exit(0);
              }
              monitor.reset();
              ::kill(sleeper, SIGKILL);
              return ::waitpid(sleeper, nullptr, 0) == sleeper;
            }),
            "");
}

TEST_F(fork, a_child_has_no_sweeper_until_it_starts_one) {
  enable_workspace_sweeps({.interval = std::chrono::microseconds{10}});
  EXPECT_TRUE(workspace_sweeps_enabled());
  expect_of_children([] {
    if (workspace_sweeps_enabled()) return false;
    if (!under_thread_sanitizer) enable_workspace_sweeps();
    disable_workspace_sweeps();
    return !workspace_sweeps_enabled();
  });
  disable_workspace_sweeps();
}

}  // namespace
}  // namespace tidemark::test
