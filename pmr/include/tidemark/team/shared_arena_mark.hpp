// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_arena_mark`: a position of all threads in a shared arena. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

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
