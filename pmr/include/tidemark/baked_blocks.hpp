// SPDX-License-Identifier: Apache-2.0
/// @file
/// `baked_blocks`: the upstream's blocks whose addresses a capture has seen. Owns those that were given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace tidemark {

class capture_switch;

namespace detail {

/// A block that went through a capture switch and that it must know of.
struct switched_block {
  std::size_t bytes = 0;
  std::size_t align = 0;
  bool in_use = true;  // false: given back to the switch
};
/// By address.
using switched_blocks = std::map<std::uintptr_t, switched_block>;

}  // namespace detail

/// What `capture_switch::unfreeze` leaves to whoever owns the graph: the blocks that the switch took of its
/// upstream during the capture, for want of a graph arena. The graph has their addresses. As long as this
/// object lives, the upstream gets none of them back, and so can hand out none of them; when it ends, it gets
/// those that were given back meanwhile, and the others when their users are done with them. On a thread that
/// has frozen the switch it gets them when that capture ends.
///
/// Move-only; a moved-from object holds nothing. The switch must outlive it. Thread-safety: one thread at a
/// time.
class [[nodiscard]] baked_blocks {
 public:
  baked_blocks() noexcept = default;
  baked_blocks(baked_blocks&& other) noexcept
      : switch_{std::exchange(other.switch_, nullptr)}, blocks_{std::exchange(other.blocks_, nullptr)} {}
  /// Lets go of its own first.
  baked_blocks& operator=(baked_blocks&& other) noexcept {
    if (this != &other) {
      release();
      switch_ = std::exchange(other.switch_, nullptr);
      blocks_ = std::exchange(other.blocks_, nullptr);
    }
    return *this;
  }
  ~baked_blocks() { release(); }

  /// Lets go now. O(blocks).
  void release() noexcept;
  /// How many there are, in use or given back.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  friend capture_switch;
  baked_blocks(capture_switch& owner, detail::switched_blocks& blocks) noexcept
      : switch_{&owner}, blocks_{&blocks} {}

  capture_switch* switch_ = nullptr;
  detail::switched_blocks* blocks_ = nullptr;  // in the switch's list
};

}  // namespace tidemark
