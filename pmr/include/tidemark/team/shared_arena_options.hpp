// SPDX-License-Identifier: Apache-2.0
/// @file
/// `team_options`: the division of a shared arena's memory among threads. `shared_arena_stats`: its
/// statistics. `shared_arena_mark`: a position of all threads in it. They own nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/units.hpp>

namespace tidemark {

template <class AddressSpace>
class basic_shared_arena;
template <class AddressSpace>
class basic_shared_arena_scope;
namespace detail {
template <class AddressSpace>
class shared_arena_state;
}  // namespace detail

/// Division of a shared arena's memory among threads. All sizes are in bytes and rounded up to whole pages.
struct team_options {
  /// 0: any number of threads, which claim extents from one region as needed. Otherwise the maximum number of
  /// threads, each with its own region. A thread's addresses then depend only on its own allocations, and
  /// repeat from step to step.
  std::size_t threads = 0;
  std::size_t min_extent_bytes =
      64 * KiB;  ///< first extent of a thread; each further extent is as large as all its extents
  std::size_t max_extent_bytes = 1 * MiB;  ///< maximum extent, except for a larger block
};

/// A snapshot, with `used_bytes + waste_bytes <= committed_bytes <= reserved_bytes`.
struct shared_arena_stats {
  char const* name = "";        ///< name of the arena
  std::size_t threads = 0;      ///< threads that have a place, or had a place that no thread has taken since
  std::size_t used_bytes = 0;   ///< sum over threads: allocated bytes with padding
  std::size_t peak_bytes = 0;   ///< sum over threads of each peak: at least the true peak
  std::size_t waste_bytes = 0;  ///< bytes in extents of threads that are not allocated
  std::size_t free_bytes = 0;   ///< bytes in free extents, for any thread
  std::size_t committed_bytes = 0;  ///< bytes backed by memory, used or kept
  std::size_t reserved_bytes = 0;   ///< bytes of address space
  std::size_t chunks = 0;           ///< chunks in use or kept
  std::uint64_t system_calls = 0;   ///< calls to its address space up to now
};

/// A position of all threads in one shared arena, from `mark()` for `rewind()`. A plain value.
class shared_arena_mark {
 public:
  /// Makes a mark that every arena rejects.
  shared_arena_mark() = default;
  friend bool operator==(shared_arena_mark const&, shared_arena_mark const&) = default;

 private:
  template <class AddressSpace>
  friend class detail::shared_arena_state;
  template <class AddressSpace>
  friend class basic_shared_arena_scope;
  shared_arena_mark(std::uint64_t arena, std::uint64_t number, std::size_t index) noexcept
      : arena_{arena}, number_{number}, index_{index} {}

  std::uint64_t arena_ = 0;   // identity of the arena; no arena has 0
  std::uint64_t number_ = 0;  // number of the mark, unique in its arena
  std::size_t index_ = 0;     // index among its live marks
};

}  // namespace tidemark
