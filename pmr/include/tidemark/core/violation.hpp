// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reports of errors that may not throw: violations are misuse, the others are warnings. Each kind has one
/// process-wide handler. The handler runs on the thread that detects the error, and must not throw.
/// `invariant_check` reports a broken invariant; `late_reports` reports after a lock is released.
///
/// ```cpp
/// set_violation_handler([](violation const& found) { log_and_exit(found.message); });
/// set_warning_handler([](warning const& found) { log(found.message); });
/// ```
#pragma once

#include <tidemark/core/config.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark {

/// Amount of checking. 1: checks that add no instruction to the fast paths of host resources, or that use
/// existing records. 2: all checks. docs/design.md, "Checks", lists them.
inline constexpr int check_level = TIDEMARK_CHECKS;

// ---- violations

/// Kind of a misuse.
enum class violation_kind {
  scope_order,      ///< a scope ended while a scope inside it was open
  scope_outlived,   ///< a resource was destroyed while a scope on it was open
  outer_scope_use,  ///< an allocation through an outer scope with an inner scope open (level 2; workspaces 1)
  bad_deallocate,   ///< a pointer that the resource does not hold was deallocated, or its size was wrong
  wrong_thread,     ///< a one-thread resource was used by a second thread (level 2; workspaces 1)
  invariant,        ///< a data structure's invariant does not hold (level 2)
  exhausted,        ///< memory ran out in a resource whose policy is to abort
  overrun,          ///< bytes outside a block, or of a freed block, were written (`test_resource`)
  leak,             ///< blocks were still allocated when their resource was destroyed; printed, without
                    ///< an abort, for pools
  upstream_use,     ///< an upstream was used that should have been left alone (`expect_no_upstream`)
  missed_resource,  ///< blocks came from elsewhere, and the program did not query them (`expect_resource`)
  late_deallocate,  ///< a block was deallocated after its epoch had reclaimed it (level 2)
  use_after_epoch,  ///< a buffer was used after its epoch had reclaimed it (`require_live`, `buffer[i]`)
  open_capture,     ///< an operation that a stream's capture forbids, or whose work cannot be awaited in it
  lost_output,      ///< a file could not be written, and the program did not query the error (`trace_log`)
  frame_outlived,   ///< a coroutine's memory was freed before its frame was destroyed (level 2)
  rewind_in_destructor,  ///< a destructor that an arena runs rewinds, resets or releases that arena
  ended_scope_use,       ///< an ended, moved-from or default-constructed scope was used (level 2)
  use_after_rewind,  ///< memory was used after its arena had rewound over it (`trap_options`); in a signal
                     ///< handler
  reentry,           ///< a resource was called by the upstream that it was calling
  stale_view,        ///< a view of a checked workspace was used after its memory was freed; an exception
                     ///< reports it by default, and follows the report to a handler
};

/// One violation. Its texts live until the handler returns.
struct violation {
  violation_kind kind;   ///< kind of the misuse
  char const* resource;  ///< name of the resource concerned
  char const* message;   ///< one sentence that names the misuse and its place
};

/// Receives violations. The handler may end the program or return. If it returns, the misused call does
/// nothing, or the least harmful action that its documentation names.
using violation_handler = void (*)(violation const&);

/// Replaces the handler. Null restores the default, which prints the message to the standard error stream and
/// aborts. The default does not abort for a leak of a pool or a use after rewind, and leaves a stale view to
/// the exception. Thread-safe. @return the previous handler
violation_handler set_violation_handler(violation_handler handler) noexcept;

/// The current handler, never null. Thread-safe.
[[nodiscard]] violation_handler get_violation_handler() noexcept;

// ---- warnings

/// Kind of a warning.
enum class warning_kind {
  many_slots,       ///< a workspace has 512, 1024, 2048 … slots of a type; a loop may lack a scope
  skipped_rewind,   ///< a scope ended while checkpoints or scopes inside it were open, and ended them
  refused_setting,  ///< a setting was out of range; its default is used
  refused_return,   ///< a driver or registrar did not free memory, which is lost until the process ends
  refused_memory,   ///< an address space gave no range; the resource works with less memory
};

/// One warning. Its texts live until the handler returns.
struct warning {
  warning_kind kind;     ///< kind of the warning
  char const* resource;  ///< name of the resource or of the setting
  char const* message;   ///< one sentence that names the problem and its place
};

/// Receives warnings.
using warning_handler = void (*)(warning const&);

/// Replaces the handler. Null, the initial state, drops warnings, because the library prints nothing on its
/// own; only a rejected environment variable is printed. Thread-safe. @return the previous handler
warning_handler set_warning_handler(warning_handler handler) noexcept;

/// The current handler; null if warnings are dropped. Thread-safe.
[[nodiscard]] warning_handler get_warning_handler() noexcept;

namespace detail {

/// Formats the message (printf style, cut at 511 characters) and calls the current handler.
[[gnu::cold, gnu::noinline, gnu::format(printf, 3, 4)]] void report_violation(violation_kind kind,
                                                                              char const* resource,
                                                                              char const* format,
                                                                              ...) noexcept;

/// Action of the default handler: prints the message and aborts; only prints; or does nothing, because the
/// caller throws the message.
enum class by_default { aborts, continues, is_not_called };
/// The same, for a report after which the default handler may let the program continue.
[[gnu::cold, gnu::noinline, gnu::format(printf, 4, 5)]] void report_violation(
    by_default then, violation_kind kind, char const* resource, char const* format, ...) noexcept;

/// The same for a warning. Does nothing without a handler.
[[gnu::cold, gnu::noinline, gnu::format(printf, 3, 4)]] void report_warning(warning_kind kind,
                                                                            char const* resource,
                                                                            char const* format, ...) noexcept;
/// Warns about a rejected environment variable. Prints the message to the standard error stream without a
/// handler, because the user of the program sets the variable.
[[gnu::cold, gnu::noinline, gnu::format(printf, 2, 3)]] void report_variable(char const* variable,
                                                                             char const* format,
                                                                             ...) noexcept;

}  // namespace detail
}  // namespace tidemark

namespace tidemark::detail {

/// Checks the invariants of one resource: `require(cursor <= end, "cursor <= end")`.
struct invariant_check {
  char const* kind;  ///< kind of the resource
  char const* name;  ///< name of the resource

  /// Reports a violation with the formula unless it holds.
  void operator()(bool holds, char const* formula) const noexcept {
    if (!holds) report(formula);
  }
  /// Reports a violation for a broken invariant. @param broken the formula, or null if all hold
  void report(char const* broken) const noexcept {
    if (broken == nullptr) return;
    report_violation(violation_kind::invariant, name, "%s '%s': broken invariant: %s", kind, name, broken);
  }
};

/// Collects its thread's violations and warnings, and reports them in its destructor. Declare it before a
/// lock: it then reports after the unlock, so the handler may use the resource on any thread.
///
/// ```cpp
/// late_reports late;
/// const std::scoped_lock lock{mutex_};
/// if (!ledger_.remove("pool", name(), block, bytes, align)) return;
/// ```
/// A nested object collects nothing, because the outer lock is still held. The first report needs no
/// memory. A further report is made at once if memory is lacking, and so is each report in a signal
/// handler. Use it as a local variable of one thread.
class late_reports {
 public:
  /// A violation or a warning.
  struct entry {
    void (*send)(entry const&) = nullptr;  ///< calls the handler; null: unused
    int kind = 0;                          ///< a `violation_kind` or `warning_kind`
    by_default then = by_default::aborts;  ///< action after a violation
    char const* resource = "";
    char name[64], message[512];  ///< `name`: copy of `resource` in a collected entry
    entry* next = nullptr;
  };

  late_reports() noexcept;
  late_reports(late_reports const&) = delete;
  late_reports& operator=(late_reports const&) = delete;
  ~late_reports();

  /// Copies a report. @return false if memory is lacking
  [[nodiscard]] bool add(entry const& found) noexcept;

 private:
  entry first_;
  entry* last_ = &first_;
};

}  // namespace tidemark::detail
