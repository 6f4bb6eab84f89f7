// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_marks`: tells tools what of a chunk that the host does not touch is handed out. Owns records only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/config.hpp>
#include <tidemark/detail/listening_tool.hpp>

namespace tidemark::detail {

#if TIDEMARK_NVTX

/// What `withhold` and `hand_out` of sanitizers.hpp are for memory of the host, for memory of a device: who
/// touches it there is seen by a tool, compute-sanitizer, that knows heaps and regions and no bytes.
///
/// Each piece of memory that came at once is a heap, because the tool knows pieces as the driver gave them. A
/// block is a region of each heap that it lies in. Blocks come in ascending order and go from the top, as an
/// arena's do; they are remembered to be found again when memory is taken back, and not in it.
///
/// Invariants: heaps ascend and are disjoint; so do blocks. `blocks.empty()` where no tool has ever taken
/// a heap.
///
/// Complexity: `hand_out` O(log heaps), others O(what they take back). Thread-safety: one thread at a time.
class device_marks {
 public:
  /// Room for one more heap and one more block, so that neither is refused. @return false: there is no
  /// memory.
  [[nodiscard]] bool reserve_heap() noexcept;
  /// Memory came at `[first, last)`, above all that is there but for what a heap has covered since before
  /// it was cut. Blocks that are known to lie in it are told again. @pre `reserve_heap()`, or as many
  /// heaps have been there already.
  void memory_came(std::uintptr_t first, std::uintptr_t last, char const* name) noexcept;
  /// The memory at `from` and above is about to go. A heap that goes on below stays whole, because none
  /// can be cut. Blocks stay known: their memory may come back.
  void memory_goes(std::uintptr_t from) noexcept;

  /// Whether `reserve_block` has nothing to do.
  [[nodiscard]] bool has_room() const noexcept { return !heard_ || blocks_.size() < blocks_.capacity(); }
  /// Room for one more block. @return false: there is no memory.
  [[nodiscard]] bool reserve_block() noexcept;
  /// A block is handed out. @param bytes may be 0. @pre `has_room()`; it lies above all others.
  void hand_out(std::uintptr_t block, std::size_t bytes) noexcept {
    if (heard_ && bytes != 0) note(block, bytes);
  }
  /// The newest block has another size now; what it held it holds. @param bytes may be 0. @pre `has_room()`.
  void resize(std::uintptr_t block, std::size_t bytes) noexcept;
  /// What was handed out at `from` and above was taken back. A block that goes on below is shorter now.
  void take_back(std::uintptr_t from) noexcept {
    if (!blocks_.empty() && blocks_.back().first + blocks_.back().bytes > from) forget(from);
  }

 private:
  struct piece {
    std::uintptr_t first;
    std::uintptr_t last;  // one past it
    listening_tool::heap_id id;
  };
  struct block {
    std::uintptr_t first;
    std::size_t bytes;
  };
  void note(std::uintptr_t first, std::size_t bytes) noexcept;
  void forget(std::uintptr_t from) noexcept;
  void change(block& known, std::size_t bytes) noexcept;
  [[nodiscard]] std::vector<piece>::const_iterator first_heap_above(std::uintptr_t address) const noexcept;

  bool heard_ = false;  // a tool has taken a heap: also while the memory is away blocks are remembered
  std::vector<piece> heaps_;
  std::vector<block> blocks_;
};

#else

/// No tool is told of memory that the host does not touch.
struct device_marks {
  [[nodiscard]] static constexpr bool reserve_heap() noexcept { return true; }
  static constexpr void memory_came(std::uintptr_t, std::uintptr_t, char const*) noexcept {}
  static constexpr void memory_goes(std::uintptr_t) noexcept {}
  [[nodiscard]] static constexpr bool has_room() noexcept { return true; }
  [[nodiscard]] static constexpr bool reserve_block() noexcept { return true; }
  static constexpr void hand_out(std::uintptr_t, std::size_t) noexcept {}
  static constexpr void resize(std::uintptr_t, std::size_t) noexcept {}
  static constexpr void take_back(std::uintptr_t) noexcept {}
};

#endif

}  // namespace tidemark::detail
