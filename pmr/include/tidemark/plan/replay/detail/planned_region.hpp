// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_region`: the memory of plans. Owns it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {

/// One range with memory behind its beginning. Thread-safety: one thread at a time.
///
/// `held_bytes <= range.size`, and the base is in the range.
class planned_region {
 public:
  planned_region() = default;
  planned_region(planned_region const&) = delete;
  planned_region& operator=(planned_region const&) = delete;

  /// Commits the first `bytes` bytes. @param movable true if the range may be replaced, because it has no
  /// blocks.
  /// @return true if the bytes are committed. If false, nothing has changed, except that a movable range may
  /// be gone. @throws the exceptions of the address space, with the same state.
  [[nodiscard]] virtual bool commit_front(std::size_t bytes, std::size_t align, bool movable) = 0;
  /// Decommits memory above the first `bytes` bytes if the kind of memory can; all memory if `bytes` is 0.
  virtual void decommit_above(std::size_t bytes) noexcept = 0;
  /// Returns the resource of `upstream_memory`, of which each range is one block. Returns null for other
  /// memory, which may be slow to return (`registered_memory`).
  [[nodiscard]] virtual std::pmr::memory_resource* upstream() const noexcept = 0;
  /// Returns the reason why the address space refused the last range; empty if unknown.
  [[nodiscard]] virtual char const* refusal() const noexcept = 0;
  /// Returns the first address of blocks. @pre Memory is held.
  [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
  /// Returns the bytes of memory from the base on.
  [[nodiscard]] std::size_t committed_bytes() const noexcept {
    return held_bytes_ == 0 ? 0 : held_bytes_ - padding();
  }
  /// Returns all addresses, with and without memory.
  [[nodiscard]] byte_range range() const noexcept { return range_; }

 protected:
  ~planned_region() = default;
  [[nodiscard]] std::size_t padding() const noexcept { return base_ - range_.begin; }

  byte_range range_{};
  std::uintptr_t base_ = 0;     // multiple of the last requested alignment
  std::size_t held_bytes_ = 0;  // bytes of memory from the beginning of the range
};

/// A planned region of an address space.
template <address_space Space>
class region_of final : public planned_region {
 public:
  region_of(Space space, std::size_t reserve_bytes)
      : space_{std::move(space)}, reserve_bytes_{reserve_bytes} {}
  region_of(region_of const&) = delete;
  region_of& operator=(region_of const&) = delete;
  ~region_of() { release(); }

  [[nodiscard]] bool commit_front(std::size_t bytes, std::size_t align, bool movable) override {
    const std::size_t slack =
        align > Space::traits.block_alignment ? align - Space::traits.block_alignment : 0;
    if (bytes > max_request || slack > max_request) return false;
    if (base_ % align != 0 || bytes > range_.end() - base_) {
      if (!movable) return false;
      release();
      const std::size_t wanted =
          Space::traits.commits ? (std::max)(reserve_bytes_, space_.chunk_bytes()) : reserve_bytes_;
      range_ = space_.reserve(bytes + slack, (std::max)(wanted, bytes + slack));
      if (range_.empty()) return false;
      base_ = align_up(range_.begin, align);
      if constexpr (!Space::traits.commits) grow(range_.size);
    }
    const std::size_t target = (std::min)(align_up(padding() + bytes, space_.granularity()), range_.size);
    if (target <= held_bytes_) return true;
    const byte_range part{range_.begin + held_bytes_, target - held_bytes_};
    const std::size_t committed = space_.commit(part, part.size);
    if (committed == 0) return false;
    grow((std::min)(held_bytes_ + committed, range_.size));
    return true;
  }

  void decommit_above(std::size_t bytes) noexcept override {
    if constexpr (Space::traits.commits) {
      const std::size_t target = bytes == 0 ? 0 : align_up(padding() + bytes, space_.granularity());
      if (target >= held_bytes_) return;
      const byte_range removed{range_.begin + target, held_bytes_ - target};
      if constexpr (Space::traits.host_accessible)
        detail::unpoison(removed.begin, removed.size);  // the address space may write to the removed memory
      if (space_.decommit(removed)) held_bytes_ = target;
      else if constexpr (Space::traits.host_accessible) poison(removed.begin, removed.size);
    } else if (bytes == 0) {
      release();
    }
  }

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept override {
    if constexpr (std::same_as<Space, upstream_memory> || std::same_as<Space, upstream_device_memory>)
      return space_.upstream_resource();
    else return nullptr;
  }
  [[nodiscard]] char const* refusal() const noexcept override { return refusal_of(space_); }

  [[nodiscard]] Space const& space() const noexcept { return space_; }

 private:
  static constexpr std::size_t max_request = std::size_t{1} << 62;

  void grow(std::size_t held_bytes) noexcept {
    if constexpr (Space::traits.host_accessible) poison(range_.begin + held_bytes_, held_bytes - held_bytes_);
    held_bytes_ = held_bytes;
  }
  void release() noexcept {
    if (range_.empty()) return;
    if constexpr (Space::traits.host_accessible) detail::unpoison(range_.begin, held_bytes_);
    space_.release(range_);
    range_ = {};
    base_ = held_bytes_ = 0;
  }

  Space space_;
  std::size_t reserve_bytes_;
};

}  // namespace tidemark::detail
