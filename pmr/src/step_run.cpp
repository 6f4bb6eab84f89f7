// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/step_run.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include <tidemark/detail/align.hpp>

namespace tidemark::detail {

step_run::step_run(step_plan plan) : plan_{std::move(plan)} {
  slots_.resize(plan_.requests);
  offsets_.resize(plan_.requests);
  request_of_.resize(plan_.requests);
  planned_.resize(plan_.requests);
  for (planned_block const& block : plan_.blocks) add_slot(block);
  slots_.push_back({.address = no_address, .died = std::numeric_limits<request_time>::max()});
  find_unders();
  order_returns();
  to_visit_.reserve(slots_.size());
  visited_.reserve(slots_.size());
  const std::size_t places = std::bit_ceil(2 * slots_.size());
  homes_.assign(places, &slots_.back());
  mask_ = places - 1;
  lie_at(0, true);
  begin(0);
  serve_fast(false);
}

void step_run::add_slot(planned_block const& block) {
  const auto request = static_cast<std::uint32_t>(block.request);
  planned_[request] = {.bytes = block.life.size, .align = std::max(plan_.alignment, block.life.alignment)};
  alignment_ = std::max(alignment_, planned_[request].align);
  std::size_t index = request;
  if (plan_.outlives(block)) {
    if (own_.empty() || own_.back().request != block.request) {
      own_.push_back({.request = block.request});
    } else {
      index = slots_.size();
      slots_.emplace_back();
      offsets_.emplace_back();
      request_of_.emplace_back();
    }
    own_.back().slots.push_back(static_cast<std::uint32_t>(index));
  }
  offsets_[index] = *block.life.offset;
  // The bytes up to the next multiple of the plan's alignment are nobody else's; but there is no memory above
  // the plan's height, which need not be such a multiple.
  slots_[index].bytes_max = std::min(align_up(std::max<std::size_t>(block.life.size, 1), plan_.alignment),
                                     plan_.height - *block.life.offset);
  slots_[index].index = static_cast<std::uint32_t>(index);
  request_of_[index] = request;
}

// The slots that held a byte of each slot last before it, in the order of requests. Each range of bytes that
// has one holder is an entry of `top`; a slot cuts what it covers out of the entries, so that there are
// O(slots) of them in all.
void step_run::find_unders() {
  struct holder {
    std::size_t end;
    std::uint32_t slot;
  };
  std::map<std::size_t, holder> top;  // by where the range begins
  std::vector<std::uint32_t> found;
  const auto always_clear = static_cast<std::uint32_t>(slots_.size() - 1);
  unders_.assign({always_clear});
  const auto list_under = [&](slot& s, std::span<std::uint32_t const> under) {
    if (under.empty()) return;
    s.under = static_cast<std::uint32_t>(unders_.size());
    unders_.insert(unders_.end(), under.begin(), under.end());
    unders_.push_back(always_clear);
  };
  for (std::uint32_t i = 0; i < always_clear; ++i) {
    slot& s = slots_[i];
    if (own_at(request_of_[i]) != nullptr) {
      list_under(s, {&i, 1});
      continue;
    }
    const std::size_t begin = offsets_[i], end = begin + s.bytes_max;
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
    // Several pieces may be left of one slot.
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    list_under(s, found);
  }
}

// At one time the block that came last goes first, as local variables do, until a run shows otherwise.
void step_run::order_returns() {
  std::span<slot> const all{slots_.data(), slots_.size() - 1};
  upper_.resize(slots_.size());
  for (planned_block const& block : plan_.blocks) {
    if (!plan_.outlives(block)) upper_[block.request] = block.life.upper;
  }
  for (slot& s : all) {
    if (!is_own(s.index)) returns_.push_back(&s);
  }
  std::ranges::sort(returns_, [&](slot const* a, slot const* b) {
    return std::pair{upper_[a->index], b->index} < std::pair{upper_[b->index], a->index};
  });
  turn_of_.resize(slots_.size());
  for (std::uint32_t turn = 0; turn < returns_.size(); ++turn) turn_of_[returns_[turn]->index] = turn;
  returns_.push_back(&slots_.back());
  // No slot with bytes of its own has a turn, nor has the last of all: nothing says that theirs are free.
  for (slot& s : slots_) s.returns_before = returns_.data() + returns_.size();
  const auto last = returns_.end() - 1;
  for (slot& s : all) {
    if (is_own(s.index)) continue;
    const auto behind = std::ranges::upper_bound(returns_.begin(), last, request_of_[s.index], {},
                                                 [&](slot const* one) { return upper_[one->index]; });
    s.returns_before = returns_.data() + (behind - returns_.begin());
  }
}

void step_run::lie_at(std::uintptr_t base, bool host_accessible) noexcept {
  host_accessible_ = host_accessible;
  slot* const always_clear = &slots_.back();
  if (base == base_ && base != 0) return;
  base_ = base;
  std::ranges::fill(homes_, always_clear);
  for (slot& s : std::span{slots_.data(), always_clear}) {
    s.address = base + offsets_[s.index];
    std::size_t place = hash(s.address);
    while (homes_[place & mask_] != always_clear && homes_[place & mask_]->address != s.address) ++place;
    slot*& last = homes_[place & mask_];
    s.same_address = last == always_clear ? &s : std::exchange(last->same_address, &s);
    last = &s;
  }
}

bool step_run::adopt(std::uintptr_t address, std::size_t bytes_max, std::size_t bytes,
                     request_time now) noexcept {
  // No other slot begins where one with bytes of its own does.
  slot* const s = last_at(address);
  if (s == nullptr || !is_own(s->index) || s->bytes_max != bytes_max || s->live()) return false;
  s->bytes = bytes;
  s->born = now - 1;  // before this run
  s->died = now - 2;
  return true;
}

step_run::own_request const* step_run::own_at(std::size_t request) const noexcept {
  const auto found = std::ranges::lower_bound(own_, request, {}, &own_request::request);
  return found != own_.end() && found->request == request ? &*found : nullptr;
}

step_run::slot const& step_run::newest(std::size_t request) const noexcept {
  own_request const* const own = own_at(request);
  if (own == nullptr) return slots_[request];
  return slots_[*std::ranges::max_element(own->slots, {}, [&](std::uint32_t i) { return slots_[i].born; })];
}

// Of the slots at an address, the one that was handed out last: no other can be live. In a run they are
// handed out in order, so that it is looked for from where it was found before, past those that were handed
// out since.
step_run::slot* step_run::newest_like(slot& known) const noexcept {
  slot* newest = &known;
  for (slot* s = known.same_address; s != &known; s = s->same_address) {
    if (s->index >= cursor() && newest->born >= begin_) break;
    if (s->born > newest->born) newest = s;
  }
  return newest;
}

bool step_run::give_out_of_turn(std::uintptr_t address, request_time now) noexcept {
  slot* const ended = live_at(address);
  if (ended == nullptr) return false;
  if (!is_own(ended->index)) take_turn(*ended);
  end(*ended, now);
  return true;
}

// Of blocks that are given back at one time, the one that comes first takes the turn of the one whose turn it
// was.
void step_run::take_turn(slot& ended) noexcept {
  while (!all_returned() && !(*returned_)->live() && (*returned_)->died >= begin_) ++returned_;
  if (all_returned()) return;
  slot* const other = *returned_;
  slot** const turn = &returns_[turn_of_[ended.index]];
  if (turn < returned_ || upper_[ended.index] != upper_[other->index]) return;
  *turn = other;
  returns_[turn_of_[other->index]] = &ended;
  std::swap(turn_of_[ended.index], turn_of_[other->index]);
  ++returned_;
}

bool step_run::clear(std::uint32_t slot) {
  if (is_own(slot)) return is_vacated(slots_[slot]);
  if (slots_[slot].live()) return false;
  to_visit_.assign({slot});
  visited_.clear();
  bool is_free = true;
  while (is_free && !to_visit_.empty()) {
    const std::uint32_t visited = to_visit_.back();
    to_visit_.pop_back();
    for (std::uint32_t const* i = &unders_[slots_[visited].under]; slots_[*i].address != no_address; ++i) {
      step_run::slot& one = slots_[*i];
      if (one.live()) is_free = false;
      if (one.live() || one.died >= begin_) continue;
      // Visited once, and seen at once by the next one that asks. It comes before this one, and is not handed
      // out any more in this run.
      one.died = begin_;
      visited_.push_back(*i);
      to_visit_.push_back(*i);
    }
  }
  if (is_free) return true;
  for (std::uint32_t below : visited_) slots_[below].died = begin_ - 1;
  return false;
}

step_run::slot* step_run::clear_slot(std::size_t request) {
  own_request const* const own = own_at(request);
  if (own == nullptr) return clear(static_cast<std::uint32_t>(request)) ? &slots_[request] : nullptr;
  for (std::uint32_t i : own->slots) {
    if (is_vacated(slots_[i])) return &slots_[i];
  }
  return nullptr;
}

}  // namespace tidemark::detail
