// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_marks`: tells tools which memory of a chunk that the host does not touch is allocated. Owns
/// records only. Defined where `TIDEMARK_NVTX` is on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/diagnose/detail/listening_tool.hpp>

namespace tidemark::detail {

/// What poisoning is for memory of the host, for memory of a device: a tool, compute-sanitizer, sees who
/// touches it there. The tool knows heaps and regions, not bytes.
///
/// Each range that was committed at once is a heap, because the tool knows ranges as the driver returned
/// them. A block is a region of each heap that it lies in. Blocks come in ascending order and are freed from
/// the top, as an arena's are; they are recorded beside the memory, to be found again when they are freed.
///
/// Last parameters without a name are what `byte_marks`, which has the same functions, needs besides.
///
/// Invariants: heaps ascend and are disjoint; so do blocks. `blocks.empty()` until a tool has taken a heap.
///
/// Complexity: `on_allocate` O(log heaps), others O(what they free). Thread-safety: one thread at a time.
class device_marks {
 public:
  /// Makes room for one more heap and one more block. @return false: out of memory
  [[nodiscard]] bool reserve() noexcept;
  /// Whether one more block can be recorded without `reserve`.
  [[nodiscard]] bool has_room() const noexcept { return !heard_ || blocks_.size() < blocks_.capacity(); }

  /// There is memory in `[first, last)` now, above all other heaps, but for what a heap has covered since
  /// before it was cut. Known blocks in it are opened again. @pre `reserve()`, or as many heaps before
  void on_commit(std::uintptr_t first, std::uintptr_t last, char const* name) noexcept;
  /// The memory at `from` and above is about to go. A heap that reaches below stays whole, because none can
  /// be cut. Blocks stay known: their memory may come back.
  void on_decommit(std::uintptr_t from, std::uintptr_t = 0) noexcept;
  /// A block above all others was allocated. @param bytes may be 0. @pre `has_room()`
  void on_allocate(std::uintptr_t block, std::size_t bytes) noexcept {
    if (heard_ && bytes != 0) open(block, bytes);
  }
  /// The newest block has another size and keeps its contents. @param bytes may be 0. @pre `has_room()`
  void on_resize(std::uintptr_t block, std::size_t bytes, std::size_t = 0) noexcept;
  /// What was allocated at `from` and above was freed. A block that reaches below is shorter now.
  void on_free(std::uintptr_t from, std::uintptr_t = 0) noexcept {
    if (!blocks_.empty() && blocks_.back().first + blocks_.back().bytes > from) close(from);
  }

 private:
  struct heap {
    std::uintptr_t first;
    std::uintptr_t last;  // one past it
    listening_tool::heap_id id;
    char const* name;  // of the resource

    [[nodiscard]] std::size_t part_of(std::uintptr_t block, std::size_t bytes) const noexcept;
  };
  struct block_record {
    std::uintptr_t first;
    std::size_t bytes;
  };
  void open(std::uintptr_t first, std::size_t bytes) noexcept;
  void close(std::uintptr_t from) noexcept;
  void resize(block_record& known, std::size_t bytes) noexcept;
  [[nodiscard]] std::vector<heap>::const_iterator first_heap_above(std::uintptr_t address) const noexcept;

  bool heard_ = false;  // a tool has taken a heap: blocks are recorded, also while their memory is away
  std::vector<heap> heaps_;
  std::vector<block_record> blocks_;
};

}  // namespace tidemark::detail
