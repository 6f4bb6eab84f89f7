// SPDX-License-Identifier: Apache-2.0
#include <tidemark/step_plan.hpp>

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>
#include <utility>

namespace tidemark {
namespace {

// Of a slot: a block of no bytes has an address all the same.
std::size_t end_of(planned_block const& block) noexcept {
  return *block.life.offset + std::max<std::size_t>(block.life.size, 1);
}

[[noreturn]] void invalid(std::size_t request, char const* formula) {
  throw std::invalid_argument{"step_plan: request " + std::to_string(request) + ": not " + formula};
}

void require_apart(step_plan const& plan) {
  struct moment {
    std::uint64_t when;
    bool begins;
    planned_block const* block;
  };
  std::vector<moment> moments;
  for (planned_block const& block : plan.blocks) {
    moments.push_back({block.life.lower, true, &block});
    moments.push_back({block.life.upper, false, &block});
  }
  // What ends at a moment makes room for what begins at it.
  std::ranges::sort(moments, {}, [](moment const& m) { return std::pair{m.when, m.begins}; });
  std::map<std::size_t, planned_block const*> live;  // by offset
  for (moment const& m : moments) {
    const std::size_t offset = *m.block->life.offset;
    if (!m.begins) {
      live.erase(offset);
      continue;
    }
    const auto above = live.lower_bound(offset);
    const bool overlaps = (above != live.end() && above->first < end_of(*m.block)) ||
                          (above != live.begin() && end_of(*std::prev(above)->second) > offset);
    if (overlaps) invalid(m.block->request, "apart from each block that is live with it");
    live.emplace_hint(above, offset, m.block);
  }
}

void require_block(step_plan const& plan, std::size_t i, std::size_t request) {
  planned_block const& block = plan.blocks[i];
  lifetime const& life = block.life;
  const auto require = [&](bool holds, char const* formula) {
    if (!holds) invalid(block.request, formula);
  };
  const bool is_further = i > 0 && block.request == plan.blocks[i - 1].request;
  require(block.request == request || is_further, "numbered one after the other");
  require(!is_further || (plan.outlives(block) && plan.outlives(plan.blocks[i - 1])),
          "one block for each request that does not outlive the step");
  require(life.lower < life.upper, "lower < upper");
  require((life.lower == block.request && life.upper <= plan.requests) ||
              (life.lower == 0 && plan.outlives(block)),
          "live in [request, upper) with upper <= requests, or in [0, requests + 1)");
  require(std::has_single_bit(life.alignment), "aligned to a power of two");
  require(life.offset.has_value(), "placed");
  require(*life.offset % std::max(plan.alignment, life.alignment) == 0, "at a multiple of the alignment");
  require(*life.offset <= plan.height && std::max<std::size_t>(life.size, 1) <= plan.height - *life.offset,
          "offset + size <= height");
}

}  // namespace

std::uint64_t step_plan::hash() const noexcept {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325u;
  std::size_t request = 0;
  for (planned_block const& block : blocks) {
    if (block.request != request) continue;  // a further block for the same one
    hash = (hash ^ (block.life.size << 8 ^ static_cast<unsigned>(std::countr_zero(block.life.alignment)))) *
           0x100'0000'01B3u;
    ++request;
  }
  return hash;
}

void step_plan::require_valid() const {
  if (!std::has_single_bit(alignment)) throw std::invalid_argument{"step_plan: alignment is no power of two"};
  std::size_t request = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    require_block(*this, i, request);
    request = blocks[i].request + 1;
  }
  if (request != requests) throw std::invalid_argument{"step_plan: not as many requests as it says"};
  require_apart(*this);
  if (lower_bound > height) throw std::invalid_argument{"step_plan: not lower_bound <= height"};
}

}  // namespace tidemark
