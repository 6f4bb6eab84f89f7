// SPDX-License-Identifier: Apache-2.0
/// @file
/// `upstream_memory`: chunks from any `std::pmr::memory_resource`, and the gaps that alignments leave there.
#pragma once

#include <algorithm>
#include <array>
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

/// An `address_space` that takes chunks from an upstream resource, after an optional first buffer. With it
/// `upstream_arena` takes the place of `std::pmr::monotonic_buffer_resource`: the same constructors,
/// `release()` and `upstream_resource()`, and besides marks, scopes and reuse of what was rewound.
///
/// On purpose it differs from the standard's class, which `compat::monotonic_buffer_resource` is: it is
/// final; `deallocate` reclaims the newest block; records of chunks after the first lie in the heap and not
/// in the chunks, since memory may be a device's; a chunk is requested with the alignment of 16 always, and
/// larger by what a block aligned to more needs; sizes of chunks double from one to the next, however large a
/// request made one, and a chunk that the upstream refuses is tried in half the size; a request that no
/// memory has room for throws `out_of_memory` without asking the upstream.
///
/// ```cpp
/// std::byte buffer[4096];
/// upstream_arena lines{buffer, sizeof buffer, std::pmr::get_default_resource()};
/// ```
/// With `upstream_device_arena` the memory is a device's, which the host must not touch: of a `device_pool`,
/// or of RMM. An arena returns chunks in `trim`, in `release` and at its end, and does not know of work that
/// uses them: its upstream does, or such work has ended.
///
/// The upstream gets back exactly the (pointer, bytes, alignment) that it gave. Its exceptions pass through
/// unchanged. Upstream and buffer must outlive this object. One thread at a time.
/// @tparam HostAccessible whether the host may touch the upstream's memory. Where it may not, the upstream is
/// always named, blocks start at multiples of 256 bytes, as device code expects, and an arena allocates
/// uninitialised memory only.
template <bool HostAccessible>
class basic_upstream_memory : public committed_ranges {
 public:
  // As the standard's resource: no call before the first need. The host's memory, and with it a first buffer,
  // is used to the byte.
  static constexpr space_traits traits{.host_accessible = HostAccessible,
                                       .reserves_at_once = false,
                                       .block_granule = HostAccessible ? 1 : 256,
                                       .chunk_growth = 2};
  /// The first chunk, where nothing else is said: for a device what its driver takes from the system at once.
  static constexpr std::size_t min_chunk_bytes = HostAccessible ? 4 * KiB : 2 * MiB;

  /// Chunks from the default resource.
  basic_upstream_memory() noexcept
    requires HostAccessible
      : basic_upstream_memory{std::pmr::get_default_resource()} {}
  /// Chunks from `upstream`.
  explicit basic_upstream_memory(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  /// The first chunk of at least `first_bytes`, all from `upstream`.
  explicit basic_upstream_memory(std::size_t first_bytes, std::pmr::memory_resource* upstream) noexcept
      : upstream_{upstream}, first_bytes_{first_bytes} {}
  /// The same, from the default resource.
  explicit basic_upstream_memory(std::size_t first_bytes) noexcept
    requires HostAccessible
      : basic_upstream_memory{first_bytes, std::pmr::get_default_resource()} {}
  /// First `buffer`, which stays the caller's, then chunks from `upstream`. Null: no buffer, and a first
  /// chunk of at least `bytes`.
  basic_upstream_memory(void* buffer, std::size_t bytes, std::pmr::memory_resource* upstream) noexcept
      : upstream_{upstream},
        buffer_{reinterpret_cast<std::uintptr_t>(buffer), buffer != nullptr ? bytes : 0},
        unused_buffer_{buffer_},
        first_bytes_{bytes} {}
  /// First `buffer`, then chunks from the default resource.
  basic_upstream_memory(void* buffer, std::size_t bytes) noexcept
    requires HostAccessible
      : basic_upstream_memory{buffer, bytes, std::pmr::get_default_resource()} {}

  /// The buffer, if it is unused and holds `least_bytes`; else a chunk of `wanted_bytes` from the upstream
  /// or, if that throws `std::bad_alloc`, of half as much each time, down to `least_bytes`.
  /// @throws whatever the upstream throws for `least_bytes`, and every other exception; nothing has changed
  /// then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
    if (least_bytes <= room_in(unused_buffer_))
      return detail::without_stale_frames(std::exchange(unused_buffer_, {}));
    return detail::without_stale_frames(
        detail::allocate_by_halves(*upstream_, least_bytes, (std::min)(wanted_bytes, detail::max_block_bytes),
                                   1, traits.block_alignment));
  }
  void release(byte_range range) noexcept {
    if (range == buffer_) {
      unused_buffer_ = buffer_;
    } else {
      upstream_->deallocate(range.data(), range.size, traits.block_alignment);
    }
  }
  /// The constructor's argument, or the size of the buffer; `min_chunk_bytes` at least.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    return (std::max)({min_chunk_bytes, first_bytes_, buffer_.size});
  }
  [[nodiscard]] std::size_t granularity() const noexcept { return traits.block_alignment; }

  /// The resource that chunks come from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }

 private:
  // Bytes of a range when both its ends are rounded inwards, to whole granules.
  static std::size_t room_in(byte_range range) noexcept {
    const std::uintptr_t first = detail::align_up(range.begin, traits.block_granule);
    const std::uintptr_t last = detail::align_down(range.end(), traits.block_granule);
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

namespace tidemark::detail {

/// The newest blocks of a chunk that their alignment moved away from the block before, so that freeing one
/// makes the block before the newest again. `max_gaps` of them are known; older ones are forgotten, and
/// the bytes in front of those come back with the next rewind.
///
/// Invariant: `block` rises from gap to gap, and the newest is below the arena's cursor. One thread at a
/// time. Arenas whose blocks all begin and end at multiples of one alignment have no gaps to speak of.
class alignment_gaps {
 public:
  static constexpr std::size_t max_gaps = 16;

  /// A block was allocated at `block`, and the one before ended at `end`.
  void add(std::uintptr_t block, std::uintptr_t end) noexcept {
    if (block == end) return;
    gaps_[next_++ % max_gaps] = {block, end};
    count_ = (std::min)(count_ + 1, max_gaps);
  }
  /// Forgets the blocks at `cursor` and above.
  void forget(std::uintptr_t cursor) noexcept {
    for (; count_ > 0 && newest().block >= cursor; --count_) --next_;
  }
  void clear() noexcept { count_ = 0; }
  /// Where the block before `block` ended, if that is known; else `block`.
  [[nodiscard]] std::uintptr_t end_before(std::uintptr_t block) const noexcept {
    return count_ > 0 && newest().block == block ? newest().end : block;
  }

 private:
  struct gap {
    std::uintptr_t block, end;
  };
  [[nodiscard]] gap const& newest() const noexcept { return gaps_[(next_ - 1) % max_gaps]; }

  std::array<gap, max_gaps> gaps_;  // in turn
  std::size_t next_ = 0;            // of the next gap; wraps
  std::size_t count_ = 0;           // that are known
};

/// The same for arenas that have none.
struct no_alignment_gaps {
  static void add(std::uintptr_t, std::uintptr_t) noexcept {}
  static void forget(std::uintptr_t) noexcept {}
  static void clear() noexcept {}
  [[nodiscard]] static std::uintptr_t end_before(std::uintptr_t block) noexcept { return block; }
};

}  // namespace tidemark::detail
