// SPDX-License-Identifier: Apache-2.0
/// @file
/// `report_use_after_rewind`: what a signal handler says of a fault in memory of a trapped scope. Owns nothing.
#pragma once

namespace tidemark {

/// Reports the use of memory that an arena with `trap_options` had rewound over, if a fault was one.
///
/// ```text
/// tidemark: arena 'step': use of 0x7f3a5c000010 after it was rewound over, at app+0x21a4; rewound by app+0x1f0e
/// app+0x2210 app+0x2385
/// ```
/// `addr2line -Cfe app 0x21a4` prints function and line. Where the C library does not tell files and offsets
/// (glibc from 2.35 on does), the addresses are those in memory.
///
/// The report is a `violation_kind::use_after_rewind`: the program's `violation_handler` receives it, in the
/// signal handler, where few functions may be called. The default one writes it to the standard error stream,
/// and returns. The library's own signal handler calls this, puts the program's earlier action back, and
/// returns: the fault happens again and reaches that action. Call it in your own handler where that is in
/// force instead.
///
/// @param address that was used: `si_addr` of the signal's `siginfo_t`
/// @param instruction that used it; null: not known
/// @return false, with nothing reported, if the address is in the memory of no arena's trapped scopes
/// Async-signal-safe, if the violation handler is. Any thread. O(arenas that trap).
bool report_use_after_rewind(void const* address, void const* instruction = nullptr) noexcept;

}  // namespace tidemark
