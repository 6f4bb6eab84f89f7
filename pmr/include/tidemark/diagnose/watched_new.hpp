// SPDX-License-Identifier: Apache-2.0
/// @file
/// Replaces `operator new`, so that `expect_resource` sees its blocks. Include it in one source of a program
/// and in no library, because the program chooses its `operator new`.
///
/// All forms are replaced, and take memory from `malloc` and `posix_memalign`. An allocation also compares
/// one thread_local pointer with null. A second source that includes this header does not link.
/// ThreadSanitizer and MemorySanitizer have their own `operator new`: nothing is replaced then, and reports
/// say that it was not watched.
// Not in <tidemark/diagnose.hpp>, because it defines functions that a program may define only once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <tidemark/diagnose/expect_resource.hpp>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TIDEMARK_KEEPS_OPERATOR_NEW
#endif
#elif defined(__SANITIZE_THREAD__)
#define TIDEMARK_KEEPS_OPERATOR_NEW
#endif

#if !defined(TIDEMARK_KEEPS_OPERATOR_NEW)

namespace tidemark::detail {

inline constexpr std::align_val_t new_alignment{alignof(std::max_align_t)};

/// Allocates memory of the C library; null on failure.
[[nodiscard]] inline void* allocate_for_new(std::size_t bytes, std::size_t align) noexcept {
  bytes = std::max<std::size_t>(bytes, 1);  // malloc(0) may be null
  if (align <= alignof(std::max_align_t)) return std::malloc(bytes);
  void* block = nullptr;
  return ::posix_memalign(&block, align, bytes) == 0 ? block : nullptr;
}

/// Implements `operator new`: calls the new-handler until memory is available.
[[nodiscard]] inline void* watched_new(std::size_t bytes, void const* caller,
                                       std::align_val_t aligned = new_alignment) {
  const auto align = static_cast<std::size_t>(aligned);
  void* block = allocate_for_new(bytes, align);
  while (block == nullptr) {
    std::new_handler const handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc{};
    handler();
    block = allocate_for_new(bytes, align);
  }
  if (innermost_scope != nullptr) [[unlikely]]
    on_operator_new(bytes, caller);
  return block;
}
[[nodiscard]] inline void* watched_new_or_null(std::size_t bytes, void const* caller,
                                               std::align_val_t align = new_alignment) noexcept {
  try {
    return watched_new(bytes, caller, align);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace tidemark::detail

// Each operator is a separate function, so that its return address is its own.
// NOLINTBEGIN(misc-definitions-in-headers): one source includes this
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return tidemark::detail::watched_new(bytes, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return tidemark::detail::watched_new(bytes, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t align) {
  return tidemark::detail::watched_new(bytes, __builtin_return_address(0), align);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t align) {
  return tidemark::detail::watched_new(bytes, __builtin_return_address(0), align);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  return tidemark::detail::watched_new_or_null(bytes, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept {
  return tidemark::detail::watched_new_or_null(bytes, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t align,
                                     std::nothrow_t const&) noexcept {
  return tidemark::detail::watched_new_or_null(bytes, __builtin_return_address(0), align);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t align,
                                       std::nothrow_t const&) noexcept {
  return tidemark::detail::watched_new_or_null(bytes, __builtin_return_address(0), align);
}

void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::nothrow_t const&) noexcept { std::free(block); }
void operator delete[](void* block, std::nothrow_t const&) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t, std::nothrow_t const&) noexcept { std::free(block); }
void operator delete[](void* block, std::align_val_t, std::nothrow_t const&) noexcept { std::free(block); }
// NOLINTEND(misc-definitions-in-headers)

#endif  // !TIDEMARK_KEEPS_OPERATOR_NEW
#undef TIDEMARK_KEEPS_OPERATOR_NEW
