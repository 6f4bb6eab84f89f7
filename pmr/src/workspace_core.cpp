// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/workspace_core.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/detail/identity.hpp>
#include <tidemark/global_pool.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/violation.hpp>
#include <tidemark/warning.hpp>

#include "require.hpp"
#include "workspace_registry.hpp"

namespace tidemark::detail {
namespace {

constexpr std::size_t first_log_entries = 32;
constexpr std::size_t first_slots = 4;
constexpr std::size_t first_warning_slots = 512;
constexpr unsigned default_cache_ways = 4;

unsigned valid_cache_ways(workspace_options const& options) {
  const unsigned ways = options.cache_ways;
  if ((ways >= 1 && ways <= cache_ways_max) || ways == unlimited_cache_ways) return ways;
  report_warning(warning_kind::refused_setting, options.name,
                 "workspace '%s': cache_ways is %u, which is neither 1 to %u nor unlimited; it is %u instead",
                 options.name, ways, cache_ways_max, default_cache_ways);
  return default_cache_ways;
}

workspace_options completed(workspace_options options) {
  require_power_of_two("workspace", options.name, options.alignment);
  options.cache_ways = valid_cache_ways(options);
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  if (options.upstream == nullptr) options.upstream = &global_pool();
  return options;
}

// Copies the pattern once, then all that is there behind itself: memcpy does the work for patterns of any
// size.
void fill_pattern(void* first, std::size_t bytes, void const* pattern, std::size_t pattern_bytes) noexcept {
  if (bytes == 0) return;
  auto* const begin = static_cast<std::byte*>(first);
  std::size_t done = std::min(bytes, pattern_bytes);
  std::memcpy(begin, pattern, done);
  while (done < bytes) {
    const std::size_t next = std::min(done, bytes - done);
    std::memcpy(begin + done, begin, next);
    done += next;
  }
}

std::size_t bytes_of(slot_list const& list, std::size_t n) { return n * list.element->bytes; }

bool is_checkpoint(saved_count const& entry) { return entry.value % 2 != 0; }

}  // namespace

std::size_t next_other_type() noexcept {
  static std::atomic<std::size_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

workspace_core::workspace_core(workspace_options const& options, workspace_policy policy,
                               std::array<element_info const*, fixed_types> const& fixed)
    : options_{completed(options)},
      headers_{.bookkeeping = options_.bookkeeping,
               .ways = options_.cache_ways,
               .device = {static_cast<decltype(dl_device::device_type)>(options_.device_type),
                          options_.device_id}},
      checked_{policy.checks >= 1},
      pooling_{policy.pooling && options_.pooling},
      fences_{options_.bookkeeping} {
  for (std::size_t i = 0; i < fixed_types; ++i) fixed_[i].element = fixed[i];
  if (policy.sweeps && options_.sweeps) register_workspace(*this);
}

workspace_core::~workspace_core() {
  unregister_workspace(*this);
  if (scopes_are_open()) {
    report_violation(
        violation_kind::scope_outlived, options_.name,
        "workspace '%s': destroyed while a scope on it is open; the scope must not be used any more",
        options_.name);
    log_end_ = log_;
  }
  release(std::source_location{});
}

void workspace_core::grow_log(std::size_t counts) {
  const auto used = static_cast<std::size_t>(log_end_ - log_);
  const auto before = static_cast<std::size_t>(log_limit_ - log_);
  const std::size_t room = std::max(first_log_entries, 2 * before + 1 + counts);
  std::pmr::polymorphic_allocator<saved_count> allocator{options_.bookkeeping};
  saved_count* const larger = allocator.allocate(room);
  std::uninitialized_copy_n(log_, used, larger);
  if (log_ != nullptr) allocator.deallocate(log_, before);
  log_ = larger;
  log_end_ = larger + used;
  log_limit_ = larger + room;
}

slot& workspace_core::take_slow(slot_list& list, std::size_t n) {
  if (n > PTRDIFF_MAX / list.element->bytes) throw_out_of_memory(list, SIZE_MAX);
  try {
    return prepare(list, n);
  } catch (std::bad_alloc const&) {
    if (trim().bytes == 0) throw;  // nothing of ours is in the way
    return prepare(list, n);
  }
}

slot& workspace_core::prepare(slot_list& list, std::size_t n) {
  if (list.active == list.count) {
    make_room(list);
    slot fresh{.life = checked_ ? take_slot_life(options_.name) : nullptr};
    try {
      grow_slot(list, fresh, n);
    } catch (...) {
      if (checked_) give_slot_life(fresh.life);
      throw;
    }
    list.slots[list.count++] = fresh;
    if (list.count >= first_warning_slots && std::has_single_bit(list.count)) {
      report_warning(warning_kind::many_slots, options_.name,
                     "workspace '%s': %zu slots of %s; is a scope missing around a loop that acquires them?",
                     options_.name, list.count, list.element->name);
    }
  }
  slot& next = list.slots[list.active];
  await(next);
  if (n > next.capacity) grow_slot(list, next, n);
  next.limit = next.peak = std::max(next.peak, n);
  next.size = n;
  ++list.active;
  list.peak_active = std::max(list.peak_active, list.active);
  show(list, next);
  return next;
}

void workspace_core::make_room(slot_list& list) const {
  if (list.count < list.room) return;
  const std::size_t room = std::max(first_slots, 2 * list.room);
  std::pmr::polymorphic_allocator<slot> allocator{options_.bookkeeping};
  slot* const larger = allocator.allocate(room + 1);  // the last stays empty
  std::uninitialized_copy_n(list.slots, list.count, larger);
  std::uninitialized_value_construct_n(larger + list.count, room + 1 - list.count);
  if (list.room > 0) allocator.deallocate(list.slots, list.room + 1);
  list.slots = larger;
  list.room = room;
}

// A slot that has to grow again grows by half at least, so that requests that grow slowly move seldom: the
// sum of all its memories is about three times the last. Nothing is copied, because nothing in it is live.
void workspace_core::grow_slot(slot_list const& list, slot& small, std::size_t n) {
  if (n == 0) return;
  if (small.capacity > 0) {
    slot larger = small;
    larger.data = nullptr;
    larger.capacity = 0;
    try {
      give_memory(list, larger, std::max(n, small.capacity + small.capacity / 2));
      free_memory(list, small);
      small = larger;
      return;
    } catch (std::bad_alloc const&) {  // then without the old one beside it, and no more than is needed
      free_memory(list, small);
    }
  }
  give_memory(list, small, n);
}

void workspace_core::throw_out_of_memory(slot_list const& list, std::size_t bytes) const {
  const std::size_t cap = options_.held_bytes_max;
  throw out_of_memory{{.resource = options_.name,
                       .requested_bytes = bytes,
                       .alignment = alignment_of(list),
                       .used_bytes = stats().used_bytes,
                       .committed_bytes = held_bytes_,
                       .reserved_bytes = cap,
                       .largest_bytes = cap != 0 ? cap - held_bytes_ : PTRDIFF_MAX}};
}

void workspace_core::give_memory(slot_list const& list, slot& to, std::size_t n) {
  const std::size_t bytes = bytes_of(list, n);
  const std::size_t cap = options_.held_bytes_max;
  if (cap != 0 && bytes > cap - held_bytes_) throw_out_of_memory(list, bytes);
  to.data = options_.upstream->allocate(bytes, alignment_of(list));
  to.capacity = n;
  held_bytes_ += bytes;
  if (options_.host_memory) withhold(reinterpret_cast<std::uintptr_t>(to.data), bytes);
}

void workspace_core::free_memory(slot_list const& list, slot& of) noexcept {
  await(of);
  if (of.capacity == 0) return;
  const std::size_t bytes = bytes_of(list, of.capacity);
  if (options_.host_memory) hand_out(reinterpret_cast<std::uintptr_t>(of.data), bytes);
  options_.upstream->deallocate(of.data, bytes, alignment_of(list));
  held_bytes_ -= bytes;
  of.data = nullptr;
  of.limit = of.capacity = of.peak = 0;
}

void workspace_core::show(slot_list const& list, slot const& of) const noexcept {
  if (options_.host_memory) hand_out(reinterpret_cast<std::uintptr_t>(of.data), bytes_of(list, of.size));
}

std::size_t workspace_core::alignment_of(slot_list const& list) const noexcept {
  return std::max(options_.alignment, list.element->align);
}

dl_tensor& workspace_core::header(slot_list& list, slot& newest, std::size_t const* extents, std::size_t rank,
                                  bool column_major, dl_data_type type) {
  try {
    // DLPack's extents are signed.
    if (std::any_of(extents, extents + rank, [](std::size_t n) { return n > INT64_MAX; })) {
      throw_out_of_memory(list, SIZE_MAX);
    }
    return find_header(newest.headers, {newest.data, extents, rank, column_major, type}, headers_);
  } catch (...) {
    take_back_newest(list);
    throw;
  }
}

void workspace_core::take_back_newest(slot_list& list) noexcept {
  const std::size_t from = list.active - 1;
  retire(list, from, {});
  list.active = from;
}

slot_list& workspace_core::add_other(std::size_t i, element_info const& element) {
  if (i >= others_room_) {
    const std::size_t room = std::max(i + 1, 2 * others_room_);
    std::pmr::polymorphic_allocator<slot_list*> allocator{options_.bookkeeping};
    slot_list** const larger = allocator.allocate(room);
    std::uninitialized_copy_n(others_, others_room_, larger);
    std::uninitialized_value_construct_n(larger + others_room_, room - others_room_);
    if (others_ != nullptr) allocator.deallocate(others_, others_room_);
    others_ = larger;
    others_room_ = room;
  }
  others_[i] = std::pmr::polymorphic_allocator<>{options_.bookkeeping}.new_object<slot_list>();
  others_[i]->element = &element;
  return *others_[i];
}

// The entry that the scope begins with; null if it has been ended. O(log).
saved_count* workspace_core::beginning_of(std::uint64_t frame) const noexcept {
  for (saved_count* entry = log_end_; entry != log_;) {
    --entry;
    if (entry->list == nullptr && entry->value == frame) return entry;
  }
  return nullptr;
}

bool workspace_core::end_those_inside(std::uint64_t frame, std::source_location where) noexcept {
  saved_count const* const begin = beginning_of(frame);
  if (begin == nullptr) return false;
  const auto inside = std::count_if(begin + 1, static_cast<saved_count const*>(log_end_),
                                    [](saved_count const& other) { return other.list == nullptr; });
  char scope[256] = "a scope";  // which one is known at level 1 only
  if (where.line() != 0) {
    std::snprintf(scope, sizeof scope, "the scope at %s:%u", where.file_name(),
                  static_cast<unsigned>(where.line()));
  }
  report_warning(
      warning_kind::skipped_rewind, options_.name,
      "workspace '%s': %s ended while %td scopes or checkpoints inside it were open; they ended with it",
      options_.name, scope, inside);
  while (frame_ != frame) close<true>(frame_, where);
  return true;
}

void workspace_core::rewind(std::source_location where) noexcept {
  if (frame_ == 0) {
    retire_all(where);
  } else if (is_checkpoint(*beginning_of(frame_))) {
    close<true>(frame_, where);
  } else {  // a scope goes on, and its log too: it may take types for saved that it was opened with
    for (saved_count* entry = log_end_ - 1; entry->list != nullptr; --entry) {
      retire(*entry->list, entry->value, where);
      entry->list->active = entry->value;
    }
  }
}

void workspace_core::retire_all(std::source_location where) noexcept {
  for_each_list([&](slot_list& list) {
    retire(list, 0, where);
    list.active = 0;
    list.frame = 0;
  });
}

void workspace_core::retire(slot_list& list, std::size_t from, std::source_location where) noexcept {
  if (!tools_are_told && !checked_ && pooling_) return;
  for (std::size_t i = from; i < list.active; ++i) {
    slot const& taken = list.slots[i];
    if (checked_) {
      taken.life->ended.store(where, std::memory_order_relaxed);
      taken.life->generation.fetch_add(1, std::memory_order_relaxed);
      withdraw_headers(taken.headers);
    }
    if (taken.fence != 0) continue;  // work elsewhere still uses it
    if (checked_) poison(list, taken);
    if (options_.host_memory) {
      withhold(reinterpret_cast<std::uintptr_t>(taken.data), bytes_of(list, taken.capacity));
    }
  }
  if (pooling_) return;
  list.active = std::min(list.active, from);
  trim_summary unasked;
  remove_slots(list, list.active, unasked);
}

void workspace_core::poison(slot_list const& list, slot const& taken) const noexcept {
  if (!options_.host_memory && options_.fill.call == nullptr) return;
  try {
    write(list, taken, list.element->poison, list.element->poison_bytes);
  } catch (...) {
    return;  // the memory keeps what it had: that late use is seen is an extra
  }
}

bool workspace_core::scopes_are_open() const noexcept {
  return std::any_of(log_, log_end_,
                     [](saved_count const& entry) { return entry.list == nullptr && !is_checkpoint(entry); });
}

void workspace_core::require_closed(char const* doing) const {
  if (!scopes_are_open()) return;
  throw std::logic_error{std::string{"workspace '"} + options_.name + "': " + doing +
                         " while a scope is open would take memory from under it; end the scope first"};
}

void workspace_core::reset(std::source_location where) {
  require_closed("reset");
  log_end_ = log_;
  frame_ = 0;
  retire_all(where);
}

void workspace_core::reset(slot_list& list, std::source_location where) {
  if (log_end_ != log_) {
    throw std::logic_error{std::string{"workspace '"} + options_.name + "': reset of " + list.element->name +
                           " while a scope or checkpoint is open, which would restore it; end that first"};
  }
  retire(list, 0, where);
  list.active = 0;
}

void workspace_core::release(std::source_location where) {
  require_closed("release");
  reset(where);
  for_each_list([&](slot_list& list) { free_list(list); });
  std::pmr::polymorphic_allocator<> allocator{options_.bookkeeping};
  for (std::size_t i = 0; i < others_room_; ++i) {
    if (others_[i] != nullptr) allocator.delete_object(others_[i]);
  }
  if (others_ != nullptr) allocator.deallocate_object(others_, others_room_);
  others_ = nullptr;
  others_room_ = 0;
  if (log_ != nullptr) allocator.deallocate_object(log_, static_cast<std::size_t>(log_limit_ - log_));
  log_ = log_end_ = log_limit_ = nullptr;
  fences_.shrink_to_fit();
}

void workspace_core::free_list(slot_list& list) noexcept {
  trim(list);
  if (list.room > 0) {
    std::pmr::polymorphic_allocator<slot>{options_.bookkeeping}.deallocate(list.slots, list.room + 1);
  }
  list = slot_list{.element = list.element};
}

trim_summary workspace_core::trim() noexcept {
  trim_summary summary;
  for_each_list([&](slot_list& list) { remove_slots(list, list.active, summary); });
  return summary;
}

trim_summary workspace_core::trim(slot_list& list) noexcept {
  trim_summary summary;
  remove_slots(list, list.active, summary);
  return summary;
}

trim_summary workspace_core::trim_to_recent_peak() noexcept {
  trim_summary summary;
  for_each_list([&](slot_list& list) {
    remove_slots(list, std::max(list.active, list.peak_active), summary);
    list.peak_active = list.active;
    // Their next use is noticed, and counts for the next peak.
    for (std::size_t i = list.active; i < list.count; ++i) list.slots[i].limit = 0;
  });
  return summary;
}

void workspace_core::remove_slots(slot_list& list, std::size_t keep, trim_summary& summary) noexcept {
  for (std::size_t i = keep; i < list.count; ++i) {
    slot& leaving = list.slots[i];
    ++summary.slots;
    summary.bytes += bytes_of(list, leaving.capacity);
    free_memory(list, leaving);
    free_headers(leaving.headers, headers_);
    if (leaving.life != nullptr) give_slot_life(leaving.life);
    leaving = {};
  }
  list.count = std::min(list.count, keep);
}

compact_summary workspace_core::compact(compact_options const& options, measure by) noexcept {
  compact_summary summary;
  for_each_list([&](slot_list& list) { compact(list, options, by, summary); });
  return summary;
}

void workspace_core::compact(slot_list& list, compact_options const& options, measure by,
                             compact_summary& summary) noexcept {
  // In floating point, where factors of any size do no harm; what is no number compares as false, and changes
  // nothing.
  for (std::size_t i = 0; i < list.count; ++i) {
    slot& wide = list.slots[i];
    const bool in_use = i < list.active;
    const std::size_t used = in_use || by == measure::newest ? wide.size : wide.peak;
    if (!in_use) wide.peak = std::min(wide.peak, wide.size);
    wide.limit = std::min(wide.limit, wide.peak);
    const double target =
        std::max(std::ceil(static_cast<double>(used) * options.headroom), static_cast<double>(used));
    if (!(static_cast<double>(wide.capacity) >= static_cast<double>(used) * options.factor)) continue;
    if (!(target < static_cast<double>(wide.capacity))) continue;
    const auto n = static_cast<std::size_t>(target);
    const std::size_t saved = bytes_of(list, wide.capacity - n);
    if (saved < options.least_bytes) continue;
    if (in_use) {
      ++summary.in_use;
      continue;
    }
    slot smaller = wide;
    smaller.data = nullptr;
    smaller.capacity = 0;
    try {
      if (n > 0) give_memory(list, smaller, n);
    } catch (...) {
      ++summary.failed;
      continue;
    }
    free_memory(list, wide);
    wide = smaller;
    wide.peak = std::min(wide.peak, n);
    wide.limit = std::min(wide.limit, n);  // 0 stays: a trim wants to notice its next use
    wide.fence = 0;                        // the memory is another
    ++summary.slots;
    summary.bytes += saved;
  }
}

void workspace_core::sweep() noexcept {
  const unsigned wanted = sweep_requests.exchange(0, std::memory_order_acquire);
  if ((wanted & wants_trim) != 0) trim_to_recent_peak();
  if ((wanted & wants_compact) != 0) compact(sweep_compaction(), measure::largest);
}

void workspace_core::put_behind(std::uint64_t frame, reuse_fence fence) noexcept {
  forget_fences_that_are_done();
  if (fence.done()) return;
  saved_count const* const begin = beginning_of(frame);
  if (begin == nullptr) {
    fence.wait();
    return;
  }
  try {
    fences_.push_back({last_fence_ + 1, {}});
  } catch (...) {
    fence.wait();
    return;
  }
  fences_.back().fence = std::move(fence);
  ++last_fence_;
  for (saved_count const* entry = begin + 1; entry != log_end_; ++entry) {
    if (entry->list == nullptr) continue;
    for (std::size_t i = entry->value; i < entry->list->active; ++i) {
      slot& busy = entry->list->slots[i];
      busy.fence = last_fence_;
      busy.limit = 0;  // whoever wants it next has to look
    }
  }
}

void workspace_core::await(slot& of) noexcept {
  const std::uint64_t number = std::exchange(of.fence, 0);
  if (number == 0) return;
  for (numbered_fence const& one : fences_) {
    if (one.number == number) one.fence.wait();
  }
  forget_fences_that_are_done();
}

void workspace_core::forget_fences_that_are_done() noexcept {
  std::erase_if(fences_, [](numbered_fence const& one) { return one.fence.done(); });
}

workspace_core::overlap workspace_core::find_overlap(std::uint64_t frame, void const* first,
                                                     std::size_t bytes) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(first);
  saved_count const* const begin_of_scope = beginning_of(frame);
  if (begin_of_scope == nullptr) return {nullptr, nullptr};
  for (saved_count const* entry = begin_of_scope + 1; entry != log_end_; ++entry) {
    if (entry->list == nullptr) continue;
    for (std::size_t i = entry->value; i < entry->list->active; ++i) {
      slot const& taken = entry->list->slots[i];
      const auto data = reinterpret_cast<std::uintptr_t>(taken.data);
      if (begin < data + bytes_of(*entry->list, taken.size) && data < begin + bytes)
        return {entry->list, &taken};
    }
  }
  return {nullptr, nullptr};
}

void workspace_core::require_thread(char const* doing) noexcept {
  const unsigned long long thread = this_thread_number();
  if (owner_thread_ == 0) owner_thread_ = thread;
  if (owner_thread_ == thread) return;
  report_violation(violation_kind::wrong_thread, options_.name,
                   "workspace '%s': %s on a thread that does not own the workspace; see hand_over()",
                   options_.name, doing);
}

void workspace_core::require_fill(char const* call) const {
  if (options_.host_memory || options_.fill.call != nullptr) return;
  throw std::logic_error{std::string{"workspace '"} + options_.name + "': " + call +
                         " needs workspace_options::fill, because its memory is not the host's"};
}

void workspace_core::require_host_memory(char const* call) const {
  if (options_.host_memory) return;
  throw std::logic_error{std::string{"workspace '"} + options_.name + "': " + call +
                         " writes element by element, and its memory is not the host's"};
}

void workspace_core::write(slot_list const& list, slot const& of, void const* element,
                           std::size_t element_bytes) const {
  const std::size_t bytes = bytes_of(list, of.size);
  if (bytes == 0) return;
  if (options_.host_memory) fill_pattern(of.data, bytes, element, element_bytes);
  else options_.fill.call(options_.fill.context, of.data, bytes / element_bytes, element, element_bytes);
}

void workspace_core::fill(slot_list& list, slot const& newest, void const* element,
                          std::size_t element_bytes) {
  try {
    write(list, newest, element, element_bytes);
  } catch (...) {
    take_back_newest(list);
    throw;
  }
}

workspace_type_stats workspace_core::stats_of(slot_list const& list) const noexcept {
  workspace_type_stats of{.element = list.element->name, .slots = list.count, .active_slots = list.active};
  for (std::size_t i = 0; i < list.count; ++i) {
    if (i < list.active) of.elements += list.slots[i].size * list.element->elements;
    if (i < list.active) of.used_bytes += bytes_of(list, list.slots[i].size);
    of.held_bytes += bytes_of(list, list.slots[i].capacity);
  }
  return of;
}

workspace_stats workspace_core::stats() const noexcept {
  workspace_stats sum{.name = options_.name, .tensor_headers = headers_.made};
  for_each_type([&](workspace_type_stats const& one) {
    ++sum.types;
    sum.slots += one.slots;
    sum.active_slots += one.active_slots;
    sum.elements += one.elements;
    sum.used_bytes += one.used_bytes;
  });
  sum.held_bytes = held_bytes_;
  for (saved_count const* entry = log_; entry != log_end_; ++entry) {
    ++(entry->list == nullptr ? sum.depth : sum.saved_counts);
  }
  return sum;
}

char const* workspace_core::broken_invariant(slot_list const& list, std::size_t& held_bytes) const noexcept {
  if (list.active > list.count || list.count > list.room) return "active <= count <= room";
  if (list.slots[list.count].limit != 0) return "the slot behind the last has limit 0";
  for (std::size_t i = 0; i < list.count; ++i) {
    slot const& one = list.slots[i];
    if (one.limit > one.peak || one.peak > one.capacity) return "limit <= peak <= capacity";
    if (i < list.active && one.size > one.capacity) return "size <= capacity while it is handed out";
    held_bytes += bytes_of(list, one.capacity);
  }
  return nullptr;
}

char const* workspace_core::broken_invariant() const noexcept {
  std::size_t held_bytes = 0;
  for (slot_list const& list : fixed_) {
    if (char const* broken = broken_invariant(list, held_bytes)) return broken;
  }
  for (std::size_t i = 0; i < others_room_; ++i) {
    if (others_[i] == nullptr) continue;
    if (char const* broken = broken_invariant(*others_[i], held_bytes)) return broken;
  }
  if (held_bytes != held_bytes_) return "held_bytes == sum over slots of capacity * bytes of an element";
  if (options_.held_bytes_max != 0 && held_bytes_ > options_.held_bytes_max)
    return "held_bytes <= held_bytes_max";
  saved_count const* entry = log_end_;
  while (entry != log_ && entry[-1].list != nullptr) --entry;
  if (frame_ != (entry != log_ ? entry[-1].value : 0))
    return "frame is the number of the last scope in the log";
  return nullptr;
}

}  // namespace tidemark::detail
