// SPDX-License-Identifier: Apache-2.0
// Wrong writes on purpose, for tests of code that finds them later. Sanitizers ignore these writes.
#pragma once

#include <cstddef>

#include <tidemark/core/config.hpp>

#if TIDEMARK_VALGRIND
#include <valgrind/memcheck.h>
#endif

namespace tidemark::test {

/// Writes one byte at an offset that may lie outside the block.
[[gnu::noinline, gnu::no_sanitize("address", "undefined")]] inline void write_unseen(void* block,
                                                                                     std::ptrdiff_t offset,
                                                                                     unsigned char value) {
#if TIDEMARK_VALGRIND
  VALGRIND_DISABLE_ERROR_REPORTING;
#endif
  static_cast<unsigned char volatile*>(block)[offset] = value;
#if TIDEMARK_VALGRIND
  VALGRIND_ENABLE_ERROR_REPORTING;
#endif
}

/// Reads one byte that may not be read.
[[gnu::noinline, gnu::no_sanitize("address", "undefined")]] inline unsigned char read_unseen(
    void const* block, std::ptrdiff_t offset) {
#if TIDEMARK_VALGRIND
  VALGRIND_DISABLE_ERROR_REPORTING;
#endif
  const unsigned char value = static_cast<unsigned char const volatile*>(block)[offset];
#if TIDEMARK_VALGRIND
  VALGRIND_ENABLE_ERROR_REPORTING;
#endif
  return value;
}

}  // namespace tidemark::test
