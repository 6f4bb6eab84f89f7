// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tells AddressSanitizer, MemorySanitizer and Valgrind which bytes of a chunk may be touched. Owns nothing.
///
/// A chunk is closed to the program when it arrives, opened block by block as memory is handed out, and
/// closed again as it is taken back. Without a sanitizer every function is empty.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config.hpp>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TIDEMARK_HAS_ASAN 1
#endif
#if __has_feature(memory_sanitizer)
#define TIDEMARK_HAS_MSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TIDEMARK_HAS_ASAN 1
#endif

#if defined(TIDEMARK_HAS_ASAN)
#include <sanitizer/asan_interface.h>
#endif
#if defined(TIDEMARK_HAS_MSAN)
#include <sanitizer/msan_interface.h>
#endif
#if TIDEMARK_VALGRIND
#include <valgrind/memcheck.h>
#endif

namespace tidemark::detail {

/// Rewound bytes read as this at check level 2, so that a late read is seen: the pattern of MSVC's debug
/// heap.
inline constexpr unsigned char rewound_fill = 0xDD;

/// A chunk begins at `pool`; its bytes are announced with `withhold` as memory comes behind them.
inline void open_pool([[maybe_unused]] std::uintptr_t pool) noexcept {
#if TIDEMARK_VALGRIND
  VALGRIND_CREATE_MEMPOOL(pool, 0, 0);
#endif
}

/// Nobody may touch these bytes until they are handed out.
inline void withhold([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TIDEMARK_HAS_ASAN)
  __asan_poison_memory_region(reinterpret_cast<void*>(first), bytes);
#endif
#if defined(TIDEMARK_HAS_MSAN)
  __msan_poison(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MAKE_MEM_NOACCESS(first, bytes);
#endif
}

/// Bytes leave tidemark, or are about to be filled by it: anyone may touch them.
inline void release_hold([[maybe_unused]] std::uintptr_t first, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TIDEMARK_HAS_ASAN)
  __asan_unpoison_memory_region(reinterpret_cast<void*>(first), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MAKE_MEM_UNDEFINED(first, bytes);
#endif
}

/// The chunk that begins at `pool` goes back to where it came from.
inline void close_pool([[maybe_unused]] std::uintptr_t pool) noexcept {
#if TIDEMARK_VALGRIND
  VALGRIND_DESTROY_MEMPOOL(pool);
#endif
}

/// A block of the chunk `pool` is the program's.
inline void hand_out([[maybe_unused]] std::uintptr_t pool, [[maybe_unused]] std::uintptr_t block,
                     [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TIDEMARK_HAS_ASAN)
  __asan_unpoison_memory_region(reinterpret_cast<void*>(block), bytes);
#endif
#if defined(TIDEMARK_HAS_MSAN)
  __msan_allocated_memory(reinterpret_cast<void*>(block), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MEMPOOL_ALLOC(pool, block, bytes);
#endif
}

/// A block that is handed out grows from `[block, old_end)` to `new_bytes`; the new bytes are undefined.
inline void extend([[maybe_unused]] std::uintptr_t pool, [[maybe_unused]] std::uintptr_t block,
                   [[maybe_unused]] std::uintptr_t old_end, [[maybe_unused]] std::size_t new_bytes) noexcept {
#if defined(TIDEMARK_HAS_ASAN)
  __asan_unpoison_memory_region(reinterpret_cast<void*>(block), new_bytes);
#endif
#if defined(TIDEMARK_HAS_MSAN)
  __msan_allocated_memory(reinterpret_cast<void*>(old_end), block + new_bytes - old_end);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MEMPOOL_CHANGE(pool, block, block, new_bytes);
#endif
}

/// Bytes that were handed out are known to be zero although nobody wrote them.
inline void mark_defined([[maybe_unused]] std::uintptr_t block, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TIDEMARK_HAS_MSAN)
  __msan_unpoison(reinterpret_cast<void*>(block), bytes);
#endif
#if TIDEMARK_VALGRIND
  VALGRIND_MAKE_MEM_DEFINED(block, bytes);
#endif
}

/// The chunk `pool` takes back everything in `[first, last)`; what lies below `first` stays handed out.
inline void take_back([[maybe_unused]] std::uintptr_t pool, std::uintptr_t first,
                      std::uintptr_t last) noexcept {
#if TIDEMARK_VALGRIND
  VALGRIND_MEMPOOL_TRIM(pool, pool, first - pool);
#endif
  withhold(first, last - first);
}

}  // namespace tidemark::detail
