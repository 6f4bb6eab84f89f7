// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/invariant_check.hpp>
#include <tidemark/core/detail/require.hpp>
#include <tidemark/core/detail/sanitizers.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

namespace tidemark::detail {
namespace {

// A request that does not fit is looked for so many requests ahead: the step left some out.
constexpr std::size_t max_requests_ahead = 16;
// No more than that many steps go by unplanned where plans are never of use.
constexpr unsigned max_unplanned_steps_log2 = 6;
// A plan was of use to a step with one request to the fallback in so many, or fewer.
constexpr std::uint64_t min_requests_per_fallback = 8;

std::string message(planned_arena_options const& options, char const* what) {
  return std::string{planned_kind} + " '" + options.name + "': " + what;
}

// With the defaults that depend on the memory.
planned_arena_options completed(planned_arena_options options, bool host_accessible) {
  if (options.name == nullptr) options.name = planned_arena_options{}.name;
  const auto require = [&](bool holds, char const* what) {
    if (!holds) throw std::invalid_argument{message(options, what)};
  };
  const std::size_t alignment = options.planning.alignment;
  require(std::has_single_bit(alignment) && alignment >= alignof(std::max_align_t),
          "planning.alignment is not a power of two from 16");
  require(options.max_misses != 0, "max_misses is 0");
  require(options.max_plans != 0, "max_plans is 0");
  require(options.max_slots != 0, "max_slots is 0");
  require(options.fallback != nullptr || host_accessible,
          "no fallback is named, and the default resource is the host's");
  if (options.fallback == nullptr) options.fallback = std::pmr::get_default_resource();
  return options;
}

}  // namespace

planned_core::planned_core(planned_region& region, bool host_accessible, planned_arena_options const& options)
    : region_{region},
      options_{completed(options, host_accessible)},
      host_accessible_{host_accessible},
      cache_{options_.max_plans} {}

planned_core::~planned_core() {
  if (step_ == nullptr) return;
  step_->arena_ = nullptr;
  report_violation(violation_kind::scope_outlived, name(),
                   "planned_arena '%s': destroyed while a step is open", name());
}

// ---- allocating ----------------------------------------------------------------------------------------

void* planned_core::allocate_out_of_order(std::size_t bytes, std::size_t align) {
  if (plan_replayer::slot* const next = plan_->next_if_clear(bytes, align))
    return plan_->take(*next, bytes, now_);
  return allocate_slow(bytes, align);
}

void* planned_core::allocate_slow(std::size_t bytes, std::size_t align) {
  require_power_of_two(planned_kind, options_.name, align);
  if (phase_ == phase::idle) {
    void* const block = options_.fallback->allocate(bytes, align);
    ++outside_allocations_;
    return block;
  }
  const std::uint64_t misses_before = misses_;
  if (void* const block = take_slot(bytes, align)) return block;
  try {
    ++step_fallback_;
    void* const block = options_.fallback->allocate(bytes, align);
    recorder_.on_allocate(block, {.born = now_++, .died = 0, .bytes = bytes, .align = align});
    ++fallback_allocations_;
    return block;
  } catch (...) {
    misses_ = misses_before;  // counted with a block, or not at all
    throw;
  }
}

// Null: the plan has no slot for the request.
void* planned_core::take_slot(std::size_t bytes, std::size_t align) {
  if (phase_ == phase::choosing && !choose_plan(bytes, align)) return nullptr;
  if (phase_ == phase::recording) return nullptr;
  const std::size_t next = plan_->cursor(), all = plan_->requests();
  if (plan_->fits(next, bytes, align) || switch_plan(bytes, align)) return take_slot_of(next, bytes);
  if (phase_ == phase::recording) return nullptr;  // there was no memory for the other plan
  for (std::size_t i = next + 1; i < std::min(all, next + max_requests_ahead); ++i) {
    if (plan_->planned(i).bytes == bytes && plan_->fits(i, bytes, align)) return take_slot_of(i, bytes);
  }
  record_miss();
  return nullptr;
}

// A slot of a request that fits there. Null, and the request is missed, if each has another block's bytes.
void* planned_core::take_slot_of(std::size_t request, std::size_t bytes) {
  plan_replayer::slot* const slot = plan_->clear_slot(request);
  plan_->advance_to(request + 1);
  if (slot != nullptr && !foreign_.overlap(slot->address, slot->max_bytes))
    return plan_->assign(*slot, bytes, now_);
  plan_replayer::outliving_request const* const outliving = plan_->outliving_at(request);
  if (slot == nullptr && outliving != nullptr && outliving->slots.size() < options_.max_slots) {
    missing_slots_.push_back(request);  // the plan is not wrong, but gets one more
    ++misses_;
  } else {
    record_miss();
  }
  return nullptr;
}

void planned_core::record_miss() {
  ++misses_;
  if (++plan_->misses < options_.max_misses) return;
  plan_->was_given_up = true;
  give_up(true);
}

// The rest of the step comes from the fallback, which needs the memory that the region does not.
void planned_core::give_up(bool plans_at_end) {
  phase_ = phase::recording;
  plans_at_end_ = plans_at_end;
  is_trim_due_ = true;
  (void)trim();
}

// ---- deallocating --------------------------------------------------------------------------------------

void planned_core::deallocate_out_of_order(void* block, std::size_t bytes, std::size_t align) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  plan_replayer::slot const* const slot = check_level < 2 ? nullptr : plan_->live_at(address);
  if ((slot == nullptr || slot->bytes == bytes) && plan_->deallocate(address, now_)) return;
  deallocate_slow(block, bytes, align);
}

void planned_core::deallocate_slow(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (!region_.range().contains(address)) {
    recorder_.on_deallocate(block, now_);
    options_.fallback->deallocate(block, bytes, align);
    return;
  }
  foreign_block* const found = foreign_.find(address);
  const bool has_other_size =
      found != nullptr ? check_level >= 2 && found->bytes != bytes : plan_->live_at(address) != nullptr;
  if (found == nullptr || has_other_size) {
    report_violation(violation_kind::bad_deallocate, options_.name,
                     "planned_arena '%s': deallocate of %zu bytes at %p: %s", options_.name, bytes, block,
                     has_other_size ? "the block has another size" : "no block in use begins there");
    return;
  }
  if (host_accessible_) poison(address, found->max_bytes);
  // Only of this step's blocks: of earlier ones it would say that their slots were clear in this run.
  if (found->plan != nullptr && found->born >= begin_) found->plan->set_died(found->index, now_);
  foreign_.remove(*found);
  update_fast_path();
}

// ---- steps ---------------------------------------------------------------------------------------------

void planned_core::begin(step& opened) {
  const call_overlap::call here{calls_, planned_kind, options_.name, "a step begins"};
  if (step_ != nullptr) throw std::logic_error{message(options_, "a step is open already")};
  if (!plan_->all_deallocated()) foreign_.detach_live(*plan_, false);
  step_ = &opened;
  phase_ = phase::choosing;
  begin_ = ++now_;  // later than what was deallocated since the last request
  plan_->begin(begin_);
  missing_slots_.clear();
  step_fallback_ = 0;
  plan_before_ = nullptr;
  update_fast_path();
}

void planned_core::end_step() noexcept {
  const call_overlap::call here{calls_, planned_kind, options_.name, "a step ends"};
  const bool has_requests = phase_ != phase::choosing || plan_->cursor() != 0;
  const bool was_recording = phase_ == phase::recording;
  step_ = nullptr;
  phase_ = phase::idle;
  ++steps_;
  try {
    if (was_recording) {
      if (plans_at_end_ && plan_step()) cache_.record_use(*cache_.plans().back());
    } else if (has_requests) {
      end_replay();
    }
  } catch (...) {
    // No memory to plan with, or more than a plan can have: the step is recorded again when it comes again.
    missing_slots_.clear();
  }
  recorder_.next_step();
  // Once more when the blocks are gone that were live at the end of a step without a plan.
  if (is_trim_due_) {
    region_.keep_only(std::max(used_bytes_end(), was_recording ? 0 : plan_->plan().height));
    is_trim_due_ = was_recording;
  }
  update_fast_path();
}

void planned_core::end_replay() {
  if (step_fallback_ == 0) {
    ++planned_steps_;
    if (plan_->misses != 0) --plan_->misses;
  }
  if (step_fallback_ * min_requests_per_fallback <= now_ - begin_) unused_plans_ = 0;
  plan_->was_given_up = false;
  plan_->used_last = steps_;
  cache_.record_use(*plan_);
  add_slots();
  // A new plan for other sizes replaces this one, which has served them too.
  if (plan_->blocks_stay_within_steps() && plan_step()) drop(*plan_);
}

// A second slot where the block of the step before was still live, and a further one where all were taken.
void planned_core::add_slots() {
  if (recorder_.has_carried()) {
    for (plan_replayer::outliving_request const& outliving : plan_->outliving()) {
      plan_replayer::slot const& newest = plan_->newest(outliving.request);
      if (newest.born >= begin_ && outliving.slots.size() < std::min<std::size_t>(2, options_.max_slots) &&
          recorder_.overlaps_carried(newest.bytes, newest.born))
        missing_slots_.push_back(outliving.request);
    }
  }
  if (!missing_slots_.empty()) keep(with_more_slots(plan_->plan(), missing_slots_));
}

// ---- choosing plans ------------------------------------------------------------------------------------

// False: the step is recorded.
bool planned_core::choose_plan(std::size_t bytes, std::size_t align) {
  phase_ = phase::replaying;
  if (plan_->cursor() != 0) return true;  // the fast path has served it by the only plan
  kept_plan* const chosen = cache_.choose(bytes, align);
  if (chosen != nullptr && change_to(*chosen)) return true;
  // Without memory for it the plan is not wrong, but made anew now and then: the step may have changed.
  give_up(chosen == nullptr || ++chosen->misses >= options_.max_misses);
  return false;
}

// Another plan for exactly what the step requested so far and requests now.
bool planned_core::switch_plan(std::size_t bytes, std::size_t align) {
  if (plan_before_ != nullptr || step_fallback_ != 0) return false;
  kept_plan* const other = cache_.find_agreeing(*plan_, bytes, align);
  if (other == nullptr) return false;
  const std::size_t next = plan_->cursor();
  kept_plan* const before = plan_;
  const bool is_held = change_to(*other);
  if (plan_ != before) plan_before_ = before;
  plan_->advance_to(next);
  if (!is_held) give_up(++other->misses >= options_.max_misses);
  return is_held && plan_->fits(next, bytes, align);
}

// Makes a plan the current one. @return whether there is memory behind it
bool planned_core::change_to(kept_plan& plan) {
  bool is_held = false;
  try {
    if (&plan != plan_) {
      foreign_.detach_live(*plan_, true);
      plan_ = &plan;
      plan_->begin(begin_);
      missing_slots_.clear();
    }
    const bool is_unused = foreign_.live() == 0 && plan_->used_blocks() == 0;
    is_held = region_.hold(plan_->plan().height, plan_->alignment(), is_unused);
  } catch (...) {
    // The fallback may have some.
    if (&plan != plan_) return false;
  }
  if (region_.committed_bytes() != 0) plan_->bind(region_.base(), host_accessible_);
  foreign_.adopt_into(*plan_, begin_);
  update_fast_path();
  return is_held;
}

// The fast path needs memory behind all of the plan, and no foreign blocks. Before the first request it
// serves only where there is nothing to choose.
void planned_core::update_fast_path() noexcept {
  const bool is_chosen =
      phase_ == phase::replaying || (phase_ == phase::choosing && cache_.size() == 1 && !plan_->was_given_up);
  const bool is_bound = region_.committed_bytes() >= plan_->plan().height &&
                        plan_->base() == region_.base() && plan_->base() % plan_->alignment() == 0;
  plan_->enable_fast_path(is_chosen && is_bound && foreign_.live() == 0);
}

// ---- planning ------------------------------------------------------------------------------------------

// @return whether a plan was made.
bool planned_core::plan_step() {
  if (steps_ < next_planning_) return false;
  record_served(*plan_);
  if (plan_before_ != nullptr) record_served(*plan_before_);
  if (!recorder_.is_complete()) return false;
  keep(recorder_.plan(options_.planning, options_.max_slots, obstacles()));
  ++plans_made_;
  if (++unused_plans_ <= options_.max_plans) return true;
  const std::size_t doublings =
      std::min<std::size_t>(unused_plans_ - options_.max_plans, max_unplanned_steps_log2);
  next_planning_ = steps_ + (std::uint64_t{1} << doublings);
  return true;
}

// Foreign blocks that have outlived a whole step may live for long: a new plan lies beside them.
std::vector<byte_range> planned_core::obstacles() const {
  const std::size_t align = options_.planning.alignment;
  std::vector<byte_range> found;
  std::size_t end_before = 0;
  for (foreign_block const& block : foreign_.all()) {
    if (!block.live() || block.born >= begin_) continue;
    const std::size_t offset = block.address - region_.base(),
                      end = align_up(offset + block.max_bytes, align);
    const std::size_t begin = std::max(align_down(offset, align), end_before);
    if (end > begin) found.push_back({begin, end - begin});
    end_before = end;
  }
  return found;
}

void planned_core::record_served(kept_plan const& plan) {
  for (plan_replayer::slot const& s : plan.slots()) {
    if (s.born < begin_) continue;
    recorder_.add({.born = s.born,
                   .died = s.died > s.born ? s.died : 0,
                   .bytes = s.bytes,
                   .align = plan.planned(plan.request_of(s.index)).align});
  }
}

void planned_core::keep(step_plan plan) {
  auto made = std::make_unique<kept_plan>(std::move(plan));
  made->used_last = steps_;
  if (kept_plan* const displaced = cache_.displaced_by(*made)) drop(*displaced);
  cache_.keep(std::move(made));
}

void planned_core::drop(kept_plan& gone) {
  if (&gone == plan_) {
    foreign_.detach_live(gone, true);
    plan_ = &no_plan_;
  }
  if (&gone == plan_before_) plan_before_ = nullptr;
  foreign_.forget(gone);
  cache_.erase(gone);
}

void planned_core::use(step_plan plan) {
  const call_overlap::call here{calls_, planned_kind, options_.name, "use"};
  plan.require_valid();
  if (plan.alignment < alignof(std::max_align_t))
    throw std::invalid_argument{message(options_, "a plan whose blocks are aligned to less than 16 bytes")};
  if (step_ != nullptr) throw std::logic_error{message(options_, "a plan is added while a step is open")};
  if (plan.requests != 0) keep(std::move(plan));
}

// ---- the rest ------------------------------------------------------------------------------------------

template <class Visit>
void planned_core::each_block_in_use(Visit visit) const {
  for (foreign_block const& block : foreign_.all()) {
    if (block.live()) visit(block.address, block.address + block.max_bytes);
  }
  for (plan_replayer::slot const& s : plan_->slots()) {
    if (s.live()) visit(s.address, s.address + s.max_bytes);
  }
}

// Where the highest block that is in use ends, from the base.
std::size_t planned_core::used_bytes_end() const noexcept {
  std::uintptr_t highest = region_.base();
  each_block_in_use([&](std::uintptr_t, std::uintptr_t end) { highest = std::max(highest, end); });
  return highest - region_.base();
}

std::size_t planned_core::trim() noexcept {
  const call_overlap::call here{calls_, planned_kind, options_.name, "trim"};
  const std::size_t before = region_.committed_bytes();
  const bool needs_plan = phase_ == phase::choosing || phase_ == phase::replaying;
  region_.keep_only(std::max(used_bytes_end(), needs_plan ? plan_->plan().height : 0));
  update_fast_path();
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
          .plans = cache_.size(),
          .used_blocks = plan_->used_blocks() + foreign_.live(),
          .height_bytes = plan_->plan().height,
          .lower_bound_bytes = plan_->plan().lower_bound,
          .committed_bytes = region_.committed_bytes(),
          .reserved_bytes = region_.range().size};
}

void planned_core::check_invariants() const noexcept {
  const invariant_check require{"planned_arena", options_.name};
  require(std::ranges::is_sorted(foreign_.all(), {}, &foreign_block::address), "foreign blocks are sorted");
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  each_block_in_use([&](std::uintptr_t begin, std::uintptr_t end) { ranges.emplace_back(begin, end); });
  std::ranges::sort(ranges);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    require(i == 0 || ranges[i - 1].second <= ranges[i].first, "blocks in use do not overlap");
    require(
        ranges[i].first >= region_.base() && ranges[i].second - region_.base() <= region_.committed_bytes(),
        "blocks in use lie in committed memory");
  }
  require(plan_->cursor() <= plan_->requests(), "cursor <= requests");
  require(cache_.size() <= options_.max_plans, "plans <= max_plans");
  require((phase_ == phase::idle) == (step_ == nullptr), "idle if and only if no step is open");
  for (auto const& plan : cache_.plans()) {
    require(plan.get() == plan_ || plan->used_blocks() == 0, "only the current plan has live slots");
  }
}

}  // namespace tidemark::detail

namespace tidemark {
template class basic_planned_arena<virtual_memory>;
}  // namespace tidemark
