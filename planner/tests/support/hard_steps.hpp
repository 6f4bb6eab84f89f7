// SPDX-License-Identifier: Apache-2.0
/// @file Generates hard steps like those that compilers for accelerators give to MiniMalloc: 150 to 500
/// buffers of some KiB. The buffers live in nested or overlapping phases, and the memory is exactly the
/// largest live sum. Each step is made by cutting a rectangle of time and addresses into buffers, whose
/// offsets are then dropped. For tests and benchmarks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/plan/make_plan.hpp>

namespace tidemark::test {

/// The way to cut the rectangle.
enum class step_shape : std::uint8_t {
  nested,      ///< into bands of addresses and phases in turn: each phase lies within another
  overlapping  ///< along time: adjacent buffers die together, and others are born in their place
};

struct hard_step_options {
  step_shape shape = step_shape::nested;
  std::size_t buffers = 200;  ///< approximate
  bool has_gaps = false;      ///< drops one in ten buffers, so that some memory is never used
  std::uint64_t seed = 0;
  std::size_t units = 1024;      ///< KiB live at once; a large number makes equal sums of sizes rare
  std::uint64_t moments = 4096;  ///< a large number makes cuts at one moment rare
};

/// A hard step of 1,024 units fits into this many bytes, which is also its largest live sum.
inline constexpr std::size_t hard_step_capacity = 1 * MiB;

namespace hard_step_detail {

/// Random numbers that are the same with every standard library, unlike the standard distributions.
class dice {
 public:
  explicit dice(std::uint64_t seed) : random_{seed} {}
  /// Returns a number in [low, high].
  std::size_t between(std::size_t low, std::size_t high) { return low + random_() % (high - low + 1); }
  bool one_in(std::size_t n) { return random_() % n == 0; }

 private:
  std::mt19937_64 random_;
};

/// A buffer with a known offset. Sizes are in KiB.
using placed = lifetime;

/// Cuts a rectangle into `count` buffers, recursively into two bands or two phases.
inline void cut_nested(dice& random, placed whole, std::size_t count, std::vector<placed>& into) {
  const std::uint64_t length = whole.upper - whole.lower;
  const bool can_cut_time = length > 1, can_cut_size = whole.size > 1;
  if (count < 2 || (!can_cut_time && !can_cut_size)) {
    into.push_back(whole);
    return;
  }
  placed first = whole, second = whole;
  double first_part = 0;
  if (can_cut_time && (!can_cut_size || random.one_in(2))) {
    first.upper = second.lower = whole.lower + random.between(1, length - 1);
    first_part = static_cast<double>(first.upper - first.lower) / static_cast<double>(length);
  } else {
    first.size = random.between(1, whole.size - 1);
    second.size -= first.size;
    second.offset = *whole.offset + first.size;
    first_part = static_cast<double>(first.size) / static_cast<double>(whole.size);
  }
  const auto first_count = std::clamp<std::size_t>(
      static_cast<std::size_t>(first_part * static_cast<double>(count)), 1, count - 1);
  cut_nested(random, first, first_count, into);
  cut_nested(random, second, count - first_count, into);
}

/// Splits the bytes of `whole` into `count` buffers.
inline void split(dice& random, placed const& whole, std::size_t count, std::vector<placed>& into) {
  std::size_t offset = *whole.offset, size = whole.size;
  for (; count > 1 && size > 1; --count) {
    const std::size_t part = random.between(1, std::max<std::size_t>(1, 2 * size / count - 1));
    if (part >= size) break;
    into.push_back({.lower = whole.lower, .upper = whole.upper, .size = part, .offset = offset});
    offset += part;
    size -= part;
  }
  into.push_back({.lower = whole.lower, .upper = whole.upper, .size = size, .offset = offset});
}

/// At many moments some adjacent buffers die, and others are born in their place. More buffers die at moments
/// that end a phase. The lowest buffers live long.
inline std::vector<placed> cut_along_time(dice& random, placed const& whole, std::size_t count) {
  const std::uint64_t end_of_time = whole.upper;
  std::vector<placed> made, live;
  split(random, whole, std::max<std::size_t>(count / 10, 8), live);
  const std::size_t events = count / 3;
  for (std::size_t k = 1; made.size() + live.size() < count; ++k) {
    const std::uint64_t now = std::min(end_of_time - 1, k * end_of_time / (events + 1));
    if (now == end_of_time - 1) break;
    const std::size_t most = random.one_in(8) ? live.size() / 2 : 4;
    const std::size_t dying = random.between(1, std::max<std::size_t>(1, std::min(most, live.size())));
    const std::size_t first =
        std::max(random.between(0, live.size() - dying), random.between(0, live.size() - dying));
    std::vector<placed> next(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(first));
    std::size_t size = 0;
    for (std::size_t i = first; i < first + dying; ++i) {
      size += live[i].size;
      live[i].upper = now;
      if (live[i].lower < now) made.push_back(live[i]);
    }
    const placed freed{.lower = now, .upper = end_of_time, .size = size, .offset = live[first].offset};
    split(random, freed, random.between(std::max<std::size_t>(1, dying - 1), dying + 2), next);
    next.insert(next.end(), live.begin() + static_cast<std::ptrdiff_t>(first + dying), live.end());
    live = std::move(next);
  }
  made.insert(made.end(), live.begin(), live.end());
  return made;
}

}  // namespace hard_step_detail

/// Returns the buffers of a step in random order, with their offsets in the rectangle. Sizes are in bytes.
inline std::vector<lifetime> placed_hard_step(hard_step_options const& options) {
  using namespace hard_step_detail;
  dice random{options.seed * 4 + static_cast<std::uint64_t>(options.shape) * 2 + (options.has_gaps ? 1 : 0)};
  std::vector<placed> made;
  const placed whole{.lower = 0, .upper = options.moments, .size = options.units, .offset = 0};
  if (options.shape == step_shape::nested) cut_nested(random, whole, options.buffers, made);
  else made = cut_along_time(random, whole, options.buffers);
  if (options.has_gaps) {
    const std::uint64_t full =
        random.between(0, options.moments - 1);  // buffers live at this moment are kept
    std::erase_if(made, [&](placed const& each) {
      return random.one_in(10) && (full < each.lower || each.upper <= full);
    });
  }
  for (std::size_t i = made.size(); i > 1; --i) std::swap(made[i - 1], made[random.between(0, i - 1)]);
  for (placed& each : made) {
    *each.offset *= KiB;
    each.size *= KiB;
  }
  return made;
}

/// Returns the step without offsets.
inline std::vector<lifetime> hard_step(hard_step_options const& options) {
  std::vector<lifetime> made = placed_hard_step(options);
  for (lifetime& each : made) each.offset.reset();
  return made;
}

}  // namespace tidemark::test
