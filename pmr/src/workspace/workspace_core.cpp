// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/detail/workspace_core.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/pool/global_pool.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "../core/idle_memory.hpp"

namespace tidemark::detail {
namespace {

constexpr std::size_t first_log_entries = 32;
constexpr std::size_t first_slots = 4;
constexpr std::size_t first_warning_slots = 512;

workspace_options completed(workspace_options options) {
  options.name = name_or(options.name, workspace_options{}.name);
  require_power_of_two("workspace", options.name, options.alignment);
  if (!is_valid_ways(options.cache_ways)) {
    constexpr unsigned default_cache_ways = 4;
    report_warning(
        warning_kind::refused_setting, options.name,
        "workspace '%s': cache_ways is %u, which is neither 1 to %u nor unlimited; it is %u instead",
        options.name, options.cache_ways, max_cache_ways, default_cache_ways);
    options.cache_ways = default_cache_ways;
  }
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  if (options.upstream == nullptr) options.upstream = &global_pool();
  return options;
}

// Copies the pattern once and then all written bytes behind themselves. memcpy does the work for patterns of
// any size.
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

// Moves the records of an array to a larger array.
template <class Record>
void grow_array(std::pmr::memory_resource* bookkeeping, Record*& records, std::size_t used, std::size_t room,
                std::size_t new_room) {
  std::pmr::polymorphic_allocator<Record> allocator{bookkeeping};
  Record* const larger = allocator.allocate(new_room);
  std::uninitialized_copy_n(records, used, larger);
  std::uninitialized_value_construct_n(larger + used, new_room - used);
  if (room > 0) allocator.deallocate(records, room);
  records = larger;
}

std::size_t bytes_of(slot_list const& list, std::size_t n) { return n * list.element->bytes; }

bool is_checkpoint(saved_count const& entry) { return entry.value % 2 != 0; }

}  // namespace

std::size_t next_other_type() noexcept {
  static std::atomic<std::size_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

workspace_core::workspace_core(workspace_options const& options, bool checked)
    : options_{completed(options)},
      checked_{checked},
      pooling_{pooling_is_compiled_in && options.pooling},
      observer_{observer_of(options_.observer, options_.name)},
      others_{options_.bookkeeping},
      fences_{options_.bookkeeping} {
  retires_ = !pooling_ || observer_ != nullptr;
  constexpr std::array<element_info const*, fixed_elements> by_place{&element_of<double>,
                                                                     &element_of<float>,
                                                                     &element_of<std::int64_t>,
                                                                     &element_of<std::int32_t>,
                                                                     &element_of<std::complex<float>>,
                                                                     &element_of<std::complex<double>>,
                                                                     &element_of<bool>,
                                                                     &element_of<bit_word>};
  for (std::size_t i = 0; i < fixed_.size(); ++i) fixed_[i].element = by_place[i];
}

workspace_core::~workspace_core() {
  if (scopes_are_open()) {
    report_violation(
        violation_kind::scope_outlived, options_.name,
        "workspace '%s': destroyed while a scope on it is open; the scope must not be used any more",
        options_.name);
    log_end_ = log_;
  }
  release_thread_ownership();
  release(std::source_location{});
}

void workspace_core::grow_log(std::size_t counts) {
  const auto used = static_cast<std::size_t>(log_end_ - log_);
  const auto room = static_cast<std::size_t>(log_limit_ - log_);
  const std::size_t new_room = std::max(first_log_entries, 2 * room + 1 + counts);
  grow_array(options_.bookkeeping, log_, used, room, new_room);
  log_end_ = log_ + used;
  log_limit_ = log_ + new_room;
}

slot& workspace_core::acquire_slow(slot_list& list, std::size_t n) {
  if (n > max_block_bytes / list.element->bytes) throw_out_of_memory(list, SIZE_MAX);
  if (observer_ == nullptr || n == 0) return prepare_or_trim(list, n);
  slot* acquired = nullptr;
  const auto undo = [&](void*) {
    acquired->size = 0;  // not reported
    retire_newest(list);
  };
  (void)allocate_observed(
      *observer_, bytes_of(list, n), alignment_of(list),
      [&] { return (acquired = &prepare_or_trim(list, n))->data; }, undo);
  return *acquired;
}

slot& workspace_core::prepare_or_trim(slot_list& list, std::size_t n) {
  try {
    return prepare(list, n);
  } catch (std::bad_alloc const&) {
    if (trim().bytes == 0) throw;
    return prepare(list, n);
  }
}

slot& workspace_core::prepare(slot_list& list, std::size_t n) {
  if (list.active == list.count) add_slot(list);
  slot& next = list.items[list.active];
  await(next);
  if (n > next.capacity) grow_slot(list, next, n);
  next.peak = std::max(next.peak, n);
  next.limit = observer_ == nullptr ? next.peak : 0;
  next.size = n;
  ++list.active;
  list.peak_active = std::max(list.peak_active, list.active);
  show(list, next);
  return next;
}

// The slot has no memory yet. If it gets none, `trim` removes it.
void workspace_core::add_slot(slot_list& list) {
  if (list.count == list.room) {
    const std::size_t room = std::max(first_slots, 2 * list.room);  // besides the last, which stays empty
    grow_array(options_.bookkeeping, list.items, list.count, list.room > 0 ? list.room + 1 : 0, room + 1);
    list.room = room;
  }
  list.items[list.count].generation = checked_ ? acquire_slot_generation(options_.name) : nullptr;
  ++list.count;
  if (list.count >= first_warning_slots && std::has_single_bit(list.count)) {
    report_warning(warning_kind::many_slots, options_.name,
                   "workspace '%s': %zu slots of %s; is a scope missing around a loop that acquires them?",
                   options_.name, list.count, list.element->name);
  }
}

// A grown slot grows by at least half. Slowly growing requests therefore seldom move the slot, and the sum of
// all its memory blocks is about three times the last.
void workspace_core::grow_slot(slot_list const& list, slot& grown, std::size_t n) {
  try {
    replace_memory(list, grown, std::max(n, grown.capacity + grown.capacity / 2));
  } catch (std::bad_alloc const&) {  // retry without the old block, at the exact size
    if (grown.capacity == 0) throw;
    free_memory(list, grown);
    replace_memory(list, grown, n);
  }
}

void workspace_core::throw_out_of_memory(slot_list const& list, std::size_t bytes) const {
  const std::size_t cap = options_.max_held_bytes;
  throw out_of_memory{{.resource = options_.name,
                       .requested_bytes = bytes,
                       .alignment = alignment_of(list),
                       .used_bytes = stats().used_bytes,
                       .committed_bytes = held_bytes_,
                       .reserved_bytes = cap,
                       .largest_bytes = cap != 0 ? cap - held_bytes_ : max_block_bytes}};
}

// Copies nothing, because nothing in the slot is live. The slot does not change if this throws.
void workspace_core::replace_memory(slot_list const& list, slot& of, std::size_t n) {
  const std::size_t bytes = bytes_of(list, n);
  const std::size_t cap = options_.max_held_bytes;
  if (cap != 0 && bytes > cap - held_bytes_) throw_out_of_memory(list, bytes);
  void* const data = n > 0 ? options_.upstream->allocate(bytes, alignment_of(list)) : nullptr;
  if (options_.host_memory) detail::poison(address_of(data), bytes);
  const slot before = of;
  free_memory(list, of);
  of.data = data;
  of.capacity = n;
  of.peak = std::min(before.peak, n);
  of.limit = std::min(before.limit, n);  // 0 stays 0, and the next use takes the slow path
  held_bytes_ += bytes;
}

void workspace_core::free_memory(slot_list const& list, slot& of) noexcept {
  await(of);
  if (of.capacity == 0) return;
  const std::size_t bytes = bytes_of(list, of.capacity);
  if (options_.host_memory) detail::unpoison(address_of(of.data), bytes);
  options_.upstream->deallocate(of.data, bytes, alignment_of(list));
  held_bytes_ -= bytes;
  of.data = nullptr;
  of.limit = of.capacity = of.peak = 0;
}

void workspace_core::show(slot_list const& list, slot const& of) const noexcept {
  if (options_.host_memory) detail::unpoison(address_of(of.data), bytes_of(list, of.size));
}

std::size_t workspace_core::alignment_of(slot_list const& list) const noexcept {
  return std::max(options_.alignment, list.element->align);
}

void workspace_core::retire_newest(slot_list& list) noexcept { retire(list, list.active - 1, {}); }

slot_list& workspace_core::add_other(std::size_t i, element_info const& element) {
  const outside_use own{*this};
  if (i >= others_.size()) others_.resize(i + 1);
  others_[i] = std::pmr::polymorphic_allocator<>{options_.bookkeeping}.new_object<slot_list>();
  others_[i]->element = &element;
  return *others_[i];
}

// Returns the first entry of the scope; null if the scope has ended. O(log).
saved_count* workspace_core::beginning_of(std::uint64_t frame) const noexcept {
  for (saved_count* entry = log_end_; entry != log_;) {
    --entry;
    if (entry->list == nullptr && entry->value == frame) return entry;
  }
  return nullptr;
}

template <class Visitor>
void workspace_core::for_each_acquired_since(std::uint64_t frame, Visitor&& visitor) const {
  saved_count const* const begin = beginning_of(frame);
  if (begin == nullptr) return;
  for (saved_count const* entry = begin + 1; entry != log_end_; ++entry) {
    if (entry->list == nullptr) continue;
    for (std::size_t i = entry->value; i < entry->list->active; ++i)
      visitor(*entry->list, entry->list->items[i]);
  }
}

bool workspace_core::end_those_inside(std::uint64_t frame, std::source_location where) noexcept {
  saved_count const* const begin = beginning_of(frame);
  if (begin == nullptr) return false;
  const auto inside = std::count_if(begin + 1, static_cast<saved_count const*>(log_end_),
                                    [](saved_count const& other) { return other.list == nullptr; });
  char scope[256] = "a scope";  // only level 1 knows the place
  if (where.line() != 0) {
    std::snprintf(scope, sizeof scope, "the scope at %s:%u", where.file_name(),
                  static_cast<unsigned>(where.line()));
  }
  report_warning(
      warning_kind::skipped_rewind, options_.name,
      "workspace '%s': %s ended while %td scopes or checkpoints inside it were open; they ended with it",
      options_.name, scope, inside);
  while (this->frame() != frame) close<true>(this->frame(), where);
  return true;
}

void workspace_core::rewind(std::source_location where) noexcept {
  if (log_end_ == log_) return end_all("rewind", where);
  if (checked_) require_thread("rewind");
  if (is_checkpoint(*beginning_of(frame()))) return close<true>(frame(), where);
  // The scope continues and keeps its log: it relies on the counts that it saved when it opened.
  for (saved_count* entry = log_end_ - 1; entry->list != nullptr; --entry) {
    retire(*entry->list, entry->value, where);
  }
}

void workspace_core::retire(slot_list& list, std::size_t from, std::source_location where) noexcept {
  for (std::size_t i = list.active; observer_ != nullptr && i-- > from;) {
    slot const& ending = list.items[i];
    if (ending.size != 0) observer_->released(ending.data, bytes_of(list, ending.size));
  }
  const std::size_t seen = tools_are_notified || checked_ ? list.active : from;  // nothing reads the others
  for (std::size_t i = from; i < seen; ++i) {
    slot const& taken = list.items[i];
    if (checked_) {
      taken.generation->ended.store(where, std::memory_order_relaxed);
      taken.generation->number.fetch_add(1, std::memory_order_relaxed);
      withdraw_headers(taken.headers);
    }
    if (taken.fence != 0) continue;  // work elsewhere still uses the memory
    if (checked_) poison(list, taken);
    if (options_.host_memory) detail::poison(address_of(taken.data), bytes_of(list, taken.capacity));
  }
  list.active = from;
  if (!pooling_) (void)trim(&list);
}

void workspace_core::poison(slot_list const& list, slot const& taken) const noexcept {
  if (!options_.host_memory && options_.fill.call == nullptr) return;
  try {
    write(list, taken, list.element->poison, list.element->poison_bytes);
  } catch (...) {
    return;  // the memory keeps its contents, and level 1 misses late use
  }
}

bool workspace_core::scopes_are_open() const noexcept {
  return std::any_of(log_, log_end_,
                     [](saved_count const& entry) { return entry.list == nullptr && !is_checkpoint(entry); });
}

void workspace_core::end_all(char const* doing, std::source_location where) {
  outside_use own{*this, doing};
  if (scopes_are_open()) {
    throw std::logic_error{std::string{"workspace '"} + options_.name + "': " + doing +
                           " is not allowed while a scope is open; end the scope first"};
  }
  log_end_ = log_;
  set_frame(slot_list::outside_frame);
  for_each_list(*this, [&](slot_list& list) {
    retire(list, 0, where);
    list.frame = slot_list::outside_frame;
  });
  own.end_in_idle();
}

void workspace_core::reset(std::source_location where) { end_all("reset", where); }

void workspace_core::reset(slot_list& list, std::source_location where) {
  const outside_use own{*this, "reset"};
  if (log_end_ != log_) {
    throw std::logic_error{std::string{"workspace '"} + options_.name + "': reset of " + list.element->name +
                           " is not allowed while a scope or checkpoint is open; end it first"};
  }
  retire(list, 0, where);
}

void workspace_core::release(std::source_location where) {
  end_all("release", where);
  const outside_use own{*this};
  std::pmr::polymorphic_allocator<> allocator{options_.bookkeeping};
  (void)remove_slots([](slot_list const&) { return std::size_t{0}; });
  for_each_list(*this, [&](slot_list& list) {
    if (list.room > 0) allocator.deallocate_object(list.items, list.room + 1);
    list = slot_list{.element = list.element};
  });
  for (slot_list* const list : others_) {
    if (list != nullptr) allocator.delete_object(list);
  }
  others_.clear();
  others_.shrink_to_fit();
  if (log_ != nullptr) allocator.deallocate_object(log_, static_cast<std::size_t>(log_limit_ - log_));
  log_ = log_end_ = log_limit_ = nullptr;
  fences_.shrink_to_fit();
}

// Removes the slots of each list from `keep(list)` on.
template <class Keep>
trim_summary workspace_core::remove_slots(Keep keep) noexcept {
  trim_summary summary;
  for_each_list(*this, [&](slot_list& list) {
    const std::size_t kept = std::min(list.count, keep(list));
    for (std::size_t i = kept; i < list.count; ++i) {
      slot& leaving = list.items[i];
      ++summary.slot_count;
      summary.bytes += bytes_of(list, leaving.capacity);
      free_memory(list, leaving);
      free_headers(leaving.headers, options_.bookkeeping);
      if (leaving.generation != nullptr) return_slot_generation(*leaving.generation);
      leaving = {};
    }
    list.count = kept;
  });
  return summary;
}

trim_summary workspace_core::trim(slot_list* only) noexcept {
  const outside_use own{*this, "trim"};
  return remove_slots(
      [&](slot_list& list) { return only == nullptr || only == &list ? list.active : list.count; });
}

trim_summary workspace_core::trim_to_recent_peak() noexcept {
  const outside_use own{*this, "trim"};
  return remove_slots([](slot_list& list) {
    const std::size_t keep = std::max(list.active, list.peak_active);
    list.peak_active = list.active;
    // The next use of these slots takes the slow path and counts for the next peak.
    for (std::size_t i = list.active; i < list.count; ++i) list.items[i].limit = 0;
    return keep;
  });
}

compact_summary workspace_core::compact(compact_options const& options, bool by_largest) noexcept {
  const outside_use own{*this, "compact"};
  compact_summary summary;
  const auto compact_slot = [&](slot_list const& list, slot& wide, bool in_use) {
    // In floating point, in which factors of any size are harmless. NaN compares as false and changes
    // nothing.
    const std::size_t newest_or_largest = by_largest && !in_use ? wide.peak : wide.size;
    const auto used = static_cast<double>(newest_or_largest), capacity = static_cast<double>(wide.capacity);
    if (!in_use) wide.peak = std::min(wide.peak, wide.size);
    wide.limit = std::min(wide.limit, wide.peak);
    const double target = std::max(std::ceil(used * options.headroom), used);
    if (!(capacity >= used * options.factor) || !(target < capacity)) return;
    const auto n = static_cast<std::size_t>(target);
    const std::size_t saved = bytes_of(list, wide.capacity - n);
    if (saved < options.least_bytes) return;
    if (in_use) {
      ++summary.in_use;
      return;
    }
    try {
      replace_memory(list, wide, n);
      ++summary.slot_count;
      summary.bytes += saved;
    } catch (...) {
      ++summary.failed;
    }
  };
  for_each_list(*this, [&](slot_list& list) {
    for (std::size_t i = 0; i < list.count; ++i) compact_slot(list, list.items[i], i < list.active);
  });
  return summary;
}

// ---- other threads ---------------------------------------------------------------------------------------

void workspace_core::wait_for_trim(std::uint64_t frame) const noexcept {
  wait_for_idle_memory([&] { return replace_idle(frame); });
}

bool workspace_core::exit_idle() const noexcept {
  if (__atomic_load_n(&frame_, __ATOMIC_RELAXED) > idle_frame) return false;
  if (!replace_idle(slot_list::outside_frame)) wait_for_trim(slot_list::outside_frame);
  return true;
}

// Keeps slots with a fence, and the slots below them, because only the owner may use the fence.
std::size_t workspace_core::trim_if_idle() noexcept {
  if (!replace_idle(claimed_frame)) return 0;
  const trim_summary freed = remove_slots([](slot_list const& list) {
    std::size_t keep = list.count;
    while (keep > list.active && list.items[keep - 1].fence == 0) --keep;
    return keep;
  });
  set_frame(idle_frame);
  return freed.bytes;
}

// ---- fences -----------------------------------------------------------------------------------------------

void workspace_core::put_behind(std::uint64_t frame, reuse_fence fence) noexcept {
  const outside_use own{*this};
  remove_done_fences();
  if (fence.done()) return;
  if (beginning_of(frame) == nullptr) return fence.wait();
  try {
    fences_.emplace_back(last_fence_ + 1, std::move(fence));  // moves the fence only if there is memory
  } catch (std::bad_alloc const&) {
    return fence.wait();
  }
  ++last_fence_;
  for_each_acquired_since(frame, [&](slot_list const&, slot& busy) {
    busy.fence = last_fence_;
    busy.limit = 0;  // the next use takes the slow path
  });
}

void workspace_core::await(slot& of) noexcept {
  const std::uint64_t number = std::exchange(of.fence, 0);
  if (number == 0) return;
  for (auto const& [of_number, fence] : fences_) {
    if (of_number == number) fence.wait();
  }
  remove_done_fences();
}

void workspace_core::remove_done_fences() noexcept {
  std::erase_if(fences_, [](auto const& one) { return one.second.done(); });
}

void workspace_core::reject_escape(std::uint64_t frame, void const* first, std::size_t bytes,
                                   std::source_location where) const {
  const std::uintptr_t begin = address_of(first);
  for_each_acquired_since(frame, [&](slot_list const& list, slot const& taken) {
    const std::uintptr_t data = address_of(taken.data);
    element_info const& element = *list.element;
    if (begin >= data + taken.size * element.bytes || data >= begin + bytes) return;
    const std::array extents{taken.size * element.elements};
    throw workspace_escape{std::string{"workspace '"} + options_.name +
                           "': " + shape_text(element.name, extents) + " acquired at " +
                           place_text(taken.generation->acquired) + " would leave its scope at " +
                           place_text(where) + "; return a copy, or acquire it from the enclosing scope"};
  });
}

void workspace_core::require_fill(char const* call) const {
  if (options_.host_memory || options_.fill.call != nullptr) return;
  throw std::logic_error{std::string{"workspace '"} + options_.name + "': " + call +
                         " needs workspace_options::fill, because its memory is not host memory"};
}

void workspace_core::write(slot_list const& list, slot const& of, void const* element,
                           std::size_t element_bytes) const {
  const std::size_t bytes = bytes_of(list, of.size);
  if (bytes == 0) return;
  if (options_.host_memory) fill_pattern(of.data, bytes, element, element_bytes);
  else options_.fill.call(options_.fill.context, of.data, bytes / element_bytes, element, element_bytes);
}

void workspace_core::fill(slot_list& list, void const* element) {
  try {
    write(list, list.items[list.active - 1], element, list.element->bytes);
  } catch (...) {
    retire_newest(list);
    throw;
  }
}

workspace_type_stats workspace_core::stats_of(slot_list const& list) const noexcept {
  workspace_type_stats of{
      .element = list.element->name, .slot_count = list.count, .active_slots = list.active};
  for (std::size_t i = 0; i < list.count; ++i) {
    if (i < list.active) of.elements += list.items[i].size * list.element->elements;
    if (i < list.active) of.used_bytes += bytes_of(list, list.items[i].size);
    of.held_bytes += bytes_of(list, list.items[i].capacity);
  }
  return of;
}

workspace_stats workspace_core::stats() const noexcept {
  const outside_use own{*this};
  workspace_stats sum{.name = options_.name, .held_bytes = held_bytes_};
  for_each_list(*this, [&](slot_list const& list) {
    const workspace_type_stats one = stats_of(list);
    sum.types += list.count > 0 ? 1 : 0;
    sum.slot_count += one.slot_count;
    sum.active_slots += one.active_slots;
    sum.elements += one.elements;
    sum.used_bytes += one.used_bytes;
    for (std::size_t i = 0; i < list.count; ++i) sum.tensor_headers += header_count(list.items[i].headers);
  });
  for (saved_count const* entry = log_; entry != log_end_; ++entry) {
    ++(entry->list == nullptr ? sum.depth : sum.saved_counts);
  }
  return sum;
}

void workspace_core::check_invariants() const noexcept {
  const outside_use own{*this};
  const invariant_check require{"workspace", options_.name};
  std::size_t held_bytes = 0;
  for_each_list(*this, [&](slot_list const& list) {
    require(list.active <= list.count && list.count <= list.room, "active <= count <= room");
    require(list.items[list.count].limit == 0, "the slot behind the last has limit 0");
    for (std::size_t i = 0; i < list.count; ++i) {
      slot const& one = list.items[i];
      require(one.limit <= one.peak && one.peak <= one.capacity, "limit <= peak <= capacity");
      require(i >= list.active || one.size <= one.capacity, "size <= capacity while it is acquired");
      held_bytes += bytes_of(list, one.capacity);
    }
  });
  require(held_bytes == held_bytes_, "held_bytes == sum over slots of capacity * bytes of an element");
  require(options_.max_held_bytes == 0 || held_bytes_ <= options_.max_held_bytes,
          "held_bytes <= max_held_bytes");
  saved_count const* entry = log_end_;
  while (entry != log_ && entry[-1].list != nullptr) --entry;
  require(frame() == (entry != log_ ? entry[-1].value : slot_list::outside_frame),
          "frame is the number of the last scope in the log");
}

}  // namespace tidemark::detail
