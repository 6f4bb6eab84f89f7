// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/fork_participant.hpp>

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <system_error>
#include <thread>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/violation.hpp>

// Beginning of the process's first stack, set by the dynamic linker or at the start of a static program.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name
extern "C" void* __libc_stack_end;

namespace tidemark::detail {

/// All participants, and their treatment at a fork. Available before everything else and never destroyed,
/// because it has neither a constructor to run nor a destructor.
///
/// Invariants: `!newest || !newest->newer_`, and those of `fork_participant`, while `lock` is free.
struct fork_list {
  brief_lock lock;  // held during a fork
  fork_participant* newest = nullptr;
  fork_participant* unlocked = nullptr;  // during a fork: the newest participant with untaken locks
  bool has_handlers = false;
  bool forked_without_locks = false;  // in a child: locks of other threads stay taken

  void add(fork_participant& one) noexcept {
    const std::scoped_lock guard{lock};
    if (!has_handlers) has_handlers = pthread_atfork(prepare, after_in_parent, after_in_child) == 0;
    one.older_ = newest;
    if (newest != nullptr) newest->newer_ = &one;
    newest = &one;
    one.is_listed_ = true;
  }
  void remove(fork_participant& one) noexcept {
    const std::scoped_lock guard{lock};
    unlink(one);
  }

 private:
  // ThreadSanitizer ends programs in which one thread holds more than 128 mutexes. It does not support forks
  // of programs with threads anyway.
  static constexpr std::size_t max_locked =
      thread_sanitizer_is_on ? 32 : std::numeric_limits<std::size_t>::max();

  void unlink(fork_participant& one) noexcept {
    if (!std::exchange(one.is_listed_, false)) return;
    (one.newer_ != nullptr ? one.newer_->older_ : newest) = one.older_;
    if (one.older_ != nullptr) one.older_->newer_ = one.newer_;
    one.newer_ = one.older_ = nullptr;
  }
  // Locks the newest participants first, because a resource mostly calls older upstreams with its lock held.
  // Waits up to `patience` for each participant, and until `end` for all.
  bool lock_all(std::chrono::nanoseconds patience, fork_clock::time_point end) noexcept {
    std::size_t locked = 0;
    for (unlocked = newest; unlocked != nullptr && locked++ < max_locked; unlocked = unlocked->older_) {
      if (unlocked->lock_for_fork(std::min(fork_clock::now() + patience, end))) continue;
      unlock_all(false);
      return false;
    }
    return true;
  }
  void unlock_all(bool is_child) noexcept {
    for (fork_participant* one = newest; one != unlocked; one = one->older_) one->unlock_after_fork(is_child);
  }
  void unlink_lost() noexcept {
    for (fork_participant* one = newest; one != nullptr;) {
      fork_participant* const next = one->older_;
      if (is_lost(one->stack_owner_)) unlink(*one);
      one = next;
    }
  }

  static void prepare() noexcept;
  static void after_in_parent() noexcept;
  static void after_in_child() noexcept;
};

namespace {

constinit fork_list participants;
constinit std::chrono::nanoseconds total_patience = std::chrono::seconds{10};
constinit thread_local bool has_locks = false;  // this thread is in a fork that has taken all locks

// The calling thread's stack. Empty if the C library does not know it, and for the process's first stack. A
// child of another thread never reuses the first stack, but reuses the stacks of threads.
byte_range stack_of_this_thread() noexcept {
  // Recognises the first stack by its address, because in a child every forking thread has the process's
  // number. Linux keeps more than `sure_bytes` below its beginning free of mappings. This test mostly avoids
  // the call of the C library, which reads a file.
  constexpr std::uintptr_t sure_bytes = std::uintptr_t{8} << 20U;
  const auto first_stack = reinterpret_cast<std::uintptr_t>(__libc_stack_end);
  if (first_stack - reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) < sure_bytes) return {};
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* first = nullptr;
  byte_range stack;
  const bool is_known = pthread_attr_getstack(&attributes, &first, &stack.size) == 0;
  pthread_attr_destroy(&attributes);
  stack.begin = reinterpret_cast<std::uintptr_t>(first);
  if (is_known && !stack.contains(first_stack)) return stack;
  return {};
}

}  // namespace

// Holds no lock between two rounds, so that holders of awaited locks can proceed. Each round waits longer,
// because a holder may be slow. A lock that stays taken ends the attempt, for example one that the forking
// thread holds in a signal handler. The program then needs no lock of ours.
void fork_list::prepare() noexcept {
  using namespace std::chrono_literals;
  if (participants.forked_without_locks) return;
  const fork_clock::time_point end = fork_clock::now() + total_patience;
  std::chrono::nanoseconds patience = 1ms;
  do {
    if (lock_until(std::min(fork_clock::now() + patience, end), participants.lock)) {
      has_locks = participants.lock_all(patience, end);
      if (has_locks) return;
      participants.lock.unlock();
    }
    std::this_thread::sleep_for(100us);
    patience = std::min<std::chrono::nanoseconds>(2 * patience, 1s);
  } while (fork_clock::now() < end);
}

void fork_list::after_in_parent() noexcept {
  if (!std::exchange(has_locks, false)) return;
  participants.unlock_all(false);
  participants.lock.unlock();
}

void fork_list::after_in_child() noexcept {
  if (!std::exchange(has_locks, false)) {
    participants.forked_without_locks = true;  // other threads may have left the data inconsistent
    return;
  }
  participants.unlock_all(true);
  participants.unlink_lost();
  for (fork_participant* one = participants.newest; one != nullptr; one = one->older_) one->adapt_to_child();
  participants.lock.unlock();
}

bool sleep_before(fork_clock::time_point deadline) noexcept {
  std::this_thread::sleep_for(std::chrono::microseconds{20});
  return fork_clock::now() < deadline;
}

std::chrono::nanoseconds set_fork_patience(std::chrono::nanoseconds total) noexcept {
  return std::exchange(total_patience, total);
}

// The field is part of glibc's ABI, because static initialisers of its mutexes contain it. It is written only
// if it was the forking thread's number.
bool is_held_by_this_thread([[maybe_unused]] pthread_mutex_t const& mutex) noexcept {
  const int owner = __atomic_load_n(&mutex.__data.__owner, __ATOMIC_RELAXED);
  return owner != 0 && owner == gettid();  // no system call while the mutex is free
}
void adopt_lock_in_child([[maybe_unused]] pthread_mutex_t& mutex) noexcept {
  __atomic_store_n(&mutex.__data.__owner, gettid(), __ATOMIC_RELAXED);
}

void refuse_reentry() {
  report_violation(
      violation_kind::reentry, "",
      "a resource is called by its own upstream, bookkeeping resource or callback while it holds "
      "its lock and waits for that call");
  throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur));
}

void fork_participant::join() noexcept {
  stack_owner_ = stack_owner_of(this);
  participants.add(*this);
}

void fork_participant::deregister() noexcept { participants.remove(*this); }

unsigned long long stack_owner_of(void const* address) noexcept {
  thread_local const byte_range stack = stack_of_this_thread();
  return stack.contains(reinterpret_cast<std::uintptr_t>(address)) ? this_thread_number() : 0;
}

bool is_lost(unsigned long long stack_owner) noexcept {
  return stack_owner != 0 && stack_owner != this_thread_number();
}

}  // namespace tidemark::detail
