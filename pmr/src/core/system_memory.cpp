// SPDX-License-Identifier: Apache-2.0
// Implements `os_memory` with the calls of Linux.
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/os_memory.hpp>

namespace tidemark {
namespace {

class linux_memory final : public os_memory {
 public:
  void* reserve(std::size_t bytes, std::size_t align) noexcept override {
    // mmap aligns to pages only: maps more, and unmaps the excess on both sides.
    const std::size_t slack = align > page_size() ? align - page_size() : 0;
    if (bytes + slack < bytes) return nullptr;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* mapping = mmap(nullptr, bytes + slack, PROT_NONE, flags, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping);
    const std::uintptr_t first = detail::align_up(begin, align);
    unmap(begin, first - begin);
    unmap(first + bytes, begin + slack - first);
    return reinterpret_cast<void*>(first);
  }
  bool commit(void* first, std::size_t bytes) noexcept override {
    return mprotect(first, bytes, PROT_READ | PROT_WRITE) == 0;
  }
  bool decommit(void* first, std::size_t bytes) noexcept override {
    // This order avoids a second walk over the pages, and keeps advice about huge pages.
    return madvise(first, bytes, MADV_DONTNEED) == 0 && mprotect(first, bytes, PROT_NONE) == 0;
  }
  bool release(void* first, std::size_t bytes) noexcept override { return munmap(first, bytes) == 0; }
  bool advise_huge_pages(void* first, std::size_t bytes, bool wanted) noexcept override {
    return madvise(first, bytes, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0;
  }
  bool prefault(void* first, std::size_t bytes) noexcept override {
#if defined(MADV_POPULATE_WRITE)
    if (madvise(first, bytes, MADV_POPULATE_WRITE) == 0) return true;
#endif
    // Kernels before 5.14: touches every page. Writing 0 to a byte that reads as 0 changes nothing.
    for (std::size_t offset = 0; offset < bytes; offset += page_size()) {
      static_cast<char volatile*>(first)[offset] = 0;
    }
    return true;
  }
  std::size_t page_size() noexcept override {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
  }
  bool entropy(void* first, std::size_t bytes) noexcept override { return getentropy(first, bytes) == 0; }

 private:
  static void unmap(std::uintptr_t first, std::size_t bytes) noexcept {
    if (bytes != 0) munmap(reinterpret_cast<void*>(first), bytes);
  }
};

}  // namespace

os_memory& system_memory() noexcept {
  static linux_memory table;
  return table;
}

}  // namespace tidemark
