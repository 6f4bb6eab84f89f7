// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_options`: how an arena takes and keeps memory. `arena_stats`: its counters. `arena_mark`: a
/// position in it. They own nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <tidemark/core/units.hpp>
#include <tidemark/core/virtual_memory.hpp>

namespace tidemark {

class allocation_observer;
namespace detail {
template <class AddressSpace>
class arena_state;
}

/// Response of an arena that has run out of memory.
enum class exhaustion_policy {
  throw_exception,  ///< throw `out_of_memory`
  abort,            ///< report a violation, which aborts by default; if the handler returns, throw
};

/// Selects the scopes of an `arena` to trap. A pointer into a trapped scope faults when used after the
/// scope's end, and is reported as by `report_use_after_rewind`. docs/diagnose.md, "Use after rewind", has
/// the costs.
struct trap_options {
  /// Traps one scope in this many rewinds on average, chosen at random as in GWP-ASan. 1 traps every scope,
  /// for tests. 0 traps no scope and costs nothing. The environment variable `TIDEMARK_TRAP` replaces the
  /// rate.
  std::uint32_t one_in = 0;
  /// Address space for trapped scopes, in bytes, in addition to the arena's own. Once it is used up, trapping
  /// starts again at its first address. Late uses of earlier scopes at reused addresses are then missed.
  std::size_t reserve = 1 * GiB;
  /// If true, the library handles SIGSEGV from the first arena with this option on. At
  /// a fault that is not a late use, the library restores the program's earlier signal action. It installs
  /// its handler again when the next trapped scope ends. If false, call `report_use_after_rewind` in your own
  /// handler.
  bool handle_signals = true;
};

/// How an arena takes and keeps memory. All sizes are in bytes, rounded up to the granularity of the memory.
struct arena_options {
  std::size_t reserve = 0;  ///< address space of a chunk; 0: the address space's default, often 1 GiB
  /// Memory is committed in multiples of this (0: 64 KiB). A commit is at least 1/8 of the arena's memory, so
  /// growth takes O(log n) calls. If the system refuses a whole step, only the needed pages are committed. On
  /// a device, a commit exceeds the need by at most 1 GiB or one step, whichever is larger, because mapping
  /// is slow there.
  std::size_t commit_step = 64 * KiB;
  bool growable = true;                                       ///< a full arena takes further chunks
  huge_page_policy huge_pages = huge_page_policy::automatic;  ///< virtual memory only
  bool prefault = false;  ///< committing faults pages in; virtual memory only
  /// A rewind keeps the chunks above it while the arena's committed memory is at most this. The next batch
  /// that crosses chunks then makes no system call.
  std::size_t retain = 1 * GiB;
  exhaustion_policy exhaustion = exhaustion_policy::throw_exception;  ///< response to exhaustion
  char const* name = "arena";  ///< used in messages and statistics; must outlive the arena and its exceptions
  trap_options trap = {};      ///< scopes to trap, on an `arena` only; other arenas warn
  /// Sees each block; must outlive the arena. `TIDEMARK_TRACE` of the environment may add a trace.
  /// An observed arena allocates on its slow path, and its `expand` returns false.
  allocation_observer* observer = nullptr;
};

/// A snapshot. Invariants in bytes: `used <= peak`, `used <= committed + suspended <= reserved`.
struct arena_stats {
  char const* name = "";                     ///< the arena's name
  std::size_t used_bytes = 0;                ///< the position: allocated bytes including padding
  std::size_t peak_bytes = 0;                ///< the highest position so far
  std::size_t committed_bytes = 0;           ///< backed by memory, used or kept
  std::size_t suspended_bytes = 0;           ///< backed by memory again after `resume`; otherwise 0
  std::size_t reserved_bytes = 0;            ///< address space held
  std::size_t chunks = 0;                    ///< chunks held, in use or kept
  std::uint64_t system_calls = 0;            ///< calls to its address space so far
  std::optional<std::uint64_t> allocations;  ///< allocations so far; counted at check level 2 only
  std::uint64_t trapped_scopes = 0;          ///< trapped scopes that ended with all their memory inaccessible
  std::uint64_t untrapped_scopes = 0;        ///< scopes that were due, but not trapped or only in part
  std::uint64_t trap_reuses = 0;             ///< times the trap addresses were used up and reused
};

/// A position in one arena: the result of `mark()` and the argument of `rewind()`. A plain value.
class arena_mark {
 public:
  /// A mark that every arena rejects.
  arena_mark() = default;
  /// Bytes from the arena's beginning.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  friend bool operator==(arena_mark const&, arena_mark const&) = default;

 private:
  template <class AddressSpace>
  friend class detail::arena_state;
  arena_mark(std::uint64_t arena, std::uint64_t serial, std::size_t position, std::uintptr_t cursor) noexcept
      : arena_{arena}, serial_{serial}, position_{position}, cursor_{cursor} {}

  std::uint64_t arena_ = 0;    // identity of the arena; no arena has 0
  std::uint64_t serial_ = 0;   // number of rewinds that had ended marks at the time of `mark()`
  std::size_t position_ = 0;   // bytes from the beginning
  std::uintptr_t cursor_ = 0;  // its address: distinguishes the end of a chunk from the start of the next
};

}  // namespace tidemark
