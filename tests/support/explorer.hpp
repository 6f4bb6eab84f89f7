// SPDX-License-Identifier: Apache-2.0
// Searches the orders in which threads can run. Tests include interleavings.hpp.
//
// Threads are fibers, because a switch then takes under a microsecond, and sanitizers have calls for it.
// System threads that wait for each other take several microseconds. A thread yields before each operation,
// and the choice of the next thread is a decision. The search is depth first over the decisions. If orders
// differ only in adjacent commuting operations (on different objects, or two loads), one of them is tried:
// sleep sets (Godefroid 1996, "Partial-Order Methods for the Verification of Concurrent Systems").
//
// With `weak_orders`, the store that a load reads is a decision too, as in CDSChecker (Norris and Demsky
// 2013, "CDSchecker: Checking Concurrent Data Structures Written with C/C++ Atomics").
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fiber.hpp"
#include "happens_before.hpp"

namespace tidemark::test {

/// A program that runs once for each schedule. The function that makes it also makes the shared objects of
/// the threads.
struct program {
  std::vector<std::function<void()>> threads;
  std::function<std::string()> check = {};  // when all threads have ended: what is wrong, or ""
};

struct exploration_options {
  // Switches away from a thread that could go on, in one run. With a bound there is no pruning: of several
  // equal orders the tried order may exceed the bound.
  unsigned max_preemptions = std::numeric_limits<unsigned>::max();
  std::size_t max_steps = 1'000;           // of one run; more is a failure: loops that wait must yield
  std::size_t max_schedules = 10'000'000;  // then the search ends incomplete
  unsigned max_spurious_failures = 0;      // of compare_exchange_weak, for each thread
  bool weak_orders = false;
  bool prune = true;
};

struct explored {
  std::string failure;  // "", or a sentence, the schedule and the operations
  // The schedule of the failure: thread numbers in the order of their operations, each followed by the result
  // of `choose`.
  std::vector<unsigned> schedule;
  std::size_t schedules = 0;  // runs, each a different order
  std::size_t pruned = 0;     // runs that turned out to be equal to another one
  bool complete = true;       // no bound was reached, and there was no failure
};

/// Runs a program once for each schedule. Operations of explored_sync call it from the threads of the run.
class explorer : public happens_before {
 public:
  /// The target of operations. Its number is its place in the order of construction.
  struct object {
    object() : number{current().objects_++} {}
    unsigned number;
    bool locked = false;
  };
  enum class effect : std::uint8_t { read, write, lock, unlock, yield };
  struct operation {
    object const* target;
    effect what;
    bool seq_cst = false;
  };

  explorer(std::function<program()> make, exploration_options const& options)
      : make_{std::move(make)}, options_{options}, outer_terminate_{std::set_terminate(terminate_thread)} {
    fibers_[main_thread] = std::make_unique<fiber>();
    current_ = this;
  }
  explorer(explorer const&) = delete;
  explorer& operator=(explorer const&) = delete;
  ~explorer() {
    ending_ = true;
    for (unsigned t = 0; t < max_threads; ++t) {
      if (fibers_[t]) fibers_[main_thread]->switch_to(*fibers_[t]);
    }
    std::set_terminate(outer_terminate_);
    current_ = nullptr;
  }
  /// @throws std::logic_error without one: an object of explored_sync is used outside of its program.
  static explorer& current() {
    if (current_ == nullptr) throw std::logic_error{"explored_sync is used outside of explore()"};
    return *current_;
  }

  explored explore_all() {
    explored result;
    do {
      if (result.schedules + result.pruned == options_.max_schedules) {
        result.complete = false;
        return result;
      }
      run();
      if (!failure_.empty()) return describe(std::move(result));
      ++(redundant_ ? result.pruned : result.schedules);
    } while (advance());
    result.complete = !bounded_;
    return result;
  }
  explored replay(std::vector<unsigned> const& schedule) {
    replayed_ = &schedule;
    run();
    explored result;
    result.schedules = 1;
    result.complete = false;
    result.schedule = schedule_;
    return failure_.empty() ? result : describe(std::move(result));
  }

  /// Makes state of an object that lives until the next run begins. Objects thus need not be destroyed, and
  /// may lie in memory that is released as a whole.
  template <class State>
  State& own() {
    const auto made = std::make_shared<State>();
    owned_.push_back(made);
    return *made;
  }

  /// The running thread gives way, and returns when it is its turn to do this operation.
  void step(operation const& next) {
    if (self_ == main_thread) return;
    if (!abandoning_) {
      threads_[self_].next = next;
      yield_step();
    }
    // No exception if it would end the process: while the stack unwinds, and in the destructors of locks.
    if (abandoning_ && std::uncaught_exceptions() == 0 && next.what != effect::unlock) throw abandoned{};
  }
  /// One of the numbers below `n`: in the course of the search each, or the first `max_choices`.
  unsigned choose(std::size_t n) {
    if (n == 1 || self_ == main_thread || abandoning_) return 0;
    bounded_ |= n > max_choices;
    return decide((mask{1} << std::min(n, max_choices)) - 1, 0).taken;
  }
  /// Ends the run with this failure, at the next operation. The first one counts.
  void fail(std::string const& text) {
    if (failure_.empty() && !abandoning_) failure_ = text;
  }
  template <class... Values>
  void log(object const& target, char const* kind, char const* name, Values... values) {
    if (!logging_ || self_ == main_thread) return;
    log_ += "\n  thread " + std::to_string(self_) + ": " + kind + ' ' + std::to_string(target.number) + ' ' +
            name;
    [[maybe_unused]] char const* separator = ": ";
    ((log_ += std::exchange(separator, " -> ") + text(values)), ...);
  }
  /// Ends the run if this access to a plain variable races with another.
  void access(object const& variable, plain_accesses& others, bool writes) {
    log(variable, "shared", writes ? "write" : "read");
    unsigned const other = happens_before::access(others, writes);
    if (other == self_) return;
    fail("race on shared " + std::to_string(variable.number) + ": " + name_of(self_) +
         (writes ? " writes, " : " reads, ") + name_of(other) +
         " accesses it too, and neither happens before the other");
  }
  [[nodiscard]] std::size_t oldest_visible(history const& h, std::memory_order order) const {
    return options_.weak_orders ? happens_before::oldest_visible(h, order) : h.released.size() - 1;
  }
  [[nodiscard]] static std::string name_of(unsigned t) {
    return t == main_thread ? "the set-up or check" : "thread " + std::to_string(t);
  }
  /// Wakes threads that wait in yield.
  void record_change() { ++changes_, ++threads_[self_].own_changes; }
  void yield() {
    step({nullptr, effect::yield});
    threads_[self_].changes_seen = changes_ - threads_[self_].own_changes;
    ++yields_[self_];
  }
  [[nodiscard]] bool may_fail_spuriously() {
    bool const fails = threads_[self_].spurious_failures < options_.max_spurious_failures && choose(2) == 1;
    threads_[self_].spurious_failures += fails;
    return fails;
  }

 private:
  using mask = std::uint32_t;  // of threads, or of choices
  static constexpr std::size_t max_choices = 31;
  static constexpr mask bit(unsigned i) { return mask{1} << i; }
  struct abandoned {};  // thrown in threads of a run that failed, to unwind their stacks
  struct thread_state {
    bool running = false;
    operation next{};
    unsigned changes_seen = 0, own_changes = 0, spurious_failures = 0;
  };
  struct decision {
    mask candidates, tried;
    unsigned taken;
  };

  void run() {
    owned_.clear();
    objects_ = started_ = changes_ = preemptions_ = 0;
    depth_ = steps_ = 0;
    sleeping_ = 0;
    redundant_ = abandoning_ = false;
    failure_.clear(), log_.clear(), schedule_.clear(), pointers_.clear();
    threads_ = {};
    last_ = main_thread;
    reset();
    try {
      program const made = make_();
      program_ = &made;
      if (made.threads.size() > max_threads) throw std::length_error{"there are too many threads"};
      for (unsigned t = 0; t < made.threads.size(); ++t) {
        if (!fibers_[t]) fibers_[t] = std::make_unique<fiber>([this, t] { return run_threads(t); });
      }
      yield_step();
      abandoning_ = !failure_.empty();
      for (unsigned t = 0; t < max_threads; ++t) {
        if (threads_[t].running) resume(t);
        join_thread(t);
      }
      if (depth_ != decisions_.size() && replayed_ == nullptr) fail(runs_differ);
      if (!abandoning_ && made.check) fail(made.check());
    } catch (std::exception const& e) {
      fail(std::string{"the set-up or check threw: "} + e.what());
    }
  }
  /// The body of a fiber: thread `t` of each run.
  fiber* run_threads(unsigned t) {
    while (!ending_) {
      try {
        program_->threads[t]();
      } catch (abandoned const&) {
      } catch (std::exception const& e) {
        fail(name_of(t) + " threw: " + e.what());
      } catch (...) {
        fail(name_of(t) + " threw what is not a std::exception");
      }
      threads_[t].running = false;
      yield_step();
    }
    return fibers_[main_thread].get();
  }
  /// Code under test may be noexcept, so that an exception cannot unwind the stack. The fiber is then
  /// abandoned, and the objects on its stack are not destroyed.
  static void terminate_thread() {
    explorer& run = current();
    unsigned const t = run.self_;
    if (t == main_thread) run.outer_terminate_();
    run.fail(run.name_of(t) + " called std::terminate");
    run.threads_[t].running = false;
    if (std::current_exception()) abi::__cxa_end_catch();  // frees it
    run.abandoned_.push_back(std::move(run.fibers_[t]));
    run.self_ = main_thread;
    run.abandoned_.back()->switch_to(*run.fibers_[main_thread], true);
  }
  void yield_step() {
    unsigned const from = self_;
    unsigned const to = next_thread();
    if (from != to) resume(to);
  }
  void resume(unsigned thread) {
    fiber& from = *fibers_[self_];
    self_ = thread;
    from.switch_to(*fibers_[thread]);
  }

  /// Returns the thread of the next step, or main_thread at the end of the run. First all threads run to
  /// their first operation.
  unsigned next_thread() {
    if (!failure_.empty()) return main_thread;
    if (started_ < program_->threads.size()) {
      threads_[started_].running = true;
      start_thread(started_);
      threads_[started_].changes_seen = changes_;
      return started_++;
    }
    mask enabled = 0, waiting = 0;
    for (unsigned t = 0; t < started_; ++t) {
      if (threads_[t].running) (is_enabled(t) ? enabled : waiting) |= bit(t);
    }
    if (enabled == 0) {
      if (waiting != 0) fail("deadlock" + waiting_text(waiting));
      return main_thread;
    }
    if (++steps_ > options_.max_steps) {
      fail("a run takes more than " + std::to_string(options_.max_steps) + " steps");
      return main_thread;
    }
    return choose_thread(enabled);
  }
  unsigned choose_thread(mask enabled) {
    bool const last_may_continue = (enabled & bit(last_)) != 0;
    mask candidates = enabled;
    if (replayed_ == nullptr && options_.max_preemptions != std::numeric_limits<unsigned>::max()) {
      if (last_may_continue && preemptions_ == options_.max_preemptions) candidates = bit(last_);
      bounded_ |= candidates != enabled;
    } else if (replayed_ == nullptr && options_.prune) {
      candidates &= ~sleeping_;
    }
    if (candidates == 0) {  // each leads to an order that was tried: ends without further decisions
      redundant_ = true;
      candidates = enabled;
    }
    mask const usual = (candidates & bit(last_)) != 0 ? bit(last_) : candidates;
    decision const made = decide(candidates, static_cast<unsigned>(std::countr_zero(usual)));
    mask const slept = std::exchange(sleeping_, 0) | made.tried;
    for (unsigned t = 0; t < started_; ++t) {
      if ((slept & bit(t)) != 0 && commute(threads_[t].next, threads_[made.taken].next)) sleeping_ |= bit(t);
    }
    preemptions_ += last_may_continue && made.taken != last_;
    return last_ = made.taken;
  }
  [[nodiscard]] bool is_enabled(unsigned t) const {
    thread_state const& thread = threads_[t];
    if (thread.next.what == effect::lock) return !thread.next.target->locked;
    return thread.next.what != effect::yield || changes_ - thread.own_changes != thread.changes_seen;
  }
  [[nodiscard]] std::string waiting_text(mask waiting) const {
    std::string text;
    for (; waiting != 0; waiting &= waiting - 1) {
      const auto t = static_cast<unsigned>(std::countr_zero(waiting));
      operation const& next = threads_[t].next;
      text += "; " + name_of(t) +
              (next.what == effect::lock ? " waits for mutex " + std::to_string(next.target->number)
                                         : " yields until another thread changes something");
    }
    return text;
  }
  [[nodiscard]] bool commute(operation const& a, operation const& b) const {
    const auto writes = [](operation const& o) { return o.what != effect::read && o.what != effect::yield; };
    if (a.what == effect::yield || b.what == effect::yield) return !writes(a) && !writes(b);
    if (a.target != b.target) return true;
    return !writes(a) && !writes(b) && !(options_.weak_orders && a.seq_cst && b.seq_cst);
  }

  decision decide(mask candidates, unsigned usual) {
    decision made{candidates, 0, usual};
    if (replayed_ != nullptr) {
      if (schedule_.size() < replayed_->size()) made.taken = (*replayed_)[schedule_.size()];
    } else if (!redundant_) {
      if (depth_ == decisions_.size()) decisions_.push_back(made);
      made = decisions_[depth_++];
    }
    schedule_.push_back(made.taken);
    if (made.candidates == candidates && made.taken < max_choices && (candidates & bit(made.taken)) != 0)
      return made;
    fail(replayed_ != nullptr ? "the schedule does not fit the program" : runs_differ);
    return {candidates, 0, usual};
  }
  /// Moves to the next schedule in depth-first order. @return false if none is left
  bool advance() {
    for (; !decisions_.empty(); decisions_.pop_back()) {
      decision& last = decisions_.back();
      last.tried |= bit(last.taken);
      mask const left = last.candidates & ~last.tried;
      if (left == 0) continue;
      last.taken = static_cast<unsigned>(std::countr_zero(left));
      return true;
    }
    return false;
  }

  /// Runs the schedule of the failure again, and puts each operation down.
  explored describe(explored result) {
    std::string const failure = failure_;
    result.schedule = schedule_;
    result.complete = false;
    replayed_ = &result.schedule;
    logging_ = true;
    run();
    result.failure = (failure_ == failure ? std::string{} : "the program is not deterministic: ") + failure +
                     "\nschedule {";
    for (unsigned taken : result.schedule) {
      result.failure += (result.failure.back() == '{' ? "" : ", ") + std::to_string(taken);
    }
    result.failure += '}' + log_;
    return result;
  }
  template <class Value>
  std::string text(Value value) {
    if constexpr (std::is_same_v<Value, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_pointer_v<Value>) {  // numbered, because addresses differ between runs
      if (value == nullptr) return "null";
      const auto at = std::find(pointers_.begin(), pointers_.end(), value);
      const auto number = at - pointers_.begin();
      if (at == pointers_.end()) pointers_.push_back(value);
      return "pointer " + std::to_string(number);
    } else if constexpr (std::is_enum_v<Value>) {
      return text(static_cast<std::underlying_type_t<Value>>(value));
    } else if constexpr (std::is_arithmetic_v<Value>) {
      return std::to_string(value);
    } else {
      return "a value";
    }
  }

  static constexpr char const* runs_differ = "two runs of one schedule took different paths";
  inline static explorer* current_ = nullptr;

  std::function<program()> make_;
  exploration_options options_;
  std::terminate_handler outer_terminate_;
  std::array<std::unique_ptr<fiber>, max_threads + 1> fibers_;  // kept for the next run
  std::vector<std::unique_ptr<fiber>> abandoned_;               // of threads that called std::terminate
  std::vector<decision> decisions_;                             // the path of the search
  std::vector<unsigned> const* replayed_ = nullptr;             // a schedule to replay instead
  bool bounded_ = false, logging_ = false, ending_ = false;

  // State of this run.
  program const* program_ = nullptr;
  std::array<thread_state, max_threads + 1> threads_;
  unsigned last_ = main_thread;  // the thread of the last step
  unsigned started_ = 0, objects_ = 0, changes_ = 0, preemptions_ = 0;
  std::size_t depth_ = 0, steps_ = 0;
  mask sleeping_ = 0;  // threads whose next operation leads to an order that was tried
  bool redundant_ = false, abandoning_ = false;
  std::string failure_, log_;
  std::vector<unsigned> schedule_;
  std::vector<void const*> pointers_;
  std::vector<std::shared_ptr<void>> owned_;
};

}  // namespace tidemark::test
