// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/planned_core.hpp>

#include <algorithm>
#include <bit>
#include <exception>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <tidemark/detail/align.hpp>
#include <tidemark/detail/sanitizers.hpp>
#include <tidemark/violation.hpp>

#include "require.hpp"

namespace tidemark::detail {
namespace {

constexpr char const* planned_kind = "planned_arena";

// A request that does not fit is looked for so many requests ahead: the step left some out.
constexpr std::size_t requests_ahead_max = 16;
// A request's blocks that died in their own steps so many times in a row need no bytes of their own.
constexpr unsigned steps_within_max = 2;
// No more than that many steps go by unplanned where plans are never of use.
constexpr unsigned unplanned_steps_log2_max = 6;
// A plan was of use to a step that asked the fallback once in so many requests, or less often.
constexpr std::uint64_t requests_of_use = 8;

planned_arena_options completed(planned_arena_options options) {
  if (options.name == nullptr) options.name = planned_arena_options{}.name;
  const auto refuse = [&](char const* what) {
    throw std::invalid_argument{std::string{planned_kind} + " '" + options.name + "': " + what};
  };
  constexpr std::size_t alignment_min = alignof(std::max_align_t);
  if (!std::has_single_bit(options.planning.alignment) || options.planning.alignment < alignment_min)
    refuse("planning.alignment is not a power of two from 16");
  if (options.misses_max == 0) refuse("misses_max is 0");
  if (options.plans_max == 0) refuse("plans_max is 0");
  if (options.slots_max == 0) refuse("slots_max is 0");
  return options;
}

}  // namespace

planned_core::planned_core(planned_region& region, planned_arena_options const& options,
                           std::pmr::memory_resource* fallback)
    : current_{&nothing_}, region_{region}, options_{completed(options)}, fallback_{fallback} {}

planned_core::~planned_core() {
  if (step_ == nullptr) return;
  *step_ = nullptr;
  report_violation(violation_kind::scope_outlived, options_.name,
                   "planned_arena '%s': destroyed while a step is open", options_.name);
}

// ---- allocating ----------------------------------------------------------------------------------------

void* planned_core::allocate_out_of_turn(std::size_t bytes, std::size_t align) {
  if (step_run::slot* const next = current_->next_at_sight(bytes, align))
    return current_->take(*next, bytes, now_);
  return allocate_slow(bytes, align);
}

void* planned_core::allocate_slow(std::size_t bytes, std::size_t align) {
  require_power_of_two(planned_kind, options_.name, align);
  if (step_ == nullptr) {
    void* const block = fallback_->allocate(bytes, align);
    ++outside_allocations_;
    return block;
  }
  const std::uint64_t misses_before = misses_;
  if (void* const block = take_slot(bytes, align)) return block;
  try {
    return take_fallback(bytes, align);
  } catch (...) {
    misses_ = misses_before;  // counted with a block, or not at all
    throw;
  }
}

void* planned_core::take_slot(std::size_t bytes, std::size_t align) {
  if (std::exchange(is_undecided_, false) && current_->cursor() == 0) {
    kept_plan* const chosen = choose(bytes, align);
    plans_anew_ = chosen == nullptr;
    if (chosen == nullptr || !change_to(chosen)) {
      if (chosen != nullptr) note_unlaid(*chosen);
      give_up();
      return nullptr;
    }
  }
  if (gave_up_) return nullptr;
  const std::size_t next = current_->cursor(), all = current_->requests();
  if (next < all && current_->fits(next, bytes, align)) return take_slot_of(next, bytes);
  if (switch_plan(bytes, align)) return take_slot_of(next, bytes);
  if (gave_up_) return nullptr;  // there was no memory for the other one
  for (std::size_t i = next + 1; i < std::min(all, next + requests_ahead_max); ++i) {
    if (current_->planned(i).bytes == bytes && current_->fits(i, bytes, align)) return take_slot_of(i, bytes);
  }
  note_miss();
  return nullptr;
}

// A slot of a request that fits there. Null, and the request is missed, if another block's bytes are in each.
void* planned_core::take_slot_of(std::size_t request, std::size_t bytes) {
  step_run::slot* const slot = current_->clear_slot(request);
  current_->go_on_at(request + 1);
  if (slot != nullptr && !meets_stranger(slot->address, slot->bytes_max))
    return current_->hand_over(*slot, bytes, now_);
  step_run::own_request const* const own = current_->own_at(request);
  if (slot == nullptr && own != nullptr && own->slots.size() < options_.slots_max) {
    wanted_slots_.push_back(request);  // not the plan's fault: it learns from that
    ++misses_;
  } else {
    note_miss();
  }
  return nullptr;
}

void* planned_core::take_fallback(std::size_t bytes, std::size_t align) {
  ++step_fallback_;
  void* const block = fallback_->allocate(bytes, align);
  record_.came(block, {.born = now_++, .died = 0, .bytes = bytes, .align = align});
  ++fallback_allocations_;
  return block;
}

void planned_core::note_miss() {
  ++misses_;
  if (++plan_->misses >= options_.misses_max) {
    plan_->was_given_up = plans_anew_ = true;
    give_up();
  }
}

// There was no memory to lay a plan in: that is no fault of the plan, which is made anew now and then only,
// because the step may have changed unseen.
void planned_core::note_unlaid(kept_plan& plan) { plans_anew_ = ++plan.misses >= options_.misses_max; }

// The rest of the step comes from the fallback, which needs the memory that the region does not.
void planned_core::give_up() {
  gave_up_ = is_trim_due_ = true;
  serve();
  (void)trim();
}

// ---- deallocating --------------------------------------------------------------------------------------

void planned_core::deallocate_out_of_turn(void* block, std::size_t bytes, std::size_t align) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if ((check_level < 2 || may_give(address, bytes)) && current_->give(address, now_)) return;
  deallocate_slow(block, bytes, align);
}

void planned_core::deallocate_slow(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (!region_.reserves(address)) {
    record_.goes(block, now_);
    fallback_->deallocate(block, bytes, align);
    return;
  }
  const auto found = std::ranges::lower_bound(strangers_, address, {}, &stranger::begin);
  if (found == strangers_.end() || found->begin != address || found->bytes == 0) {
    refuse(block, bytes,
           current_->live_at(address) != nullptr ? "the block has another size"
                                                 : "no block in use begins there");
    return;
  }
  if (check_level >= 2 && found->asked != bytes) {
    refuse(block, bytes, "the block has another size");
    return;
  }
  if (region_.host_accessible()) withhold(address, found->bytes);
  // Only of this step's blocks: of earlier ones it would say that their slots were clear in this run.
  if (found->plan != nullptr && found->born >= begin_) found->plan->run.note_death(found->slot, now_);
  found->bytes = 0;  // and it goes with others
  if (2 * ++dead_strangers_ >= strangers_.size()) drop_dead_strangers();
  serve();
}

bool planned_core::may_give(std::uintptr_t address, std::size_t bytes) const noexcept {
  step_run::slot const* const slot = current_->live_at(address);
  return slot == nullptr || slot->bytes == bytes;
}

void planned_core::refuse(void const* block, std::size_t bytes, char const* why) const noexcept {
  report_violation(violation_kind::bad_deallocate, options_.name,
                   "planned_arena '%s': deallocate of %zu bytes at %p: %s", options_.name, bytes, block, why);
}

// ---- steps ---------------------------------------------------------------------------------------------

void planned_core::begin_step(planned_core** step) {
  if (step_ != nullptr) {
    throw std::logic_error{std::string{planned_kind} + " '" + options_.name + "': a step is open already"};
  }
  if (plan_ != nullptr && !current_->all_returned()) estrange(*plan_, false);
  step_ = step;
  begin_ = ++now_;  // later than what was given back since the last request
  current_->begin(begin_);
  is_undecided_ = true;
  gave_up_ = plans_anew_ = false;
  wanted_slots_.clear();
  step_fallback_ = 0;
  plan_before_ = nullptr;
  serve();
}

void planned_core::end_step() noexcept {
  step_ = nullptr;
  ++steps_;
  const bool asked_for_nothing = is_undecided_ && current_->cursor() == 0;
  try {
    if (asked_for_nothing) {
      // Says nothing of any plan.
    } else if (gave_up_) {
      if (plans_anew_ && plan_step()) note_order(*plans_.back());
    } else {
      if (step_fallback_ == 0) {
        ++planned_steps_;
        if (plan_->misses != 0) --plan_->misses;
      }
      if (step_fallback_ * requests_of_use <= now_ - begin_) plans_unused_ = 0;
      plan_->was_given_up = false;
      plan_->used_last = steps_;
      note_order(*plan_);
      add_slots();
      if (blocks_stay_within_steps() && plan_step() && plan_ != nullptr) {
        // The new one is for other sizes, which this one has served too.
        const auto is_it = [this](auto const& plan) { return plan.get() == plan_; };
        drop(static_cast<std::size_t>(std::ranges::find_if(plans_, is_it) - plans_.begin()));
      }
    }
  } catch (...) {
    // No memory to plan with, or more than a plan can have: the step is recorded again when it comes again.
    wanted_slots_.clear();
  }
  record_.next_step();
  // Once more when the blocks are gone that were live at the end of a step without a plan.
  if (is_trim_due_) {
    region_.keep_only(std::max(used_bytes_end(), gave_up_ ? 0 : current_->plan().height));
    is_trim_due_ = gave_up_;
  }
  serve();
}

// This step was one for that plan.
void planned_core::note_order(kept_plan& plan) noexcept {
  if (plan_of_last_step_ != nullptr) plan_of_last_step_->next = &plan;
  plan_of_last_step_ = &plan;
}

// ---- choosing plans ------------------------------------------------------------------------------------

planned_core::kept_plan* planned_core::choose(std::size_t bytes, std::size_t align) const noexcept {
  kept_plan const* const expected = plan_of_last_step_ != nullptr ? plan_of_last_step_->next : nullptr;
  // The better one is the larger: for that very size; not given up the last time; the one that followed the
  // last plan before; the tightest; the newest.
  const auto rank = [&](kept_plan const& plan) {
    const std::size_t planned = plan.run.planned(0).bytes;
    return std::tuple{planned == bytes, !plan.was_given_up, &plan == expected, ~planned, plan.used_last};
  };
  kept_plan* best = nullptr;
  for (auto const& plan : plans_) {
    if (!plan->run.fits(0, bytes, align)) continue;
    if (plan->was_given_up && plan->run.planned(0).bytes != bytes) continue;
    if (best == nullptr || rank(*best) < rank(*plan)) best = plan.get();
  }
  return best;
}

// Makes a plan the current one, and lays it in the region. False if there is no memory for it.
bool planned_core::change_to(kept_plan* plan) {
  bool is_held = false;
  try {
    if (plan != plan_) {
      if (plan_ != nullptr) estrange(*plan_, true);
      plan_ = plan;
      current_ = &plan->run;
      current_->begin(begin_);
      wanted_slots_.clear();
    }
    const bool is_unused = !has_strangers() && current_->used_blocks() == 0;
    is_held = region_.hold(current_->plan().height, current_->alignment(), is_unused);
  } catch (...) {
    // The fallback may have some.
    if (plan != plan_) return false;
  }
  if (region_.committed_bytes() != 0) current_->lie_at(region_.base(), region_.host_accessible());
  drop_dead_strangers();
  std::erase_if(strangers_,
                [&](stranger const& s) { return current_->adopt(s.begin, s.bytes, s.asked, begin_); });
  serve();
  return is_held;
}

// Another plan that is for just what the step asked for so far, and goes on with what it asks for now.
bool planned_core::switch_plan(std::size_t bytes, std::size_t align) {
  const std::size_t next = current_->cursor();
  if (plan_before_ != nullptr || step_fallback_ != 0) return false;
  for (auto const& other : plans_) {
    if (other.get() == plan_ || !other->run.fits(next, bytes, align)) continue;
    if (other->run.planned(next).bytes != bytes || !agrees_so_far(*other)) continue;
    kept_plan* const before = plan_;
    const bool is_held = change_to(other.get());
    if (plan_ != before) plan_before_ = before;
    current_->go_on_at(next);
    if (!is_held) {
      note_unlaid(*other);
      give_up();
    }
    return is_held && current_->fits(next, bytes, align);
  }
  return false;
}

bool planned_core::agrees_so_far(kept_plan const& plan) const noexcept {
  for (std::size_t i = 0; i < current_->cursor(); ++i) {
    if (current_->newest(i).bytes != plan.run.planned(i).bytes) return false;
  }
  return true;
}

// The live blocks of a plan become strangers: all, or those that its slots are not meant to have in the next
// step.
void planned_core::estrange(kept_plan& plan, bool own_too) {
  auto const slots = plan.run.slots();
  const auto goes = [&](step_run::slot const& s) {
    return s.live() && (own_too || !plan.run.is_own(s.index));
  };
  const auto to_go = static_cast<std::size_t>(std::ranges::count_if(slots, goes));
  if (to_go == 0) return;
  drop_dead_strangers();
  strangers_.reserve(strangers_.size() + to_go);
  for (step_run::slot const& s : slots) {
    if (!goes(s)) continue;
    strangers_.push_back({.begin = s.address,
                          .bytes = s.bytes_max,
                          .asked = s.bytes,
                          .born = s.born,
                          .plan = &plan,
                          .slot = s.index});
    plan.run.detach(s.index);
  }
  std::ranges::sort(strangers_, {}, &stranger::begin);
}

// Those that have died since the last came share no bytes with the others either.
bool planned_core::meets_stranger(std::uintptr_t begin, std::size_t bytes) const noexcept {
  auto one = std::ranges::lower_bound(strangers_, begin, {}, &stranger::begin);
  if (one != strangers_.begin() && std::prev(one)->begin + std::prev(one)->bytes > begin) return true;
  for (; one != strangers_.end() && one->begin < begin + bytes; ++one) {
    if (one->bytes != 0) return true;
  }
  return false;
}

void planned_core::drop_dead_strangers() noexcept {
  std::erase_if(strangers_, [](stranger const& s) { return s.bytes == 0; });
  dead_strangers_ = 0;
}

// Whether the fast path may hand out slots. Before the first request only where there is nothing to choose.
void planned_core::serve() noexcept {
  const bool is_chosen = !is_undecided_ || (plans_.size() == 1 && plan_ != nullptr && !plan_->was_given_up);
  current_->serve_fast(step_ != nullptr && !gave_up_ && !has_strangers() && is_chosen && is_laid());
}

// Whether there is memory behind all of the current plan.
bool planned_core::is_laid() const noexcept {
  return plan_ != nullptr && region_.committed_bytes() >= current_->plan().height &&
         current_->base() == region_.base() && current_->base() % current_->alignment() == 0;
}

// ---- planning ------------------------------------------------------------------------------------------

// @return whether a plan was made.
bool planned_core::plan_step() {
  if (steps_ < next_planning_) return false;
  if (plan_ != nullptr) record_served(*plan_);
  if (plan_before_ != nullptr) record_served(*plan_before_);
  if (!record_.is_complete()) return false;
  keep(record_.plan_it(options_.planning, options_.slots_max, obstacles()));
  ++plans_made_;
  if (++plans_unused_ <= options_.plans_max) return true;
  const std::size_t doublings =
      std::min<std::size_t>(plans_unused_ - options_.plans_max, unplanned_steps_log2_max);
  next_planning_ = steps_ + (std::uint64_t{1} << doublings);
  return true;
}

// Blocks that have outlived a whole step and are no plan's business: they may live for long, and what is
// planned now lies beside them.
std::vector<step_record::obstacle> planned_core::obstacles() const {
  const std::size_t align = options_.planning.alignment;
  std::vector<step_record::obstacle> found;
  std::size_t end_before = 0;
  for (stranger const& s : strangers_) {
    if (s.bytes == 0 || s.born >= begin_) continue;
    const std::size_t offset = s.begin - region_.base(), end = align_up(offset + s.bytes, align);
    const std::size_t begin = std::max(align_down(offset, align), end_before);
    if (end > begin) found.push_back({.offset = begin, .bytes = end - begin});
    end_before = end;
  }
  return found;
}

void planned_core::record_served(kept_plan const& plan) {
  auto const slots = plan.run.slots();
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    step_run::slot const& s = slots[i];
    if (s.born < begin_) continue;
    record_.add({.born = s.born,
                 .died = s.died > s.born ? s.died : 0,
                 .bytes = s.bytes,
                 .align = plan.run.planned(plan.run.request_of(i)).align});
  }
}

// In place of one for the same requests, or of the one unused for longest if there are too many.
void planned_core::keep(step_plan plan) {
  auto made = std::make_unique<kept_plan>(std::move(plan));
  made->used_last = steps_;
  plans_.reserve(plans_.size() + 1);
  const auto same = std::ranges::find(plans_, made->hash, &kept_plan::hash);
  if (same != plans_.end()) {
    drop(static_cast<std::size_t>(same - plans_.begin()));
  } else if (plans_.size() >= options_.plans_max) {
    const auto oldest = std::ranges::min_element(plans_, {}, &kept_plan::used_last);
    drop(static_cast<std::size_t>(oldest - plans_.begin()));
  }
  plans_.push_back(std::move(made));
}

void planned_core::drop(std::size_t index) {
  kept_plan* const gone = plans_[index].get();
  if (gone == plan_) {
    estrange(*gone, true);
    plan_ = nullptr;
    current_ = &nothing_;
  }
  for (stranger& s : strangers_) {
    if (s.plan == gone) s.plan = nullptr;
  }
  for (auto const& other : plans_) {
    if (other->next == gone) other->next = nullptr;
  }
  if (plan_of_last_step_ == gone) plan_of_last_step_ = nullptr;
  if (plan_before_ == gone) plan_before_ = nullptr;
  plans_.erase(plans_.begin() + static_cast<std::ptrdiff_t>(index));
}

void planned_core::use(step_plan plan) {
  plan.require_valid();
  if (plan.alignment < alignof(std::max_align_t)) {
    throw std::invalid_argument{std::string{planned_kind} + " '" + options_.name +
                                "': a plan whose blocks are aligned to less than 16 bytes"};
  }
  if (step_ != nullptr) {
    throw std::logic_error{std::string{planned_kind} + " '" + options_.name +
                           "': a plan is added while a step is open"};
  }
  if (plan.requests != 0) keep(std::move(plan));
}

// Whether blocks that have bytes of their own, because they outlived the step that was planned, do so no
// more.
bool planned_core::blocks_stay_within_steps() noexcept {
  bool any = false;
  for (step_run::own_request& own : current_->own()) {
    const auto stayed = [&](std::uint32_t i) {
      step_run::slot const& s = current_->slots()[i];
      return s.born >= begin_ && !s.live();
    };
    own.steps_within = std::ranges::any_of(own.slots, stayed) ? own.steps_within + 1 : 0;
    any = any || own.steps_within >= steps_within_max;
  }
  if (any) {
    for (step_run::own_request& own : current_->own()) own.steps_within = 0;
  }
  return any;
}

// A second slot where the block of the step before was still there, and a further one where all were taken.
void planned_core::add_slots() {
  if (record_.has_carried()) {
    for (step_run::own_request const& own : current_->own()) {
      step_run::slot const& newest = current_->newest(own.request);
      if (newest.born >= begin_ && own.slots.size() < std::min<std::size_t>(2, options_.slots_max) &&
          record_.overlaps_carried(newest.bytes, newest.born))
        wanted_slots_.push_back(own.request);
    }
  }
  if (!wanted_slots_.empty()) keep(with_more_slots(current_->plan(), wanted_slots_));
}

// ---- the rest ------------------------------------------------------------------------------------------

std::vector<step_plan> planned_core::plans() const {
  std::vector<kept_plan const*> newest_first;
  newest_first.reserve(plans_.size());
  for (auto const& plan : plans_) newest_first.push_back(plan.get());
  std::ranges::sort(newest_first, std::greater{}, &kept_plan::used_last);
  std::vector<step_plan> copies;
  copies.reserve(plans_.size());
  for (kept_plan const* plan : newest_first) copies.push_back(plan->run.plan());
  return copies;
}

// Where the highest block that is in use ends, from the base.
std::size_t planned_core::used_bytes_end() const noexcept {
  std::uintptr_t end = region_.base();
  for (stranger const& s : strangers_) end = std::max(end, s.begin + s.bytes);
  for (step_run::slot const& s : current_->slots()) {
    if (s.live()) end = std::max(end, s.address + s.bytes_max);
  }
  return end - region_.base();
}

std::size_t planned_core::trim() noexcept {
  const std::size_t before = region_.committed_bytes();
  const bool plan_goes_on = step_ != nullptr && !gave_up_;
  const std::size_t needed = plan_goes_on ? current_->plan().height : 0;
  region_.keep_only(std::max(used_bytes_end(), needed));
  serve();
  return before - region_.committed_bytes();
}

planned_arena_stats planned_core::stats() const noexcept {
  // Each request of a step has a time, and so has the beginning of each step.
  const std::uint64_t begun = steps_ + (step_ != nullptr ? 1 : 0);
  const std::uint64_t planned = now_ - 1 - begun - fallback_allocations_;
  return {.name = options_.name,
          .steps = steps_,
          .planned_steps = planned_steps_,
          .allocations = planned + fallback_allocations_ + outside_allocations_,
          .planned_allocations = planned,
          .fallback_allocations = fallback_allocations_,
          .outside_allocations = outside_allocations_,
          .misses = misses_,
          .plans_made = plans_made_,
          .plans = plans_.size(),
          .used_blocks = current_->used_blocks() + strangers_.size() - dead_strangers_,
          .height_bytes = current_->plan().height,
          .lower_bound_bytes = current_->plan().lower_bound,
          .committed_bytes = region_.committed_bytes(),
          .reserved_bytes = region_.reserved_bytes()};
}

void planned_core::check_invariants() const noexcept {
  const auto require = [this](bool holds, char const* formula) {
    if (!holds) {
      report_violation(violation_kind::invariant, options_.name, "planned_arena '%s': broken invariant: %s",
                       options_.name, formula);
    }
  };
  require(std::ranges::is_sorted(strangers_, {}, &stranger::begin), "strangers are sorted");
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  ranges.reserve(strangers_.size() + current_->slots().size());
  for (stranger const& s : strangers_) {
    if (s.bytes != 0) ranges.emplace_back(s.begin, s.begin + s.bytes);
  }
  for (step_run::slot const& s : current_->slots()) {
    if (s.live()) ranges.emplace_back(s.address, s.address + s.bytes_max);
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    require(i == 0 || ranges[i - 1].second <= ranges[i].first, "blocks in use do not overlap");
    require(
        ranges[i].first >= region_.base() && ranges[i].second - region_.base() <= region_.committed_bytes(),
        "blocks in use lie in committed memory");
  }
  require(current_->cursor() <= current_->requests(), "cursor <= requests");
  require(plans_.size() <= options_.plans_max, "plans <= plans_max");
  require(plan_ == nullptr || current_ == &plan_->run, "the current run is the current plan's");
  for (auto const& plan : plans_) {
    require(plan.get() == plan_ || plan->run.used_blocks() == 0, "only the current plan has live slots");
  }
}

}  // namespace tidemark::detail
