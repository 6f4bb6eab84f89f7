// SPDX-License-Identifier: Apache-2.0
/// @file
/// `report_use_after_rewind`: for signal handlers, reports a fault in memory of a trapped scope. Owns
/// nothing.
#pragma once

namespace tidemark {

/// Reports a fault if it was a use of memory that an arena with `trap_options` had rewound over.
///
/// ```text
/// tidemark: arena 'step': use of 0x7f3a5c000010 after it was rewound over, at app+0x21a4; rewound by app+0x2210
/// app+0x2385
/// ```
/// The report lists the call stack of the rewind. It starts at the innermost function of the program, or of
/// the library if the program has no symbols. `addr2line -Cfe app 0x21a4` prints function and line. The
/// report has addresses in memory if the C library does not provide files and offsets (glibc provides both
/// from 2.35 on).
///
/// The report is a `violation_kind::use_after_rewind`. The program's `violation_handler` receives it inside
/// the signal handler, where few functions may be called. The default handler writes it to the standard error
/// stream and returns. The library's own signal handler calls this function, restores the program's earlier
/// action, and returns. The fault then happens again and reaches that action. Call this function in your own
/// handler if your handler is installed instead.
///
/// @param address the used address: `si_addr` of the signal's `siginfo_t`
/// @param instruction the instruction that used it; null if unknown
/// @return false, with nothing reported, if the address is in no arena's trapped scopes
/// Async-signal-safe if the violation handler is. Thread-safe. O(arenas that trap).
bool report_use_after_rewind(void const* address, void const* instruction = nullptr) noexcept;

}  // namespace tidemark
