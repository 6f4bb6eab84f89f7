// SPDX-License-Identifier: Apache-2.0
// Policies like explored_sync with a fault each. A test of production code uses them to show that it would
// fail if this code were wrong, without a faulty copy of the code.
#pragma once

#include <atomic>
#include <type_traits>

#include "interleavings.hpp"

namespace tidemark::test {

enum class fault {
  no_release,     // stores release nothing
  no_acquire,     // loads acquire nothing
  split_updates,  // a read-modify-write is a load and a store
  no_locks,       // locks exclude no one
};

template <fault Fault>
struct faulty_sync : explored_sync {
  template <class T>
  class atomic : public explored_sync::atomic<T> {
    using base = explored_sync::atomic<T>;

   public:
    using base::base;
    operator T() const { return load(); }
    T operator=(T value) {
      store(value);
      return value;
    }
    T load(std::memory_order order = std::memory_order_seq_cst) const { return base::load(weaken(order)); }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) {
      base::store(value, weaken(order));
    }
    T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
      if constexpr (splits) return modify(order, [&](T) { return value; });
      else return base::exchange(value, weaken(order));
    }
    T fetch_add(auto n, std::memory_order order = std::memory_order_seq_cst) {
      if constexpr (splits) return modify(order, [&](T before) { return static_cast<T>(before + n); });
      else return base::fetch_add(n, weaken(order));
    }
    T fetch_sub(auto n, std::memory_order order = std::memory_order_seq_cst) {
      if constexpr (splits) return modify(order, [&](T before) { return static_cast<T>(before - n); });
      else return base::fetch_sub(n, weaken(order));
    }
    T fetch_and(T bits, std::memory_order order = std::memory_order_seq_cst) {
      if constexpr (splits) return modify(order, [&](T before) { return static_cast<T>(before & bits); });
      else return base::fetch_and(bits, weaken(order));
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
      return compare_exchange_weak(expected, value, order);
    }
    bool compare_exchange_weak(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
      if constexpr (!splits) return base::compare_exchange_strong(expected, value, weaken(order));
      const T before = load(order);
      const bool is_same = before == expected;
      if (is_same) store(value, order);
      expected = before;
      return is_same;
    }

   private:
    static constexpr bool splits = Fault == fault::split_updates;

    static constexpr std::memory_order weaken(std::memory_order order) {
      const bool releases = order == std::memory_order_release || order == std::memory_order_acq_rel ||
                            order == std::memory_order_seq_cst;
      const bool acquires = order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
                            order == std::memory_order_seq_cst;
      if (Fault == fault::no_release && releases)
        return acquires ? std::memory_order_acquire : std::memory_order_relaxed;
      if (Fault == fault::no_acquire && acquires)
        return releases ? std::memory_order_release : std::memory_order_relaxed;
      return order;
    }
    T modify(std::memory_order order, auto next) {
      const T before = load(order);
      store(next(before), order);
      return before;
    }
  };

  // Threads yield at the places of a mutex.
  class no_mutex {
   public:
    void lock() { (void)turn_.fetch_add(1, std::memory_order_relaxed); }
    [[nodiscard]] bool try_lock() {
      lock();
      return true;
    }
    void unlock() { lock(); }

   private:
    explored_sync::atomic<int> turn_;
  };
  using mutex = std::conditional_t<Fault == fault::no_locks, no_mutex, explored_sync::mutex>;
};

}  // namespace tidemark::test
