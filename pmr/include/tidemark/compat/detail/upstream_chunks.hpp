// SPDX-License-Identifier: Apache-2.0
/// @file
/// `upstream_chunks`: chunks of an upstream that are returned all at once. It owns them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {

/// A list of chunks, each with its record at its end, so that its first block may be aligned as the chunk is
/// and all that is known lies in the upstream's memory.
///
/// The upstream gets back exactly the (pointer, bytes, alignment) that it gave. One thread at a time.
class upstream_chunks {
 public:
  /// No object is larger; with room for a record and an alignment beside it.
  static constexpr std::size_t max_bytes =
      align_down((std::numeric_limits<std::ptrdiff_t>::max)() / 2, alignof(std::size_t));

  explicit upstream_chunks(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  upstream_chunks(upstream_chunks const&) = delete;
  upstream_chunks& operator=(upstream_chunks const&) = delete;
  ~upstream_chunks() { release(); }

  /// A chunk with room for `wanted` units or, if the upstream refuses them, for fewer, down to `needed`. Its
  /// bytes may not be touched yet. @return the room
  /// @pre a unit is a multiple of `alignof(std::size_t)`; all together are at most `max_bytes`, as is `align`.
  /// @throws what the upstream throws; nothing has changed then.
  [[nodiscard]] byte_range add(std::size_t needed, std::size_t wanted, std::size_t unit_bytes,
                               std::size_t align);
  /// Has the upstream refuse what no memory has room for, in its own way: a resource of the standard throws
  /// nothing itself. @throws what the upstream throws; std::bad_alloc if it does not.
  [[noreturn]] void refuse();
  /// Returns all chunks to the upstream. O(chunks).
  void release() noexcept;

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept { return upstream_; }

 private:
  struct record {
    record* previous;
    std::size_t bytes;  // of the chunk, as they were requested from the upstream
    std::size_t align;
  };

 public:
  /// Bytes of a chunk besides its room.
  static constexpr std::size_t overhead_bytes = sizeof(record);

 private:
  std::pmr::memory_resource* upstream_;
  record* newest_ = nullptr;  // null: there is no chunk
};

}  // namespace tidemark::detail
