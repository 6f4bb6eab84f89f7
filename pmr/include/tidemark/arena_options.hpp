// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_options`: how an arena takes and keeps memory.
#pragma once

#include <cstddef>

#include <tidemark/units.hpp>
#include <tidemark/virtual_memory.hpp>

namespace tidemark {

/// What an arena does when it has no memory left.
enum class exhaustion_policy {
  throw_exception,  ///< throw `out_of_memory`
  abort,            ///< report a violation, which aborts by default; if the handler returns, throw
};

/// How an arena takes and keeps memory. All sizes in bytes, rounded up to the granularity of its memory.
struct arena_options {
  /// Address space of a chunk; 0: what its kind of memory prefers (1 GiB for virtual memory). An arena that
  /// stays within its first chunk has one contiguous range.
  std::size_t reserve = 0;
  /// Memory is committed in multiples of this, at least 1/8 of what the arena holds already, so that growing is
  /// O(log n) calls; in pages only where the system refuses so much. 0 stands for 64 KiB; more than `reserve` for
  /// all of it.
  std::size_t commit_step = 64 * KiB;
  /// Whether a full arena takes further chunks. If not, `reserve` is all it ever holds.
  bool growable = true;
  /// Transparent huge pages (virtual memory only).
  huge_page_policy huge_pages = huge_page_policy::system;
  /// Whether pages are put behind memory when it is committed (virtual memory only).
  bool prefault = false;
  /// Chunks that a rewind leaves are kept for reuse as long as the arena holds at most this much committed
  /// memory, so that a batch that crosses chunks again makes no system call.
  std::size_t retain = 1 * GiB;
  /// What to do when memory is exhausted.
  exhaustion_policy exhaustion = exhaustion_policy::throw_exception;
  /// Name in messages and statistics; must outlive the arena and the exceptions it throws.
  char const* name = "arena";
};

}  // namespace tidemark
