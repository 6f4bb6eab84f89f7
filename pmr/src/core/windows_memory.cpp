// SPDX-License-Identifier: Apache-2.0
// Implements `os_memory` for Windows.
#if defined(_WIN32)

#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
// After it.
#include <ntsecapi.h>

#include <algorithm>
#include <limits>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/os_memory.hpp>

namespace tidemark {
namespace {

SYSTEM_INFO const& system_info() noexcept {
  static const SYSTEM_INFO info = [] {
    SYSTEM_INFO read{};
    ::GetSystemInfo(&read);
    return read;
  }();
  return info;
}

class windows_memory final : public os_memory {
 public:
  // The system aligns to 64 KiB and cannot release a part of a reservation. The excess stays reserved until
  // `release`, which costs address space only.
  void* reserve(std::size_t bytes, std::size_t align) noexcept override {
    const std::size_t natural = system_info().dwAllocationGranularity;
    const std::size_t slack = align > natural ? align - natural : 0;
    if (bytes + slack < bytes) return nullptr;
    void* const first = ::VirtualAlloc(nullptr, bytes + slack, MEM_RESERVE, PAGE_NOACCESS);
    if (first == nullptr) return nullptr;
    return reinterpret_cast<void*>(detail::align_up(reinterpret_cast<std::uintptr_t>(first), align));
  }
  bool commit(void* first, std::size_t bytes) noexcept override {
    return ::VirtualAlloc(first, bytes, MEM_COMMIT, PAGE_READWRITE) != nullptr;
  }
  bool decommit(void* first, std::size_t bytes) noexcept override {
    if (bytes == 0) return true;  // 0 would mean the whole reservation
    return ::VirtualFree(first, bytes, MEM_DECOMMIT) != 0;
  }
  bool release(void* first, std::size_t) noexcept override {
    MEMORY_BASIC_INFORMATION found{};
    return ::VirtualQuery(first, &found, sizeof found) != 0 &&
           ::VirtualFree(found.AllocationBase, 0, MEM_RELEASE) != 0;
  }
  // Unsupported, because large pages need a privilege and are committed at reservation.
  bool advise_huge_pages(void*, std::size_t, bool) noexcept override { return false; }
  bool prefault(void* first, std::size_t bytes) noexcept override {
    for (std::size_t offset = 0; offset < bytes; offset += page_size()) {
      auto* const byte = static_cast<char volatile*>(first) + offset;
      *byte = *byte;
    }
    return true;
  }
  std::size_t page_size() noexcept override { return system_info().dwPageSize; }
  bool entropy(void* first, std::size_t bytes) noexcept override {
    for (std::size_t offset = 0; offset < bytes;) {
      const auto part =
          static_cast<ULONG>(std::min<std::size_t>(bytes - offset, std::numeric_limits<ULONG>::max()));
      if (!::RtlGenRandom(static_cast<char*>(first) + offset, part)) return false;
      offset += part;
    }
    return true;
  }
};

}  // namespace

os_memory& system_memory() noexcept {
  static windows_memory table;
  return table;
}

}  // namespace tidemark

#endif
