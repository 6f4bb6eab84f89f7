// SPDX-License-Identifier: Apache-2.0
/// @file
/// `os_memory`: a replaceable table of tidemark's calls to the operating system; and the record of a refused
/// call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// The operating system's memory calls. Derive from this class to count calls, to fail the n-th call, or to
/// place memory elsewhere. Pass the object to a `virtual_memory`, or to `set_default_os_memory` for the whole
/// process.
///
/// Thread-safe: any thread may call any function. Functions throw nothing and report failure by their result.
/// Sizes are multiples of `page_size()`; ranges are parts of results of `reserve`.
class os_memory {
 public:
  os_memory() = default;
  os_memory(os_memory const&) = delete;
  os_memory& operator=(os_memory const&) = delete;
  virtual ~os_memory() = default;

  /// Reserves `bytes` of addresses without memory, starting at a multiple of `align`. `align` is a power of
  /// two and at least the page size. @return null without address space.
  [[nodiscard]] virtual void* reserve(std::size_t bytes, std::size_t align) noexcept = 0;
  /// Makes a part readable and writable. Bytes read as 0 until they are first written after a reservation or
  /// decommit.
  [[nodiscard]] virtual bool commit(void* first, std::size_t bytes) noexcept = 0;
  /// Returns the memory behind a part and keeps its addresses. Its contents are lost.
  [[nodiscard]] virtual bool decommit(void* first, std::size_t bytes) noexcept = 0;
  /// Returns a whole reservation, addresses and memory.
  virtual bool release(void* first, std::size_t bytes) noexcept = 0;
  /// Requests transparent huge pages behind a part, or prevents them if not `wanted`. A hint: may fail
  /// harmlessly.
  virtual bool advise_huge_pages(void* first, std::size_t bytes, bool wanted) noexcept = 0;
  /// Backs a committed part with pages now, not at first touch. May fail harmlessly.
  virtual bool prefault(void* first, std::size_t bytes) noexcept = 0;
  /// Bytes in a page: a constant power of two.
  [[nodiscard]] virtual std::size_t page_size() noexcept = 0;
  /// Fills `bytes` bytes with randomness suitable for seeds.
  [[nodiscard]] virtual bool entropy(void* first, std::size_t bytes) noexcept = 0;
};

/// The real calls of Linux. One object per process. Thread-safe.
[[nodiscard]] os_memory& system_memory() noexcept;

/// The table that a `virtual_memory` uses by default: `system_memory()` until replaced.
[[nodiscard]] os_memory& default_os_memory() noexcept;

/// Replaces the default table. Null selects `system_memory()`. The table must outlive all memory taken
/// through it; existing arenas keep their table. Thread-safe. @return the previous table.
os_memory* set_default_os_memory(os_memory* table) noexcept;

/// A seed for a random generator from the operating system's entropy, through the default table.
/// @throws std::runtime_error if the system provides no entropy.
[[nodiscard]] std::uint64_t entropy_seed();

}  // namespace tidemark

namespace tidemark::detail {

/// A system call that was refused memory or addresses.
struct refused_call {
  int error = 0;           ///< errno; 0 if the call sets none
  std::size_t bytes = 0;   ///< size of the request
  bool is_commit = false;  ///< true for memory behind reserved addresses, false for addresses
};

/// Returns unused pages of the heap to the system, with glibc; does nothing elsewhere. O(free blocks).
void trim_heap() noexcept;

}  // namespace tidemark::detail
