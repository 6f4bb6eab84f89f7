// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is worth a look and no misuse: the report and the handler that receives it.
#pragma once

namespace tidemark {

/// What a warning is about.
enum class warning_kind {
  many_slots,       ///< a workspace has 512, 1024, 2048 … slots of a type: is a scope missing around a loop?
  skipped_rewind,   ///< a scope ended while checkpoints or scopes inside it were open, and ended them too
  refused_setting,  ///< a setting was out of range, and its default holds instead
  refused_return,   ///< a device's driver would not take memory back, which is lost until the process ends
};

/// One report. Its texts live as long as the call of the handler.
struct warning {
  warning_kind kind;     ///< what it is about
  char const* resource;  ///< the name of the resource, or of the setting
  char const* message;   ///< one sentence that names what and where
};

/// Receives reports, on the thread that has cause to make them. It must not throw.
using warning_handler = void (*)(warning const&);

/// Replaces the process-wide handler and returns the one before. `nullptr`, which holds at the start, tells
/// nobody, because the library prints nothing on its own. Thread-safe.
warning_handler set_warning_handler(warning_handler handler) noexcept;

/// The handler in force; null if nobody is told. Thread-safe.
[[nodiscard]] warning_handler get_warning_handler() noexcept;

namespace detail {

/// Formats the message (printf style, cut at 511 characters) and calls the handler in force, if there is one.
[[gnu::cold, gnu::noinline, gnu::format(printf, 3, 4)]] void report_warning(warning_kind kind,
                                                                            char const* resource,
                                                                            char const* format, ...) noexcept;

}  // namespace detail
}  // namespace tidemark
