// SPDX-License-Identifier: Apache-2.0
// Strategy: programs with outcomes known from counting or from the literature, half of them broken. The
// search must find each broken program, pass each sound program, and count as many schedules as combinatorics
// gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "interleavings.hpp"

namespace tidemark::test {
namespace {

using integer = explored_sync::atomic<int>;
using plain_integer = explored_sync::shared<int>;
constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto seq_cst = std::memory_order_seq_cst;
constexpr exploration_options weak{.weak_orders = true};

/// Threads that each run `body(state, thread)` on a new state, and a check of this state.
template <class State>
std::function<program()> on(std::size_t threads, std::function<void(State&, std::size_t)> body,
                            std::function<std::string(State&)> check = {}) {
  return [=] {
    const auto state = std::make_shared<State>();
    program made;
    for (std::size_t t = 0; t < threads; ++t) made.threads.emplace_back([=] { body(*state, t); });
    if (check) made.check = [=] { return check(*state); };
    return made;
  };
}

std::function<program()> additions(std::function<void(integer&)> add) {
  return on<integer>(
      2, [add](integer& n, std::size_t) { add(n); },
      [](integer& n) { return n.load() == 2 ? "" : "an addition is lost"; });
}
const auto lossy_additions = additions([](integer& n) { n.store(n.load() + 1); });

// G.4
TEST(interleavings, finds_a_lost_addition_and_prints_its_schedule) {
  EXPECT_EQ(explore(lossy_additions).failure,
            "an addition is lost\n"
            "schedule {0, 1, 1, 0}\n"
            "  thread 0: atomic 0 load: 0\n"
            "  thread 1: atomic 0 load: 0\n"
            "  thread 1: atomic 0 store: 1\n"
            "  thread 0: atomic 0 store: 1");
}

TEST(interleavings, finds_a_weak_compare_exchange_without_a_retry) {
  const auto make = additions([](integer& n) {
    int seen = n.load();
    while (!n.compare_exchange_weak(seen, seen + 1)) {
      if (seen == 1) continue;  // takes any other failure for a success
      return;
    }
  });
  EXPECT_EQ(explore(make).failure, "");
  EXPECT_TRUE(explore(make, {.max_spurious_failures = 1}).failure.starts_with("an addition is lost"));
}

// G.4
TEST(interleavings, replays_schedules_that_fail_and_schedules_that_pass) {
  const explored found = explore(lossy_additions);
  const explored again = replay(lossy_additions, found.schedule);
  EXPECT_EQ(again.failure, found.failure);
  EXPECT_EQ(again.schedule, found.schedule);
  EXPECT_EQ(replay(lossy_additions, {1, 1, 0, 0}).failure, "");
  EXPECT_EQ(replay(lossy_additions, {1, 0}).schedule, (std::vector<unsigned>{1, 0, 0, 1}));
  EXPECT_TRUE(replay(lossy_additions, {0, 2}).failure.starts_with("the schedule does not fit the program"));
}

// Schedules.

using steps_on = std::function<void(std::array<integer, 4>&, std::size_t thread)>;
explored count(std::size_t threads, std::size_t steps, steps_on step,
               exploration_options const& options = {}) {
  return explore(on<std::array<integer, 4>>(threads,
                                            [=](std::array<integer, 4>& on, std::size_t t) {
                                              for (std::size_t i = 0; i < steps; ++i) step(on, t);
                                            }),
                 options);
}
const steps_on store_to_one = [](std::array<integer, 4>& on, std::size_t) { on[0].store(1); };

/// (threads * steps)! / steps!^threads
std::size_t interleavings(std::size_t threads, std::size_t steps) {
  double n = 1;
  for (std::size_t t = 0; t < threads; ++t) {
    for (std::size_t i = 1; i <= steps; ++i)
      n = n * static_cast<double>(t * steps + i) / static_cast<double>(i);
  }
  return static_cast<std::size_t>(n + 0.5);
}

TEST(interleavings, runs_every_order_of_dependent_steps_once) {
  for (const auto& [threads, steps] : std::vector<std::pair<std::size_t, std::size_t>>{
           {1, 5}, {2, 1}, {2, 3}, {2, 6}, {3, 2}, {3, 4}, {4, 2}}) {
    const explored result = count(threads, steps, store_to_one);
    EXPECT_EQ(result.failure, "");
    EXPECT_EQ(result.schedules, interleavings(threads, steps)) << threads << " threads of " << steps;
    EXPECT_EQ(result.pruned, 0U);
    EXPECT_TRUE(result.complete);
  }
}

struct mixed {
  std::array<integer, 2> n;
  explored_sync::mutex mutex;
  std::array<int, 3> seen{};  // each written by one thread
};

/// One of seven operations on one of two atomics and a mutex, by random bits. The read value goes into
/// `seen`.
void do_something(mixed& m, std::size_t t, unsigned bits) {
  const auto order = std::array{relaxed, acquire, release, seq_cst}.at(bits / 16 % 4);
  const auto load_order = order == release ? acquire : order,
             store_order = order == acquire ? release : order;
  integer& n = m.n.at(bits / 8 % 2);
  const auto value = static_cast<int>(2 * t + bits / 64 % 2 + 1);
  int result = 0;
  switch (bits % 8) {
    case 0:
    case 1:
      n.store(value, store_order);
      break;
    case 2:
      result = n.fetch_add(value, order);
      break;
    case 3:
      n.compare_exchange_strong(result, value, order, relaxed);
      break;
    case 4: {
      const std::scoped_lock lock{m.mutex};
      n.store(result = n.load(relaxed) + value, relaxed);
      break;
    }
    case 5:
      if (m.mutex.try_lock()) result = 9, m.mutex.unlock();
      break;
    default:
      result = n.load(load_order);
  }
  m.seen.at(t) = m.seen.at(t) * 31 + result;
}

TEST(interleavings, sees_the_same_outcomes_with_and_without_pruning) {
  std::mt19937 random{20};
  std::size_t few = 0, many = 0, most_outcomes = 0;
  for (unsigned i = 0; i < 40; ++i) {
    std::array<std::array<unsigned, 3>, 3> steps{};
    for (auto& of_thread : steps) std::generate(of_thread.begin(), of_thread.end(), std::ref(random));
    const std::size_t threads = 2 + i % 2;
    const auto all = [&](bool prune) {
      std::set<std::vector<int>> outcomes;
      const explored result =
          explore(on<mixed>(
                      threads,
                      [=](mixed& m, std::size_t t) {
                        for (std::size_t k = threads == 3; k < 3; ++k) do_something(m, t, steps[t][k]);
                      },
                      [&](mixed& m) {
                        outcomes.insert({m.n[0], m.n[1], m.seen[0], m.seen[1], m.seen[2]});
                        return "";
                      }),
                  {.weak_orders = i % 4 < 2, .prune = prune});
      EXPECT_EQ(result.failure, "");
      (prune ? few : many) += result.schedules + result.pruned;
      return outcomes;
    };
    const auto outcomes = all(true);
    EXPECT_EQ(outcomes, all(false)) << "program " << i;
    most_outcomes = std::max(most_outcomes, outcomes.size());
  }
  EXPECT_LT(few, many / 3);
  EXPECT_GT(most_outcomes, 20U);
}

// What fails.

struct two_mutexes {
  explored_sync::mutex first, second;
};

TEST(interleavings, finds_a_deadlock_of_mutexes_in_opposite_orders) {
  const auto lock_in_order = [](bool opposite) {
    return on<two_mutexes>(2, [=](two_mutexes& m, std::size_t t) {
      const bool swapped = opposite && t == 1;
      const std::scoped_lock outer{swapped ? m.second : m.first};
      const std::scoped_lock inner{swapped ? m.first : m.second};
    });
  };
  EXPECT_EQ(explore(lock_in_order(false)).failure, "");
  const explored found = explore(lock_in_order(true));
  EXPECT_TRUE(found.failure.starts_with("deadlock; thread 0 waits for mutex 1; thread 1 waits for mutex 0"))
      << found.failure;
  EXPECT_EQ(replay(lock_in_order(true), found.schedule).failure, found.failure);
  EXPECT_EQ(explore(on<two_mutexes>(2,
                                    [](two_mutexes& m, std::size_t t) {
                                      t == 0 ? std::lock(m.first, m.second) : std::lock(m.second, m.first);
                                      m.first.unlock();
                                      m.second.unlock();
                                    }),
                    {.max_preemptions = 2})
                .failure,
            "");
}

struct guarded {
  explored_sync::mutex mutex;
  plain_integer n;
  integer count;
};

TEST(interleavings, finds_a_race_on_a_plain_variable_without_a_lock) {
  const auto additions_with = [](bool locks) {
    return on<guarded>(
        2,
        [=](guarded& g, std::size_t) {
          std::unique_lock<explored_sync::mutex> lock{g.mutex, std::defer_lock};
          if (locks) lock.lock();
          g.n = g.n + 1;
        },
        [](guarded& g) { return g.n == 2 ? "" : "an addition is lost"; });
  };
  const explored sound = explore(additions_with(true));
  EXPECT_EQ(sound.failure, "");
  EXPECT_EQ(sound.schedules, 2U);
  EXPECT_TRUE(explore(additions_with(false))
                  .failure.starts_with("race on shared 1: thread 1 reads, thread 0 accesses it too"));
}

struct message {
  plain_integer data;
  integer flag, second_flag;
};
explored pass_message(std::memory_order store, std::memory_order load, exploration_options const& options) {
  return explore(on<message>(2,
                             [=](message& m, std::size_t t) {
                               if (t == 0) {
                                 m.data = 42;
                                 m.flag.store(1, store);
                               } else if (m.flag.load(load) == 1) {
                                 require(m.data == 42, "the message is not there");
                               }
                             }),
                 options);
}

TEST(interleavings, finds_races_by_memory_orders) {
  for (exploration_options const& options : {exploration_options{}, weak}) {
    EXPECT_EQ(pass_message(release, acquire, options).failure, "");
    EXPECT_EQ(pass_message(seq_cst, seq_cst, options).failure, "");
    EXPECT_TRUE(pass_message(relaxed, acquire, options).failure.starts_with("race on shared 0"));
    EXPECT_TRUE(pass_message(release, relaxed, options).failure.starts_with("race on shared 0"));
  }
}

TEST(interleavings, unwinds_the_threads_of_a_run_that_failed) {
  struct adds_at_end {
    guarded& g;
    ~adds_at_end() { g.count.fetch_add(1); }
  };
  const auto held = std::make_shared<int>(1);
  const auto throws = on<guarded>(3, [&held](guarded& g, std::size_t t) {
    const std::shared_ptr<int> local = held;  // NOLINT(performance-unnecessary-copy-initialization)
    const std::scoped_lock lock{g.mutex};
    if (g.count.fetch_add(1) == 1 && t == 1) throw std::runtime_error{"no luck"};
  });
  EXPECT_TRUE(explore(throws).failure.starts_with("thread 1 threw: no luck\nschedule {"));
  EXPECT_EQ(held.use_count(), 1);
  const auto locks_twice = on<guarded>(2, [&held](guarded& g, std::size_t) {
    const std::shared_ptr<int> local = held;  // NOLINT(performance-unnecessary-copy-initialization)
    const adds_at_end at_end{g};
    g.mutex.lock();
    g.mutex.lock();
  });
  EXPECT_TRUE(explore(locks_twice).failure.starts_with("deadlock"));
  EXPECT_EQ(held.use_count(), 1);
}

TEST(interleavings, reports_a_loop_without_end) {
  const auto spins = [](bool yields) {
    return on<integer>(2, [=](integer& n, std::size_t t) {
      if (t == 0) n.store(1);
      while (t == 1 && n.load() == 0) {
        if (yields) explored_sync::yield();
      }
    });
  };
  EXPECT_TRUE(explore(spins(false), {.max_steps = 50}).failure.starts_with("a run takes more than 50 steps"));
  for (exploration_options const& options : {exploration_options{}, weak}) {
    const explored result = explore(spins(true), options);
    EXPECT_EQ(result.failure, "");
    EXPECT_TRUE(result.complete);
    EXPECT_GE(result.schedules, 2U);
  }
}

TEST(interleavings, reports_programs_that_are_not_deterministic) {
  int runs = 0;
  const auto make = [&runs] {
    const auto n = std::make_shared<integer>();
    const bool often = ++runs % 2 == 0;
    return program{{[=] { n->fetch_add(1); },
                    [=] {
                      n->fetch_add(1);
                      if (often) n->fetch_add(1);
                    }}};
  };
  EXPECT_TRUE(explore(make).failure.starts_with("the program is not deterministic"));
}

// Weak orders: the classic programs, with every outcome that they may have.

using outcomes = std::set<std::vector<int>>;
struct litmus {
  integer x, y;
  std::array<int, 4> r{-1, -1, -1, -1};  // each written by one thread, read at the end
};
using litmus_thread = std::function<void(litmus&)>;
outcomes run_litmus(std::vector<litmus_thread> const& threads, std::size_t results,
                    exploration_options const& options = weak) {
  outcomes seen;
  const explored result =
      explore(on<litmus>(
                  threads.size(), [&](litmus& l, std::size_t t) { threads[t](l); },
                  [&](litmus& l) {
                    seen.emplace(l.r.begin(), l.r.begin() + static_cast<std::ptrdiff_t>(results));
                    return "";
                  }),
              options);
  EXPECT_EQ(result.failure, "");
  EXPECT_TRUE(result.complete);
  return seen;
}

TEST(weak_orders, let_stores_wait_in_a_buffer_unless_seq_cst) {
  const auto store_buffering = [](std::memory_order store, std::memory_order load,
                                  exploration_options const& options) {
    return run_litmus({[=](litmus& l) { l.x.store(1, store), l.r[0] = l.y.load(load); },
                       [=](litmus& l) { l.y.store(1, store), l.r[1] = l.x.load(load); }},
                      2, options);
  };
  const outcomes all{{0, 0}, {0, 1}, {1, 0}, {1, 1}}, consistent{{0, 1}, {1, 0}, {1, 1}};
  EXPECT_EQ(store_buffering(relaxed, relaxed, weak), all);
  EXPECT_EQ(store_buffering(release, acquire, weak), all);
  EXPECT_EQ(store_buffering(seq_cst, seq_cst, weak), consistent);
  EXPECT_EQ(store_buffering(relaxed, relaxed, {}), consistent);
}

TEST(weak_orders, let_readers_disagree_on_store_order_unless_seq_cst) {
  const auto independent_reads = [](std::memory_order store, std::memory_order load) {
    return run_litmus({[=](litmus& l) { l.x.store(1, store); }, [=](litmus& l) { l.y.store(1, store); },
                       [=](litmus& l) { l.r[0] = l.x.load(load), l.r[1] = l.y.load(load); },
                       [=](litmus& l) { l.r[2] = l.y.load(load), l.r[3] = l.x.load(load); }},
                      4);
  };
  EXPECT_EQ(independent_reads(release, acquire).size(), 16U);
  const outcomes consistent = independent_reads(seq_cst, seq_cst);
  EXPECT_EQ(consistent.size(), 15U);
  EXPECT_FALSE(consistent.contains({1, 0, 1, 0}));
}

}  // namespace
}  // namespace tidemark::test
