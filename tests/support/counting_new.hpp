// SPDX-License-Identifier: Apache-2.0
// Counts of the program's own operator new and malloc (counting_new.cpp) for the calling thread.
#pragma once

#include <cstddef>
#include <limits>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TIDEMARK_COUNTS_MALLOC 0
#endif
#endif
#if !defined(TIDEMARK_COUNTS_MALLOC) && (defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__))
#define TIDEMARK_COUNTS_MALLOC 0
#endif
#if !defined(TIDEMARK_COUNTS_MALLOC)
#define TIDEMARK_COUNTS_MALLOC 1
#endif

namespace tidemark::test {

inline constinit thread_local std::size_t news = 0;
inline constinit thread_local std::size_t max_news =
    std::numeric_limits<std::size_t>::max();  // those beyond it fail
/// Calls of malloc, calloc, realloc, aligned_alloc, posix_memalign and memalign, including those of operator
/// new. Stays 0 if `counts_malloc` is false.
inline constinit thread_local std::size_t mallocs = 0;
inline constexpr bool counts_malloc = TIDEMARK_COUNTS_MALLOC != 0;

}  // namespace tidemark::test
