// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/detail/plan_replayer.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {

plan_replayer::plan_replayer(step_plan plan) : plan_{std::move(plan)} {
  add_slots();
  slots_.push_back({{.address = no_address, .died = std::numeric_limits<request_time>::max()}});
  find_predecessors();
  order_deallocations();
  visited_.reserve(slots_.size());
  const std::size_t places = std::bit_ceil(2 * slots_.size());
  table_.assign(places, &slots_.back());
  mask_ = places - 1;
  bind(0, true);
  begin(0);
}

std::span<std::uint32_t const> plan_replayer::own_slots() const noexcept { return own_slots_; }

std::span<plan_replayer::slot const> plan_replayer::all_slots() const noexcept {
  return {slots_.data(), slots_.size() - 1};
}

void plan_replayer::add_slots() {
  slots_.resize(plan_.requests);
  blocks_.resize(plan_.requests);
  origin_ = plan_.height;
  for (planned_block const& block : plan_.blocks) {
    std::size_t index = block.request;
    if (blocks_[index] != nullptr) {
      index = slots_.size();
      slots_.emplace_back();
      blocks_.emplace_back();
    }
    if (plan_.outlives(block)) own_slots_.push_back(static_cast<std::uint32_t>(index));
    else origin_ = std::min(origin_, *block.life.offset);
    blocks_[index] = &block;
    // The bytes up to the next multiple of the plan's alignment are unused. The memory ends at the plan's
    // height, which need not be a multiple.
    slots_[index].max_bytes = std::min(align_up(std::max<std::size_t>(block.life.size, 1), plan_.alignment),
                                       plan_.height - *block.life.offset);
    slots_[index].index = static_cast<std::uint32_t>(index);
    alignment_ = std::max(alignment_, alignment_of(slots_[index].index));
  }
  for (planned_block const* block : blocks_) offsets_.push_back(*block->life.offset);
  others_begin_ = origin_ =
      align_down(origin_, alignment_);  // offsets stay aligned after a move of the others
  height_ = std::max(plan_.height, origin_);
  // A block that fits in the first slot of a request gets any free slot. Each slot therefore has the size of
  // the smallest, which the plan's height may cut off.
  for (std::uint32_t i : own_slots_) {
    std::size_t& of_first = slots_[request_of(i)].max_bytes;
    of_first = std::min(of_first, slots_[i].max_bytes);
  }
  for (std::uint32_t i : own_slots_) slots_[i].max_bytes = slots_[request_of(i)].max_bytes;
}

// Finds the predecessors of each slot: the slots that last held one of its bytes before it, in the order of
// requests. Each range of bytes with one holder is an entry of `top`. A slot cuts its bytes out of the
// entries, and the total number of entries is therefore O(slots).
void plan_replayer::find_predecessors() {
  struct holder {
    std::size_t end;
    std::uint32_t slot;
  };
  std::map<std::size_t, holder> top;  // by start of the range
  std::vector<std::uint32_t> found;
  const auto always_clear = static_cast<std::uint32_t>(slots_.size() - 1);
  predecessors_.assign({always_clear});
  const auto list_predecessors = [&](slot& s, std::span<std::uint32_t const> listed) {
    if (listed.empty()) return;
    s.predecessors = static_cast<std::uint32_t>(predecessors_.size());
    predecessors_.insert(predecessors_.end(), listed.begin(), listed.end());
    predecessors_.push_back(always_clear);
  };
  for (std::uint32_t i = 0; i < always_clear; ++i) {
    slot& s = slots_[i];
    if (plan_.outlives(*blocks_[i])) {
      list_predecessors(s, {&i, 1});
      continue;
    }
    const std::size_t begin = *blocks_[i]->life.offset, end = begin + s.max_bytes;
    found.clear();
    auto at = top.upper_bound(begin);
    if (at != top.begin() && std::prev(at)->second.end > begin) --at;
    while (at != top.end() && at->first < end) {
      auto const [first, held] = *at;
      found.push_back(held.slot);
      at = top.erase(at);
      if (first < begin) top.emplace(first, holder{.end = begin, .slot = held.slot});
      if (held.end > end) at = top.emplace(end, holder{.end = held.end, .slot = held.slot}).first;
    }
    top.insert_or_assign(begin, holder{.end = end, .slot = i});
    // A slot may have several remaining ranges.
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    list_predecessors(s, found);
  }
}

// Orders blocks that die at one time youngest first, as local variables, until a run shows another order.
void plan_replayer::order_deallocations() {
  slot* const always_clear = &slots_.back();
  for (slot& s : std::span{slots_.data(), always_clear}) {
    if (!outlives(s.index)) deallocation_order_.push_back(&s);
  }
  std::ranges::sort(deallocation_order_, [&](slot const* a, slot const* b) {
    return std::pair{upper_of(a), b->index} < std::pair{upper_of(b), a->index};
  });
  deallocation_index_.resize(slots_.size());
  for (std::uint32_t i = 0; i < deallocation_order_.size(); ++i)
    deallocation_index_[deallocation_order_[i]->index] = i;
  deallocation_order_.push_back(always_clear);
  // The slots with bytes of their own and the last slot are not in the order, and nothing shows that their
  // bytes are free.
  slot* const* const end = deallocation_order_.data() + deallocation_order_.size();
  for (slot& s : slots_) s.deallocations_before = end;
  for (slot* one : std::span{deallocation_order_.data(), end - 1}) {
    one->deallocations_before =
        std::ranges::upper_bound(deallocation_order_.data(), end - 1, one->index, {},
                                 [&](slot const* before) { return upper_of(before); });
  }
}

void plan_replayer::lay_out(std::span<std::size_t const> own, std::size_t others_begin) noexcept {
  for (std::size_t i = 0; i < offsets_.size(); ++i)
    offsets_[i] = *blocks_[i]->life.offset - origin_ + others_begin;  // may wrap, twice
  for (std::size_t i = 0; i < own.size(); ++i) offsets_[own_slots_[i]] = own[i];
  others_begin_ = others_begin;
  height_ = std::max(plan_.height, origin_) - origin_ + others_begin;
  base_ = 0;  // bound again later
}

void plan_replayer::bind(std::uintptr_t base, bool host_accessible) noexcept {
  position_->host_accessible_ = host_accessible;
  slot* const always_clear = &slots_.back();
  if (base == base_ && base != 0) return;
  base_ = base;
  std::ranges::fill(table_, always_clear);
  for (slot& s : std::span{slots_.data(), always_clear}) {
    s.address = base + offsets_[s.index];
    std::size_t place = hash(s.address);
    while (table_[place & mask_] != always_clear && table_[place & mask_]->address != s.address) ++place;
    slot*& last = table_[place & mask_];
    s.same_address = last == always_clear ? &s : std::exchange(last->same_address, &s);
    last = &s;
  }
}

// Only the most recently allocated slot at an address can be live. A run allocates slots in order. The search
// therefore starts at the previous result and continues with the slots that were allocated since.
plan_replayer::slot* plan_replayer::live_at(std::uintptr_t address) noexcept {
  std::size_t place = hash(address);
  while (table_[place & mask_]->address != address && table_[place & mask_]->address != no_address) ++place;
  slot*& known = table_[place & mask_];
  if (known->address == no_address) return nullptr;
  slot* newest = known;
  for (slot* s = known->same_address; s != known; s = s->same_address) {
    if (s->index >= cursor() && newest->born >= begin_) break;
    if (s->born > newest->born) newest = s;
  }
  known = newest;
  return newest->live() ? newest : nullptr;
}

bool plan_replayer::deallocate_out_of_order(std::uintptr_t address, request_time now) noexcept {
  slot* const ended = live_at(address);
  if (ended == nullptr) return false;
  if (!outlives(ended->index)) reorder_deallocation(*ended);
  position_->end(*ended, now);
  return true;
}

// Adopts the observed order of blocks that die at one time: swaps this block and the next.
void plan_replayer::reorder_deallocation(slot& ended) noexcept {
  slot* const*& next = position_->next_deallocation_;
  while (!all_deallocated() && !(*next)->live() && (*next)->died >= begin_) ++next;
  if (all_deallocated()) return;
  slot* const other = *next;
  slot** const listed = &deallocation_order_[deallocation_index_[ended.index]];
  if (listed < next || upper_of(&ended) != upper_of(other)) return;
  *listed = other;
  deallocation_order_[deallocation_index_[other->index]] = &ended;
  std::swap(deallocation_index_[ended.index], deallocation_index_[other->index]);
  ++next;
}

bool plan_replayer::search_clear(std::uint32_t slot) {
  if (slots_[slot].live()) return false;
  visited_.assign({slot});
  for (std::size_t next = 0; next < visited_.size(); ++next) {
    for (std::uint32_t const* i = &predecessors_[slots_[visited_[next]].predecessors];
         slots_[*i].address != no_address; ++i) {
      plan_replayer::slot& one = slots_[*i];
      if (one.live()) {
        for (std::uint32_t below : std::span{visited_}.subspan(1)) slots_[below].died = begin_ - 1;
        return false;
      }
      if (one.died >= begin_) continue;
      one.died = begin_;
      visited_.push_back(*i);
    }
  }
  return true;
}

std::size_t plan_replayer::used_blocks() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(all_slots(), &slot::live));
}

std::span<std::uint32_t const> plan_replayer::own_slots_of(std::size_t request) const noexcept {
  return std::ranges::equal_range(own_slots_, request, {}, [&](std::uint32_t i) { return request_of(i); });
}

}  // namespace tidemark::detail
