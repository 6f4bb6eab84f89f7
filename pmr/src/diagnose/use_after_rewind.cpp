// SPDX-License-Identifier: Apache-2.0
// The report of a fault. It is async-signal-safe: it takes no lock, allocates nothing, and calls only
// std::to_chars and _dl_find_object, which glibc documents as safe. faults.cpp has the handler.
#include <tidemark/diagnose/use_after_rewind.hpp>

#include <dlfcn.h>
#include <link.h>

#include <cerrno>  // program_invocation_short_name
#include <charconv>
#include <string_view>
#include <utility>

#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>

#include "trap_log.hpp"

namespace tidemark {
namespace detail {
namespace {

// Logs are freed only when the library is unloaded, so that a handler may walk the list at any time. They are
// reused: their number is the largest number of trapping arenas at once.
constinit std::atomic<trap_log*> newest_log{nullptr};

struct all_logs {
  ~all_logs() {
    for (trap_log* log = newest_log.exchange(nullptr); log != nullptr;) delete std::exchange(log, log->next);
  }
};

/// A text of bounded length; drops the excess.
class signal_text {
 public:
  signal_text& operator<<(std::string_view part) noexcept {
    for (char letter : part)
      if (size_ + 1 < sizeof text_) text_[size_++] = letter;
    text_[size_] = '\0';
    return *this;
  }
  signal_text& operator<<(std::uintptr_t number) noexcept {
    char digits[2 * sizeof number];
    char const* const end = std::to_chars(digits, digits + sizeof digits, number, 16).ptr;
    return *this << "0x" << std::string_view{digits, end};
  }
  /// A code address, in addr2line's form if known.
  signal_text& code(std::uintptr_t address) noexcept {
#if defined(DLFO_STRUCT_HAS_EH_DBASE)
    dl_find_object found{};
    if (::_dl_find_object(reinterpret_cast<void*>(address), &found) == 0 && found.dlfo_link_map != nullptr) {
      const std::string_view path = found.dlfo_link_map->l_name;
      const std::string_view file = path.empty() ? std::string_view{program_invocation_short_name}
                                                 : path.substr(path.rfind('/') + 1);  // npos + 1 is 0
      return *this << file << "+" << address - found.dlfo_link_map->l_addr;
    }
#endif
    return *this << address;
  }
  [[nodiscard]] char const* c_str() const noexcept { return text_; }

 private:
  char text_[2048] = "";
  std::size_t size_ = 0;
};

}  // namespace

trap_log& acquire_trap_log(char const* name) {
  trap_log* log = newest_log.load(std::memory_order_acquire);
  bool is_in_use = false;
  while (log != nullptr &&
         !log->is_in_use.compare_exchange_strong(is_in_use, true, std::memory_order_acq_rel)) {
    is_in_use = false;
    log = log->next;
  }
  if (log == nullptr) {
    [[maybe_unused]] static auto& owner = *new until_unload<all_logs>;
    log = new trap_log;
    log->is_in_use.store(true, std::memory_order_relaxed);
    log->next = newest_log.load(std::memory_order_relaxed);
    while (!newest_log.compare_exchange_weak(log->next, log, std::memory_order_release)) continue;
  }
  log->set_name(name);
  return *log;
}

void release_trap_log(trap_log& log) noexcept {
  log.set_region({});
  log.rewinds.clear();
  log.is_in_use.store(false, std::memory_order_release);
}

}  // namespace detail

namespace {

// A separate function: a fault without a report needs little stack, because a host's signal stack may be
// small.
[[gnu::noinline]] bool report(detail::trap_log const& log, std::uintptr_t used,
                              void const* instruction) noexcept {
  const detail::trap_log::name_text copied_name = log.copy_name();
  char const* const name = copied_name.data();
  detail::rewind_place by{};
  const bool is_known = log.rewinds.find(used, by);
  if (!log.contains(used)) return false;  // its arena has ended, and another arena may use the log
  detail::signal_text text;
  text << "arena '" << std::string_view{name} << "': use of " << used;
  text << (is_known ? " after it was rewound over"
                    : ", which was never allocated, or whose rewind is no longer recorded");
  if (instruction != nullptr) (text << ", at ").code(reinterpret_cast<std::uintptr_t>(instruction));
  if (is_known) text << "; rewound by";
  for (std::uintptr_t call : by)
    if (is_known && call != 0) (text << " ").code(call);
  get_violation_handler()({violation_kind::use_after_rewind, name, text.c_str()});
  return true;
}

}  // namespace

bool report_use_after_rewind(void const* address, void const* instruction) noexcept {
  const auto used = reinterpret_cast<std::uintptr_t>(address);
  detail::trap_log const* log = detail::newest_log.load(std::memory_order_acquire);
  while (log != nullptr && !log->contains(used)) log = log->next;
  return log != nullptr && report(*log, used, instruction);
}

}  // namespace tidemark
