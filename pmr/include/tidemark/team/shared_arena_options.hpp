// SPDX-License-Identifier: Apache-2.0
/// @file
/// `team_options`: how a shared arena divides its memory among threads; `shared_arena_stats`: what it holds,
/// in numbers; `shared_arena_mark`: a position of all threads in it. They own nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/units.hpp>

namespace tidemark {

/// How a shared arena divides its memory among threads. All sizes in bytes, rounded up to whole pages.
struct team_options {
  /// 0: any number of threads, which claim extents from one region as they need them. Otherwise so many at
  /// most, each with a region of its own: the addresses that a thread gets then depend on nothing but what it
  /// allocated itself, and repeat from step to step.
  std::size_t threads = 0;
  std::size_t min_extent_bytes =
      64 * KiB;  ///< a thread's first extent; each further one as large as all it has
  std::size_t max_extent_bytes = 1 * MiB;  ///< no extent is larger, but for a block that needs more
};

/// A snapshot. Of the bytes, `used + waste <= committed <= reserved`.
struct shared_arena_stats {
  char const* name = "";        ///< the arena's name
  std::size_t threads = 0;      ///< that have a place in it, or had one that no thread has taken since
  std::size_t used_bytes = 0;   ///< sum over threads: allocated, with padding
  std::size_t peak_bytes = 0;   ///< sum over threads of the most that each had: no less than the true peak
  std::size_t waste_bytes = 0;  ///< in extents of threads, and not allocated
  std::size_t free_bytes = 0;   ///< extents that were given back, for any thread
  std::size_t committed_bytes = 0;  ///< backed by memory, used or kept
  std::size_t reserved_bytes = 0;   ///< address space held
  std::size_t chunks = 0;           ///< chunks held, in use or kept
  std::uint64_t system_calls = 0;   ///< calls to its address space so far
};

/// What all threads had allocated of one shared arena, as `mark()` returns it and `rewind()` takes it. A
/// plain value.
class shared_arena_mark {
 public:
  /// A mark that every arena rejects.
  shared_arena_mark() = default;
  friend bool operator==(shared_arena_mark const&, shared_arena_mark const&) = default;

 private:
  template <class AddressSpace>
  friend class basic_shared_arena;
  template <class AddressSpace>
  friend class basic_shared_arena_scope;
  shared_arena_mark(std::uint64_t arena, std::uint64_t number, std::size_t index) noexcept
      : arena_{arena}, number_{number}, index_{index} {}

  std::uint64_t arena_ = 0;   // identity of the arena; no arena has 0
  std::uint64_t number_ = 0;  // of the arena's marks; no other mark of it has it
  std::size_t index_ = 0;     // among its live marks
};

}  // namespace tidemark
