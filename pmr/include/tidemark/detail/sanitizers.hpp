// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tells AddressSanitizer, MemorySanitizer and Valgrind which bytes of a chunk may be touched. Owns nothing.
///
/// A chunk's bytes are withheld when memory comes behind them, handed out block by block, and withheld again
/// as they are taken back. Which tools are told is fixed in config.hpp and not found out here, because part
/// of the arena is inlined into the program and part is in the library: both must tell the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config.hpp>

#if TIDEMARK_ASAN
#include <sanitizer/asan_interface.h>
#endif
#if TIDEMARK_MSAN
#include <sanitizer/msan_interface.h>
#endif
#if TIDEMARK_VALGRIND
#include <valgrind/memcheck.h>
#endif

namespace tidemark::detail {

/// Rewound bytes read as this at check level 2, so that a late read is seen: the pattern of MSVC's debug
/// heap.
inline constexpr unsigned char rewound_fill = 0xDD;

/// Whether any tool is told; if not, the functions below are nothing.
inline constexpr bool tools_are_told = TIDEMARK_ASAN + TIDEMARK_MSAN + TIDEMARK_VALGRIND > 0;

/// Nobody may touch these bytes until they are handed out.
inline void withhold([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
#if TIDEMARK_ASAN
  __asan_poison_memory_region(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_MSAN
  __msan_poison(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MAKE_MEM_NOACCESS(first, bytes);
#endif
}

/// Bytes may be touched and hold nothing yet: they are handed out, leave tidemark, or are about to be filled
/// by it.
inline void hand_out([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
#if TIDEMARK_ASAN
  __asan_unpoison_memory_region(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_MSAN
  __msan_allocated_memory(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MAKE_MEM_UNDEFINED(first, bytes);
#endif
}

/// Bytes that were handed out are known to be zero although nobody wrote them.
inline void mark_defined([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
#if TIDEMARK_MSAN
  __msan_unpoison(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MAKE_MEM_DEFINED(first, bytes);
#endif
}

}  // namespace tidemark::detail
