// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/invariant_check.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/require.hpp>
#include <tidemark/core/detail/sanitizers.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

namespace tidemark::detail {
namespace {

// A request that does not fit is looked for so many requests ahead: the step left some out.
constexpr std::size_t max_requests_ahead = 16;
// A step is like its plan with one miss in so many requests, or fewer.
constexpr std::uint64_t min_requests_per_miss = 8;
// A plan that has paid for itself is not dropped for another one within so many steps of its last use.
constexpr std::uint64_t steps_in_use = 64;
// So much is kept when a plan is given up: to decommit it and to meet its pages again takes longer than such a
// step.
constexpr std::size_t max_kept_bytes = 1 * MiB;
// More is kept for a while, at most so many steps that no plan serves, where it was soon needed again.
constexpr std::uint64_t max_steps_kept = 64;
// The search behind the first order takes no longer than so many steps took that were recorded like this one.
constexpr int max_steps_of_search = 32;
constexpr std::chrono::microseconds min_search{100};

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
  // A step that no plan serves, and that is not recorded, costs no more than this beside the fallback.
  if (phase_ == phase::fallback && !records_ && std::has_single_bit(align)) {
    void* const block = allocate_from(*options_.fallback, name(), bytes, align);
    ++step_fallback_;
    count_fallback(bytes, align);
    return block;
  }
  if (plan_replayer::slot* const next = plan_->next_if_clear(bytes, align))
    return plan_->take(*next, bytes, now_);
  return allocate_slow(bytes, align);
}

void* planned_core::allocate_slow(std::size_t bytes, std::size_t align) {
  require_power_of_two(planned_kind, options_.name, align);
  if (phase_ == phase::idle) {
    void* const block = allocate_from(*options_.fallback, name(), bytes, align);
    ++outside_allocations_;
    return block;
  }
  const std::uint64_t misses_before = misses_;
  if (void* const block = take_slot(bytes, align)) return block;
  try {
    ++step_fallback_;
    void* const block = allocate_from(*options_.fallback, name(), bytes, align);
    if (records_) record_fallback(block, bytes, align);
    count_fallback(bytes, align);
    return block;
  } catch (...) {
    misses_ = misses_before;  // counted with a block, or not at all
    throw;
  }
}

void planned_core::count_fallback(std::size_t bytes, std::size_t align) noexcept {
  signature_.add(now_ - begin_, bytes, align);
  ++now_;
  ++fallback_allocations_;
}

void planned_core::record_fallback(void const* block, std::size_t bytes, std::size_t align) noexcept {
  if (recorder_.size() == 0) record_begin_ = std::chrono::steady_clock::now();
  recorder_.on_allocate(block, {.born = now_, .died = 0, .bytes = bytes, .align = align});
  ++recorded_allocations_;
}

// Null: the plan has no slot for the request.
void* planned_core::take_slot(std::size_t bytes, std::size_t align) {
  if (phase_ == phase::choosing && !choose_plan(bytes, align)) return nullptr;
  if (phase_ == phase::fallback) return nullptr;
  const std::size_t next = plan_->cursor();
  // A smaller request has the slot only if no other plan has just that one.
  const bool is_exact = next < plan_->requests() && plan_->planned(next).bytes == bytes;
  if (!is_exact) (void)switch_plan(bytes, align);
  if (phase_ == phase::fallback) return nullptr;  // there was no memory for the other plan
  if (plan_->fits(next, bytes, align)) {
    if (void* const block = take_if_clear(next, bytes)) return block;
    if (is_exact && switch_plan(bytes, align)) {
      if (void* const block = take_if_clear(next, bytes)) return block;
    }
    if (phase_ == phase::fallback) return nullptr;
    return take_slot_of(next, bytes);
  }
  const std::size_t end = std::min(plan_->requests(), next + max_requests_ahead);
  for (std::size_t i = next + 1; i < end; ++i) {
    if (plan_->planned(i).bytes == bytes && plan_->fits(i, bytes, align)) return take_slot_of(i, bytes);
  }
  record_miss();
  return nullptr;
}

// Null, with nothing changed, if each slot of the request has another block's bytes.
void* planned_core::take_if_clear(std::size_t request, std::size_t bytes) {
  plan_replayer::slot* const slot = plan_->clear_slot(request);
  if (slot == nullptr || foreign_.overlap(slot->address, slot->max_bytes)) return nullptr;
  plan_->advance_to(request + 1);
  return plan_->assign(*slot, bytes, now_);
}

// A slot of a request that fits there. Null, and the request is missed, if each has another block's bytes.
void* planned_core::take_slot_of(std::size_t request, std::size_t bytes) {
  if (void* const block = take_if_clear(request, bytes)) return block;
  plan_->advance_to(request + 1);
  plan_replayer::outliving_request const* const outliving = plan_->outliving_at(request);
  if (outliving != nullptr && outliving->indices.size() < options_.max_slots &&
      plan_->clear_slot(request) == nullptr) {
    missing_slots_.push_back(request);  // the plan is not wrong, but gets one more
    ++misses_;
  } else {
    record_miss();
  }
  return nullptr;
}

void planned_core::record_miss() {
  ++misses_;
  if (++step_misses_ < options_.max_misses) return;
  plan_->give_up(steps_);
  give_up(true);
}

// The rest of the step comes from the fallback, which needs the memory that the region does not, if that is
// much. Where steps with plans and without take turns, it would come and go each time.
void planned_core::give_up(bool plans_at_end) {
  phase_ = phase::fallback;
  plans_at_end_ = plans_at_end;
  if (region_.committed_bytes() > max_kept_bytes && ++steps_kept_ >= steps_to_keep_) {
    is_trim_due_ = true;
    decommitted_at_ = steps_;
    (void)trim();
  }
  update_fast_path();
}

// ---- deallocating --------------------------------------------------------------------------------------

void planned_core::deallocate_out_of_order(void* block, std::size_t bytes, std::size_t align) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (!region_.range().contains(address)) {
    if (block == nullptr) return;
    recorder_.on_deallocate(block, now_);
    options_.fallback->deallocate(block, bytes, align);
    return;
  }
  plan_replayer::slot const* const slot = check_level < 2 ? nullptr : plan_->live_at(address);
  if ((slot == nullptr || slot->bytes == bytes) && plan_->deallocate(address, now_)) return;
  deallocate_foreign(block, bytes);
}

void planned_core::deallocate_foreign(void* block, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
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
  records_ = has_room_for_a_plan() && budget_.records(steps_);
  step_fallback_ = step_misses_ = step_switches_ = 0;
  signature_ = {};
  if (foreign_.live() != 0) foreign_.find_in_way_of(*plan_);
  update_fast_path();
}

void planned_core::end_step() noexcept {
  const call_overlap::call here{calls_, planned_kind, options_.name, "a step ends"};
  const bool has_requests = now_ != begin_;
  const bool was_given_up = phase_ == phase::fallback;
  step_ = nullptr;
  ++steps_;
  try {
    if (has_requests && step_fallback_ == 0) end_planned_step();
    else if (has_requests) end_other_step();
  } catch (...) {
    // No memory to plan with, or more than a plan can have: the step is recorded again when it comes again.
    missing_slots_.clear();
  }
  phase_ = phase::idle;
  recorder_.next_step();
  // Once more when the blocks are gone that were live at the end of a step without a plan.
  if (is_trim_due_) {
    region_.keep_only(std::max(used_bytes_end(), was_given_up ? 0 : plan_->height()));
    is_trim_due_ = was_given_up;
  }
  update_fast_path();
}

void planned_core::end_planned_step() {
  ++planned_steps_;
  steps_kept_ = 0;
  if (plan_->misses != 0) --plan_->misses;
  plan_->given_up = 0;
  plan_->used_last = steps_;
  cache_.record_use(*plan_);
  if (++plan_->served == planning_budget::steps_to_pay) budget_.on_paid();
  // It has what recorded steps used.
  if (plan_->served == 1 && options_.trim_fallback != nullptr) options_.trim_fallback(*options_.fallback);
  kept_plan* const served_by = plan_;
  add_slots();
  if (plan_ != served_by) return;
  if (plan_->blocks_stay_within_steps()) plan_step(served_by);  // which has served other sizes, too
  else if (plan_->served == 1 && cache_.size() > 1) arrange_plans();
}

// A step that is much like its plan is blamed on that; another one on itself.
void planned_core::end_other_step() {
  const std::uint64_t requests = now_ - begin_;
  const bool is_replay = phase_ == phase::replaying;
  if (!is_replay && !plans_at_end_) return;
  std::uint64_t blame = is_replay ? step_misses_ : options_.max_misses;
  if (is_replay && step_misses_ * min_requests_per_miss <= requests) {
    plan_->used_last = steps_;
    plan_->given_up = 0;
    cache_.record_use(*plan_);
    blame = plan_->misses += step_misses_;
    if (blame < options_.max_misses) return add_slots();
    plan_->misses = 0;
  }
  step_signature whole = signature_;
  each_served([&](plan_replayer const& plan, plan_replayer::slot const& s) {
    whole.add(s.born - begin_, s.bytes, plan.planned(plan.request_of(s.index)).align);
  });
  if (has_room_for_a_plan() &&
      budget_.is_worth_a_plan(steps_, whole.value(), blame, options_.max_misses, records_))
    plan_step();
  else if (is_replay) add_slots();
}

// Plans that are in use stay.
bool planned_core::has_room_for_a_plan() const noexcept {
  kept_plan const* const oldest = cache_.oldest_if_full();
  return oldest == nullptr || oldest->served < planning_budget::steps_to_pay ||
         oldest->used_last + steps_in_use <= steps_;
}

// A second slot where the block of the step before was still live, and a further one where all were taken.
void planned_core::add_slots() {
  if (recorder_.has_carried()) {
    for (plan_replayer::outliving_request const& outliving : plan_->outliving()) {
      plan_replayer::slot const& newest = plan_->newest(outliving.request);
      if (newest.born >= begin_ && outliving.indices.size() < std::min<std::size_t>(2, options_.max_slots) &&
          recorder_.overlaps_carried(newest.bytes, newest.born))
        missing_slots_.push_back(outliving.request);
    }
  }
  if (missing_slots_.empty()) return;
  keep(with_more_slots(plan_->plan(), missing_slots_), plan_->served);
}

// ---- choosing plans ------------------------------------------------------------------------------------

// False: the fallback serves the step.
bool planned_core::choose_plan(std::size_t bytes, std::size_t align) {
  phase_ = phase::replaying;
  if (plan_->cursor() != 0) return true;  // the fast path has served it by the only plan
  kept_plan* const chosen = cache_.choose(steps_, bytes, align);
  if (chosen != nullptr && change_to(*chosen)) return true;
  // Without memory for it the plan is not wrong, but made anew now and then: the step may have changed.
  give_up(chosen == nullptr || ++chosen->misses >= options_.max_misses);
  return false;
}

// Another plan for exactly what the step requested so far and requests now. @return whether there is one
bool planned_core::switch_plan(std::size_t bytes, std::size_t align) {
  if (step_fallback_ != 0 || step_switches_ >= cache_.size()) return false;
  kept_plan* const other = cache_.find_agreeing(steps_, *plan_, bytes, align);
  if (other == nullptr) return false;
  ++step_switches_;
  const std::size_t next = plan_->cursor();
  const bool is_held = change_to(*other);
  plan_->advance_to(next);
  if (!is_held) give_up(++other->misses >= options_.max_misses);
  return is_held;
}

// Makes a plan the current one. @return whether there is memory behind it
bool planned_core::change_to(kept_plan& plan) {
  bool is_held = false;
  try {
    if (&plan != plan_) {
      foreign_.reserve_for(*plan_);
      plan.begin(begin_);
      if (region_.committed_bytes() != 0) plan.bind(region_.base(), host_accessible_);
      if (plan.base() == plan_->base()) plan.take_over(*plan_);
      foreign_.detach_live(*plan_, true);
      plan_ = &plan;
      missing_slots_.clear();
    }
    const bool is_unused = foreign_.live() == 0 && plan_->used_blocks() == 0;
    const std::size_t committed_before = region_.committed_bytes();
    is_held = region_.hold(plan_->height(), plan_->alignment(), is_unused);
    if (decommitted_at_ != 0 && region_.committed_bytes() > committed_before) {
      const bool is_soon = steps_ - decommitted_at_ <= max_steps_kept;
      // Of steps that a plan hardly ever serves wholly the count would stay above any number of steps to keep.
      if (is_soon && steps_to_keep_ > 1) steps_kept_ = 0;
      steps_to_keep_ = is_soon ? std::min(steps_to_keep_ * 2, max_steps_kept) : 1;
      decommitted_at_ = 0;
    }
  } catch (...) {
    warn_without_range(plan);
    // The fallback may have some.
    if (&plan != plan_) return false;
  }
  if (!is_held) warn_without_range(plan);
  if (region_.committed_bytes() != 0) plan_->bind(region_.base(), host_accessible_);
  foreign_.adopt_into(*plan_, begin_);
  foreign_.find_in_way_of(*plan_);
  update_fast_path();
  return is_held;
}

// Once: each step would say the same.
void planned_core::warn_without_range(kept_plan const& plan) noexcept {
  if (!region_.range().empty() || std::exchange(has_warned_, true)) return;
  char const* const why = region_.refusal();
  report_warning(warning_kind::refused_memory, options_.name,
                 "planned_arena '%s': the fallback serves all requests, because no range of %zu bytes can be "
                 "reserved for a plan%s%s",
                 options_.name, plan.height(), why[0] != '\0' ? ": " : "", why);
}

// The fast path needs memory behind all of the plan, and no foreign blocks in its way. Before the first
// request it serves only where there is nothing to choose.
void planned_core::update_fast_path() noexcept {
  const bool is_chosen =
      phase_ == phase::replaying || (phase_ == phase::choosing && cache_.size() == 1 && plan_->given_up == 0);
  const bool is_bound = region_.committed_bytes() >= plan_->height() && plan_->base() == region_.base() &&
                        plan_->base() % plan_->alignment() == 0;
  plan_->enable_fast_path(is_chosen && is_bound && foreign_.in_way() == 0);
}

// ---- planning ------------------------------------------------------------------------------------------

void planned_core::plan_step(kept_plan* replaced) {
  each_served([&](plan_replayer const& plan, plan_replayer::slot const& s) {
    recorder_.add({.born = s.born,
                   .died = s.died > s.born ? s.died : 0,
                   .bytes = s.bytes,
                   .align = plan.planned(plan.request_of(s.index)).align});
  });
  if (!recorder_.is_complete()) return;
  budget_.on_spent(steps_);
  plan_surroundings beside = cache_.surroundings(replaced);
  const std::vector<byte_range> foreign = obstacles();
  beside.obstacles = foreign;
  step_plan made = recorder_.plan(planning(), options_.max_slots, beside);
  if (replaced != nullptr) drop(*replaced);
  keep(std::move(made));
  cache_.record_use(*cache_.plans().back());
  ++plans_made_;
}

// The time limit is shorter where steps are: what a plan gains must pay for the search.
plan_options planned_core::planning() const {
  plan_options planned = options_.planning;
  if (planned.node_limit != plan_options{}.node_limit || step_fallback_ == 0) return planned;
  const std::chrono::nanoseconds step = std::chrono::steady_clock::now() - record_begin_;
  planned.time_limit = std::min(planned.time_limit,
                                std::max<std::chrono::nanoseconds>(min_search, max_steps_of_search * step));
  return planned;
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

// What plans served in this step.
template <class Visit>
void planned_core::each_served(Visit visit) const {
  for (auto const& plan : cache_.plans()) {
    if (plan->run_begin() != begin_) continue;
    for (plan_replayer::slot const& s : plan->all_slots()) {
      if (s.born >= begin_) visit(*plan, s);
    }
  }
}

void planned_core::keep(step_plan plan, std::uint64_t served) {
  auto made = std::make_unique<kept_plan>(std::move(plan));
  made->used_last = steps_;
  made->served = served;
  foreign_.detach_live(*plan_, true);  // plans are moved, their blocks are not
  foreign_.forget_slots();
  plan_ = &no_plan_;
  if (kept_plan* const displaced = cache_.displaced_by(*made)) drop(*displaced);
  cache_.keep(std::move(made));
}

// The zone that plans have in common counts one more.
void planned_core::arrange_plans() {
  foreign_.detach_live(*plan_, true);
  foreign_.forget_slots();
  cache_.arrange();
  plan_->bind(region_.base(), host_accessible_);
  foreign_.adopt_into(*plan_, begin_);
  foreign_.find_in_way_of(*plan_);
}

void planned_core::drop(kept_plan& gone) {
  if (&gone == plan_) {
    foreign_.detach_live(gone, true);
    plan_ = &no_plan_;
  }
  foreign_.forget_slots();
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
  for (plan_replayer::slot const& s : plan_->all_slots()) {
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
  region_.keep_only(std::max(used_bytes_end(), needs_plan ? plan_->height() : 0));
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
          .recorded_allocations = recorded_allocations_,
          .outside_allocations = outside_allocations_,
          .misses = misses_,
          .plans_made = plans_made_,
          .plans = cache_.size(),
          .used_blocks = plan_->used_blocks() + foreign_.live(),
          .height_bytes = plan_->height(),
          .lower_bound_bytes = std::min(plan_->plan().lower_bound, plan_->height()),
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
