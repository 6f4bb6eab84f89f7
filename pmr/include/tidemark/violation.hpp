// SPDX-License-Identifier: Apache-2.0
/// @file
/// Misuse that is found where nothing may be thrown: the report and the handler that receives it.
#pragma once

#include <tidemark/config.hpp>

// clang-tidy 22 sees only parts of what a module brings, and takes them for all.
namespace tidemark {  // NOLINT(modernize-concat-nested-namespaces)

/// How much this tidemark checks: 0 nothing, 1 what costs O(1) and is off the fast paths, 2 everything.
inline constexpr int check_level = TIDEMARK_CHECKS;

/// What kind of misuse was found.
enum class violation_kind {
  scope_order,      ///< a scope was ended while a scope inside it was still open
  scope_outlived,   ///< a resource was destroyed while a scope on it was still open
  outer_scope_use,  ///< memory was asked of an outer scope with an inner one open (level 2; workspaces 1)
  bad_deallocate,   ///< a pointer was given back that the resource does not hold, or as another size
  wrong_thread,     ///< a one-thread resource was used by a second thread (level 2; workspaces 1)
  bad_argument,     ///< an argument breaks a precondition that only level 2 checks
  invariant,        ///< a data structure's invariant does not hold (level 2)
  exhausted,        ///< memory ran out in a resource whose policy is to abort
  overrun,          ///< bytes outside a block, or of one given back, were written (`test_resource`)
  leak,             ///< blocks were not given back before their resource was destroyed
  upstream_use,     ///< memory was asked of an upstream that was to be left alone (`expect_no_upstream`)
  late_deallocate,  ///< a block was given back after its epoch had reclaimed it (level 2)
  use_after_epoch,  ///< a buffer was used after its epoch had reclaimed it (`require_live`)
  open_capture,     ///< something ended in a stream's capture that must not, or cannot be waited for there
  lost_output,      ///< a file could not be written, and nobody asked whether it was (`trace_log`)
};

/// One report. Its texts live as long as the call of the handler.
struct violation {
  violation_kind kind;   ///< what was found
  char const* resource;  ///< the name of the resource it was found in
  char const* message;   ///< one sentence that names what and where
};

/// Receives reports, on the thread that found the misuse. It may end the program, or return: then the misused
/// call does nothing, or the least harmful thing that its documentation names. It must not throw.
using violation_handler = void (*)(violation const&);

/// Replaces the process-wide handler and returns the one before. `nullptr` stands for the default, which
/// prints the message to the standard error stream and aborts. Thread-safe.
violation_handler set_violation_handler(violation_handler handler) noexcept;

/// The handler in force, never null. Thread-safe.
[[nodiscard]] violation_handler get_violation_handler() noexcept;

namespace detail {

/// Formats the message (printf style, cut at 511 characters) and calls the handler in force.
[[gnu::cold, gnu::noinline, gnu::format(printf, 3, 4)]] void report_violation(violation_kind kind,
                                                                              char const* resource,
                                                                              char const* format,
                                                                              ...) noexcept;

}  // namespace detail
}  // namespace tidemark
