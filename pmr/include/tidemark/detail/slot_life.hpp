// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether the memory of a view was taken back: how a checked workspace knows. Records belong to the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include <tidemark/macros.hpp>

namespace tidemark::detail {

/// What is known of the memory in one slot of a checked workspace.
///
/// Views look here after their slot, and even their workspace, is gone: records are never freed, but used
/// again by other slots, and a generation never comes back. Thread-safety: a view may look from any thread.
struct slot_life {
  std::atomic<std::uint64_t> generation{0};  // goes up each time the memory is taken back
  std::atomic<std::source_location> ended;   // where the scope was opened that ended the generation before
  std::source_location acquired;             // where the newest view was asked for
  // What follows is read and written under one lock for all records.
  std::uint64_t first = 0;  // the generation in which it became the present slot's
  char workspace[32] = "";  // its name, cut short; a copy, because views may outlive the text
  slot_life* next_free = nullptr;
};

/// A record for a new slot. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] slot_life* take_slot_life(char const* workspace);

/// Ends the record's generation, and lets other slots use it. Thread-safe.
void give_slot_life(slot_life* life) noexcept;

/// A view's knowledge of its slot: `view_life` for checked workspaces.
///
/// Invariant: live as long as `slot->generation` is the one that it was made in. One without slot is always
/// live.
class checked_life {
 public:
  static constexpr bool checks = true;

  constexpr checked_life() noexcept = default;
  checked_life(slot_life const& slot, std::source_location acquired) noexcept
      : slot_{&slot}, generation_{slot.generation.load(std::memory_order_relaxed)}, acquired_{acquired} {}

  /// Whether the memory is still the view's.
  [[nodiscard]] bool live() const noexcept {
    return slot_ == nullptr || slot_->generation.load(std::memory_order_relaxed) == generation_;
  }
  /// @throws stale_view if it is not, with a sentence on a view of these elements and extents.
  void require_live(char const* element, std::size_t const* extents, std::size_t rank) const {
    if (!live()) [[unlikely]]
      throw_stale(element, extents, rank);
  }

 private:
  [[noreturn]] TIDEMARK_COLD void throw_stale(char const* element, std::size_t const* extents,
                                              std::size_t rank) const;

  slot_life const* slot_ = nullptr;
  std::uint64_t generation_ = 0;
  std::source_location acquired_;
};

}  // namespace tidemark::detail
