// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_mark`: a position in an arena to come back to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// A position in one arena, as `mark()` returns it and `rewind()` takes it. A plain value: copy it freely.
///
/// It names its arena and the moment it was taken, so that an arena can refuse a mark of another arena, one
/// that lies ahead, and one that was rewound over since.
class arena_mark {
 public:
  /// A mark of no arena, which every arena refuses.
  arena_mark() = default;

  /// The position it names, in bytes from the arena's beginning.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }

  friend bool operator==(arena_mark const&, arena_mark const&) = default;

 private:
  template <class AddressSpace>
  friend class basic_arena;

  std::uint64_t arena_ = 0;    // identity of the arena; 0 is nobody's
  std::uint64_t serial_ = 0;   // how many rewinds had ended marks when it was taken
  std::size_t position_ = 0;   // bytes from the beginning
  std::uintptr_t cursor_ = 0;  // the address there: tells the end of a chunk from the beginning of the next
};

}  // namespace tidemark
