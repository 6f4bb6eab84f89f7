// SPDX-License-Identifier: Apache-2.0
// A step is planned in two parts. Blocks that outlive the step are stacked at the bottom, and `make_plan`
// places the other blocks above.
//
// The prefix that all plans share is a table of places by size and alignment. Each plan uses the first places
// of a size. Plans with the same outliving blocks therefore share all of their places.
#include "step_records.hpp"

#include <exception>
#include <iterator>
#include <map>
#include <new>
#include <set>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/plan/make_plan.hpp>

namespace tidemark::detail {
namespace {

// More bytes than any plan may have, and far below the overflow of sums.
constexpr std::size_t max_plan_bytes = std::size_t{1} << 62;

using shape = std::pair<std::size_t, std::size_t>;  // bytes and alignment of a slot with bytes of its own

// Finds the places of a plan's slots: the n-th slot of a shape has the n-th place of the shape.
std::vector<std::size_t> find_places(plan_replayer const& plan,
                                     std::map<shape, std::vector<std::size_t>>& places, std::size_t& end) {
  std::map<shape, std::size_t> used;
  std::vector<std::size_t> found(plan.own_slots().size());
  // Further slots of a request follow the first slots of all requests, whose places stay when slots are
  // added.
  for (std::size_t turn = 0; turn < 2 * found.size(); ++turn) {
    const std::uint32_t i = plan.own_slots()[turn % found.size()];
    if ((i >= plan.requests()) != (turn >= found.size())) continue;
    const shape key{plan.all_slots()[i].max_bytes, plan.alignment_of(i)};
    std::vector<std::size_t>& known = places[key];
    const std::size_t n = used[key]++;
    if (n == known.size()) {
      known.push_back(align_up(end, key.second));
      end = known.back() + key.first;
    }
    found[turn % found.size()] = known[n];
  }
  return found;
}

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
  return made;
}

// ---- kinds of steps ----------------------------------------------------------------------------------------

kind_of_step* kinds_of_steps::find(std::uint64_t kind) noexcept {
  const auto found = std::ranges::find(kinds_, kind, &kind_of_step::kind);
  if (found == kinds_.end()) return nullptr;
  kinds_.splice(kinds_.begin(), kinds_, found);
  return &*found;
}

kind_of_step& kinds_of_steps::add(std::uint64_t kind) {
  kinds_.emplace_front().kind = kind;
  if (kinds_.size() > max_kinds_) {
    kinds_.front().debt = 2 * std::min(kinds_.back().debt, max_debt);
    kinds_.front().rest_steps = 1;  // the new kind may be replaced before its next step
    kinds_.pop_back();
  }
  return kinds_.front();
}

void kinds_of_steps::lay_out() noexcept {
  try {
    std::map<shape, std::vector<std::size_t>> places;
    std::vector<std::pair<plan_replayer*, std::vector<std::size_t>>> found;
    std::size_t end = 0, alignment = 1;
    for (kind_of_step const& one : kinds_) {
      if (one.plan == nullptr) continue;
      found.emplace_back(one.plan.get(), has_prefix_
                                             ? find_places(*one.plan, places, end)
                                             : std::vector<std::size_t>(one.plan->own_slots().size()));
      alignment = std::max(alignment, one.plan->alignment());
    }
    prefix_end_ = align_up(end, alignment);
    for (auto const& [plan, offsets] : found) plan->lay_out(offsets, prefix_end_);
  } catch (std::exception const&) {
    // Without memory each plan keeps its places. The plans are then in each other's way, and miss.
  }
}

// ---- foreign blocks ----------------------------------------------------------------------------------------

void foreign_blocks::detach_live(plan_replayer& plan, bool outliving_too) {
  if (live_ != blocks_.size())
    std::erase_if(blocks_, [](foreign_block const& block) { return !block.live(); });
  blocks_.reserve(blocks_.size() + plan.used_blocks());
  for (plan_replayer::slot const& s : plan.all_slots()) {
    if (!s.live() || (plan.outlives(s.index) && !outliving_too)) continue;
    blocks_.push_back(s);
    in_way_ += is_in_way(s) ? 1 : 0;
    plan.set_died(s.index, s.born);
  }
  live_ = blocks_.size();
  std::ranges::sort(blocks_, {}, &foreign_block::address);
}

void foreign_blocks::find_blocking(plan_replayer const& plan) noexcept {
  way_begin_ = plan.base() == 0 ? 0 : plan.others_begin();
  in_way_ = static_cast<std::size_t>(std::ranges::count_if(
      blocks_, [&](foreign_block const& block) { return block.live() && is_in_way(block); }));
}

foreign_block* foreign_blocks::find(std::uintptr_t address) noexcept {
  const auto found = std::ranges::lower_bound(blocks_, address, {}, &foreign_block::address);
  return found != blocks_.end() && found->address == address && found->live() ? &*found : nullptr;
}

bool foreign_blocks::overlap(std::uintptr_t begin, std::size_t bytes) const noexcept {
  auto block = std::ranges::lower_bound(blocks_, begin, {}, &foreign_block::address);
  if (block != blocks_.begin() && std::prev(block)->address + std::prev(block)->max_bytes > begin) --block;
  while (block != blocks_.end() && block->address < begin + bytes && !block->live()) ++block;
  return block != blocks_.end() && block->address < begin + bytes;
}

}  // namespace tidemark::detail
