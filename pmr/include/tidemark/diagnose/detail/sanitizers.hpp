// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tells AddressSanitizer, MemorySanitizer and Valgrind which bytes of a chunk may be touched. Owns nothing.
///
/// A chunk's bytes are poisoned when they are committed, unpoisoned block by block as they are allocated, and
/// poisoned again as they are freed. Which tools there are is fixed in config.hpp and not found out here,
/// because part of the arena is inlined into the program and part is in the library, and both must agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/config.hpp>

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
inline constexpr unsigned char freed_fill = 0xDD;

/// Whether there is any such tool; if not, the functions below are empty.
inline constexpr bool tools_are_notified = TIDEMARK_ASAN + TIDEMARK_MSAN + TIDEMARK_VALGRIND > 0;

/// These bytes may not be touched until they are unpoisoned.
inline void poison([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
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

/// These bytes may be touched and are uninitialised.
inline void unpoison([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
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

/// Unpoisoned bytes are known to be zero although they were not written.
inline void mark_defined([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
#if TIDEMARK_MSAN
  __msan_unpoison(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MAKE_MEM_DEFINED(first, bytes);
#endif
}

}  // namespace tidemark::detail
