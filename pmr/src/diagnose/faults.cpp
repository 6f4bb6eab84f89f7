// SPDX-License-Identifier: Apache-2.0
// Fault handler. It is async-signal-safe: it makes system calls and takes no lock.
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/diagnose/use_after_rewind.hpp>

#include "trap_log.hpp"

// An ELF note, by which another shared object with the library finds this object's signal. It stores their
// distance from the note's last word. Change its type whenever `handled_signal` changes.
#if defined(__ELF__) && defined(__LP64__)
#define TIDEMARK_SIGNALS_NOTE 1
asm(".pushsection .note.tidemark,\"a\",%note\n"
    ".balign 4\n"
    ".long 9, 8, 2\n"  // bytes of name and word, and the type
    ".asciz \"tidemark\"\n"
    ".balign 4\n"
    "0: .quad tidemark_handled_signal - 0b\n"
    ".popsection");
#endif

namespace tidemark::detail {

enum class handler_state { absent, changing, installed };

// The state of SIGSEGV.
struct handled_signal {
  std::atomic<handler_state> state{handler_state::absent};
  struct sigaction before{};  // the program's action, unless absent
};
// Named for the note; hidden outside this shared object.
[[gnu::visibility("hidden")]] extern handled_signal handled __asm__("tidemark_handled_signal");
[[gnu::used]] constinit handled_signal handled;

namespace {

void const* instruction_of([[maybe_unused]] void const* context) noexcept {
#if defined(__x86_64__)
  return reinterpret_cast<void const*>(static_cast<ucontext_t const*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void const*>(static_cast<ucontext_t const*>(context)->uc_mcontext.pc);
#else
  return nullptr;
#endif
}

void on_fault(int, siginfo_t* info, void* context) noexcept;

bool is_ours(struct sigaction const& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_fault;
}
bool is_function(struct sigaction const& action) noexcept {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

struct sigaction current_action() noexcept {
  struct sigaction now{};
  ::sigaction(SIGSEGV, nullptr, &now);
  return now;
}

// Runs the handler on the stack of the earlier handler, because an alternate stack may be only large enough
// for that. Copies SA_RESTART from the earlier handler, because the kernel uses the first handler's flag.
void install() noexcept {
  struct sigaction const now = current_action();
  if (!is_ours(now)) handled.before = now;
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = (handled.before.sa_flags & (SA_ONSTACK | SA_RESTART)) | SA_SIGINFO;
  ours.sa_mask = handled.before.sa_mask;
  handled.state.store(handler_state::installed,
                      std::memory_order_release);  // first: a fault may come at once
  ::sigaction(SIGSEGV, &ours, nullptr);
}

// Restores the earlier action. The kernel then delivers the signal to that action, with its own flags, mask
// and stack. A fault happens again when this handler returns; a signal that was sent is sent again.
void pass_on(siginfo_t* info, void* context) noexcept {
  struct sigaction const before = handled.before;
  const bool was_sent = info->si_code <= 0;
  if (was_sent && before.sa_handler == SIG_IGN) return;
  const bool is_current = is_ours(current_action());
  // A later handler of the program has called this one as its earlier handler, and stays installed.
  if (!is_current && is_function(before) && handled.state.load() == handler_state::installed) {
    if ((before.sa_flags & SA_SIGINFO) != 0) before.sa_sigaction(SIGSEGV, info, context);
    else before.sa_handler(SIGSEGV);
    return;
  }
  // Otherwise another thread has just restored the earlier action.
  if (is_current || !is_function(before)) {
    ::sigaction(SIGSEGV, &before, nullptr);
    auto installed = handler_state::installed;  // not `changing`: another thread installs or unloads
    handled.state.compare_exchange_strong(installed, handler_state::absent, std::memory_order_release);
  }
  // Arrives when the handler returns, because the handler blocks it.
  if (was_sent) ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::syscall(SYS_gettid), SIGSEGV, info);
}

void on_fault(int, siginfo_t* info, void* context) noexcept {
  const int error = errno;
  if (info->si_code > 0) report_use_after_rewind(info->si_addr, instruction_of(context));  // else it was sent
  errno = error;
  pass_on(info, context);
  errno = error;
}

// ---- the end of the library ---------------------------------------------------------------------------------

#if defined(TIDEMARK_SIGNALS_NOTE)
struct signals_note {
  std::uint32_t sizes_and_type[3];
  char name[12];
  std::uint32_t distance[2];
};
constexpr signals_note own_note{{9, 8, 2}, "tidemark", {}};

// Visits each loaded object that contains the library. If its earlier action is the handler of this object,
// replaces that action by this object's earlier action.
int skip_in(dl_phdr_info* object, std::size_t, void*) noexcept {
  for (auto const* each = object->dlpi_phdr; each != object->dlpi_phdr + object->dlpi_phnum; ++each) {
    if (each->p_type != PT_NOTE || each->p_align > 4) continue;
    for (std::uintptr_t at = object->dlpi_addr + each->p_vaddr, end = at + each->p_memsz; at < end;) {
      auto const& note = *reinterpret_cast<signals_note const*>(at);
      auto const& [name_bytes, word_bytes, type] = note.sizes_and_type;
      at += sizeof note.sizes_and_type + align_up(std::size_t{name_bytes}, 4) +
            align_up(std::size_t{word_bytes}, 4);
      if (std::memcmp(&note, &own_note, offsetof(signals_note, distance)) != 0) continue;
      std::int64_t distance = 0;
      std::memcpy(&distance, note.distance, sizeof distance);
      auto& theirs = *reinterpret_cast<handled_signal*>(reinterpret_cast<std::uintptr_t>(note.distance) +
                                                        static_cast<std::uintptr_t>(distance));
      if (is_ours(theirs.before)) theirs.before = handled.before;
    }
  }
  return 0;
}
#endif

struct fault_handler {
  // Restores the earlier action if the handler is installed. Otherwise removes the handler from other copies
  // of the library, which might restore it.
  void detach() noexcept {
    handled.state.store(handler_state::changing);  // no thread can install it any more
    if (is_ours(current_action())) ::sigaction(SIGSEGV, &handled.before, nullptr);
#if defined(TIDEMARK_SIGNALS_NOTE)
    else ::dl_iterate_phdr(skip_in, nullptr);
#endif
  }
};

}  // namespace

void handle_faults() {
  [[maybe_unused]] static auto& handler = *new until_unload<fault_handler>;
  handler_state state = handled.state.load(std::memory_order_acquire);
  if (state == handler_state::absent &&
      handled.state.compare_exchange_strong(state, handler_state::changing, std::memory_order_acq_rel))
    install();
}

}  // namespace tidemark::detail
