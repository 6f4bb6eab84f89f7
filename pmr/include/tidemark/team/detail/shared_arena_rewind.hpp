// SPDX-License-Identifier: Apache-2.0
/// @file
/// Marks and rewinds of a shared arena. See shared_arena_state.hpp for the class.
#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/team/detail/shared_arena_state.hpp>

namespace tidemark::detail {

// Returns the recorded mark of the thread at a place; null if the place was new and had allocated nothing.
template <class AddressSpace>
arena_mark const* shared_arena_state<AddressSpace>::recorded(live_mark const* mark,
                                                             std::size_t index) const noexcept {
  if (mark == nullptr) return nullptr;
  const std::size_t last = mark == &marks_.back() ? positions_.size() : (mark + 1)->first;
  return index < last - mark->first ? &positions_[mark->first + index] : nullptr;
}

// Returns true if nothing was allocated or freed since the mark, or since a rewind to the mark.
template <class AddressSpace>
bool shared_arena_state<AddressSpace>::is_at(live_mark const& mark) const noexcept {
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
shared_arena_mark shared_arena_state<AddressSpace>::mark() {
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
void shared_arena_state<AddressSpace>::require_rewindable(live_mark const* mark, char const* operation,
                                                          call_site where) const {
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
void shared_arena_state<AddressSpace>::run_destructors(live_mark const* mark) noexcept {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    arena_mark const* const to = recorded(mark, i);
    parts_[i]->arena.run_destructors(to != nullptr ? to->position() : 0);
  }
}

// Returns false, and reports, in a destructor that the arena runs.
template <class AddressSpace>
bool shared_arena_state<AddressSpace>::may_rewind() const noexcept {
  if (std::ranges::none_of(parts_, [](auto const& part) { return part->arena.destroying_from_ != 0; }))
    return true;
  report_violation(violation_kind::rewind_in_destructor, name(),
                   "shared_arena '%s': a destructor run by the arena rewinds, resets or releases "
                   "the same arena; this call is ignored",
                   name());
  return false;
}

template <class AddressSpace>
void shared_arena_state<AddressSpace>::rewind_parts(live_mark const* mark, char const* operation,
                                                    call_site where) noexcept {
  if constexpr (check_level >= 2) {
    team_.rewind_operation = operation;
    team_.rewind_place = where;
    team_.rewinding_thread.store(this_thread_number(), std::memory_order_release);
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
void shared_arena_state<AddressSpace>::rewind_to(shared_arena_mark const& mark, char const* operation,
                                                 call_site where) {
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
bool shared_arena_state<AddressSpace>::free_all(call_site where) {
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
void shared_arena_state<AddressSpace>::release(call_site where) {
  if (!free_all(where)) return;
  for (std::unique_ptr<part_type>& part : parts_) {
    const auto loan = part->arena.owner_.lend();
    part->arena.release();
  }
  for (std::unique_ptr<region_type>& region : team_.regions) region->release();
  id_ = next_identity();
}

template <class AddressSpace>
std::size_t shared_arena_state<AddressSpace>::trim(std::size_t keep_bytes) noexcept {
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
void shared_arena_state<AddressSpace>::close(scope& closing) noexcept {
  if (innermost_ != &closing) {
    report_violation(violation_kind::scope_order, name(),
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
    report_violation(violation_kind::scope_order, name(), "%s", why.what());
  }
}

}  // namespace tidemark::detail
