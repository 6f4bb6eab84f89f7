// SPDX-License-Identifier: Apache-2.0
// Faults on Linux and macOS. The handler is async-signal-safe: it makes system calls, and takes no lock.
#if !defined(_WIN32)

#include <signal.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#endif

#include <atomic>
#include <cerrno>

#include <tidemark/arena/use_after_rewind.hpp>

#include "trap_log.hpp"

namespace tidemark::detail {
namespace {

void const* instruction_of([[maybe_unused]] void const* context) noexcept {
#if defined(__linux__) && defined(__x86_64__)
  return reinterpret_cast<void const*>(static_cast<ucontext_t const*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
  return reinterpret_cast<void const*>(static_cast<ucontext_t const*>(context)->uc_mcontext.pc);
#else
  return nullptr;
#endif
}

enum class handler_state { absent, changing, installed };

struct handled_signal {
  int number;
  std::atomic<handler_state> state{handler_state::absent};
  struct sigaction before{};  // the program's action, unless absent
};
// macOS raises SIGBUS where a page is there and inaccessible.
#if defined(__APPLE__)
constinit handled_signal handled[] = {{SIGSEGV}, {SIGBUS}};
#else
constinit handled_signal handled[] = {{SIGSEGV}};
#endif

void on_fault(int number, siginfo_t* info, void* context) noexcept;

bool is_ours(struct sigaction const& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_fault;
}
bool is_function(struct sigaction const& action) noexcept {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

struct sigaction current_action(int number) noexcept {
  struct sigaction now{};
  ::sigaction(number, nullptr, &now);
  return now;
}

// The handler runs on the stack on which the earlier one would run: an alternate stack may be as small as that
// one needs. SA_RESTART is the earlier one's as well, because the kernel looks at the first handler's flag.
void install(handled_signal& signal) noexcept {
  struct sigaction const now = current_action(signal.number);
  if (!is_ours(now)) signal.before = now;
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = (signal.before.sa_flags & (SA_ONSTACK | SA_RESTART)) | SA_SIGINFO;
  ours.sa_mask = signal.before.sa_mask;
  signal.state.store(handler_state::installed, std::memory_order_release);  // first: a fault may come at once
  ::sigaction(signal.number, &ours, nullptr);
}

// The signal is blocked in the handler, so that it comes when that returns.
void send_again(int number, [[maybe_unused]] siginfo_t* info) noexcept {
#if defined(__linux__)
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::syscall(SYS_gettid), number, info);
#else
  ::raise(number);
#endif
}

// Puts the earlier action back. The kernel then delivers the signal to it, with its own flags, mask and stack:
// a fault happens again when this handler returns, and a signal that was sent is sent again.
void pass_on(handled_signal& signal, siginfo_t* info, void* context) noexcept {
  struct sigaction const before = signal.before;
  const bool was_sent = info->si_code <= 0;
  if (was_sent && before.sa_handler == SIG_IGN) return;
  const bool is_current = is_ours(current_action(signal.number));
  // A later handler of the program called this one, as it would call any earlier one, and stays installed.
  if (!is_current && is_function(before) && signal.state.load() == handler_state::installed) {
    if ((before.sa_flags & SA_SIGINFO) != 0) before.sa_sigaction(signal.number, info, context);
    else before.sa_handler(signal.number);
    return;
  }
  // Otherwise another thread has just put it back.
  if (is_current || !is_function(before)) {
    ::sigaction(signal.number, &before, nullptr);
    signal.state.store(handler_state::absent, std::memory_order_release);
  }
  if (was_sent) send_again(signal.number, info);
}

void on_fault(int number, siginfo_t* info, void* context) noexcept {
  const int error = errno;
  if (info->si_code > 0) report_use_after_rewind(info->si_addr, instruction_of(context));  // else it was sent
  for (handled_signal& signal : handled) {
    if (signal.number != number) continue;
    errno = error;
    pass_on(signal, info, context);
  }
  errno = error;
}

}  // namespace

void handle_faults() noexcept {
  for (handled_signal& signal : handled) {
    handler_state state = signal.state.load(std::memory_order_acquire);
    if (state == handler_state::absent &&
        signal.state.compare_exchange_strong(state, handler_state::changing, std::memory_order_acq_rel))
      install(signal);
  }
}

}  // namespace tidemark::detail

#endif
