// SPDX-License-Identifier: Apache-2.0
/// @file
/// `borrowed_memory`: one range of memory that the caller owns.
#pragma once

#include <cstddef>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/frame_table.hpp>

namespace tidemark {

/// An `address_space` over one committed range that stays the caller's: a buffer on the stack, a shared
/// mapping, a block of device memory. It never touches the range, so tests of device code may pass an
/// invented range. The caller keeps the range alive while memory from it is in use.
///
/// ```cpp
/// alignas(64) static std::byte buffer[64 * KiB];
/// borrowed_arena step{borrowed_memory{buffer, sizeof buffer}};
/// ```
/// @tparam HostAccessible true if the host may touch the range. Otherwise blocks start at multiples of 256
/// bytes, as device code expects, and an arena allocates uninitialised memory only.
///
/// Not thread-safe: one thread at a time.
template <bool HostAccessible>
class basic_borrowed_memory : public committed_ranges {
 public:
  static constexpr space_traits traits{.host_accessible = HostAccessible};

  /// Borrows `bytes` bytes from `first` on. Null means no memory.
  basic_borrowed_memory(void* first, std::size_t bytes) noexcept
      : range_{reinterpret_cast<std::uintptr_t>(first), first != nullptr ? bytes : 0} {}
  /// Borrows `range`. The host has no memory at address 0, but an invented device may have.
  explicit basic_borrowed_memory(byte_range range) noexcept
      : range_{HostAccessible && range.begin == 0 ? byte_range{} : range} {}

  /// Returns the whole range on the first call, and again after each release. Returns an empty range if the
  /// range is smaller than `least_bytes`.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t) noexcept {
    if (least_bytes > range_.size) return {};
    return detail::without_stale_frames(std::exchange(range_, {}));
  }
  void release(byte_range range) noexcept { range_ = range; }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return range_.size; }
  [[nodiscard]] std::size_t granularity() const noexcept { return traits.block_alignment; }

 private:
  byte_range range_;  // empty while an arena holds it
};

/// Borrowed memory that the host may touch.
using borrowed_memory = basic_borrowed_memory<true>;
/// Borrowed memory that the host must not touch, such as a block from `cudaMalloc`.
using borrowed_device_memory = basic_borrowed_memory<false>;

static_assert(address_space<borrowed_memory>);
static_assert(address_space<borrowed_device_memory>);

}  // namespace tidemark
