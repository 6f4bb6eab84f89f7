// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_mark`: a position in an arena. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

namespace detail {
template <class AddressSpace>
class arena_state;
}

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
