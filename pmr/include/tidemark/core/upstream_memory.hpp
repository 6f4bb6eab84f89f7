// SPDX-License-Identifier: Apache-2.0
/// @file
/// `upstream_memory`: chunks from any `std::pmr::memory_resource`.
///
/// Intended differences of `upstream_arena` from `std::pmr::monotonic_buffer_resource`
/// (`compat::monotonic_buffer_resource` has none):
/// - it is final, and `deallocate` reclaims the newest block, without the padding before it;
/// - records of later chunks lie in the heap, because the memory may be a device's;
/// - a chunk is requested with alignment 16, and is larger if a block needs more alignment;
/// - chunk sizes double, whatever the request; a refused chunk is tried again in half the size;
/// - an impossible request throws `out_of_memory` without a call of the upstream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

/// An `address_space` that takes chunks from an upstream resource, after an optional first buffer.
/// `upstream_arena` replaces `std::pmr::monotonic_buffer_resource` with it: same constructors, `release()`
/// and `upstream_resource()`, plus marks, scopes and reuse.
/// ```cpp
/// std::byte buffer[4096];
/// upstream_arena lines{buffer, sizeof buffer, std::pmr::get_default_resource()};
/// ```
/// `upstream_device_arena` uses device memory that the host must not touch, as of a `device_pool` or RMM. An
/// arena returns chunks, exactly as the upstream returned them, in `trim`, `release` and its destructor. It
/// does not track the work that uses them: the upstream must, or the work must have ended.
///
/// Upstream and buffer must outlive this object. Not thread-safe.
/// @tparam HostAccessible true if the host may touch the memory. Otherwise the upstream must be named, blocks
/// start at multiples of 256 bytes, and an arena allocates uninitialised memory only.
template <bool HostAccessible>
class basic_upstream_memory : public committed_ranges {
 public:
  // As in the standard's resource, the first call is made at first need. Host memory, including a first
  // buffer, is used to the byte.
  static constexpr space_traits traits{.host_accessible = HostAccessible,
                                       .reserves_at_once = false,
                                       .block_granule = HostAccessible ? 1 : 256,
                                       .chunk_growth = 2};
  /// Default size of the first chunk; for a device, the amount that its driver takes from the system at once.
  static constexpr std::size_t min_chunk_bytes = HostAccessible ? 4 * KiB : 2 * MiB;

  /// Chunks from the default resource.
  basic_upstream_memory() noexcept
    requires HostAccessible
      : basic_upstream_memory{std::pmr::get_default_resource()} {}
  /// Chunks from `upstream`.
  explicit basic_upstream_memory(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  /// Chunks from `upstream`, the first of at least `first_bytes`.
  explicit basic_upstream_memory(std::size_t first_bytes, std::pmr::memory_resource* upstream) noexcept
      : upstream_{upstream}, first_bytes_{first_bytes} {}
  /// The same, from the default resource.
  explicit basic_upstream_memory(std::size_t first_bytes) noexcept
    requires HostAccessible
      : basic_upstream_memory{first_bytes, std::pmr::get_default_resource()} {}
  /// Uses `buffer` first, which stays the caller's, then chunks from `upstream`. A null buffer means no
  /// buffer and a first chunk of at least `bytes`.
  basic_upstream_memory(void* buffer, std::size_t bytes, std::pmr::memory_resource* upstream) noexcept
      : upstream_{upstream},
        buffer_{reinterpret_cast<std::uintptr_t>(buffer), buffer != nullptr ? bytes : 0},
        unused_buffer_{buffer_},
        first_bytes_{bytes} {}
  /// Uses `buffer` first, then chunks from the default resource.
  basic_upstream_memory(void* buffer, std::size_t bytes) noexcept
    requires HostAccessible
      : basic_upstream_memory{buffer, bytes, std::pmr::get_default_resource()} {}

  /// Returns the buffer if it is unused and has `least_bytes`; otherwise a chunk of `wanted_bytes` from the
  /// upstream. Halves the size at each `std::bad_alloc`, down to `least_bytes`.
  /// @throws the upstream's exception for `least_bytes`, and every other exception; nothing has changed then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
    if (least_bytes <= room_in(unused_buffer_))
      return detail::without_stale_frames(std::exchange(unused_buffer_, {}));
    return detail::without_stale_frames(detail::allocate_by_halves(
        *upstream_, least_bytes, detail::min_of(wanted_bytes, detail::max_block_bytes), 1,
        traits.block_alignment));
  }
  void release(byte_range range) noexcept {
    if (range == buffer_) {
      unused_buffer_ = buffer_;
    } else {
      upstream_->deallocate(range.data(), range.size, traits.block_alignment);
    }
  }
  /// The constructor's size or the buffer's size, but at least `min_chunk_bytes`.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    return detail::max_of(min_chunk_bytes, detail::max_of(first_bytes_, buffer_.size));
  }
  [[nodiscard]] std::size_t granularity() const noexcept { return traits.block_alignment; }

  /// The resource that chunks come from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }

 private:
  // Bytes in a range after rounding both ends inwards to whole granules.
  static std::size_t room_in(byte_range range) noexcept {
    const std::uintptr_t first = detail::align_up(range.begin, traits.block_granule);
    const std::uintptr_t last = detail::align_down(range.end(), traits.block_granule);
    return first < last ? last - first : 0;
  }

  std::pmr::memory_resource* upstream_;
  byte_range buffer_{};         // the caller's first buffer
  byte_range unused_buffer_{};  // the buffer while no chunk uses it, otherwise empty
  std::size_t first_bytes_ = 0;
};

/// Chunks that the host may touch.
using upstream_memory = basic_upstream_memory<true>;
/// Chunks that the host must not touch, such as those of RMM's resources.
using upstream_device_memory = basic_upstream_memory<false>;

static_assert(address_space<upstream_memory>);
static_assert(address_space<upstream_device_memory>);
static_assert(!std::is_default_constructible_v<upstream_device_memory>, "the default resource is the host's");

}  // namespace tidemark
