// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_marks`: reports to tools which bytes of a chunk are allocated, for memory that the host does not
/// touch. Owns its records only. Defined if `TIDEMARK_NVTX` is on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/diagnose/detail/listening_tool.hpp>

namespace tidemark::detail {

/// Poisoning for device memory: compute-sanitizer detects bad accesses there. The tool knows heaps and
/// regions, not bytes.
///
/// Each range committed at once is a heap, because the tool knows ranges as the driver returned them. A block
/// is a region of each heap that it overlaps. Blocks are allocated in ascending order and freed from the top,
/// as in an arena. They are recorded beside the memory, to be found when they are freed.
///
/// Unnamed last parameters exist for `byte_marks`, which has the same functions.
///
/// Invariants: heaps ascend and are disjoint; so do blocks. `blocks.empty()` until a tool accepts a heap.
///
/// Complexity: `on_allocate` O(log heaps), others O(regions they free). Not thread-safe: one thread at a
/// time.
class device_marks {
 public:
  /// Reserves room for one more heap and one more block. @return false if out of memory
  [[nodiscard]] bool reserve() noexcept;
  /// True if one more block can be recorded without `reserve`.
  [[nodiscard]] bool has_room() const noexcept { return !heard_ || blocks_.size() < blocks_.capacity(); }

  /// Records a commit of `[first, last)` above all other heaps, except parts that an earlier heap still
  /// covers. Reopens known blocks in the range. @pre `reserve()`, or at least as many heaps before
  void on_commit(std::uintptr_t first, std::uintptr_t last, char const* name) noexcept;
  /// Reports that the memory at or above `from` is about to be freed. A heap that begins below stays whole,
  /// because heaps cannot be cut. Blocks stay known, because their memory may come back.
  void on_decommit(std::uintptr_t from, std::uintptr_t = 0) noexcept;
  /// Records a block above all others. @param bytes may be 0. @pre `has_room()`
  void on_allocate(std::uintptr_t block, std::size_t bytes) noexcept {
    if (heard_ && bytes != 0) open(block, bytes);
  }
  /// Changes the size of the newest block, which keeps its contents. @param bytes may be 0. @pre `has_room()`
  void on_resize(std::uintptr_t block, std::size_t bytes, std::size_t = 0) noexcept;
  /// Frees everything allocated at or above `from`. A block that extends below `from` is shortened.
  void on_free(std::uintptr_t from, std::uintptr_t = 0) noexcept {
    if (!blocks_.empty() && blocks_.back().first + blocks_.back().bytes > from) close(from);
  }

 private:
  struct heap {
    std::uintptr_t first;
    std::uintptr_t last;  // one past the last byte
    listening_tool::heap_id id;
    char const* name;  // name of the resource

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

  bool heard_ = false;  // a tool has accepted a heap; blocks are recorded even while decommitted
  std::vector<heap> heaps_;
  std::vector<block_record> blocks_;
};

}  // namespace tidemark::detail
