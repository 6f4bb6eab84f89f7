// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tells AddressSanitizer, MemorySanitizer and Valgrind which bytes of a chunk may be touched. Owns nothing.
///
/// A chunk's bytes are poisoned at the commit, unpoisoned at the allocation of their block, and poisoned
/// again at its free. config.hpp fixes the set of tools; this header does not detect tools. Part of the arena
/// is inlined into the program and part is in the library, and both must agree.
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

/// Fill byte of rewound memory at check level 2, which exposes late reads: the pattern of MSVC's debug heap.
inline constexpr unsigned char freed_fill = 0xDD;

/// True if any of these tools is enabled; otherwise the functions below are empty.
inline constexpr bool tools_are_notified = TIDEMARK_ASAN + TIDEMARK_MSAN + TIDEMARK_VALGRIND > 0;

/// Forbids access to these bytes until they are unpoisoned.
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

/// Allows access to these bytes, which are uninitialised.
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

/// Declares unpoisoned bytes as zero although they were not written.
inline void mark_defined([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
#if TIDEMARK_MSAN
  __msan_unpoison(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MAKE_MEM_DEFINED(first, bytes);
#endif
}

}  // namespace tidemark::detail
