// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <tidemark/detail/align.hpp>

namespace tidemark {

// First fit by falling size.
plan make_plan(std::span<lifetime const> blocks, plan_options const& options) {
  plan made{.offsets = std::vector<std::size_t>(blocks.size())};
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return blocks[i].size; });
  std::vector<std::size_t> placed;
  const auto size_of = [&](std::size_t i) { return detail::align_up(blocks[i].size, options.alignment); };
  for (std::size_t i : order) {
    std::vector<std::pair<std::size_t, std::size_t>> taken;
    for (std::size_t j : placed) {
      if (blocks[j].lower < blocks[i].upper && blocks[i].lower < blocks[j].upper)
        taken.emplace_back(made.offsets[j], size_of(j));
    }
    std::ranges::sort(taken);
    const std::size_t align = std::max(options.alignment, blocks[i].alignment);
    std::size_t offset = 0;
    for (auto [begin, size] : taken) {
      if (offset + size_of(i) <= begin) break;
      offset = std::max(offset, detail::align_up(begin + size, align));
    }
    made.offsets[i] = offset;
    made.height = std::max(made.height, offset + size_of(i));
    placed.push_back(i);
  }
  std::map<std::uint64_t, std::ptrdiff_t> change;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].lower == blocks[i].upper) continue;
    change[blocks[i].lower] += static_cast<std::ptrdiff_t>(size_of(i));
    change[blocks[i].upper] -= static_cast<std::ptrdiff_t>(size_of(i));
  }
  std::ptrdiff_t live = 0;
  for (auto [when, bytes] : change)
    made.lower_bound = std::max(made.lower_bound, static_cast<std::size_t>(live += bytes));
  made.optimal = made.height == made.lower_bound;
  return made;
}

}  // namespace tidemark
