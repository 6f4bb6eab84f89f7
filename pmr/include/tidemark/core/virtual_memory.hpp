// SPDX-License-Identifier: Apache-2.0
/// @file
/// `virtual_memory`: the operating system's memory, reserved large and committed in steps.
#pragma once

#include <cstddef>
#include <limits>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

/// Whether transparent huge pages back a range.
enum class huge_page_policy {
  system,  ///< as the system is set up
  advise,  ///< ask for them; commits then go in steps of 2 MiB
  avoid,   ///< rule them out
};

/// How a `virtual_memory` treats what it commits.
struct virtual_memory_options {
  /// Whether to ask the system for huge pages.
  huge_page_policy huge_pages = huge_page_policy::system;
  bool prefault = false;  ///< put pages behind memory when it is committed, not at first touch
};

/// An `address_space` of the operating system's pages. Reserving costs address space only, so reserve large.
///
/// ```cpp
/// virtual_memory space;
/// byte_range range = space.reserve(1, 1 * GiB);  // no memory yet
/// if (!space.commit({range.begin, 64 * KiB})) throw std::bad_alloc{};
/// // the first 64 KiB can be used, and read as zero
/// space.release(range);
/// ```
/// It owns no memory itself: who reserves a range releases it. Ranges start at a multiple of 2 MiB, so that a
/// huge page can back their first bytes; at any page where a limit leaves no addresses for that. One thread
/// at a time; two objects may be used by two threads.
class virtual_memory : public refusals_only {
 public:
  static constexpr space_traits traits{.fresh_is_zero = true, .commits = true};

  /// Alignment of reserved ranges: the size of a huge page on x86-64 and (with 4 KiB pages) on AArch64.
  static constexpr std::size_t range_alignment = 2 * MiB;

  /// @param os the calls to use; must outlive this object and all ranges taken from it.
  explicit virtual_memory(virtual_memory_options options = {}, os_memory& os = default_os_memory()) noexcept;

  /// Reserves the larger of the two, rounded up to the granularity. If the system refuses that, half as much
  /// each time, down to `least_bytes`; under `RLIMIT_AS` at most an eighth, and under `RLIMIT_MEMLOCK` half,
  /// of the bytes that the limit leaves, but `least_bytes`.
  /// @return an empty range if there is no address space left. O(log(wanted_bytes / least_bytes)) calls.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) noexcept;
  /// Puts memory behind a part of a range or, if the system refuses that, behind its first `least_bytes`.
  /// @pre the part's ends, and `least_bytes` below its size, are multiples of the granularity.
  /// @return bytes committed; 0, with nothing changed, without memory
  [[nodiscard]] std::size_t commit(
      byte_range part, std::size_t least_bytes = (std::numeric_limits<std::size_t>::max)()) noexcept;
  /// Returns the memory behind a part; once committed again it reads as zero. @pre as `commit`.
  [[nodiscard]] bool decommit(byte_range part) noexcept;
  /// Returns a whole range.
  void release(byte_range range) noexcept;
  /// 1 GiB: address space is nearly free, and an arena that stays within one chunk is one range.
  [[nodiscard]] static constexpr std::size_t chunk_bytes() noexcept { return 1 * GiB; }
  /// The page size, or 2 MiB where huge pages are requested.
  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }

  /// The limit of the system that refused the last `reserve` or `commit`, and how to change it, in words that
  /// live as long as the program; empty if none is known. Reads /proc.
  [[nodiscard]] char const* refusal() const noexcept;

 private:
  [[nodiscard]] byte_range reserve_exactly(std::size_t bytes, bool is_last) noexcept;

  os_memory* os_;
  virtual_memory_options options_;
  std::size_t granularity_;
  detail::refused_call refused_;  // the last call that failed
};

static_assert(reporting_space<virtual_memory>);

}  // namespace tidemark
