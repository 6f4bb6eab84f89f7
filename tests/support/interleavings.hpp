// SPDX-License-Identifier: Apache-2.0
// Runs a small program of a few threads in every order of its operations on atomics and mutexes.
//
//   const auto result = explore([] {
//     const auto n = std::make_shared<explored_sync::atomic<int>>(0);
//     const auto add = [n] { n->store(n->load() + 1); };
//     return program{{add, add}, [n] { return n->load() == 2 ? "" : "an addition is lost"; }};
//   });
//   EXPECT_EQ(result.failure, "");  // an addition is lost; schedule {0, 1, 1, 0}; each operation on a line
//
// Code under test is a template over a policy like explored_sync; production has one of std::atomic and
// std::mutex. Threads share nothing but objects of the policy, and depend on nothing else that changes, such
// as addresses of new memory. A loop that waits calls `yield`.
//
// Values are sequentially consistent, unless `weak_orders` is set: then a load reads any store that C++'s
// coherence and happens-before leave it. Not modelled: a load that reads a later store of the execution (load
// buffering), stores whose modification order differs from the order of execution, and fences. Races are
// found by vector clocks, with memory orders taken at their word in both modes.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "explorer.hpp"

namespace tidemark::test {

/// Runs every schedule until one fails: the check's text, a race, a deadlock, an exception that leaves a
/// thread, std::terminate, too many steps. The same program and options give the same result.
inline explored explore(std::function<program()> make, exploration_options const& options = {}) {
  return explorer{std::move(make), options}.explore_all();
}

/// Runs one schedule, or one that begins so.
inline explored replay(std::function<program()> make, std::vector<unsigned> const& schedule,
                       exploration_options const& options = {}) {
  return explorer{std::move(make), options}.replay(schedule);
}

/// For threads: ends the run with this failure if the condition does not hold.
inline void require(bool holds, char const* failure) {
  if (!holds) explorer::current().fail(failure);
}

struct explored_sync {
  /// As std::atomic.
  template <class T>
  class atomic : explorer::object {
   public:
    using value_type = T;
    static constexpr bool is_always_lock_free = true;

    atomic() : atomic{T{}} {}
    atomic(T value) {
      values_.push_back(value);
      run().write(history_, std::memory_order_relaxed, false);
    }
    atomic(atomic const&) = delete;
    atomic& operator=(atomic const&) = delete;

    operator T() const { return load(); }
    T operator=(T value) {
      store(value);
      return value;
    }
    T load(std::memory_order order = std::memory_order_seq_cst) const {
      step(explorer::effect::read, order);
      std::size_t const i = choose_store(order, [](T) { return true; });
      run().read(history_, i, order);
      run().log(*this, kind, "load", values_[i]);
      return values_[i];
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) {
      step(explorer::effect::write, order);
      put(value, order, false);
      run().log(*this, kind, "store", value);
    }
    T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
      return modify("exchange", order, [&](T) { return value; });
    }
    T fetch_add(auto n, std::memory_order order = std::memory_order_seq_cst) {
      return modify("fetch_add", order, [&](T before) { return static_cast<T>(before + n); });
    }
    T fetch_sub(auto n, std::memory_order order = std::memory_order_seq_cst) {
      return modify("fetch_sub", order, [&](T before) { return static_cast<T>(before - n); });
    }
    T fetch_or(T bits, std::memory_order order = std::memory_order_seq_cst) {
      return modify("fetch_or", order, [&](T before) { return static_cast<T>(before | bits); });
    }
    T fetch_and(T bits, std::memory_order order = std::memory_order_seq_cst) {
      return modify("fetch_and", order, [&](T before) { return static_cast<T>(before & bits); });
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order success, std::memory_order failure) {
      return compare_exchange(expected, value, success, failure, false);
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
      return compare_exchange(expected, value, order, when_it_fails(order), false);
    }
    bool compare_exchange_weak(T& expected, T value, std::memory_order success, std::memory_order failure) {
      return compare_exchange(expected, value, success, failure, true);
    }
    bool compare_exchange_weak(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
      return compare_exchange(expected, value, order, when_it_fails(order), true);
    }

   private:
    static constexpr char const* kind = "atomic";
    static explorer& run() { return explorer::current(); }
    static std::memory_order when_it_fails(std::memory_order order) {
      if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
      return order == std::memory_order_release ? std::memory_order_relaxed : order;
    }

    void step(explorer::effect what, std::memory_order order) const {
      run().step({this, what, order == std::memory_order_seq_cst});
    }
    /// The newest store, or an older one that is visible and whose value `may_be_read` accepts.
    std::size_t choose_store(std::memory_order order, auto may_be_read) const {
      std::vector<std::size_t> stores{values_.size() - 1};
      for (std::size_t i = values_.size() - 1; i-- > run().oldest_visible(history_, order);) {
        if (may_be_read(values_[i])) stores.push_back(i);
      }
      return stores[run().choose(stores.size())];
    }
    void put(T value, std::memory_order order, bool replaces) {
      run().write(history_, order, replaces);
      if (!(value == values_.back())) run().record_change();
      values_.push_back(value);
    }
    T modify(char const* name, std::memory_order order, auto next) {
      step(explorer::effect::write, order);
      T const before = values_.back(), after = next(before);
      run().read(history_, values_.size() - 1, order);
      put(after, order, true);
      run().log(*this, kind, name, before, after);
      return before;
    }
    bool compare_exchange(T& expected, T value, std::memory_order success, std::memory_order failure,
                          bool weak) {
      bool const seq_cst = success == std::memory_order_seq_cst || failure == std::memory_order_seq_cst;
      run().step({this, explorer::effect::write, seq_cst});
      // An older store can only be read to fail: success replaces the newest.
      std::size_t const i = choose_store(failure, [&](T found) { return !(found == expected); });
      T const before = values_[i];
      if (!(before == expected) || (weak && run().may_fail_spuriously())) {
        run().read(history_, i, failure);
        run().log(*this, kind, "compare_exchange fails", before);
        expected = before;
        return false;
      }
      run().read(history_, i, success);
      put(value, success, true);
      run().log(*this, kind, "compare_exchange", before, value);
      return true;
    }

    struct state {
      explorer::history history;
      std::vector<T> values;
    };
    state& state_ = run().template own<state>();
    explorer::history& history_ = state_.history;
    std::vector<T>& values_ = state_.values;  // all stores in modification order
  };

  /// As std::mutex. A lock that no thread will release is a deadlock, and so is locking twice.
  class mutex : explorer::object {
   public:
    mutex() = default;
    mutex(mutex const&) = delete;
    mutex& operator=(mutex const&) = delete;

    void lock() {
      run().step({this, explorer::effect::lock});
      if (locked) run().fail("the set-up or check locks a mutex that is locked");
      acquire("lock");
    }
    bool try_lock() {
      run().step({this, explorer::effect::write});
      if (!locked) acquire("try_lock");
      else run().log(*this, kind, "try_lock fails");
      return holder_ == run().self();
    }
    void unlock() {
      run().step({this, explorer::effect::unlock});
      if (!locked || holder_ != run().self())
        run().fail(explorer::name_of(run().self()) + " unlocks a mutex that it has not locked");
      released_ = run().release();
      locked = false;
      run().record_change();
      run().log(*this, kind, "unlock");
    }

   private:
    static constexpr char const* kind = "mutex";
    static explorer& run() { return explorer::current(); }
    void acquire(char const* name) {
      locked = true;
      holder_ = run().self();
      run().acquire(released_);
      run().log(*this, kind, name);
    }

    explorer::clock released_{};
    unsigned holder_ = 0;
  };

  /// A plain variable; in production the type itself. Two accesses are a failure if one writes and neither
  /// happens before the other. No thread yields here, because in a program without races other threads cannot
  /// tell the operations between two operations on atomics and mutexes from one step.
  template <class T>
  class shared : explorer::object {
   public:
    shared() : shared{T{}} {}
    shared(T value) : value_{std::move(value)} { write(); }
    shared(shared const&) = delete;
    shared& operator=(shared const&) = delete;

    operator T const&() const { return read(); }
    shared& operator=(T value) {
      write() = std::move(value);
      return *this;
    }
    T const& read() const {
      explorer::current().access(*this, accesses_, false);
      return value_;
    }
    T& write() {
      explorer::current().access(*this, accesses_, true);
      return value_;
    }

   private:
    mutable explorer::plain_accesses accesses_;
    T value_;
  };

  static constexpr bool is_single_threaded() { return false; }

  /// For loops that wait: goes on when another thread has changed an atomic or released a mutex since the
  /// last call. If none ever does, that is a deadlock: a loop that gives up at some time must not call it.
  static void yield() { explorer::current().yield(); }
};

}  // namespace tidemark::test
