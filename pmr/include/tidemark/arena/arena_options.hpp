// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_options`: how an arena takes and keeps memory; `arena_stats`: what it holds, in numbers;
/// `arena_mark`: a position in it. They own nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <tidemark/core/units.hpp>
#include <tidemark/core/virtual_memory.hpp>

namespace tidemark {

namespace detail {
template <class AddressSpace>
class arena_state;
}

/// What an arena does when it has no memory left.
enum class exhaustion_policy {
  throw_exception,  ///< throw `out_of_memory`
  abort,            ///< report a violation, which aborts by default; if the handler returns, throw
};

/// Selects the scopes of an `arena` that are trapped. The use of a pointer into a trapped scope after its end
/// is a fault, and is reported as by `report_use_after_rewind`. docs/diagnose.md, "Use after rewind", has the
/// costs.
struct trap_options {
  /// One scope in this many rewinds, on average, is trapped, chosen at random as GWP-ASan chooses. 1 traps
  /// every scope, for tests; 0 traps none and costs nothing.
  std::uint32_t one_in = 0;
  /// Address space for trapped scopes, besides that of the arena. Once it is used up, its first addresses are
  /// used again, and late uses of the scopes that had them are not found.
  std::size_t reserve = 1 * GiB;
  /// Whether the library handles SIGSEGV (on macOS SIGBUS too) from the first arena of the process with this
  /// option on. A fault that is no late use puts the program's earlier action back; the next trapped scope
  /// that ends installs the library's handler again. If false, call `report_use_after_rewind` in a handler of
  /// your own.
  bool handle_signals = true;
};

/// How an arena takes and keeps memory. All sizes in bytes, rounded up to the granularity of its memory.
struct arena_options {
  std::size_t reserve = 0;  ///< address space of a chunk; 0: as the address space prefers, often 1 GiB
  /// Memory is committed in multiples of this (0: 64 KiB), at least 1/8 of what the arena holds, so that
  /// growing takes O(log n) calls; in pages only where the system refuses so much. A device's memory is
  /// mapped slowly: there at most 1 GiB is committed beyond what is needed, or one step if that is more.
  std::size_t commit_step = 64 * KiB;
  bool growable = true;                                    ///< whether a full arena takes further chunks
  huge_page_policy huge_pages = huge_page_policy::system;  ///< virtual memory only
  bool prefault = false;  ///< whether committing faults pages in; virtual memory only
  /// A rewind keeps the chunks it leaves while the arena holds at most this much committed memory, so that a
  /// batch that crosses chunks again makes no system call.
  std::size_t retain = 1 * GiB;
  exhaustion_policy exhaustion = exhaustion_policy::throw_exception;  ///< what happens without memory
  char const* name = "arena";  ///< in messages and statistics; must outlive the arena and its exceptions
  /// Which scopes are trapped; an `arena`'s only, others warn. It keeps chunks without memory.
  trap_options trap = {};
};

/// A snapshot. Of the bytes, `used <= peak` and `used <= committed + suspended <= reserved`.
struct arena_stats {
  char const* name = "";                     ///< the arena's name
  std::size_t used_bytes = 0;                ///< its position: allocated, with padding
  std::size_t peak_bytes = 0;                ///< the highest position so far
  std::size_t committed_bytes = 0;           ///< backed by memory, used or kept
  std::size_t suspended_bytes = 0;           ///< backed by memory again after `resume`; else 0
  std::size_t reserved_bytes = 0;            ///< address space held
  std::size_t chunks = 0;                    ///< chunks held, in use or kept
  std::uint64_t system_calls = 0;            ///< calls to its address space so far
  std::optional<std::uint64_t> allocations;  ///< allocations so far; counted at check level 2 only
  std::uint64_t trapped_scopes = 0;    ///< ended, with all their memory made inaccessible: `trap_options`
  std::uint64_t untrapped_scopes = 0;  ///< due, but without addresses or memory, if only for a part
  std::uint64_t trap_reuses = 0;       ///< how often the addresses for them were used up and began anew
};

/// A position in one arena, as `mark()` returns it and `rewind()` takes it. A plain value.
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
  std::uint64_t serial_ = 0;   // how many rewinds had ended marks when it was taken
  std::size_t position_ = 0;   // bytes from the beginning
  std::uintptr_t cursor_ = 0;  // the address there: tells the end of a chunk from the beginning of the next
};

}  // namespace tidemark
