// SPDX-License-Identifier: Apache-2.0
/// @file
/// `baked_blocks`: the upstream's blocks whose addresses a capture has seen. Owns those that were
/// deallocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace tidemark {

class capture_switch;

namespace detail {

/// A block that went through a capture switch and that it must know of.
struct switched_block {
  std::size_t bytes = 0;
  std::size_t align = 0;
  bool in_use = true;  // false: deallocated
};
/// By address.
using switched_blocks = std::map<std::uintptr_t, switched_block>;

}  // namespace detail

/// What `capture_switch::unfreeze` returns to the owner of the graph: the upstream's blocks that the switch
/// allocated during the capture, without a graph arena, or that were deallocated in it. The graph has their
/// addresses.
/// As long as this object lives, the upstream gets none of them back, and so cannot reuse them. When it
/// ends, those that were deallocated meanwhile go to the upstream, unless another graph has them too, the
/// others when they are deallocated.
/// On a thread that has frozen the switch they go when that capture ends.
///
/// Move-only; a moved-from object holds nothing. The switch must outlive it. Thread-safety: one thread at a
/// time.
class [[nodiscard]] baked_blocks {
 public:
  /// None. Assignment releases its own first.
  baked_blocks() noexcept = default;

  /// Releases them now. O(blocks).
  void release() noexcept { blocks_.reset(); }
  /// How many there are, in use or deallocated.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  friend capture_switch;
  struct releaser {
    capture_switch* owner;
    void operator()(detail::switched_blocks* blocks) const noexcept;
  };
  baked_blocks(capture_switch& owner, detail::switched_blocks& blocks) noexcept
      : blocks_{&blocks, releaser{&owner}} {}

  std::unique_ptr<detail::switched_blocks, releaser> blocks_;  // in the switch's list
};

}  // namespace tidemark
