// SPDX-License-Identifier: Apache-2.0
/// @file
/// `virtual_memory`: memory of the operating system, reserved in large ranges and committed in steps.
#pragma once

#include <cstddef>
#include <limits>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

/// Use of transparent huge pages behind a range.
enum class huge_page_policy {
  automatic,  ///< requests them behind each commit of at least `min_huge_commit_bytes`
  advise,     ///< requests them; commits then go in steps of 2 MiB
  avoid,      ///< prevents them
};

/// How a `virtual_memory` backs its commits.
struct virtual_memory_options {
  huge_page_policy huge_pages = huge_page_policy::automatic;  ///< use of huge pages
  bool prefault = false;  ///< backs memory with pages at the commit, not at first touch
};

/// An `address_space` of the operating system's pages. A reservation costs address space only, so reserve
/// generously.
///
/// ```cpp
/// virtual_memory space;
/// byte_range range = space.reserve(1, 1 * GiB);  // no memory yet
/// if (!space.commit({range.begin, 64 * KiB})) throw std::bad_alloc{};
/// // the first 64 KiB can be used, and read as zero
/// space.release(range);
/// ```
/// It owns no memory: the caller releases each range. Ranges start at a multiple of 2 MiB, so that a huge
/// page can back their first bytes. A range starts at any page if a limit leaves no addresses for that.
///
/// One thread at a time; different threads may use different objects.
class virtual_memory {
 public:
  static constexpr space_traits traits{.fresh_is_zero = true, .commits = true};

  /// Alignment of reserved ranges, in bytes: a huge page on x86-64 and, with 4 KiB pages, on AArch64.
  static constexpr std::size_t range_alignment = 2 * MiB;

  /// Smallest commit for which `huge_page_policy::automatic` requests huge pages. An arena commits an eighth
  /// of its memory at a time, so the partly used last page is at most 1/32 of the arena's memory.
  static constexpr std::size_t min_huge_commit_bytes = 8 * MiB;

  /// @param os the system calls to use; must outlive this object and all its ranges.
  explicit virtual_memory(virtual_memory_options options = {}, os_memory& os = default_os_memory()) noexcept;

  /// Reserves the larger of the two sizes, rounded up to the granularity. Halves the size on each refusal,
  /// down to `least_bytes`. Tries at most an eighth of the bytes left by `RLIMIT_AS`, and half of those left
  /// by `RLIMIT_MEMLOCK`, but always at least `least_bytes`.
  /// @return an empty range if no address space is left. O(log(wanted_bytes / least_bytes)) calls.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) noexcept;
  /// Commits a part of a range; if refused, commits its first `least_bytes`.
  /// @pre the part's ends are multiples of the granularity, and so is `least_bytes` if it is below the part's
  /// size.
  /// @return bytes committed; 0, with nothing changed, without memory
  [[nodiscard]] std::size_t commit(
      byte_range part, std::size_t least_bytes = (std::numeric_limits<std::size_t>::max)()) noexcept;
  /// Returns the memory behind a part, which reads as zero once committed again. @pre as `commit`.
  [[nodiscard]] bool decommit(byte_range part) noexcept;
  /// Returns a whole range.
  void release(byte_range range) noexcept;
  /// 1 GiB: address space is nearly free, and an arena within one chunk is one range.
  [[nodiscard]] static constexpr std::size_t chunk_bytes() noexcept { return 1 * GiB; }
  /// The page size, or 2 MiB if huge pages are requested.
  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }

  /// The system limit behind the last refused `reserve` or `commit`, and how to change it; empty if unknown.
  /// The text lives as long as the program. Reads /proc.
  [[nodiscard]] char const* refusal() const noexcept;

 private:
  [[nodiscard]] byte_range reserve_exactly(std::size_t bytes, bool is_last) noexcept;

  os_memory* os_;
  virtual_memory_options options_;
  std::size_t granularity_;
  detail::refused_call refused_;  // the last failed call
};

static_assert(reporting_space<virtual_memory>);

namespace detail {
/// Requests huge pages behind anonymous memory of at least `virtual_memory::min_huge_commit_bytes`.
void advise_huge_pages_if_large(byte_range memory, os_memory& os) noexcept;
}  // namespace detail

}  // namespace tidemark
