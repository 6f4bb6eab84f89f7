// SPDX-License-Identifier: Apache-2.0
/// @file
/// `os_memory`: the calls tidemark makes to the operating system, in one replaceable table, and a call that
/// was refused.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// The operating system's memory calls. Derive from it to count them, to make the n-th one fail, or to place
/// memory elsewhere; give it to a `virtual_memory`, or to `set_default_os_memory` for the whole process.
///
/// Every function may be called from any thread, throws nothing and reports failure by its result.
/// Sizes are multiples of `page_size()`, ranges are (parts of) what `reserve` returned.
class os_memory {
 public:
  os_memory() = default;
  os_memory(os_memory const&) = delete;
  os_memory& operator=(os_memory const&) = delete;
  virtual ~os_memory() = default;

  /// Takes `bytes` of address space without memory behind it, the first a multiple of `align` (a power of two
  /// not below the page size). @return null without address space.
  [[nodiscard]] virtual void* reserve(std::size_t bytes, std::size_t align) noexcept = 0;
  /// Makes a part readable and writable. Bytes never committed since they were reserved or decommitted read
  /// as 0.
  [[nodiscard]] virtual bool commit(void* first, std::size_t bytes) noexcept = 0;
  /// Returns the memory behind a part and keeps its addresses. Its contents are lost.
  [[nodiscard]] virtual bool decommit(void* first, std::size_t bytes) noexcept = 0;
  /// Returns the whole of a reservation, addresses and memory.
  virtual bool release(void* first, std::size_t bytes) noexcept = 0;
  /// Asks for transparent huge pages behind a part (`wanted`) or rules them out. A hint: may fail harmlessly.
  virtual bool advise_huge_pages(void* first, std::size_t bytes, bool wanted) noexcept = 0;
  /// Puts pages behind a committed part now instead of at the first touch. May fail harmlessly.
  virtual bool prefault(void* first, std::size_t bytes) noexcept = 0;
  /// Bytes in a page: a power of two, always the same.
  [[nodiscard]] virtual std::size_t page_size() noexcept = 0;
  /// Fills `bytes` bytes with randomness fit for seeds.
  [[nodiscard]] virtual bool entropy(void* first, std::size_t bytes) noexcept = 0;
};

/// The real calls of this operating system (Linux, macOS, Windows). One object for the process. Thread-safe.
[[nodiscard]] os_memory& system_memory() noexcept;

/// The table that a `virtual_memory` uses unless it is given another: `system_memory()` until replaced.
[[nodiscard]] os_memory& default_os_memory() noexcept;

/// Replaces the default table; null stands for `system_memory()`. The table must outlive all memory taken
/// through it; arenas that exist keep the one they began with. Thread-safe. @return the table before.
os_memory* set_default_os_memory(os_memory* table) noexcept;

/// A seed for a random generator from the operating system's entropy, by way of the default table.
/// @throws std::runtime_error if the system gives none.
[[nodiscard]] std::uint64_t entropy_seed();

}  // namespace tidemark

namespace tidemark::detail {

/// A call of the system that was refused memory or addresses.
struct refused_call {
  int error = 0;           ///< errno; 0: the call does not say
  std::size_t bytes = 0;   ///< that it was for
  bool is_commit = false;  ///< of memory behind reserved addresses, and not of addresses
};

/// Returns the pages of the heap that no block needs, with glibc; elsewhere it does nothing. O(free blocks).
void trim_heap() noexcept;

}  // namespace tidemark::detail
