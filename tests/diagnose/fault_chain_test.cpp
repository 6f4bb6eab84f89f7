// SPDX-License-Identifier: Apache-2.0
// Strategy: child processes with each kind of SIGSEGV action that the kernel knows. A signal that is not a
// late use must reach this action as if no arena trapped.

#include <tidemark/arena/arena.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "trapped_scopes.hpp"

namespace tidemark {
namespace {

using test::in_a_scope;
using test::read;
using test::trapping;

constexpr char const* report = test::late_use;

void fault() { (void)read(reinterpret_cast<void const*>(16)); }

using details_handler = void (*)(int, siginfo_t*, void*);
void set_action(details_handler handler, int flags) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(SIGSEGV, &action, nullptr);
}
void (*current_handler())(int, siginfo_t*, void*) {
  struct sigaction now{};
  sigaction(SIGSEGV, nullptr, &now);
  return now.sa_sigaction;
}

bool ends_by_segv(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV; }

volatile sig_atomic_t handler_calls = 0;
sigjmp_buf before_fault;
std::array<char, 16384> own_stack;

// Each test runs in a new process: a handler of the test program may be in force, and an arena may have
// trapped.
struct fault_chain : testing::Test {
  fault_chain() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~fault_chain() override { GTEST_FLAG_SET(death_test_style, "fast"); }
  void SetUp() override {
    if (TIDEMARK_ASAN + TIDEMARK_MSAN > 0 || detail::thread_sanitizer_is_on)
      GTEST_SKIP() << "a sanitizer has an action of its own, and wraps the program's";
  }
};
using fault_chain_death = fault_chain;

// A program's actions before it has a trapping arena, its end, and its exit code; 0 stands for the signal.
struct ending {
  char const* what;
  void (*prepare)();
  void (*end)();
  int code;
};
void fault_while_it_is_blocked() {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGSEGV);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  fault();
}
void count_calls_of_a_one_shot_handler(int, siginfo_t*, void*) {
  handler_calls = handler_calls + 1;
  if (handler_calls > 1)
    _exit(1);  // it returns, the fault comes again, and the default action ends the process
}
void fault_three_times(int, siginfo_t*, void*) {
  handler_calls = handler_calls + 1;
  if (handler_calls == 3) _exit(42);
  fault();
}
// Bytes of the alternate stack that a fault has changed.
std::size_t touched_bytes() {
  std::size_t untouched = 0;
  while (untouched < own_stack.size() && own_stack[untouched] == 0x5A) ++untouched;
  return own_stack.size() - untouched;
}
void use_own_stack() {
  own_stack.fill(0x5A);
  const stack_t stack{.ss_sp = own_stack.data(), .ss_flags = 0, .ss_size = own_stack.size()};
  sigaltstack(&stack, nullptr);
}

void set_a_one_shot_counter() {
  set_action([](int, siginfo_t*, void*) { handler_calls = handler_calls + 1; },
             static_cast<int>(SA_RESETHAND));
}
void be_sent_two_signals() {
  kill(getpid(), SIGSEGV);
  if (handler_calls != 1 || current_handler() != nullptr) _exit(1);
  kill(getpid(), SIGSEGV);
}
void have_an_unused_stack() {
  use_own_stack();
  set_action([](int, siginfo_t*, void*) { _exit(touched_bytes() == 0 ? 42 : 1); }, 0);
}
void block_sigusr1_in_the_handler() {
  struct sigaction action{};
  action.sa_handler = [](int) {
    sigset_t now;
    sigprocmask(SIG_SETMASK, nullptr, &now);
    const bool is_masked = sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGSEGV) == 1;
    _exit(is_masked && sigismember(&now, SIGUSR2) == 0 ? 42 : 1);
  };
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaction(SIGSEGV, &action, nullptr);
}
const ending endings[] = {
    {"a one-shot handler of a signal that was sent is reset", set_a_one_shot_counter, be_sent_two_signals, 0},
    {"a handler that does not use the alternate stack", have_an_unused_stack, fault, 42},
    {"a handler with a mask", block_sigusr1_in_the_handler, fault, 42},
    {"a one-shot handler",
     [] { set_action(count_calls_of_a_one_shot_handler, static_cast<int>(SA_RESETHAND)); }, fault, 0},
    {"a handler that defers faults", [] { set_action([](int, siginfo_t*, void*) { fault(); }, 0); }, fault,
     0},
    {"a handler that defers none", [] { set_action(fault_three_times, SA_NODEFER); }, fault, 42},
    {"a signal that is blocked", [] { set_action([](int, siginfo_t*, void*) { _exit(1); }, 0); },
     fault_while_it_is_blocked, 0},
    {"the default action", [] { signal(SIGSEGV, SIG_DFL); }, fault, 0},
    {"the default action of a sent signal", [] { signal(SIGSEGV, SIG_DFL); }, [] { kill(getpid(), SIGSEGV); },
     0},
    {"the default action of a raised signal", [] { signal(SIGSEGV, SIG_DFL); }, [] { raise(SIGSEGV); }, 0},
    {"a fault that is ignored", [] { signal(SIGSEGV, SIG_IGN); }, fault, 0},
};

TEST_F(fault_chain_death, ends_as_without_an_arena_that_traps) {
  for (ending const& each : endings) {
    const auto run = [&] {
      each.prepare();
      arena a{trapping};
      (void)in_a_scope(a);
      each.end();
      _exit(1);
    };
    const auto ends = [&](int status) {
      return each.code == 0 ? ends_by_segv(status) : testing::ExitedWithCode(each.code)(status);
    };
    EXPECT_EXIT(run(), ends, "^$") << each.what;
  }
}

TEST_F(fault_chain_death, takes_no_more_of_an_alternate_stack_than_a_small_handler) {
  static std::size_t needed = 0;
  const auto measure = [](int, siginfo_t*, void*) {
    needed = touched_bytes();
    siglongjmp(before_fault, 1);
  };
  const auto run = [&] {
    use_own_stack();
    set_action(measure, SA_ONSTACK);
    if (sigsetjmp(before_fault, 1) == 0) fault();  // without an arena that traps
    std::size_t const alone = needed;
    arena a{trapping};
    (void)in_a_scope(a);
    own_stack.fill(0x5A);
    if (sigsetjmp(before_fault, 1) == 0) fault();
    _exit(alone > 0 && needed < alone + 1024 ? 42 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(42), "^$");
}

// In a thread as well, whose number is not the process's.
TEST_F(fault_chain_death, delivers_a_sent_signal_with_its_details) {
  static siginfo_t got;
  const auto keep = [](int, siginfo_t* info, void*) {
    got = *info;
    handler_calls = handler_calls + 1;
  };
  const auto run = [&] {
    set_action(keep, SA_RESTART);
    arena a{trapping};
    int expected = 0;
    const auto arm = [&] {
      (void)in_a_scope(a);
      a.release_thread_ownership();
    };
    const auto send = [&] {
      arm();
      if (kill(getpid(), SIGSEGV);
          handler_calls != ++expected || got.si_code != SI_USER || got.si_pid != getpid())
        _exit(1);
      arm();
      if (raise(SIGSEGV); handler_calls != ++expected || got.si_code != SI_TKILL || got.si_uid != getuid())
        _exit(2);
      arm();
      const sigval value{.sival_int = 4711};
      pthread_sigqueue(pthread_self(), SIGSEGV, value);
      if (handler_calls != ++expected || got.si_code != SI_QUEUE || got.si_value.sival_int != 4711) _exit(3);
    };
    send();
    // The only thread that does not block the signal, so that kill() chooses it.
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGSEGV);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    std::thread{[&] {
      sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
      send();
    }}.join();
    _exit(42);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(42), "^$");
}

TEST_F(fault_chain_death, reports_a_late_use_after_a_thousand_faults_of_the_program) {
  const auto recover = [](int, siginfo_t*, void*) {
    handler_calls = handler_calls + 1;
    siglongjmp(before_fault, 1);
  };
  for (const bool between : {false, true}) {
    const auto run = [&] {
      set_action(recover, 0);
      arena a{trapping};
      (void)in_a_scope(a);
      while (handler_calls < 1000) {
        if (sigsetjmp(before_fault, 1) == 0) fault();
        if (between) (void)in_a_scope(a);  // arms a trap, so that the handler is installed each time
      }
      if (current_handler() != recover && !between) _exit(1);
      void* const late = in_a_scope(a);
      if (sigsetjmp(before_fault, 1) == 0) (void)read(late);
      _exit(handler_calls == 1001 ? 42 : 2);
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(42), report) << between;
  }
}

// A later handler of the program may call the earlier one by itself, and stays the one that is installed.
struct sigaction earlier_action;
TEST_F(fault_chain_death, calls_the_first_handler_for_a_later_one_that_chains) {
  const auto first = [](int, siginfo_t*, void*) { siglongjmp(before_fault, 1); };
  const auto later = [](int number, siginfo_t* info, void* context) {
    handler_calls = handler_calls + 1;
    earlier_action.sa_sigaction(number, info, context);
  };
  const auto run = [&] {
    set_action(first, 0);
    arena a{trapping};
    void* const late = in_a_scope(a);
    struct sigaction action{};
    action.sa_sigaction = later;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &earlier_action);
    for (int i = 0; i < 3; ++i)
      if (sigsetjmp(before_fault, 1) == 0) fault();
    if (handler_calls != 3 || current_handler() != later) _exit(1);
    if (sigsetjmp(before_fault, 1) == 0) (void)read(late);
    _exit(handler_calls == 4 && current_handler() == later ? 42 : 2);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(42), report);
}

TEST_F(fault_chain_death, keeps_a_handler_that_the_program_sets_in_place_of_the_librarys) {
  const auto own = [](int, siginfo_t*, void*) { _exit(42); };
  const auto run = [&] {
    arena a{trapping};
    (void)in_a_scope(a);
    set_action(own, 0);
    (void)in_a_scope(a);
    if (current_handler() != own) _exit(1);
    fault();
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(42), "^$");
}

TEST_F(fault_chain_death, passes_faults_of_many_threads_on_while_others_arm_traps) {
  static thread_local sigjmp_buf here;
  static std::atomic<int> recovered{0};
  const auto recover = [](int, siginfo_t*, void*) {
    ++recovered;
    siglongjmp(here, 1);
  };
  const auto run = [&] {
    set_action(recover, 0);
    std::array<std::thread, 4> threads;
    for (std::thread& each : threads) {
      each = std::thread{[] {
        arena a{trapping};
        for (int volatile i = 0; i < 500; i = i + 1) {
          (void)in_a_scope(a);
          if (sigsetjmp(here, 1) == 0) fault();
        }
      }};
    }
    for (std::thread& each : threads) each.join();
    _exit(recovered == 2000 ? 42 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(42), "^$");
}

}  // namespace
}  // namespace tidemark
