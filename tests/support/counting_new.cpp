// SPDX-License-Identifier: Apache-2.0
// Replaces operator new with a counting one. Replaces malloc too if the C library is glibc and no sanitizer
// has its own malloc.
#include "counting_new.hpp"

#include <cerrno>
#include <cstdlib>
#include <new>

using tidemark::test::mallocs;
using tidemark::test::news;
using tidemark::test::max_news;

namespace {

void* counted(std::size_t bytes) noexcept { return ++news > max_news ? nullptr : std::malloc(bytes); }
void* counted(std::size_t bytes, std::align_val_t align) noexcept {
  const auto multiple = static_cast<std::size_t>(align);
  return ++news > max_news ? nullptr
                           : std::aligned_alloc(multiple, (bytes + multiple - 1) / multiple * multiple);
}
void* or_throw(void* block) {
  if (block == nullptr) throw std::bad_alloc{};
  return block;
}

}  // namespace

// All forms, because a sanitizer's runtime supplies the missing ones.
void* operator new(std::size_t bytes) { return or_throw(counted(bytes)); }
void* operator new[](std::size_t bytes) { return or_throw(counted(bytes)); }
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept { return counted(bytes); }
// std::pmr::new_delete_resource() calls the first of these.
void* operator new(std::size_t bytes, std::align_val_t align) { return or_throw(counted(bytes, align)); }
void* operator new[](std::size_t bytes, std::align_val_t align) { return or_throw(counted(bytes, align)); }
void* operator new(std::size_t bytes, std::align_val_t align, std::nothrow_t const&) noexcept {
  return counted(bytes, align);
}
void* operator new[](std::size_t bytes, std::align_val_t align, std::nothrow_t const&) noexcept {
  return counted(bytes, align);
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

#if TIDEMARK_COUNTS_MALLOC
// glibc's own functions, under its internal names. Its free() takes back their results.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t n, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t align, std::size_t bytes);

void* malloc(std::size_t bytes) {
  ++mallocs;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) {
  ++mallocs;
  return __libc_calloc(n, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  ++mallocs;
  return __libc_realloc(block, bytes);
}
void* memalign(std::size_t align, std::size_t bytes) {
  ++mallocs;
  return __libc_memalign(align, bytes);
}
void* aligned_alloc(std::size_t align, std::size_t bytes) {
  ++mallocs;
  return __libc_memalign(align, bytes);
}
int posix_memalign(void** result, std::size_t align, std::size_t bytes) {
  ++mallocs;
  if (align % sizeof(void*) != 0 || (align & (align - 1)) != 0 || align == 0) return EINVAL;
  void* const block = __libc_memalign(align, bytes);
  if (block == nullptr) return ENOMEM;
  *result = block;
  return 0;
}
}  // extern "C"
#endif
