// SPDX-License-Identifier: Apache-2.0
/// @file
/// `baked_blocks`: upstream blocks whose addresses a capture has seen. Owns the blocks that were deallocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

namespace tidemark {

class capture_switch;

namespace detail {

/// An upstream block that a capture switch holds back.
struct switched_block {
  std::size_t bytes = 0;
  std::size_t align = 0;
  bool in_use = true;       // false once deallocated
  std::size_t holders = 0;  // sets of addresses that contain the block
};
/// Blocks by address.
using switched_blocks = std::map<std::uintptr_t, switched_block>;
/// Addresses of the blocks of a capture or a graph.
using switched_addresses = std::set<std::uintptr_t>;

}  // namespace detail

/// The upstream blocks whose addresses a graph contains, returned by `capture_switch::unfreeze` to the owner
/// of the graph. The switch allocated these blocks during the capture without a graph arena, or they were
/// deallocated during the capture.
///
/// The upstream gets none of these blocks back while this object lives, and so cannot reuse them. At the end
/// of this object, blocks deallocated meanwhile are returned, unless another graph has them too. The other
/// blocks are returned when they are deallocated. On a thread that has frozen the switch, the return waits
/// for the end of the capture.
///
/// Move-only; a moved-from object is empty. The switch must outlive the object. Thread-safety: one thread at
/// a time.
class [[nodiscard]] baked_blocks {
 public:
  /// Creates an empty set. Assignment first releases the blocks of the target.
  baked_blocks() noexcept = default;

  /// Releases the blocks now. O(blocks).
  void release() noexcept { blocks_.reset(); }
  /// Number of blocks, in use or deallocated.
  [[nodiscard]] std::size_t size() const noexcept { return blocks_ != nullptr ? blocks_->size() : 0; }

 private:
  friend capture_switch;
  struct releaser {
    capture_switch* owner;
    void operator()(detail::switched_addresses* blocks) const noexcept;
  };
  baked_blocks(capture_switch& owner, std::unique_ptr<detail::switched_addresses> blocks) noexcept
      : blocks_{blocks.release(), releaser{&owner}} {}

  std::unique_ptr<detail::switched_addresses, releaser> blocks_;
};

}  // namespace tidemark
