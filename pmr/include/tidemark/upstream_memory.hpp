// SPDX-License-Identifier: Apache-2.0
/// @file
/// `upstream_memory`: chunks from any `std::pmr::memory_resource`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>
#include <utility>

#include <tidemark/address_space.hpp>
#include <tidemark/byte_range.hpp>
#include <tidemark/detail/align.hpp>
#include <tidemark/units.hpp>

namespace tidemark {

/// An `address_space` that takes chunks from an upstream resource, after an optional first buffer. With it
/// `upstream_arena` is a drop-in for `std::pmr::monotonic_buffer_resource`: the same constructors,
/// `release()` and `upstream_resource()`, and besides marks, scopes and reuse of what was rewound.
///
/// ```cpp
/// std::byte buffer[4096];
/// upstream_arena lines{buffer, sizeof buffer, std::pmr::get_default_resource()};
/// ```
/// With `upstream_device_arena` the memory is a device's, which the host must not touch: of a `device_pool`,
/// or of RMM. An arena gives chunks back when it is told to and when it ends, and does not know of work that
/// uses them: its upstream does, or such work has ended.
///
/// The upstream gets back exactly the (pointer, bytes, alignment) that it gave. Its exceptions pass through
/// unchanged. Upstream and buffer must outlive this object. One thread at a time.
/// @tparam HostAccessible whether the host may touch the upstream's memory. Where it may not, the upstream is
/// always named, blocks start at multiples of 256 bytes, as device code expects, and an arena hands out
/// uninitialised memory only.
template <bool HostAccessible>
class basic_upstream_memory {
 public:
  static constexpr bool host_accessible = HostAccessible;
  static constexpr bool fresh_is_zero = false;
  static constexpr bool commits = false;
  static constexpr bool reserves_at_once =
      false;  // as the standard's resource: no call before the first need
  static constexpr std::size_t block_alignment = HostAccessible ? 16 : 256;
  static constexpr std::size_t chunk_growth = 2;
  /// The first chunk, where nothing else is said: for a device what its driver takes from the system at once.
  static constexpr std::size_t chunk_bytes_min = HostAccessible ? 4 * KiB : 2 * MiB;

  /// Chunks from the default resource.
  basic_upstream_memory() noexcept
    requires HostAccessible
      : basic_upstream_memory{std::pmr::get_default_resource()} {}
  /// Chunks from `upstream`.
  explicit basic_upstream_memory(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  /// The first chunk of at least `first_bytes`, all from `upstream`.
  explicit basic_upstream_memory(std::size_t first_bytes, std::pmr::memory_resource* upstream) noexcept
      : upstream_{upstream}, first_bytes_{first_bytes} {}
  explicit basic_upstream_memory(std::size_t first_bytes) noexcept
    requires HostAccessible
      : basic_upstream_memory{first_bytes, std::pmr::get_default_resource()} {}
  /// First `buffer`, which stays the caller's, then chunks from `upstream`.
  basic_upstream_memory(void* buffer, std::size_t bytes, std::pmr::memory_resource* upstream) noexcept
      : upstream_{upstream},
        buffer_{reinterpret_cast<std::uintptr_t>(buffer), bytes},
        unused_buffer_{buffer_} {}
  basic_upstream_memory(void* buffer, std::size_t bytes) noexcept
    requires HostAccessible
      : basic_upstream_memory{buffer, bytes, std::pmr::get_default_resource()} {}

  /// The buffer, if it is unused and holds `least_bytes`; else a chunk of `wanted_bytes` from the upstream.
  /// @throws whatever the upstream throws; nothing has changed then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
    if (least_bytes <= aligned_bytes(unused_buffer_)) return std::exchange(unused_buffer_, {});
    const std::size_t bytes = std::max(least_bytes, wanted_bytes);
    void* chunk = upstream_->allocate(bytes, block_alignment);
    return {reinterpret_cast<std::uintptr_t>(chunk), bytes};
  }
  [[nodiscard]] bool commit(byte_range) noexcept { return true; }
  [[nodiscard]] bool decommit(byte_range) noexcept { return false; }
  void release(byte_range range) noexcept {
    if (range == buffer_) {
      unused_buffer_ = buffer_;
    } else {
      upstream_->deallocate(range.data(), range.size, block_alignment);
    }
  }
  /// What the constructor was told, or the size of the buffer; `chunk_bytes_min` at least.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    return std::max({chunk_bytes_min, first_bytes_, buffer_.size});
  }
  [[nodiscard]] std::size_t granularity() const noexcept { return block_alignment; }

  /// The resource that chunks come from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }

 private:
  // What is left of a range when both its ends are rounded inwards to whole blocks.
  static std::size_t aligned_bytes(byte_range range) noexcept {
    const std::uintptr_t first = detail::align_up(range.begin, block_alignment);
    const std::uintptr_t last = detail::align_down(range.end(), block_alignment);
    return first < last ? last - first : 0;
  }

  std::pmr::memory_resource* upstream_;
  byte_range buffer_{};         // the caller's first buffer
  byte_range unused_buffer_{};  // the same while no chunk is made of it, else empty
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
