// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slow paths of a shared arena: places of threads, marks and rewinds. See shared_arena.hpp for the class.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/team/shared_arena.hpp>

namespace tidemark {

template <class AddressSpace>
basic_shared_arena<AddressSpace>::basic_shared_arena(AddressSpace space, arena_options options,
                                                     team_options team)
    : options_{options},
      observer_{detail::observer_of(options.observer, detail::name_or(options.name, arena_options{}.name))},
      space_{std::move(space)},
      id_{detail::next_identity()} {
  options_.observer = observer_ == nullptr ? nullptr : &*observer_;
  if (options_.name == nullptr) options_.name = arena_options{}.name;
  if (options_.commit_step == 0) options_.commit_step = arena_options{}.commit_step;
  const std::size_t regions = std::max<std::size_t>(1, team.threads);
  const std::size_t granule = (std::max)(region_type::page_bytes, space_.granularity());
  const std::size_t reserve = options_.reserve != 0 ? options_.reserve : space_.chunk_bytes();
  const std::size_t share = (std::max)(reserve / regions, granule);
  team.min_extent_bytes = detail::align_up(std::clamp(team.min_extent_bytes, granule, share), granule);
  team.max_extent_bytes =
      detail::align_up(std::clamp(team.max_extent_bytes, team.min_extent_bytes, share + granule), granule);
  team_.options = team;
  arena_options of_region = options_;
  of_region.reserve = share;
  of_region.retain /= regions;
  of_region.trap = {};  // the parts warn
  of_region.observer = nullptr;
  for (std::size_t i = 0; i < regions; ++i) {
    team_.regions.push_back(std::make_unique<region_type>(space_, team_.mutex, of_region));
    if (AddressSpace::traits.reserves_at_once && !team_.regions.back()->reserve())
      throw out_of_memory{{.resource = options_.name,
                           .requested_bytes = share,
                           .alignment = default_alignment,
                           .because = team_.regions.back()->refusal_text()}};
    if (team.threads != 0) add_part(*team_.regions.back());
  }
}

template <class AddressSpace>
basic_shared_arena<AddressSpace>::~basic_shared_arena() {
  if (innermost_ != nullptr) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "shared_arena '%s' is destroyed while a scope on it, opened%s, is open", name(),
                             innermost_->where_.text().c_str());
    for (scope* open = innermost_; open != nullptr; open = open->outer_) open->arena_ = nullptr;
  }
  run_destructors(nullptr);
  threads_.deregister();
  for (std::unique_ptr<region_type>& region : team_.regions)
    region->begin_rewind();  // never ended: no sorting
}

// ---- a thread and its part --------------------------------------------------------------------------------

template <class AddressSpace>
auto basic_shared_arena<AddressSpace>::part_of_this_thread() -> part_type& {
  part_type* part = threads_.find();
  if (part == nullptr) {
    const std::scoped_lock lock{team_.mutex};
    part = &claim_part(free_part());
  }
  return *part;
}

// Requires the lock, as the next two functions do.
template <class AddressSpace>
auto basic_shared_arena<AddressSpace>::claim_part(part_type& part) -> part_type& {
  threads_.add(part);
  part.is_claimed = part.was_claimed = true;
  part.arena.release_thread_ownership();
  return part;
}

template <class AddressSpace>
auto basic_shared_arena<AddressSpace>::free_part() -> part_type& {
  const auto found = std::ranges::find(parts_, false, [](auto const& part) { return part->is_claimed; });
  if (found != parts_.end()) return **found;
  if (team_.options.threads != 0) {
    refuse<std::logic_error>(
        "allocate", {},
        "it is for " + std::to_string(team_.options.threads) + " threads, and all of them have handles");
  }
  add_part(*team_.regions.front());
  return *parts_.back();
}

template <class AddressSpace>
void basic_shared_arena<AddressSpace>::add_part(region_type& region) {
  arena_options options = options_;
  options.reserve = 0;
  options.growable = true;  // the region knows whether there is more memory
  options.retain =
      team_.options.max_extent_bytes;  // kept for its thread by a thread scope; the rest is for all
  const std::size_t index = parts_.size();
  parts_.push_back(std::make_unique<part_type>(memory_type{team_, region, index}, options, index));
}

template <class AddressSpace>
void basic_shared_arena<AddressSpace>::end(part_type& part) noexcept {
  if (part.arena.innermost_ != nullptr) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "shared_arena '%s': thread %zu leaves while it holds a thread scope, opened%s",
                             name(), part.index, part.arena.innermost_->where_.text().c_str());
    return;  // no other thread gets the place
  }
  const std::scoped_lock lock{team_.mutex};
  part.is_claimed = false;
}

template <class AddressSpace>
auto basic_shared_arena<AddressSpace>::local(detail::call_site where) -> local_type& {
  local_type& arena = part_of_this_thread().arena;
  arena.space_.set_place(where);
  return arena;
}

template <class AddressSpace>
auto basic_shared_arena<AddressSpace>::local(std::size_t index, detail::call_site where) -> local_type& {
  part_type* own = threads_.find();
  if (own == nullptr) {
    const std::scoped_lock lock{team_.mutex};
    const std::size_t places = team_.options.threads != 0 ? team_.options.threads : max_places;
    if (index >= places) {
      refuse<std::invalid_argument>(
          "local", where, "place " + std::to_string(index) + " is not in 0 to " + std::to_string(places - 1));
    }
    while (parts_.size() <= index) add_part(*team_.regions.front());
    if (parts_[index]->is_claimed) {
      refuse<std::logic_error>("local", where,
                               "place " + std::to_string(index) + " belongs to another thread");
    }
    own = &claim_part(*parts_[index]);
  }
  if (own->index != index) {
    refuse<std::logic_error>(
        "local", where,
        "the calling thread has place " + std::to_string(own->index) + ", not " + std::to_string(index));
  }
  return local(where);
}

template <class AddressSpace>
void basic_shared_arena<AddressSpace>::leave() noexcept {
  if (part_type* const own = threads_.find()) {
    threads_.remove();
    end(*own);
  }
}

template <class AddressSpace>
template <class Error>
void basic_shared_arena<AddressSpace>::refuse(char const* operation, detail::call_site where,
                                              std::string const& why) const {
  throw Error("shared_arena '" + std::string(name()) + "': cannot " + operation + where.text() + ": " + why);
}

// Returns the recorded mark of the thread at a place; null if the place was new and had allocated nothing.
template <class AddressSpace>
arena_mark const* basic_shared_arena<AddressSpace>::recorded(live_mark const* mark,
                                                             std::size_t index) const noexcept {
  if (mark == nullptr) return nullptr;
  const std::size_t last = mark == &marks_.back() ? positions_.size() : (mark + 1)->first;
  return index < last - mark->first ? &positions_[mark->first + index] : nullptr;
}

// Returns true if nothing was allocated or freed since the mark, or since a rewind to the mark.
template <class AddressSpace>
bool basic_shared_arena<AddressSpace>::is_at(live_mark const& mark) const noexcept {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    local_type const& arena = parts_[i]->arena;
    arena_mark const* const then = recorded(&mark, i);
    if (then == nullptr ? arena.position() != 0
                        : then->position() != arena.position() || arena.why_not_rewind(*then) != nullptr)
      return false;
  }
  return true;
}

// Returns the newest mark again if nothing has changed, which keeps the records of a loop from growing.
template <class AddressSpace>
shared_arena_mark basic_shared_arena<AddressSpace>::mark() {
  if (marks_.empty() || !is_at(marks_.back())) {
    const std::size_t first = positions_.size();
    try {
      for (std::unique_ptr<part_type> const& part : parts_) {
        const auto loan = part->arena.owner_.lend();
        positions_.push_back(part->arena.mark());
      }
      marks_.push_back({last_mark_ + 1, first});
    } catch (...) {
      positions_.resize(first);
      throw;
    }
    ++last_mark_;
  }
  return {id_, marks_.back().number, marks_.size() - 1};
}

// Throws unless all threads can rewind to a mark, or to the beginning for null.
template <class AddressSpace>
void basic_shared_arena<AddressSpace>::require_rewindable(live_mark const* mark, char const* operation,
                                                          detail::call_site where) const {
  for (std::unique_ptr<part_type> const& part : parts_) {
    local_type const& arena = part->arena;
    arena_mark const* const to = recorded(mark, part->index);
    std::string const thread = "thread " + std::to_string(part->index);
    if (arena.innermost_ != nullptr && (to == nullptr || arena.scope_floor() > to->position())) {
      std::string const why =
          thread + " holds a thread scope, opened" + arena.innermost_->where_.text() + " since then";
      if (mark == nullptr) refuse<std::logic_error>(operation, where, why);
      else refuse<std::invalid_argument>(operation, where, why);
    }
    if (char const* const why = to != nullptr ? arena.why_not_rewind(*to) : nullptr)
      refuse<std::invalid_argument>(operation, where, "the mark of " + thread + ' ' + why);
  }
}

// Runs the destructors of all threads before any memory is freed, because an object of one thread may use
// memory of another. Iterates by index, because a destructor that allocates on this thread may add a part.
template <class AddressSpace>
void basic_shared_arena<AddressSpace>::run_destructors(live_mark const* mark) noexcept {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    arena_mark const* const to = recorded(mark, i);
    parts_[i]->arena.run_destructors(to != nullptr ? to->position() : 0);
  }
}

// Returns false, and reports, in a destructor that the arena runs.
template <class AddressSpace>
bool basic_shared_arena<AddressSpace>::may_rewind() const noexcept {
  if (std::ranges::none_of(parts_, [](auto const& part) { return part->arena.destroying_from_ != 0; }))
    return true;
  detail::report_violation(violation_kind::rewind_in_destructor, name(),
                           "shared_arena '%s': a destructor run by the arena rewinds, resets or releases "
                           "the same arena; this call is ignored",
                           name());
  return false;
}

template <class AddressSpace>
void basic_shared_arena<AddressSpace>::rewind_parts(live_mark const* mark, char const* operation,
                                                    detail::call_site where) noexcept {
  if constexpr (check_level >= 2) {
    team_.rewind_operation = operation;
    team_.rewind_place = where;
    team_.rewinding_thread.store(detail::this_thread_number(), std::memory_order_release);
  }
  run_destructors(mark);
  for (std::unique_ptr<region_type>& region : team_.regions) region->begin_rewind();
  for (std::unique_ptr<part_type>& part : parts_) {
    local_type& arena = part->arena;
    const auto loan = arena.owner_.lend();
    arena_mark const* const to = recorded(mark, part->index);
    if (to != nullptr) arena.rewind_far(*to);
    else arena.rewind_to(arena.first_, arena.first_.begin);
    arena.trim();
  }
  for (std::unique_ptr<region_type>& region : team_.regions) region->end_rewind();
  if constexpr (check_level >= 2) {
    team_.rewinding_thread.store(0, std::memory_order_release);
    check_invariants();
  }
}

template <class AddressSpace>
void basic_shared_arena<AddressSpace>::rewind_to(shared_arena_mark const& mark, char const* operation,
                                                 detail::call_site where) {
  if (!may_rewind()) return;
  if (innermost_ != nullptr && mark.number_ < innermost_->begin_.number_) {
    refuse<std::invalid_argument>(
        operation, where,
        "the mark lies before the beginning of a scope that is open" + innermost_->where_.text());
  }
  const std::size_t index = mark.index_;
  if (mark.arena_ != id_)
    refuse<std::invalid_argument>(operation, where,
                                  "the mark is of another arena, or older than its last release()");
  if (index >= marks_.size() || marks_[index].number != mark.number_)
    refuse<std::invalid_argument>(operation, where, "the mark was rewound over after it was taken");
  require_rewindable(&marks_[index], operation, where);
  rewind_parts(&marks_[index], operation, where);
  if (index + 1 < marks_.size()) {
    positions_.resize(marks_[index + 1].first);
    marks_.resize(index + 1);
  }
}

template <class AddressSpace>
bool basic_shared_arena<AddressSpace>::free_all(detail::call_site where) {
  if (!may_rewind()) return false;
  if (innermost_ != nullptr)
    refuse<std::logic_error>("reset", where, "a scope is open, opened" + innermost_->where_.text());
  require_rewindable(nullptr, "reset", where);
  rewind_parts(nullptr, "reset", where);
  marks_.clear();
  positions_.clear();
  return true;
}

template <class AddressSpace>
void basic_shared_arena<AddressSpace>::release(detail::call_site where) {
  if (!free_all(where)) return;
  for (std::unique_ptr<part_type>& part : parts_) {
    const auto loan = part->arena.owner_.lend();
    part->arena.release();
  }
  for (std::unique_ptr<region_type>& region : team_.regions) region->release();
  id_ = detail::next_identity();
}

template <class AddressSpace>
std::size_t basic_shared_arena<AddressSpace>::trim(std::size_t keep_bytes) noexcept {
  for (std::unique_ptr<region_type>& region : team_.regions) region->begin_rewind();
  for (std::unique_ptr<part_type>& part : parts_) {
    local_type& arena = part->arena;
    const auto loan = arena.owner_.lend();
    arena.trim();
    if (arena.position() == 0 && arena.innermost_ == nullptr) arena.drop(arena.first_);
  }
  std::size_t returned = 0;
  for (std::unique_ptr<region_type>& region : team_.regions) {
    region->end_rewind();
    returned += region->trim(keep_bytes);
  }
  return returned;
}

template <class AddressSpace>
void basic_shared_arena<AddressSpace>::close(scope& closing) noexcept {
  if (innermost_ != &closing) {
    detail::report_violation(violation_kind::scope_order, name(),
                             "shared_arena '%s': a scope opened%s ends while a scope inside it, opened%s, is "
                             "still open",
                             name(), closing.where_.text().c_str(), innermost_->where_.text().c_str());
    scope* inner = innermost_;
    while (inner->outer_ != &closing) inner = inner->outer_;
    inner->begin_ = closing.begin_;  // the inner scope rewinds the memory of both
    inner->outer_ = closing.outer_;
    return;
  }
  innermost_ = closing.outer_;
  try {
    rewind_to(closing.begin_, "end the scope opened", closing.where_);
  } catch (std::exception const& why) {
    detail::report_violation(violation_kind::scope_order, name(), "%s", why.what());
  }
}

template <class AddressSpace>
shared_arena_stats basic_shared_arena<AddressSpace>::stats() const noexcept {
  const std::scoped_lock lock{team_.mutex};
  shared_arena_stats stats;
  stats.name = name();
  std::size_t held = 0;
  for (std::unique_ptr<part_type> const& part : parts_) {
    arena_stats const thread = part->arena.stats();
    stats.threads += part->was_claimed ? 1 : 0;
    stats.used_bytes += thread.used_bytes;
    stats.peak_bytes += thread.peak_bytes;
    held += part->arena.space_.held_bytes();
  }
  stats.waste_bytes = held - stats.used_bytes;
  for (std::unique_ptr<region_type> const& region : team_.regions) {
    const arena_stats of_region = region->stats();
    stats.free_bytes += region->free_bytes();
    stats.committed_bytes += of_region.committed_bytes;
    stats.reserved_bytes += of_region.reserved_bytes;
    stats.chunks += of_region.chunks;
    stats.system_calls += of_region.system_calls;
  }
  return stats;
}

template <class AddressSpace>
void basic_shared_arena<AddressSpace>::check_invariants() const noexcept {
  const detail::invariant_check expect{"shared_arena", name()};
  std::size_t held = 0, claimed = 0;
  for (std::unique_ptr<part_type> const& part : parts_) {
    part->arena.check_invariants();
    held += part->arena.space_.held_bytes();
  }
  for (std::unique_ptr<region_type> const& region : team_.regions) {
    expect.report(region->broken_invariant());
    claimed += region->claimed_bytes() - region->free_bytes();
  }
  expect(held == claimed, "sum of what threads hold + free == claimed");
}

}  // namespace tidemark
