// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_region`: the memory that plans are laid in. Owns it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tidemark/address_space.hpp>
#include <tidemark/byte_range.hpp>
#include <tidemark/detail/align.hpp>
#include <tidemark/detail/sanitizers.hpp>

namespace tidemark::detail {

/// One range, with memory behind its beginning. One thread at a time.
///
/// `committed_bytes <= reserved_bytes`
class planned_region {
 public:
  planned_region() = default;
  planned_region(planned_region const&) = delete;
  planned_region& operator=(planned_region const&) = delete;

  /// Puts memory behind the first `bytes` bytes. @param movable whether the range may be replaced for that:
  /// then nobody uses it. @return whether it is there; if not, nothing has changed, but that a range that is
  /// movable may be gone. @throws what the address space throws, likewise.
  [[nodiscard]] virtual bool hold(std::size_t bytes, std::size_t align, bool movable) = 0;
  /// Gives memory above the first `bytes` bytes back, where the kind of memory can; all, where that is 0.
  virtual void keep_only(std::size_t bytes) noexcept = 0;
  /// Where it begins. @pre something is held
  [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
  [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_bytes_; }
  [[nodiscard]] virtual std::size_t reserved_bytes() const noexcept = 0;
  /// Whether an address lies in the range, with memory behind it or not.
  [[nodiscard]] virtual bool reserves(std::uintptr_t address) const noexcept = 0;
  [[nodiscard]] virtual bool host_accessible() const noexcept = 0;

 protected:
  ~planned_region() = default;

  std::uintptr_t base_ = 0;          // a multiple of the alignment that was asked for last
  std::size_t committed_bytes_ = 0;  // from the base
};

/// The same of an address space.
template <address_space Space>
class region_of final : public planned_region {
 public:
  region_of(Space space, std::size_t reserve_bytes)
      : space_{std::move(space)}, reserve_bytes_{reserve_bytes} {}
  region_of(region_of const&) = delete;
  region_of& operator=(region_of const&) = delete;
  ~region_of() { let_go(); }

  [[nodiscard]] bool hold(std::size_t bytes, std::size_t align, bool movable) override {
    const std::size_t slack = align > Space::block_alignment ? align - Space::block_alignment : 0;
    if (bytes > request_max || slack > request_max) return false;
    if (base_ % align != 0 || bytes > range_.end() - base_) {
      if (!movable) return false;
      let_go();
      const std::size_t wanted =
          Space::commits ? std::max(reserve_bytes_, space_.chunk_bytes()) : reserve_bytes_;
      range_ = space_.reserve(bytes + slack, std::max(wanted, bytes + slack));
      if (range_.empty()) return false;
      base_ = align_up(range_.begin, align);
      if constexpr (!Space::commits) came(range_.end() - base_);
    }
    if (bytes <= committed_bytes_) return true;
    // From the beginning of the range, which is a multiple of the granularity where the base need not be one.
    const std::size_t padding = base_ - range_.begin;
    const std::size_t held = committed_bytes_ == 0 ? 0 : committed_bytes_ + padding;
    const std::size_t target = std::min(align_up(bytes + padding, space_.granularity()), range_.size);
    if (!space_.commit({range_.begin + held, target - held})) return false;
    came(target - padding);
    return true;
  }

  void keep_only(std::size_t bytes) noexcept override {
    if constexpr (Space::commits) {
      const std::size_t padding = base_ - range_.begin;
      const std::size_t target = bytes == 0 ? 0 : align_up(bytes + padding, space_.granularity());
      if (committed_bytes_ == 0 || target >= committed_bytes_ + padding) return;
      const std::uintptr_t first = range_.begin + target;
      const std::size_t goes = committed_bytes_ + padding - target;
      if constexpr (Space::host_accessible)
        detail::hand_out(first, goes);  // who takes memory back may touch it
      if (space_.decommit({first, goes})) {
        committed_bytes_ = target == 0 ? 0 : target - padding;
      } else if constexpr (Space::host_accessible) {
        withhold(first, goes);
      }
    } else if (bytes == 0) {
      let_go();
    }
  }

  [[nodiscard]] std::size_t reserved_bytes() const noexcept override { return range_.size; }
  [[nodiscard]] bool reserves(std::uintptr_t address) const noexcept override {
    return address - range_.begin < range_.size;
  }
  [[nodiscard]] bool host_accessible() const noexcept override { return Space::host_accessible; }
  [[nodiscard]] Space const& space() const noexcept { return space_; }

 private:
  static constexpr std::size_t request_max = std::size_t{1} << 62;

  void came(std::size_t committed_bytes) noexcept {
    if constexpr (Space::host_accessible)
      withhold(base_ + committed_bytes_, committed_bytes - committed_bytes_);
    committed_bytes_ = committed_bytes;
  }
  void let_go() noexcept {
    if (range_.empty()) return;
    if constexpr (Space::host_accessible) detail::hand_out(base_, committed_bytes_);
    space_.release(range_);
    range_ = {};
    base_ = committed_bytes_ = 0;
  }

  Space space_;
  std::size_t reserve_bytes_;
  byte_range range_{};
};

}  // namespace tidemark::detail
