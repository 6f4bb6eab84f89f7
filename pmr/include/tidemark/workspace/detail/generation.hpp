// SPDX-License-Identifier: Apache-2.0
/// @file
/// `generation`: how a view knows whether its memory was freed. Records belong to the process.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <type_traits>

#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// What a `tensor_view` or `bit_view` holds, copies along, and calls before it returns an element or memory.
///
/// - `Generation::checks`: whether it can reject at all; where it is false the view never calls it and is
///   `noexcept`.
/// - `generation.require_live(element, extents)`: returns if the memory is still the view's, else throws. The
///   arguments are for the message: the elements' name (`element_name`) and the view's extents.
template <class Generation>
concept view_generation =
    std::is_nothrow_copy_constructible_v<Generation> && std::is_nothrow_default_constructible_v<Generation> &&
    requires(Generation const generation, char const* element, std::span<std::size_t const> extents) {
      { std::bool_constant<Generation::checks>::value } -> std::convertible_to<bool>;
      generation.require_live(element, extents);
    };

/// Of memory that is not watched: the view is a pointer and its extents.
struct unchecked_generation {
  static constexpr bool checks = false;
  constexpr void require_live(char const* /*element*/, std::span<std::size_t const>) const noexcept {}
};

static_assert(view_generation<unchecked_generation>);
static_assert(std::is_empty_v<unchecked_generation>, "a view without checks pays nothing for them");

/// What a checked workspace knows of the memory in one slot.
///
/// Views read it after the slot, and even the workspace, is gone: records are never freed, but reused by
/// other slots, and a number never returns. Thread-safety: a view may read it on any thread.
struct slot_generation {
  std::atomic<std::uint64_t> number{0};     // goes up each time the memory is taken back
  std::atomic<std::source_location> ended;  // where the scope was opened that ended the number before
  std::source_location acquired;            // where the newest view was acquired
  // One lock for all records protects what follows.
  std::uint64_t first = 0;  // the number at which the record became the present slot's
  char workspace[32] = "";  // its name, cut short; a copy, because views may outlive the text
  slot_generation* next_free = nullptr;
};

/// A record for a new slot. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] slot_generation* take_slot_generation(char const* workspace);
/// Ends the record's generation, and lets other slots use it. Thread-safe.
void return_slot_generation(slot_generation* record) noexcept;

/// Of memory of a checked workspace.
///
/// Invariant: live as long as `slot_->number` is the one that it was made with. Without a slot always live.
class checked_generation {
 public:
  static constexpr bool checks = true;

  constexpr checked_generation() noexcept = default;
  checked_generation(slot_generation const& slot, std::source_location acquired) noexcept
      : slot_{&slot}, number_{slot.number.load(std::memory_order_relaxed)}, acquired_{acquired} {}

  /// Whether the memory is still the view's.
  [[nodiscard]] bool live() const noexcept {
    return slot_ == nullptr || slot_->number.load(std::memory_order_relaxed) == number_;
  }
  /// @throws stale_view if it is not, with a sentence on a view of these elements and extents. A violation
  /// handler that the program has installed is called with this sentence before.
  void require_live(char const* element, std::span<std::size_t const> extents) const {
    if (!live()) [[unlikely]]
      throw_stale(element, extents);
  }

 private:
  [[noreturn]] TIDEMARK_COLD void throw_stale(char const* element,
                                              std::span<std::size_t const> extents) const;

  slot_generation const* slot_ = nullptr;
  std::uint64_t number_ = 0;
  std::source_location acquired_;
};

}  // namespace tidemark::detail
