// SPDX-License-Identifier: Apache-2.0
// A step is planned in two parts. Blocks that outlive the step are stacked at the bottom, and `make_plan`
// places the other blocks above.
#include <tidemark/plan/replay/detail/learned_step.hpp>

#include <exception>
#include <new>
#include <set>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/plan/make_plan.hpp>

namespace tidemark::detail {
namespace {

// More bytes than any plan may have, and far below the overflow of sums.
constexpr std::size_t max_plan_bytes = std::size_t{1} << 62;

}  // namespace

void step_recorder::on_allocate(void const* block, recorded_request const& made) noexcept {
  try {
    requests_.push_back(made);
    live_.insert_or_assign(block, requests_.size() - 1);
  } catch (std::exception const&) {
    is_complete_ = false;
  }
}

void step_recorder::on_deallocate(void const* block, std::size_t bytes, std::uint64_t now) noexcept {
  const auto found = live_.find(block);
  if (found == live_.end()) return on_deallocate_earlier(bytes, now);
  requests_[found->second].died = now;
  live_.erase(found);
}

void step_recorder::on_deallocate_earlier(std::size_t bytes, std::uint64_t now) noexcept {
  try {
    earlier_.emplace_back(bytes, now);
  } catch (std::exception const&) {
    // A request may get one slot too few; a later step adds the slot.
  }
}

std::span<recorded_request> step_recorder::in_order() {
  if (!is_complete_) throw std::bad_alloc{};
  live_.clear();  // holds indices
  std::ranges::sort(requests_, {}, &recorded_request::born);
  return requests_;
}

learned_step learn(step_recorder& recorder, learned_step const& before) {
  const std::span<recorded_request const> step = recorder.in_order();
  learned_step learned;
  learned.reserve(step.size());
  std::multiset<std::pair<std::size_t, std::uint64_t>> earlier{recorder.earlier().begin(),
                                                               recorder.earlier().end()};
  // Position in the step of each request of the plan. A request that the step lacks has the position of the
  // next request.
  std::vector<std::uint64_t> places(before.size() + 1, step.size());
  for (std::size_t i = step.size(); i != 0; --i)
    if (step[i - 1].request < before.size()) places[step[i - 1].request] = i - 1;
  for (std::size_t q = before.size(); q != 0; --q) places[q - 1] = std::min(places[q - 1], places[q]);
  for (recorded_request const& made : step) {
    learned_request one{.min_bytes = made.bytes, .max_bytes = made.bytes};
    if (made.request < before.size()) one = before[made.request];
    const bool is_known = made.request < before.size() && one.upper <= before.size();
    const std::uint64_t upper = is_known ? places[one.upper] : 0;
    one.add(made.bytes, made.align);
    // A block that dies before the next step's first request needs its bytes to the end of this step.
    const std::uint64_t lived = std::min<std::uint64_t>(made.died - step.front().born, step.size());
    one.upper = made.died != 0 ? std::max(upper, lived) : step.size() + 1;
    // Two blocks are live at once if the previous step's block lived until this block was born.
    const auto overlapping = earlier.lower_bound({made.bytes, made.born + 1});
    if (made.died == 0 && overlapping != earlier.end() && overlapping->first == made.bytes) {
      one.slot_count = std::max<std::size_t>(one.slot_count, 2);
      earlier.erase(overlapping);
    }
    learned.push_back(one);
  }
  return learned;
}

learned_step learn(step_plan const& plan) {
  learned_step learned;
  learned.reserve(plan.requests);
  for (planned_block const& block : plan.blocks) {
    if (block.request < learned.size()) {
      ++learned.back().slot_count;
      continue;
    }
    lifetime const& life = block.life;
    learned.push_back(
        {.min_bytes = life.size, .max_bytes = life.size, .align = life.alignment, .upper = life.upper});
  }
  return learned;
}

step_plan plan_of(learned_step const& step, plan_terms const& terms) {
  step_plan made;
  made.requests = step.size();
  made.alignment = terms.alignment;
  std::size_t own_end = 0, max_align = terms.alignment;
  std::vector<lifetime> others;  // blocks that die within the step, and obstacles
  for (std::size_t i = 0; i < step.size(); ++i) {
    learned_request const& request = step[i];
    lifetime life{.lower = i,
                  .upper = request.upper,
                  .size = request.planned_bytes(terms.replans),
                  .alignment = std::max(terms.alignment, request.align)};
    max_align = std::max(max_align, life.alignment);
    const std::size_t bytes = std::max<std::size_t>(life.size, 1);  // at least one byte, for a unique address
    if (request.upper <= step.size()) {
      made.blocks.push_back({.request = i, .life = life});
      others.push_back(life);
      others.back().size = bytes;
      continue;
    }
    life.lower = 0;
    for (std::size_t n = 0; n < std::min(request.slot_count, terms.max_slots); ++n) {
      life.offset = align_up(own_end, life.alignment);
      if (bytes > max_plan_bytes - std::min(max_plan_bytes, *life.offset)) throw std::bad_alloc{};
      own_end = align_up(*life.offset + bytes, terms.alignment);
      made.blocks.push_back({.request = i, .life = life});
    }
  }
  own_end = align_up(own_end, max_align);
  const std::size_t begin = std::max(own_end, terms.prefix_end);
  for (byte_range const& taken : terms.obstacles) {
    const std::size_t above = std::max(taken.begin, begin);
    if (taken.end() <= above) continue;
    others.push_back(
        {.lower = 0, .upper = step.size() + 1, .size = taken.end() - above, .offset = above - begin});
  }
  const memory_plan placed = make_plan(others, terms.alignment);
  auto offset = placed.offsets.begin();
  for (planned_block& block : made.blocks)
    if (!made.outlives(block)) block.life.offset = own_end + *offset++;
  made.height = own_end + placed.height;
  made.lower_bound = own_end + placed.lower_bound;
  made.require_valid();
  return made;
}

}  // namespace tidemark::detail
