// SPDX-License-Identifier: Apache-2.0
// Knowledge of the threads of an explored program about each other, by vector clocks: for races on plain
// variables, and for the stores that a load may read. Included by explorer.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <vector>

namespace tidemark::test {

/// Orders of C++20 but for fences. The modification order of an atomic is the order in which its stores are
/// executed.
class happens_before {
 public:
  static constexpr unsigned max_threads = 7;
  static constexpr unsigned main_thread = max_threads;  // set-up and check: before and after all others
  /// For each thread an epoch: everything in it or before it is known. A release starts a new epoch of the
  /// thread. Other threads then know the operations before the release, but no later operations.
  using clock = std::array<unsigned, max_threads + 1>;

  /// The stores to an atomic, and the threads that have read or written each of them.
  struct history {
    struct access {
      unsigned thread, epoch, yields;
      std::size_t store;
    };
    std::vector<clock> released;  // for each store: the knowledge of an acquiring load of it
    std::vector<access> accesses;
    std::size_t seq_cst_floor = 0;  // the last store that a seq_cst operation read or wrote
  };
  /// State of a plain variable: for each thread the epoch of its last read and write, or 0.
  struct plain_accesses {
    clock reads{}, writes{};
  };

  [[nodiscard]] unsigned self() const { return self_; }

  void acquire(clock const& released) { join(now(), released); }
  clock release() {
    clock const before = now();
    ++now()[self_];
    return before;
  }

  void read(history& h, std::size_t store, std::memory_order order) {
    if (order != std::memory_order_relaxed && order != std::memory_order_release) acquire(h.released[store]);
    record(h, store, order);
  }
  /// `replaces`: true for a read-modify-write, from which a load also acquires the release of the store
  /// before it.
  void write(history& h, std::memory_order order, bool replaces) {
    clock released = replaces ? h.released.back() : clock{};
    record(h, h.released.size(), order);
    if (order == std::memory_order_release || order == std::memory_order_acq_rel ||
        order == std::memory_order_seq_cst) {
      join(released, release());
    }
    h.released.push_back(released);
  }
  /// The oldest store that the running thread may read: no newer store is known, by coherence or by the order
  /// of seq_cst. After a yield it is the newest store to each atomic read since the previous yield, so that
  /// waiting ends.
  [[nodiscard]] std::size_t oldest_visible(history const& h, std::memory_order order) const {
    std::size_t oldest = order == std::memory_order_seq_cst ? h.seq_cst_floor : 0;
    for (history::access const& a : h.accesses) {
      if (a.thread == self_ && a.yields + 1 == yields_[self_]) return h.released.size() - 1;
      if (a.epoch <= clocks_[self_][a.thread]) oldest = std::max(oldest, a.store);
    }
    return oldest;
  }
  /// @return a thread whose access races with this one of the running thread, or the running thread.
  unsigned access(plain_accesses& others, bool writes) {
    unsigned racing = self_;
    for (unsigned t = 0; t <= max_threads; ++t) {
      if (others.writes[t] > now()[t] || (writes && others.reads[t] > now()[t])) racing = t;
    }
    (writes ? others.writes : others.reads)[self_] = now()[self_];
    return racing;
  }

 protected:
  void reset() {
    clocks_ = {};
    yields_ = {};
    self_ = main_thread;
    now()[main_thread] = 1;
  }
  void start_thread(unsigned t) {
    clocks_[t] = clocks_[main_thread];
    clocks_[t][t] = 1;
  }
  void join_thread(unsigned t) { join(clocks_[main_thread], clocks_[t]); }

  unsigned self_ = main_thread;  // who runs
  std::array<unsigned, max_threads + 1> yields_{};

 private:
  [[nodiscard]] clock& now() { return clocks_[self_]; }
  static void join(clock& to, clock const& from) {
    for (std::size_t t = 0; t < to.size(); ++t) to[t] = std::max(to[t], from[t]);
  }
  void record(history& h, std::size_t store, std::memory_order order) {
    h.accesses.push_back({self_, now()[self_], yields_[self_], store});
    if (order == std::memory_order_seq_cst) h.seq_cst_floor = std::max(h.seq_cst_floor, store);
  }

  std::array<clock, max_threads + 1> clocks_{};
};

}  // namespace tidemark::test
