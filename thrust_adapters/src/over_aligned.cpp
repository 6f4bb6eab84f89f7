// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/detail/over_aligned.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <tidemark/detail/align.hpp>

namespace tidemark::cuda::detail {

std::size_t over_aligned::room(std::size_t bytes, std::size_t align) noexcept {
  constexpr auto largest = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  const std::size_t spare = align > driver_block_alignment ? align - driver_block_alignment : 0;
  if (spare > largest || bytes > largest - spare) return 0;
  return std::max<std::size_t>(bytes, 1) + spare;  // the driver has no blocks of 0 bytes
}

over_aligned::record over_aligned::make_record() {
  std::map<std::uintptr_t, std::uintptr_t> one;
  one.emplace();
  return one.extract(one.begin());
}

std::uintptr_t over_aligned::part_of(std::uintptr_t block, std::size_t align, record made) noexcept {
  const std::uintptr_t part = tidemark::detail::align_up(block, align);
  made.key() = part;
  made.mapped() = block;
  const std::scoped_lock lock{mutex_};
  blocks_.insert(std::move(made));
  return part;
}

std::uintptr_t over_aligned::block_of(std::uintptr_t part) noexcept {
  const std::scoped_lock lock{mutex_};
  const record found = blocks_.extract(part);
  return found.empty() ? part : found.mapped();
}

}  // namespace tidemark::cuda::detail
