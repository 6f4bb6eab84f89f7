// SPDX-License-Identifier: Apache-2.0
// The slow path of `planned_arena`. A request that misses the fast path is matched with the plan a few
// requests ahead. Without a slot it comes from the fallback. The end of a step pairs its requests with the
// requests of the plan, and the differences decide on a new plan.
#include <tidemark/plan/replay/detail/planned_core.hpp>

#include <algorithm>
#include <bit>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "step_records.hpp"

namespace tidemark::detail {
namespace {

// A request is searched for this many requests ahead; each consecutive miss doubles the number.
constexpr std::size_t requests_ahead = 4, max_doublings = 5;
// A step follows its plan if at most one request in eight is extra or was left out.
constexpr std::uint64_t min_requests_per_miss = 8;
// The plan is dropped for the rest of a step if at least this many requests, and more than half of all,
// resemble no request of the plan.
constexpr std::uint64_t unknown_requests_to_drop_plan = 4;
// Steps are compared with the plan up to this difference in the number of requests.
constexpr std::size_t max_difference = 256;
// An extra request is planned if a step with extra requests comes again within this many steps.
constexpr std::size_t max_steps_between_more = 8;
// A plan that has far too much for this many consecutive steps is replaced.
constexpr std::size_t max_loose_steps = 2;
// A kind whose plans no step follows rests for at most 2^6 steps, which are not recorded.
constexpr std::size_t max_rest_doublings = 6;
// Steps after a refused region that do not request the height of the highest plan.
constexpr std::uint64_t steps_after_refusal = 64;
// The fallback is trimmed once it has served more than this part of the highest plan.
constexpr std::size_t fallback_share = 64;
// Less memory is not returned to the system, because later faults cost more than the memory is worth.
constexpr std::size_t min_trim_bytes = 1 * MiB;
// Blocks that die between steps are placed in a borrowed region if that saves more than this part of its
// height.
constexpr std::size_t early_share = 128;

std::string message(planned_arena_options const& options, char const* what) {
  return std::string{planned_kind} + " '" + options.name + "': " + what;
}

// Adds the defaults that depend on the memory.
planned_arena_options completed(planned_arena_options options, bool host_accessible) {
  if (options.name == nullptr) options.name = planned_arena_options{}.name;
  const auto require = [&](bool holds, char const* what) {
    if (!holds) throw std::invalid_argument{message(options, what)};
  };
  require(std::has_single_bit(options.alignment) && options.alignment >= alignof(std::max_align_t),
          "alignment is not a power of two from 16");
  require(options.max_misses != 0, "max_misses is 0");
  require(options.max_kinds != 0, "max_kinds is 0");
  require(options.max_slots != 0, "max_slots is 0");
  require(options.fallback != nullptr || host_accessible,
          "no fallback is named, and the default resource is the host's");
  if (options.fallback == nullptr) options.fallback = std::pmr::get_default_resource();
  return options;
}

// Pairs the requests of a step with requests of the plan at the least cost. A pair costs 0 if the sizes
// resemble each other, and 3 otherwise. A request without a partner costs 2. The method is the edit distance
// of two texts (Wagner and Fischer 1974), near the diagonal. @return number of requests that the plan lacks
std::size_t pair_with_plan(std::span<recorded_request> step, learned_step const& plan) {
  std::size_t begin = 0, end = step.size(), plan_end = plan.size();
  const std::size_t difference = std::max(end, plan_end) - std::min(end, plan_end);
  if (difference > max_difference) return step.size();  // another kind of step
  for (; begin < std::min(end, plan_end) && plan[begin].resembles(step[begin].bytes); ++begin)
    step[begin].request = begin;
  while (std::min(end, plan_end) > begin && plan[plan_end - 1].resembles(step[end - 1].bytes))
    step[--end].request = --plan_end;
  const std::size_t rows = end - begin, columns = plan_end - begin;
  const std::size_t band = difference + 32, width = 2 * band + 1;
  enum way : std::uint8_t { pair, more, less };
  constexpr std::uint32_t never = 1U << 30;
  // Costs of this row or the previous row, by column - row + band + 1. The first and the last cost never
  // change.
  std::vector<std::uint32_t> cost(width + 2, never);
  std::vector<way> ways((rows + 1) * width);
  for (std::size_t row = 0; row <= rows; ++row) {
    for (std::size_t k = 0; k < width; ++k) {
      const std::size_t column = row + k - band;  // wraps below 0
      const bool has_pair = row != 0 && column - 1 < columns;
      const bool is_like = has_pair && plan[begin + column - 1].resembles(step[begin + row - 1].bytes);
      const std::uint32_t paired = has_pair ? cost[k + 1] + (is_like ? 0 : 3) : never;
      const std::uint32_t with_more = cost[k + 2] + 2, least = std::min({paired, with_more, cost[k] + 2});
      ways[row * width + k] = least == paired ? pair : least == with_more ? more : less;
      cost[k + 1] = column > columns ? never : row == 0 && column == 0 ? 0 : least;
    }
  }
  std::size_t extra = 0;
  for (std::size_t row = rows, column = columns; row != 0;) {
    const way taken = ways[row * width + column + band - row];
    if (taken != less) --row;
    if (taken != more) --column;
    if (taken != less) step[begin + row].request = taken == pair ? begin + column : no_request;
    if (taken == more) ++extra;
  }
  return extra;
}

// Adds a step to the learned requests. Requests that the step lacks become optional, and the others get the
// larger size. If a block was in the way of another, blocks also get the longer lifetime. @return true if a
// new plan is needed
bool add_to_learned(std::span<recorded_request const> step, bool has_conflicts, learned_step& learned,
                    plan_replayer& plan) {
  bool is_more = false;
  std::size_t next = learned.size();  // first request of the plan after the visited requests of the step
  std::vector<std::size_t> positions(step.size() + 1, next);
  for (std::size_t i = step.size(); i != 0; --i) {
    if (step[i - 1].request != no_request) next = step[i - 1].request;
    positions[i - 1] = next;
  }
  next = 0;
  for (recorded_request const& made : step) {
    if (made.request == no_request) continue;
    for (; next < made.request; ++next) learned[next].is_optional = true;
    learned_request& known = learned[next++];
    is_more = is_more || !plan.fits(made.request, made.bytes, made.align);
    known.add(made.bytes, made.align);
    if (!has_conflicts || made.died == 0 || known.upper > learned.size()) continue;
    const std::size_t upper = positions[std::min<std::size_t>(made.died - step.front().born, step.size())];
    is_more = is_more || upper > known.upper;
    known.upper = std::max<std::uint64_t>(known.upper, upper);
  }
  for (; next < learned.size(); ++next) learned[next].is_optional = true;
  for (std::size_t i = 0; i < learned.size(); ++i)
    if (learned[i].is_optional) plan.exclude_from_fast_path(i);
  return is_more;
}

// Returns true if few steps followed the repeated plans of the kind. The next steps of the kind are then not
// recorded, twice as many each time, and one plan is made afterwards.
bool must_rest(kind_of_step& kind) noexcept {
  if (kind.debt < max_debt || kind.has_rested) return false;
  kind.has_rested = true;
  kind.rest_steps = std::size_t{1} << std::min(kind.debt / debt_of_plan - 2, max_rest_doublings);
  return true;
}

// Returns true if a step needed far less than the plan and the plan must be replaced. The first step of a
// kind often needs more than later steps, and its plan is replaced at once.
bool is_loose(kind_of_step& kind, std::uint64_t requests) noexcept {
  if (requests * min_requests_per_miss >= kind.plan->requests() * (min_requests_per_miss - 1)) {
    kind.was_matched = true;
    kind.loose_steps = 0;
    return false;
  }
  return ++kind.loose_steps >= max_loose_steps || (!kind.was_matched && kind.plans_made == 1);
}

}  // namespace

planned_core::planned_core(planned_region& region, bool host_accessible, planned_arena_options const& options)
    : region_{region},
      options_{completed(options, host_accessible)},
      observer_{observer_of(options_.observer, options_.name)},
      host_accessible_{host_accessible},
      is_borrowed_{region.upstream() == options_.fallback},
      kinds_{std::make_unique<kinds_of_steps>(options_.max_kinds, !is_borrowed_)},
      foreign_{std::make_unique<foreign_blocks>()},
      recorder_{std::make_unique<step_recorder>()} {
  if (is_borrowed_) {
    options_.max_slots = 1;  // slots of blocks that outlive a step have no bytes
    // The first plan then gets memory that the fallback does not hold in excess.
    if (auto* const ours = dynamic_cast<distinct_resource*>(options_.fallback)) ours->release_unused();
  }
  no_plan_.move_position_to(fast_path_);
}

planned_core::~planned_core() {
  if (step_ == nullptr) return;
  *step_ = nullptr;
  report_violation(violation_kind::scope_outlived, options_.name,
                   "planned_arena '%s': destroyed while a step is open", options_.name);
}

// ---- allocating ----------------------------------------------------------------------------------------

void* planned_core::allocate_slow(std::size_t bytes, std::size_t align) {
  if (observer_ == nullptr && std::has_single_bit(align)) return find_block(bytes, align);
  require_power_of_two(planned_kind, options_.name, align);
  const auto allocate = [&] {
    plan_replayer::fast_path& position = plan_->position();
    plan_replayer::slot* const next = position.next_in_order(bytes, align);
    return next != nullptr ? position.assign_next(*next, bytes, now_) : find_block(bytes, align);
  };
  return allocate_observed(*observer_, bytes, align, allocate,
                           [&](void* block) { reclaim_block(block, bytes, align); });
}

void* planned_core::find_block(std::size_t bytes, std::size_t align) {
  if (step_ == nullptr) {
    void* const block = allocate_from(*options_.fallback, options_.name, bytes, align);
    ++outside_allocations_;
    return block;
  }
  if (last_kind_ != nullptr) learn_from_previous_step();
  if (server_ == server::plan_uncommitted) commit_plan();
  std::size_t request = no_request;
  if (server_ == server::plan) {
    if (void* const block = assign_slot(bytes, align, request)) return block;
  }
  is_refused_ = true;  // unless the fallback has a block
  void* const block = allocate_from(*options_.fallback, options_.name, bytes, align);
  is_refused_ = false;
  if (is_recorded_) recorder_->on_allocate(block, {now_, 0, bytes, align, request});
  ++now_;
  ++fallback_allocations_;
  if (is_borrowed_ && request != no_request && plan_->outlives(static_cast<std::uint32_t>(request)))
    return block;  // served by the plan
  ++step_fallback_;
  fallback_bytes_ += bytes;
  if (kind_->plan != nullptr) ++misses_;
  if (server_ == server::plan && step_unknown_ >= unknown_requests_to_drop_plan &&
      2 * step_unknown_ > now_ - begin_) {
    server_ = server::plan_dropped;
    region_.decommit_above(used_bytes_end());  // the fallback needs the memory
    update_fast_path();
  }
  return block;
}

// Returns null if the plan has no free slot for the request. @param request set if the request of the plan is
// known
void* planned_core::assign_slot(std::size_t bytes, std::size_t align, std::size_t& request) {
  std::size_t found = find_request(bytes);
  if (found == no_request) {
    found = plan_->cursor();
    if (misses_in_a_row_ != 0 || !plan_->fits(found, bytes, align)) {
      ++step_unknown_;
      // Either an extra request, or the next request in another size. The following requests show which.
      ++misses_in_a_row_;
      update_fast_path();
      return nullptr;
    }
  }
  misses_in_a_row_ = 0;
  update_fast_path();
  request = found;
  plan_->advance_to(found + 1);
  if (is_borrowed_ && plan_->outlives(static_cast<std::uint32_t>(found))) return nullptr;
  if (!plan_->fits(found, bytes, align)) return nullptr;
  plan_replayer::slot* const slot = plan_->clear_slot(
      found, [&](plan_replayer::slot const& one) { return !foreign_->overlap(one.address, one.max_bytes); });
  if (slot != nullptr) return plan_->assign(*slot, bytes, now_);
  on_conflict(found);
  return nullptr;
}

// Finds the next request of the plan that may be this request: usually the next one, or some were left out.
std::size_t planned_core::find_request(std::size_t bytes) const noexcept {
  const std::size_t next = plan_->cursor();
  const std::size_t ahead = requests_ahead << std::min(misses_in_a_row_, max_doublings);
  for (std::size_t i = next; i < std::min(plan_->requests(), next + ahead); ++i) {
    if (kind_->learned[i].resembles(bytes)) return i;
  }
  return no_request;
}

// If all slots of a request hold blocks of earlier steps, the plan is right, but needs one more slot.
void planned_core::on_conflict(std::size_t request) noexcept {
  const std::span<std::uint32_t const> own = plan_->own_slots_of(request);
  const auto is_occupied = [&](std::uint32_t i) {
    plan_replayer::slot const& slot = plan_->all_slots()[i];
    foreign_block const* const foreign = foreign_->find(slot.address);
    return slot.live() || (foreign != nullptr && foreign->max_bytes == slot.max_bytes);
  };
  if (own.empty() || own.size() >= options_.max_slots || !std::ranges::all_of(own, is_occupied)) {
    ++step_conflicts_;
    return;
  }
  kind_->learned[request].slot_count = own.size() + 1;
  has_missing_slots_ = true;
}

// ---- deallocating --------------------------------------------------------------------------------------

void planned_core::deallocate_out_of_order(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) return;
  if (observer_ != nullptr) observer_->released(block, bytes);
  reclaim_block(block, bytes, align);
}

void planned_core::reclaim_block(void* block, std::size_t bytes, std::size_t align) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (!region_.range().contains(address)) {
    if (is_recorded_ || (is_borrowed_ && last_kind_ != nullptr)) recorder_->on_deallocate(block, bytes, now_);
    has_returned_ = true;
    options_.fallback->deallocate(block, bytes, align);
    return;
  }
  plan_replayer::slot const* const slot = check_level < 2 ? nullptr : plan_->live_at(address);
  if ((slot == nullptr || slot->bytes == bytes) && plan_->deallocate(address, now_)) return;
  deallocate_foreign(block, bytes);
}

void planned_core::deallocate_foreign(void* block, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  foreign_block* const found = foreign_->find(address);
  const bool has_other_size =
      found != nullptr ? check_level >= 2 && found->bytes != bytes : plan_->live_at(address) != nullptr;
  if (found == nullptr || has_other_size) {
    report_violation(violation_kind::bad_deallocate, options_.name,
                     "planned_arena '%s': deallocate of %zu bytes at %p: %s", options_.name, bytes, block,
                     has_other_size ? "the block has another size" : "no block in use begins there");
    return;
  }
  if (host_accessible_) poison(address, found->max_bytes);
  // Only for a slot with bytes of its own. For another slot the death would mark its predecessors as clear.
  if (!is_borrowed_ && last_kind_ != nullptr && found->born >= last_begin_ &&
      last_kind_->plan->outlives(found->index))
    last_kind_->plan->set_died(found->index, now_);
  if (is_recorded_) recorder_->on_deallocate_earlier(found->bytes, now_);
  foreign_->remove(*found);
  update_fast_path();
}

// ---- steps ---------------------------------------------------------------------------------------------

void planned_core::begin(planned_core*& opened, std::uint64_t kind) {
  const call_overlap::call here{calls_, planned_kind, options_.name, "a step begins"};
  if (step_ != nullptr) throw std::logic_error{message(options_, "a step is open already")};
  switch_to(kind);
  step_ = &opened;
  opened = this;
  begin_ = ++now_;  // later than all deallocations since the last request
  plan_->begin(begin_);
  if (kind_->plan == nullptr) static_cast<void>(must_rest(*kind_));
  if (is_borrowed_ && last_kind_ == nullptr) recorder_->clear();
  is_recorded_ = kind_->rest_steps == 0;
  if (!is_recorded_) --kind_->rest_steps;
  is_refused_ = has_missing_slots_ = false;
  misses_in_a_row_ = 0;
  step_unknown_ = step_conflicts_ = step_fallback_ = 0;
  if (foreign_->live() != 0) foreign_->find_blocking(*plan_);
  server_ = server::fallback;
  if (kind_->plan != nullptr) {
    const bool is_committed = plan_->base() == region_.base() &&
                              (plan_->base() & (plan_->alignment() - 1)) == 0 &&
                              region_.committed_bytes() >= plan_->height();
    server_ = is_committed && last_kind_ == nullptr ? server::plan : server::plan_uncommitted;
  } else if (is_recorded_ && !kind_->learned.empty()) {
    server_ = server::plan_uncommitted;
  } else if (region_.committed_bytes() >= min_trim_bytes) {
    region_.decommit_above(used_bytes_end());  // the fallback needs the memory
  }
  update_fast_path();
  if (observer_ != nullptr) observer_->step_began(kind_->kind);
}

// @throws std::bad_alloc; the plan has not changed then
void planned_core::switch_to(std::uint64_t kind) {
  kind_of_step* to = kind_ != nullptr && kind_->kind == kind ? kind_ : kinds_->find(kind);
  if (to == nullptr) {
    if (last_kind_ != nullptr && last_kind_->plan == nullptr) learn_from_previous_step();
    detach_plan();
    kind_ = last_kind_ = nullptr;  // `add` may replace the kind
    to = &kinds_->add(kind);
  }
  plan_replayer* const plan = to->plan != nullptr ? to->plan.get() : &no_plan_;
  if (plan != plan_) {
    detach_plan();
    set_plan(*plan);
  } else if (!plan_->all_deallocated()) {
    foreign_->detach_live(*plan_, false);
  }
  kind_ = to;
}

void planned_core::set_plan(plan_replayer& plan) noexcept {
  if (observer_ == nullptr) {
    plan_->take_position();
    plan.move_position_to(fast_path_);
  }
  plan_ = &plan;
}

void planned_core::detach_plan() {
  if (!plan_->all_deallocated() || !plan_->own_slots().empty()) foreign_->detach_live(*plan_, true);
  plan_->enable_fast_path(false);
  set_plan(no_plan_);
}

// Returns the fallback's free memory, because a plan needs it from now on. Unused plans cause no trims.
void planned_core::trim_fallback(std::size_t trims_due) noexcept {
  trims_due_ = trims_due;
  if (!std::exchange(has_returned_, false)) return;
  if (auto* const ours = dynamic_cast<distinct_resource*>(options_.fallback)) ours->release_unused();
  if (host_accessible_ && highest_plan() >= min_trim_bytes) trim_heap();
}

// Commits memory for the plan of the step, and makes the plan if the kind has learned requests. Without
// memory the plan stays, and the next step tries again. A borrowed region is as high as the highest plan, so
// that other kinds need no calls; after a refusal some steps take only the height of their own plan.
void planned_core::commit_plan() {
  server_ = server::fallback;
  try {
    if (kind_->plan == nullptr) {
      plan_anew(*kind_, std::move(kind_->learned), last_begin_);
      set_plan(*kind_->plan);
      plan_->begin(begin_);
    }
    if (trims_due_ != 0 && !is_borrowed_) trim_fallback(trims_due_);
    const bool is_movable = is_unused();
    const bool is_for_all = is_borrowed_ && is_movable && plan_->height() != 0 && steps_ >= refused_until_;
    const std::size_t bytes = is_for_all ? highest_plan() : plan_->height();
    if (is_borrowed_ && is_movable && region_.committed_bytes() < bytes) region_.decommit_above(0);
    if (region_.commit_front(bytes, plan_->alignment(), is_movable)) server_ = server::plan;
  } catch (...) {  // the fallback may have memory
    refused_until_ = steps_ + steps_after_refusal;
  }
  // A trim counts also if the plan got no memory, or each such step would trim.
  if (server_ != server::plan && !is_borrowed_ && trims_due_ != 0) --trims_due_;
  // Warns once, because each step would repeat the warning.
  const bool has_no_memory = server_ != server::plan && kind_->plan != nullptr;
  if (has_no_memory && region_.range().empty() && !std::exchange(has_warned_, true)) {
    char const* const why = region_.refusal();
    report_warning(
        warning_kind::refused_memory, options_.name,
        "planned_arena '%s': the fallback serves all requests, because no range of %zu bytes can be "
        "reserved for a plan%s%s",
        options_.name, plan_->height(), why[0] != '\0' ? ": " : "", why);
  }
  if (region_.committed_bytes() != 0) plan_->bind(region_.base(), host_accessible_);
  foreign_->find_blocking(*plan_);
  update_fast_path();
}

void planned_core::update_fast_path() noexcept {
  plan_->enable_fast_path(server_ == server::plan && foreign_->in_way() == 0 && misses_in_a_row_ == 0);
}

void planned_core::end_step() noexcept {
  const call_overlap::call here{calls_, planned_kind, options_.name, "a step ends"};
  if (observer_ != nullptr) observer_->step_ended();
  step_ = nullptr;
  ++steps_;
  const std::uint64_t requests = now_ - begin_;
  const bool is_planned = requests != 0 && step_fallback_ == 0 && !is_refused_;
  if (is_planned) {
    ++planned_steps_;
    if (kind_->debt != 0) --kind_->debt;
  } else if (step_fallback_ < requests) {
    ++partly_planned_steps_;
  }
  try {
    if (requests != 0 && is_recorded_) learn_from_step();
  } catch (...) {
    // No memory for a plan, or more bytes than a plan can have: the next step tries again.
  }
  last_kind_ = must_learn_later(requests) ? kind_ : nullptr;
  is_recorded_ = false;
  if (!is_borrowed_ || last_kind_ == nullptr) recorder_->clear();
  else recorder_->end_step();  // `learn_from_previous_step` reads the record
  last_begin_ = begin_;
  // Again after the next steps, in which the blocks that outlived the step die.
  if (trims_due_ != 0 && (is_planned || (!is_borrowed_ && step_fallback_ < requests)))
    trim_fallback(trims_due_ - 1);
  if (is_borrowed_ && is_unused()) region_.decommit_above(0);
  server_ = server::fallback;
  update_fast_path();
}

// Returns true if the first request of the next step shows which blocks that outlived this step are dead.
// @param requests number of requests of this step
bool planned_core::must_learn_later(std::uint64_t requests) const noexcept {
  if (!is_borrowed_) return server_ == server::plan && !plan_->own_slots().empty();
  if (requests == 0) return false;
  if (kind_->plan == nullptr) return is_recorded_ && server_ == server::fallback;
  return server_ == server::plan && plan_ != &no_plan_;  // the plan has not changed
}

// ---- learning ------------------------------------------------------------------------------------------

void planned_core::learn_from_step() {
  kind_of_step& kind = *kind_;
  if (server_ == server::plan || server_ == server::plan_dropped) {
    const bool is_whole = step_fallback_ == 0 && !is_refused_, has_too_much = is_loose(kind, now_ - begin_);
    if (is_whole && kind.misses != 0) --kind.misses;
    if (kind.more_due != 0) --kind.more_due;
    if (!is_whole || has_too_much || has_missing_slots_) learn_from_replay(has_too_much);
  } else if (kind.plan == nullptr && !is_borrowed_) {
    kind.learned = learn(*recorder_);
    // The plan of a further kind is made in its second step, because the kind may be replaced before.
    if (kinds_->all().size() == 1) plan_anew(kind, std::move(kind.learned), begin_);
  } else {
    return;  // the fallback needs its memory, or `learn_from_previous_step` knows more
  }
  if (fallback_bytes_ != 0) schedule_trims();
}

// The next steps trim the fallback if it has served much beside the highest plan.
void planned_core::schedule_trims() noexcept {
  if (is_borrowed_ || fallback_bytes_ <= highest_plan() / fallback_share) return;
  fallback_bytes_ = 0;
  trims_due_ = options_.max_slots;
}

// @param has_too_much true if the step needed far less than the plan
void planned_core::learn_from_replay(bool has_too_much) {
  kind_of_step& kind = *kind_;
  if (must_rest(kind)) {
    if (2 * step_fallback_ < now_ - begin_) return;
    detach_plan();
    kind.learned.clear();
    return kind.plan.reset();  // the plan served less than half of the step
  }
  for (plan_replayer::slot const& s : plan_->all_slots()) {
    const std::size_t request = plan_->request_of(s.index);
    if (s.born < begin_ && s.died > begin_) recorder_->on_deallocate_earlier(s.bytes, s.died);
    if (s.born < begin_) continue;
    recorder_->add({.born = s.born,
                    .died = s.died > s.born ? s.died : 0,
                    .bytes = s.bytes,
                    .align = kind.learned[request].align,
                    .request = request});
  }
  if (has_too_much || server_ == server::plan_dropped) return plan_again(kind, {});
  const std::span<recorded_request> step = recorder_->in_order();
  const std::size_t extra = pair_with_plan(step, kind.learned);
  kind.misses += extra + step_conflicts_;
  if (extra * min_requests_per_miss > step.size()) return plan_again(kind, {});
  const bool is_more = add_to_learned(step, step_conflicts_ != 0, kind.learned, *plan_);
  // Steps that lack the extra requests also follow that plan.
  bool has_all = extra != 0 && step.size() - extra == plan_->requests();
  if (has_all && kind.more_due == 0 && kind.plans_made > 1) {
    kind.more_due = max_steps_between_more;
    has_all = false;
  }
  if (has_all || kind.misses >= options_.max_misses) plan_again(kind, kind.learned);
  else if (is_more || has_missing_slots_ || step_conflicts_ * min_requests_per_miss > step.size())
    plan_anew(kind, kind.learned, begin_);
}

// Makes a plan from the requests of this step. @param before learned requests
void planned_core::plan_again(kind_of_step& kind, learned_step const& before) {
  plan_anew(kind, learn(*recorder_, before), begin_);
  kind.misses = 0;
}

// Blocks that outlive their step have bytes of their own. The first request of the next step shows which of
// them are already dead, such as gradients that a step frees first. Such blocks need their bytes only to the
// end of their step. In a borrowed region, the first plan of a kind is made here, because a second plan takes
// long.
void planned_core::learn_from_previous_step() {
  kind_of_step& kind = *std::exchange(last_kind_, nullptr);
  try {
    learned_step learned = is_borrowed_ ? learn_deaths(kind) : learn_early_deaths(kind);
    kind.early_steps = learned.empty() ? 0 : kind.early_steps + 1;
    if (!learned.empty() && (kind.early_steps >= max_loose_steps || kind.plans_made <= 1)) {
      plan_anew(kind, std::move(learned), last_begin_);
      set_plan(kind_->plan != nullptr ? *kind_->plan : no_plan_);
      plan_->begin(begin_);
      if (kind_->plan != nullptr) server_ = server::plan_uncommitted;
    }
  } catch (...) {
    // No memory for a plan: the plan stays.
  }
  if (is_borrowed_) recorder_->clear();  // this step is recorded next
}

// @return empty if no block died early
learned_step planned_core::learn_early_deaths(kind_of_step const& kind) const {
  const std::size_t requests = kind.learned.size();
  learned_step learned;
  for (std::uint32_t i : kind.plan->own_slots()) {
    plan_replayer::slot const& slot = kind.plan->all_slots()[i];
    if (slot.born < last_begin_ || slot.died <= slot.born) continue;
    if (learned.empty()) learned = kind.learned;
    const bool is_exact = begin_ - last_begin_ - 1 == requests;
    learned[kind.plan->request_of(i)].upper =
        is_exact ? std::min<std::uint64_t>(slot.died - last_begin_, requests) : requests;
  }
  return learned;
}

// As `learn_early_deaths`, for a borrowed region: one surviving block holds the whole region. The region
// includes blocks that die between steps only if this saves memory, and if no such block was ever live at the
// first request of the next step. @return empty if nothing changes
learned_step planned_core::learn_deaths(kind_of_step& kind) {
  const bool is_first = kind.plan == nullptr;
  learned_step early = is_first ? learn(*recorder_) : kind.learned, late = early;
  const std::size_t requests = early.size();
  bool has_early = false, has_late = false;
  std::size_t position = 0;
  const bool is_exact = begin_ - last_begin_ - 1 == requests;
  for (recorded_request const& made : recorder_->requests()) {
    const std::size_t n = is_first ? position++ : made.request;
    if (made.died == 0 || n == no_request || (is_first ? !made.outlived : early[n].upper <= requests))
      continue;
    early[n].upper =
        made.outlived || !is_exact ? requests : std::max<std::uint64_t>(made.died - last_begin_, n + 1);
    late[n].upper = requests + 1;
    has_early = true;
  }
  for (foreign_block const& block : foreign_->all()) {
    if (is_first || !block.live() || block.born < last_begin_) continue;
    late[kind.plan->request_of(block.index)].upper = requests + 1;
    has_late = kind.excludes_outliving = true;
  }
  if (has_early && !kind.excludes_outliving) {
    const std::size_t height = plan_beside(early, kind, last_begin_).height;
    if (plan_beside(late, kind, last_begin_).height > height + height / early_share) return early;
    kind.excludes_outliving = true;
  }
  return is_first || has_late ? late : learned_step{};
}

bool planned_core::is_unused() const noexcept { return foreign_->live() == 0 && plan_->used_blocks() == 0; }

step_plan planned_core::plan_beside(learned_step const& learned, kind_of_step const& kind,
                                    request_time begin) const {
  // Foreign blocks that have outlived a whole step may live long. The plan avoids their bytes.
  std::vector<byte_range> obstacles;
  std::size_t end_before = 0;
  for (foreign_block const& block : foreign_->all()) {
    if (!block.live() || block.born >= begin) continue;
    const std::size_t offset = block.address - region_.base(),
                      block_end = align_up(offset + block.max_bytes, options_.alignment);
    const std::size_t first = std::max(align_down(offset, options_.alignment), end_before);
    if (block_end > first) obstacles.push_back({first, block_end - first});
    end_before = block_end;
  }
  return plan_of(learned, {.alignment = options_.alignment,
                           .replans = std::max<std::size_t>(kind.plans_made, 1) - 1,
                           .obstacles = obstacles,
                           .prefix_end = kinds_->prefix_end(),
                           .max_slots = options_.max_slots});
}

// Makes a new plan. @param begin live blocks from before this moment are obstacles @throws std::bad_alloc, and
// the exceptions of `make_plan`; the plan has not changed then.
void planned_core::plan_anew(kind_of_step& kind, learned_step learned, request_time begin) {
  step_plan made = plan_beside(learned, kind, begin);
  if constexpr (check_level >= 2) made.require_valid();
  install_plan(kind, std::move(made));
  kind.learned = std::move(learned);
  for (std::size_t i = 0; i < kind.learned.size(); ++i)
    if (kind.learned[i].is_optional) kind.plan->exclude_from_fast_path(i);
  kind.loose_steps = kind.early_steps = 0;
  kind.debt = std::min(kind.debt, 2 * max_debt) + debt_of_plan;
  kind.has_rested = false;
  ++kind.plans_made;
  ++plans_made_;
  region_.decommit_above(std::max(used_bytes_end(), highest_plan()));
}

std::size_t planned_core::highest_plan() const noexcept {
  std::size_t highest = 0;
  for (kind_of_step const& one : kinds_->all())
    highest = std::max(highest, one.plan != nullptr ? one.plan->height() : 0);
  return highest;
}

void planned_core::install_plan(kind_of_step& kind, step_plan made) {
  auto plan = std::make_unique<plan_replayer>(std::move(made));
  detach_plan();  // plans are moved, their blocks are not
  last_kind_ = nullptr;
  if (is_borrowed_) {
    recorder_->clear();  // its requests are those of the previous plan
    trims_due_ = 2;      // blocks that outlive a step die in the next
  }
  kind.plan = std::move(plan);
  kinds_->lay_out();
}

void planned_core::use(step_plan plan, std::uint64_t kind) {
  const call_overlap::call here{calls_, planned_kind, options_.name, "use"};
  plan.require_valid();
  if (plan.alignment < alignof(std::max_align_t))
    throw std::invalid_argument{message(options_, "the plan's alignment is less than 16 bytes")};
  if (step_ != nullptr) throw std::logic_error{message(options_, "a plan is added while a step is open")};
  if (plan.requests == 0) return;
  learned_step learned = learn(plan);
  switch_to(kind);
  install_plan(*kind_, std::move(plan));
  kind_->learned = std::move(learned);
  kind_->misses = kind_->more_due = kind_->loose_steps = kind_->early_steps = kind_->plans_made = 0;
  kind_->debt = kind_->rest_steps = 0;
}

std::vector<step_plan> planned_core::plans() const {
  std::vector<step_plan> copied;
  for (kind_of_step const& one : kinds_->all()) {
    if (one.plan == nullptr && one.learned.empty()) continue;
    copied.push_back(one.plan != nullptr ? one.plan->plan() : plan_beside(one.learned, one, begin_));
    copied.back().kind = one.kind;
  }
  return copied;
}

// ---- the rest ------------------------------------------------------------------------------------------

template <class Visit>
void planned_core::each_block_in_use(Visit visit) const {
  for (foreign_block const& block : foreign_->all()) {
    if (block.live()) visit(block.address, block.address + block.max_bytes);
  }
  for (plan_replayer::slot const& s : plan_->all_slots()) {
    if (s.live()) visit(s.address, s.address + s.max_bytes);
  }
}

// Returns the offset of the end of the highest live block from the base.
std::size_t planned_core::used_bytes_end() const noexcept {
  std::uintptr_t highest = region_.base();
  each_block_in_use([&](std::uintptr_t, std::uintptr_t end) { highest = std::max(highest, end); });
  return highest - region_.base();
}

std::size_t planned_core::trim() noexcept {
  const call_overlap::call here{calls_, planned_kind, options_.name, "trim"};
  const std::size_t before = region_.committed_bytes();
  const bool needs_plan = server_ == server::plan || server_ == server::plan_uncommitted;
  region_.decommit_above(std::max(used_bytes_end(), needs_plan ? plan_->height() : 0));
  update_fast_path();
  return before - region_.committed_bytes();
}

planned_arena_stats planned_core::stats() const noexcept {
  // Each request of a step has a time, and the beginning of each step has one.
  const std::uint64_t begun = steps_ + (step_ != nullptr ? 1 : 0);
  const std::uint64_t planned = now_ - 1 - begun - fallback_allocations_;
  std::size_t plans = 0;
  for (kind_of_step const& one : kinds_->all()) plans += one.plan != nullptr ? 1 : 0;
  return {.name = options_.name,
          .steps = steps_,
          .planned_steps = planned_steps_,
          .partly_planned_steps = partly_planned_steps_,
          .unplanned_steps = steps_ - planned_steps_ - partly_planned_steps_,
          .allocations = planned + fallback_allocations_ + outside_allocations_,
          .planned_allocations = planned,
          .fallback_allocations = fallback_allocations_,
          .outside_allocations = outside_allocations_,
          .misses = misses_,
          .plans_made = plans_made_,
          .plans = plans,
          .used_blocks = plan_->used_blocks() + foreign_->live(),
          .height_bytes = plan_->height(),
          .lower_bound_bytes = std::min(plan_->plan().lower_bound, plan_->height()),
          .committed_bytes = region_.committed_bytes(),
          .reserved_bytes = region_.range().size};
}

void planned_core::check_invariants() const noexcept {
  const invariant_check require{"planned_arena", options_.name};
  require(std::ranges::is_sorted(foreign_->all(), {}, &foreign_block::address), "foreign blocks are sorted");
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
  require(kinds_->all().size() <= options_.max_kinds, "kinds <= max_kinds");
  for (kind_of_step const& one : kinds_->all()) {
    require(one.plan == nullptr || one.plan->requests() == one.learned.size(),
            "plans are of what was learned");
    require(one.plan.get() == plan_ || one.plan == nullptr || one.plan->used_blocks() == 0,
            "only the current plan has live slots");
  }
}

}  // namespace tidemark::detail

namespace tidemark {
template class basic_planned_arena<virtual_memory>;
}  // namespace tidemark
