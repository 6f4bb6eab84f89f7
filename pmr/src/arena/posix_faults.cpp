// SPDX-License-Identifier: Apache-2.0
// Faults on Linux and macOS. What runs in the handler is async-signal-safe: it calls sigaction and raise.
#if !defined(_WIN32)

#include <signal.h>
#if defined(__linux__)
#include <ucontext.h>
#endif

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

struct handled_signal {
  int number;
  struct sigaction before;  // what the program did with it
};
// macOS raises SIGBUS where a page is there and inaccessible.
#if defined(__APPLE__)
handled_signal handled[] = {{SIGSEGV, {}}, {SIGBUS, {}}};
#else
handled_signal handled[] = {{SIGSEGV, {}}};
#endif

void on_fault(int number, siginfo_t* info, void* context) {
  const int error = errno;
  if (info->si_code > 0) report_use_after_rewind(info->si_addr, instruction_of(context));  // else it was sent
  for (handled_signal const& signal : handled) {
    if (signal.number != number) continue;
    struct sigaction const& before = signal.before;
    errno = error;
    if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
    if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;
    // The instruction runs again and ends the process, with the state that it had in a core file. A signal
    // that another process has sent does not come again.
    ::sigaction(number, &before, nullptr);
    if (info->si_code <= 0) ::raise(number);
  }
}

}  // namespace

void handle_faults() noexcept {
  [[maybe_unused]] static const bool once = [] {
    for (handled_signal& signal : handled) {
      // With what the earlier handler blocks and lets through, as if it were called directly.
      ::sigaction(signal.number, nullptr, &signal.before);
      struct sigaction ours{};
      ours.sa_sigaction = on_fault;
      ours.sa_flags = (signal.before.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
      ours.sa_mask = signal.before.sa_mask;
      ::sigaction(signal.number, &ours, nullptr);
    }
    return true;
  }();
}

}  // namespace tidemark::detail

#endif
