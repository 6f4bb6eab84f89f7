// SPDX-License-Identifier: Apache-2.0
/// @file
/// `address_space`, `ordered_space`, `reporting_space`: concepts for the memory sources of arenas; and
/// reservations that shrink when refused.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/config.hpp>
#include <tidemark/core/detail/align.hpp>

namespace tidemark {

/// Constants that distinguish address spaces. Sizes are in bytes; alignments are powers of two.
struct space_traits {
  bool host_accessible = true;                ///< the host may touch the memory
  bool device_accessible = !host_accessible;  ///< work on a device may touch the memory
  bool fresh_is_zero = false;                 ///< bytes read as zero after a commit
  bool commits = false;                       ///< false: a reserved range is already committed
  bool reserves_at_once = true;               ///< an arena reserves its first range at construction
  bool seen_by_others = false;                ///< other processes may read freed memory
  bool has_stream = false;                    ///< an `ordered_space` with `stream()`
  bool suspends = false;                      ///< an `ordered_space` with `suspend()`
  std::size_t block_alignment = host_accessible ? 16 : 256;  ///< default alignment of blocks
  std::size_t block_granule = block_alignment;               ///< blocks begin and end at multiples of it
  std::size_t chunk_growth = 1;                              ///< size ratio of a chunk to its predecessor
  /// Maximum bytes that an arena commits beyond its need. Limit it if commits are slow.
  std::size_t max_commit_ahead_bytes = (std::numeric_limits<std::size_t>::max)();
};

namespace detail {
constexpr bool are_valid(space_traits const& traits) noexcept {
  return std::has_single_bit(traits.block_alignment) && std::has_single_bit(traits.block_granule) &&
         traits.block_granule <= traits.block_alignment && traits.chunk_growth >= 1 &&
         (traits.host_accessible || traits.device_accessible) && !(traits.host_accessible && traits.suspends);
}
}  // namespace detail

/// A source of memory for arenas: reserves addresses, commits memory behind them, and takes both back.
/// docs/address_spaces.md documents each call. Not thread-safe: one thread at a time, as the arena.
template <class S>
concept address_space = std::movable<S> && requires(S& space, byte_range range, std::size_t bytes) {
  requires std::same_as<decltype(S::traits), space_traits const>;
  requires detail::are_valid(S::traits);
  { space.reserve(bytes, bytes) } -> std::same_as<byte_range>;
  { space.commit(range, bytes) } noexcept -> std::same_as<std::size_t>;
  { space.decommit(range) } noexcept -> std::same_as<bool>;
  { space.release(range) } noexcept;
  { space.chunk_bytes() } noexcept -> std::same_as<std::size_t>;
  { space.granularity() } noexcept -> std::same_as<std::size_t>;
};

/// An address space whose memory is reused only after earlier work on it, such as the work of a stream. Has
/// `wait_before_reuse`, and `stream`, `suspend` and `resume` if its traits say so.
template <class S>
concept ordered_space =
    address_space<S> &&
    requires(S& space, typename S::event_type event) { space.wait_before_reuse(event); } &&
    (!S::traits.has_stream || requires(S const& space) { space.stream(); }) &&
    (!S::traits.suspends || requires(S& space, S const& read) {
      space.suspend();
      space.resume();
      { read.can_suspend() } noexcept -> std::same_as<bool>;
      { read.is_suspended() } noexcept -> std::same_as<bool>;
    });

/// An address space that reports the cause of a refusal.
template <class S>
concept reporting_space = address_space<S> && requires(S const& space) {
  { space.refusal() } noexcept -> std::convertible_to<char const*>;
};

/// Base of an address space whose ranges are committed at reservation.
struct committed_ranges {
  /// Returns the size of the whole part, which is already committed.
  [[nodiscard]] std::size_t commit(byte_range part, std::size_t = 0) noexcept { return part.size; }
  /// Returns false, because memory is returned with its range only.
  [[nodiscard]] bool decommit(byte_range) noexcept { return false; }
};

namespace detail {

/// Takes `wanted` units; on refusal halves the number each time, down to `needed`.
///
/// @param needed smallest useful number of units; a unit is a byte, or a block of the caller
/// @param wanted number of units to try first; at least `needed` are tried
/// @param take called with a number of units; returns a range, or an empty range on refusal
/// @param share called once, after the first refusal; returns the maximum units of later attempts. The
/// attempt with `needed` units has no maximum
/// @return the last result of `take`. @throws the exception of `take`. O(log(wanted / needed)) calls
template <class Take, class Share>
[[nodiscard]] byte_range reserve_by_halves(std::size_t needed, std::size_t wanted, Take take, Share share) {
  std::size_t units = max_of(needed, wanted);
  byte_range range = take(units);
  if (!range.empty() || units == needed) return range;
  const std::size_t most = share();
  while (range.empty() && units != needed) {
    units = max_of(needed, units / 2);
    if (units <= most || units == needed) range = take(units);
  }
  return range;
}
template <class Take>
[[nodiscard]] byte_range reserve_by_halves(std::size_t needed, std::size_t wanted, Take take) {
  return reserve_by_halves(needed, wanted, take, [] { return (std::numeric_limits<std::size_t>::max)(); });
}

/// Commits a part; if refused, commits its first `least_bytes`. `take` commits exactly one range.
/// @return bytes committed; 0 without memory
template <class Take>
[[nodiscard]] std::size_t commit_at_least(byte_range part, std::size_t least_bytes, Take take) noexcept {
  if (take(part)) return part.size;
  return least_bytes < part.size && take(byte_range{part.begin, least_bytes}) ? least_bytes : 0;
}

/// The kind of call that an address space refused: `reserve` or `commit`.
enum class space_refusal { none, addresses, memory };

/// The space's reason for a refusal; empty if unknown. The text lives as long as the space.
template <address_space S>
[[nodiscard]] char const* refusal_of(S const& space) noexcept {
  if constexpr (reporting_space<S>) return space.refusal();
  else return "";
}

}  // namespace detail
}  // namespace tidemark

namespace tidemark::detail {

/// `reserve_by_halves` from an upstream: `unit_bytes` bytes per unit, plus `extra_bytes`. A `std::bad_alloc`
/// for more than `needed` units counts as a refusal, and a smaller size is tried.
/// @throws the upstream's exception for `needed`, and every other exception
[[nodiscard]] inline byte_range allocate_by_halves(std::pmr::memory_resource& upstream, std::size_t needed,
                                                   std::size_t wanted, std::size_t unit_bytes,
                                                   std::size_t align, std::size_t extra_bytes = 0) {
  const auto take = [&](std::size_t units) -> byte_range {
    const std::size_t bytes = units * unit_bytes + extra_bytes;
    if (units == needed) return {reinterpret_cast<std::uintptr_t>(upstream.allocate(bytes, align)), bytes};
    try {
      return {reinterpret_cast<std::uintptr_t>(upstream.allocate(bytes, align)), bytes};
    } catch (std::bad_alloc const&) {
      return {};
    }
  };
  return reserve_by_halves(needed, wanted, take);
}

}  // namespace tidemark::detail
