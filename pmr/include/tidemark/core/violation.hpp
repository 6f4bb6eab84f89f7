// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reports of what may not throw: violations, which are misuse, and warnings. Each has one process-wide
/// handler, which is called on the thread that found the matter and must not throw. `invariant_check` reports
/// a broken invariant; `late_reports` and `late_warnings` report after a lock is released.
///
/// ```cpp
/// set_violation_handler([](violation const& found) { log_and_exit(found.message); });
/// set_warning_handler([](warning const& found) { log(found.message); });
/// ```
#pragma once

#include <string>
#include <vector>

#include <tidemark/core/config.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark {

/// How much this tidemark checks: 1 what costs no instruction on the fast paths of the host's resources, or
/// is known from records that are there anyway; 2 everything. docs/design.md, "Checks", has the list.
inline constexpr int check_level = TIDEMARK_CHECKS;

// ---- violations

/// What kind of misuse was found.
enum class violation_kind {
  scope_order,      ///< a scope was ended while a scope inside it was still open
  scope_outlived,   ///< a resource was destroyed while a scope on it was still open
  outer_scope_use,  ///< an allocation through an outer scope with an inner one open (level 2; workspaces 1)
  bad_deallocate,   ///< a pointer was deallocated that the resource does not hold, or with another size
  wrong_thread,     ///< a one-thread resource was used by a second thread (level 2; workspaces 1)
  invariant,        ///< a data structure's invariant does not hold (level 2)
  exhausted,        ///< memory ran out in a resource whose policy is to abort
  overrun,          ///< bytes outside a block, or of a freed one, were written (`test_resource`)
  leak,             ///< blocks were not deallocated before their resource was destroyed; printed, without
                    ///< an abort, of pools
  upstream_use,     ///< an upstream was used that was to be left alone (`expect_no_upstream`)
  missed_resource,  ///< blocks came from elsewhere, and the caller has not checked (`expect_resource`)
  late_deallocate,  ///< a block was deallocated after its epoch had reclaimed it (level 2)
  use_after_epoch,  ///< a buffer was used after its epoch had reclaimed it (`require_live`, `buffer[i]`)
  open_capture,     ///< something ended in a stream's capture that must not, or cannot be waited for there
  lost_output,      ///< a file could not be written, and the caller has not checked (`trace_log`)
  frame_outlived,   ///< a coroutine's memory was freed before its frame was destroyed (level 2)
  rewind_in_destructor,  ///< a destructor that an arena runs rewinds, resets or releases that arena
  ended_scope_use,       ///< an ended, moved-from or default-made scope was used (level 2)
  use_after_rewind,  ///< memory was used after its arena had rewound over it (`trap_options`); in a signal
                     ///< handler
  reentry,           ///< a resource was called by the upstream that it was calling
  stale_view,        ///< a view of a checked workspace was used after its memory was freed; an exception by
                     ///< default, which is thrown after a handler as well
};

/// One violation. Its texts live as long as the call of the handler.
struct violation {
  violation_kind kind;   ///< what was found
  char const* resource;  ///< the name of the resource it was found in
  char const* message;   ///< one sentence that names what and where
};

/// Receives violations. It may end the program, or return: then the misused call does nothing, or the least
/// harmful thing that its documentation names.
using violation_handler = void (*)(violation const&);

/// Replaces the handler. Null: the default, which prints the message to the standard error stream and aborts,
/// but for a leak of a pool, after which it goes on, and for a stale view, which it leaves to the exception.
/// Thread-safe. @return the handler before
violation_handler set_violation_handler(violation_handler handler) noexcept;

/// The handler in force, never null. Thread-safe.
[[nodiscard]] violation_handler get_violation_handler() noexcept;

// ---- warnings

/// What a warning is about.
enum class warning_kind {
  many_slots,       ///< a workspace has 512, 1024, 2048 … slots of a type: is a scope missing around a loop?
  skipped_rewind,   ///< a scope ended while checkpoints or scopes inside it were open, and ended them too
  refused_setting,  ///< a setting was out of range, and its default holds instead
  refused_return,   ///< a driver or registrar would not let memory go, which is lost until the process ends
  refused_memory,   ///< an address space gave no range, so a resource works as well as it can without
};

/// One warning. Its texts live as long as the call of the handler.
struct warning {
  warning_kind kind;     ///< what it is about
  char const* resource;  ///< the name of the resource, or of the setting
  char const* message;   ///< one sentence that names what and where
};

/// Receives warnings.
using warning_handler = void (*)(warning const&);

/// Replaces the handler. Null, which holds at the start: warnings are dropped, because the library prints
/// nothing on its own. Thread-safe. @return the handler before
warning_handler set_warning_handler(warning_handler handler) noexcept;

/// The handler in force; null if warnings are dropped. Thread-safe.
[[nodiscard]] warning_handler get_warning_handler() noexcept;

namespace detail {

/// Formats the message (printf style, cut at 511 characters) and calls the handler in force.
[[gnu::cold, gnu::noinline, TIDEMARK_FORMATS(3, 4)]] void report_violation(violation_kind kind,
                                                                           char const* resource,
                                                                           char const* format, ...) noexcept;

/// What the default handler does: prints the message and aborts, prints it only, or nothing, because the
/// caller throws the message.
enum class by_default { aborts, goes_on, is_not_called };
/// The same, for a report after which the program may go on by default.
[[gnu::cold, gnu::noinline, TIDEMARK_FORMATS(4, 5)]] void report_violation(by_default then,
                                                                           violation_kind kind,
                                                                           char const* resource,
                                                                           char const* format, ...) noexcept;

/// The same for a warning, if there is a handler.
[[gnu::cold, gnu::noinline, TIDEMARK_FORMATS(3, 4)]] void report_warning(warning_kind kind,
                                                                         char const* resource,
                                                                         char const* format, ...) noexcept;

}  // namespace detail
}  // namespace tidemark

namespace tidemark::detail {

/// Checks the invariants of one resource: `require(cursor <= end, "cursor <= end")`.
struct invariant_check {
  char const* kind;  ///< of resource
  char const* name;  ///< the resource's

  /// Reports a violation with the formula, unless it holds.
  void operator()(bool holds, char const* formula) const noexcept {
    if (!holds) report(formula);
  }
  /// Reports a violation if there is a broken invariant. @param broken its formula, or null
  void report(char const* broken) const noexcept {
    if (broken == nullptr) return;
    report_violation(violation_kind::invariant, name, "%s '%s': broken invariant: %s", kind, name, broken);
  }
};

/// Keeps violations until it ends, and reports them then. Declared in front of a lock it reports after the
/// lock is released, so that the handler may use the resource, on this thread or on others.
///
/// ```cpp
/// late_reports late;
/// const std::scoped_lock lock{mutex_};
/// if (!ledger_.remove(late, "pool", name(), block, bytes, align)) return;
/// ```
/// The first violation needs no memory. A further one is reported at once if there is no memory for it.
class late_reports {
 public:
  /// @param then what the default handler does after each report
  explicit late_reports(by_default then = by_default::aborts) noexcept : then_{then} {}
  late_reports(late_reports const&) = delete;
  late_reports& operator=(late_reports const&) = delete;
  ~late_reports() {
    if (first_.resource != nullptr) [[unlikely]]
      report_all();
  }

  /// As `report_violation`, later. @param resource must live until this ends
  [[gnu::cold, gnu::noinline, TIDEMARK_FORMATS(4, 5)]] void add(violation_kind kind, char const* resource,
                                                                char const* format, ...) noexcept;

 private:
  struct entry {
    entry() noexcept {}  // NOLINT(modernize-use-equals-default): leaves the message uninitialised
    violation_kind kind{};
    char const* resource = nullptr;  // null: unused
    entry* next = nullptr;
    char message[512];
  };

  TIDEMARK_COLD void report_all() noexcept;

  by_default then_;
  entry first_;
  entry* last_ = &first_;
};

/// Keeps the warnings that its thread reports until it ends, and reports them then. Declared in front of a
/// lock under which address spaces are called, because they report warnings by themselves.
///
/// An inner one keeps nothing, because the lock of the outer one is still held. A warning is reported at once
/// if there is no memory for it. A local variable of one thread.
class late_warnings {
 public:
  late_warnings() noexcept;
  late_warnings(late_warnings const&) = delete;
  late_warnings& operator=(late_warnings const&) = delete;
  ~late_warnings();

  /// The handler of the calling thread's warnings: keeps them while there is one of this class, else
  /// `in_force`.
  [[nodiscard]] static warning_handler handler_or(warning_handler in_force) noexcept;

 private:
  struct entry {
    warning_kind kind;
    std::string resource, message;
  };

  static void keep(warning const& found) noexcept;

  std::vector<entry> kept_;
};

}  // namespace tidemark::detail
