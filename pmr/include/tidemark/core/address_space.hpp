// SPDX-License-Identifier: Apache-2.0
/// @file
/// `address_space`: the concept of where an arena's memory comes from.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>

#include <tidemark/core/byte_range.hpp>

namespace tidemark {

/// A source of memory for `basic_arena`: reserve addresses, commit memory behind them, return both.
///
/// | call | meaning |
/// |---|---|
/// | `reserve(least, wanted)` | a range of `wanted` bytes or, if refused, smaller ones down to `least`; may throw |
/// | `commit(part)` | puts memory behind a part; false, and nothing changed, without memory |
/// | `decommit(part)` | returns the memory behind a part, keeps the addresses; false if it cannot |
/// | `release(range)` | returns a whole range, exactly as `reserve` returned it |
/// | `chunk_bytes()` | bytes in an arena's first chunk where its options do not say |
/// | `granularity()` | bytes that commit and decommit work in: a power of two, always the same |
///
/// | constant | meaning |
/// |---|---|
/// | `host_accessible` | the host may touch the memory |
/// | `fresh_is_zero` | bytes read as zero the first time after they were committed |
/// | `commits` | false: reserved memory is there at once, and `commit`/`decommit` are never called |
/// | `reserves_at_once` | an arena reserves its first chunk in its constructor, not at the first allocation |
/// | `block_alignment` | every block starts at a multiple of this power of two |
/// | `chunk_growth` | each further chunk is so many times as large as the one before |
///
/// A space may also have a constant `block_granule`, where an arena's blocks need not be aligned to
/// `block_alignment` unless that is requested, but begin and end at multiples of the granule; and a call
/// `take_buffer(bytes, align)`, which comes first for a range with room for such a block. Where commits are
/// slow, a constant `max_commit_ahead_bytes` limits how much more than it needs an arena commits at once, and
/// a call `commit_some(part, least)` commits the part or, without memory for it, its first bytes: it returns
/// how many, at least `least`, or 0 with nothing changed. A space that frees at its end what was not released
/// has a call `abandon(range)`: that range stays allocated until the process ends.
///
/// A constant `seen_by_others` says that other processes may read memory after the arena has freed it: level
/// 2 does not overwrite it then.
///
/// A space that has `suspend` may have `can_suspend()`: if that is false, `suspend` throws and changes nothing,
/// and the arena reports nothing to tools before the call.
///
/// Memory that the host may not touch is a device's; memory that both may is of a class that says
/// `device_accessible = true`. An arena on memory for one stream has a `stream()` if its space has.
///
/// Thread-safety: as the arena that holds it: one thread at a time.
template <class S>
concept address_space = std::movable<S> && requires(S& space, byte_range range, std::size_t bytes) {
  { space.reserve(bytes, bytes) } -> std::same_as<byte_range>;
  { space.commit(range) } noexcept -> std::same_as<bool>;
  { space.decommit(range) } noexcept -> std::same_as<bool>;
  { space.release(range) } noexcept;
  { space.chunk_bytes() } noexcept -> std::same_as<std::size_t>;
  { space.granularity() } noexcept -> std::same_as<std::size_t>;
  { S::host_accessible } -> std::convertible_to<bool>;
  { S::fresh_is_zero } -> std::convertible_to<bool>;
  { S::commits } -> std::convertible_to<bool>;
  { S::reserves_at_once } -> std::convertible_to<bool>;
  { S::block_alignment } -> std::convertible_to<std::size_t>;
  { S::chunk_growth } -> std::convertible_to<std::size_t>;
};

namespace detail {

/// Takes `wanted` units or, if they are refused, half as many each time, down to `needed`.
///
/// @param needed units of which fewer are of no use; a unit is a byte, or a block of the caller
/// @param wanted units tried first; `needed` if that is more
/// @param take called with a number of units: a range, or an empty one if that many are refused
/// @param share called once, after the first refusal: the most units to try from then on, except `needed`
/// @return what `take` returned last. @throws what `take` throws. O(log(wanted / needed)) calls
template <class Take, class Share>
[[nodiscard]] byte_range reserve_by_halves(std::size_t needed, std::size_t wanted, Take take, Share share) {
  std::size_t units = (std::max)(needed, wanted);
  byte_range range = take(units);
  if (!range.empty() || units == needed) return range;
  const std::size_t most = share();
  while (range.empty() && units != needed) {
    units = (std::max)(needed, units / 2);
    if (units <= most || units == needed) range = take(units);
  }
  return range;
}
template <class Take>
[[nodiscard]] byte_range reserve_by_halves(std::size_t needed, std::size_t wanted, Take take) {
  return reserve_by_halves(needed, wanted, take, [] { return (std::numeric_limits<std::size_t>::max)(); });
}

}  // namespace detail
}  // namespace tidemark
