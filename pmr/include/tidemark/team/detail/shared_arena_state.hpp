// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_arena_state`: the state of a shared arena, the places of its threads, statistics and invariants.
/// Owns the arena's memory.
///
/// Marks and rewinds are in shared_arena_rewind.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/arena/arena_options.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/observed.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/thread_parts.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/team/detail/extent_memory.hpp>
#include <tidemark/team/detail/extent_region.hpp>
#include <tidemark/team/shared_arena_options.hpp>

namespace tidemark::detail {

/// State and private functions of a `basic_shared_arena`, which documents the invariants.
template <class AddressSpace>
class shared_arena_state : public forwarding_resource<basic_shared_arena<AddressSpace>> {
  static_assert(AddressSpace::traits.host_accessible,
                "a shared arena keeps records in its memory, so the host must be able to touch it");

 protected:
  using scope = basic_shared_arena_scope<AddressSpace>;
  using local_type = basic_arena<extent_memory<AddressSpace>>;
  static constexpr std::size_t default_alignment = AddressSpace::traits.block_alignment;
  static constexpr std::size_t max_places = 1024;
  friend scope;
  using region_type = extent_region<AddressSpace>;
  using memory_type = extent_memory<AddressSpace>;

  // One thread's part. It has its own cache lines, because its thread writes it at each allocation.
  struct alignas(128) part_type {
    part_type(memory_type memory, arena_options const& options, std::size_t place)
        : arena{memory, options}, index{place} {}

    local_type arena;
    std::size_t index;
    bool is_claimed = false;   // by a thread that has neither ended nor left; needs the lock
    bool was_claimed = false;  // at any time
  };
  // A mark that has not ended; the newest is last. The threads' positions begin at `positions_[first]`.
  struct live_mark {
    std::uint64_t number;
    std::size_t first;
  };

  shared_arena_state(AddressSpace space, arena_options options, team_options team);
  void end() noexcept;  // returns everything
  friend thread_parts<shared_arena_state, part_type>;
  void end(part_type& part) noexcept;  // called when its thread has ended or left

  local_type& local(call_site where);
  local_type& local(std::size_t index, call_site where);
  void leave() noexcept;
  shared_arena_mark mark();
  void release(call_site where);
  std::size_t trim(std::size_t keep_bytes) noexcept;
  shared_arena_stats stats() const noexcept;
  char const* name() const noexcept { return options_.name; }
  void check_invariants() const noexcept;

  TIDEMARK_COLD part_type& part_of_this_thread();
  part_type& claim_part(part_type& part);
  part_type& free_part();
  void add_part(region_type& region);
  bool is_at(live_mark const& mark) const noexcept;
  arena_mark const* recorded(live_mark const* mark, std::size_t index) const noexcept;
  void rewind_to(shared_arena_mark const& mark, char const* operation, call_site where);
  void require_rewindable(live_mark const* mark, char const* operation, call_site where) const;
  void run_destructors(live_mark const* mark) noexcept;
  bool may_rewind() const noexcept;
  bool free_all(call_site where);  // false if a destructor that the arena runs calls it
  void rewind_parts(live_mark const* mark, char const* operation, call_site where) noexcept;
  void close(scope& closing) noexcept;
  template <class Error>
  [[noreturn]] void refuse(char const* operation, call_site where, std::string const& why) const;

  arena_options options_;                        // its observer is `observer_`
  ended_pointer<allocation_observer> observer_;  // called by all threads; null: none
  AddressSpace space_;
  team_state<AddressSpace> team_;                  // its mutex also protects `space_` and `is_claimed`
  std::vector<std::unique_ptr<part_type>> parts_;  // grows with the lock held
  std::uint64_t id_;                               // identity in marks, unique among arenas
  std::uint64_t last_mark_ = 0;                    // number of the newest mark
  std::vector<live_mark> marks_;
  std::vector<arena_mark> positions_;
  scope* innermost_ = nullptr;  // open scope that ends first
  thread_parts<shared_arena_state, part_type> threads_{*this};
};

template <class AddressSpace>
shared_arena_state<AddressSpace>::shared_arena_state(AddressSpace space, arena_options options,
                                                     team_options team)
    : options_{options},
      observer_{observer_of(options.observer, name_or(options.name, arena_options{}.name))},
      space_{std::move(space)},
      id_{next_identity()} {
  options_.observer = observer_ == nullptr ? nullptr : &*observer_;
  if (options_.name == nullptr) options_.name = arena_options{}.name;
  if (options_.commit_step == 0) options_.commit_step = arena_options{}.commit_step;
  const std::size_t regions = std::max<std::size_t>(1, team.threads);
  const std::size_t granule = (std::max)(region_type::page_bytes, space_.granularity());
  const std::size_t reserve = options_.reserve != 0 ? options_.reserve : space_.chunk_bytes();
  const std::size_t share = (std::max)(reserve / regions, granule);
  team.min_extent_bytes = align_up(std::clamp(team.min_extent_bytes, granule, share), granule);
  team.max_extent_bytes =
      align_up(std::clamp(team.max_extent_bytes, team.min_extent_bytes, share + granule), granule);
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
void shared_arena_state<AddressSpace>::end() noexcept {
  if (innermost_ != nullptr) {
    report_violation(violation_kind::scope_outlived, name(),
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
auto shared_arena_state<AddressSpace>::part_of_this_thread() -> part_type& {
  part_type* part = threads_.find();
  if (part == nullptr) {
    const std::scoped_lock lock{team_.mutex};
    part = &claim_part(free_part());
  }
  return *part;
}

// Requires the lock, as the next two functions do.
template <class AddressSpace>
auto shared_arena_state<AddressSpace>::claim_part(part_type& part) -> part_type& {
  threads_.add(part);
  part.is_claimed = part.was_claimed = true;
  part.arena.release_thread_ownership();
  return part;
}

template <class AddressSpace>
auto shared_arena_state<AddressSpace>::free_part() -> part_type& {
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
void shared_arena_state<AddressSpace>::add_part(region_type& region) {
  arena_options options = options_;
  options.reserve = 0;
  options.growable = true;  // the region knows whether there is more memory
  options.retain =
      team_.options.max_extent_bytes;  // kept for its thread by a thread scope; the rest is for all
  const std::size_t index = parts_.size();
  parts_.push_back(std::make_unique<part_type>(memory_type{team_, region, index}, options, index));
}

template <class AddressSpace>
void shared_arena_state<AddressSpace>::end(part_type& part) noexcept {
  if (part.arena.innermost_ != nullptr) {
    report_violation(violation_kind::scope_outlived, name(),
                     "shared_arena '%s': thread %zu leaves while it holds a thread scope, opened%s", name(),
                     part.index, part.arena.innermost_->where_.text().c_str());
    return;  // no other thread gets the place
  }
  const std::scoped_lock lock{team_.mutex};
  part.is_claimed = false;
}

template <class AddressSpace>
auto shared_arena_state<AddressSpace>::local(call_site where) -> local_type& {
  local_type& arena = part_of_this_thread().arena;
  arena.space_.set_place(where);
  return arena;
}

template <class AddressSpace>
auto shared_arena_state<AddressSpace>::local(std::size_t index, call_site where) -> local_type& {
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
void shared_arena_state<AddressSpace>::leave() noexcept {
  if (part_type* const own = threads_.find()) {
    threads_.remove();
    end(*own);
  }
}

template <class AddressSpace>
template <class Error>
void shared_arena_state<AddressSpace>::refuse(char const* operation, call_site where,
                                              std::string const& why) const {
  throw Error("shared_arena '" + std::string(name()) + "': cannot " + operation + where.text() + ": " + why);
}

template <class AddressSpace>
shared_arena_stats shared_arena_state<AddressSpace>::stats() const noexcept {
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
void shared_arena_state<AddressSpace>::check_invariants() const noexcept {
  const invariant_check expect{"shared_arena", name()};
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

}  // namespace tidemark::detail
