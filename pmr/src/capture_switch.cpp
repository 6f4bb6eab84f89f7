// SPDX-License-Identifier: Apache-2.0
#include <tidemark/capture_switch.hpp>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/detail/align.hpp>
#include <tidemark/detail/identity.hpp>
#include <tidemark/graph_arena.hpp>
#include <tidemark/graph_errors.hpp>
#include <tidemark/violation.hpp>

#include "default_upstream.hpp"

namespace tidemark {
namespace {

using detail::address_of;
using detail::switched_blocks;

void give_back(std::pmr::memory_resource& upstream, switched_blocks const& leaving) noexcept {
  for (auto const& [address, block] : leaving) {
    if (!block.in_use) upstream.deallocate(reinterpret_cast<void*>(address), block.bytes, block.align);
  }
}

capture_switch_options completed(capture_switch_options options) noexcept {
  options.upstream = detail::or_default(options.upstream);
  if (options.name == nullptr) options.name = capture_switch_options{}.name;
  return options;
}

std::string message(capture_switch const& of, char const* what) {
  return "capture_switch '" + std::string{of.name()} + "': " + what;
}

}  // namespace

capture_switch::capture_switch(capture_switch_options const& options) : options_{completed(options)} {}

capture_switch::~capture_switch() {
  bool was_frozen = false;
  std::size_t of_captures = 0;  // of the baked sets; the others are of graphs
  for (detail::capture_record const& record : records_) {
    was_frozen = was_frozen || record.frozen;
    of_captures += record.baked != nullptr ? 1 : 0;
    give_back(*options_.upstream, record.deferred);
  }
  for (switched_blocks const& of_one_capture : baked_) give_back(*options_.upstream, of_one_capture);
  if (was_frozen) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "capture_switch '%s' is destroyed while a thread has frozen it", name());
  }
  if (baked_.size() != of_captures) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "capture_switch '%s' is destroyed while %zu graphs hold blocks of it", name(),
                             baked_.size() - of_captures);
  }
  for (detail::known_arena const& known : arenas_) known.arena->known_to_ = nullptr;
}

// ---- blocks -----------------------------------------------------------------------------------------------

void* capture_switch::take(std::size_t bytes, std::size_t align) {
  try {
    void* const block = options_.upstream->allocate(bytes, align);
    counter_.handed_out(bytes);
    return block;
  } catch (...) {
    counter_.refused();
    throw;
  }
}

void* capture_switch::allocate_specially(std::size_t bytes, std::size_t align) {
  detail::capture_record* record = nullptr;
  try {
    {
      const std::scoped_lock lock{mutex_};
      record = record_of_this_thread();
      if (record != nullptr && !record->frozen) record = nullptr;
      if (record != nullptr && record->arena != nullptr) {
        void* const block = record->arena->allocate(bytes, align);
        detail::known_arena& of = *known(*record->arena);
        ++of.blocks;
        of.bytes += bytes;
        counter_.handed_out(bytes);
        return block;
      }
    }
    if (record != nullptr) return take_baked(*record, bytes, align);
  } catch (...) {
    counter_.refused();
    throw;
  }
  void* const block = take(bytes, align);
  if (check_level >= 2) look_at_new(block);
  return block;
}

// The record is the calling thread's, which is here: nobody else ends it.
void* capture_switch::take_baked(detail::capture_record& record, std::size_t bytes, std::size_t align) {
  if (options_.without_arena == frozen_policy::refuse) {
    throw allocator_frozen{
        message(*this, "frozen for a capture, and no graph arena is installed: cannot allocate ") +
        std::to_string(bytes) + " bytes"};
  }
  switched_blocks noted;
  auto node = noted.extract(noted.emplace(0, detail::switched_block{bytes, align}).first);
  if (record.baked == nullptr) {
    const std::scoped_lock lock{mutex_};
    record.baked = &baked_.emplace_back();
    count_special();
  }
  void* const block = options_.upstream->allocate(bytes, align);
  counter_.handed_out(bytes);
  if (check_level >= 2) look_at_new(block);
  node.key() = address_of(block);
  const std::scoped_lock lock{mutex_};
  record.baked->insert(std::move(node));
  return block;
}

void capture_switch::look_at_new(void const* block) const noexcept {
  const std::scoped_lock lock{mutex_};
  const std::uintptr_t address = address_of(block);
  const bool is_deferred = std::ranges::any_of(
      records_, [&](detail::capture_record const& record) { return record.deferred.contains(address); });
  if (!is_deferred && !is_baked(address) && !lies_in_an_arena(address)) return;
  detail::report_violation(
      violation_kind::bad_deallocate, name(),
      "capture_switch '%s': the upstream hands out %p, which is kept from it for a graph: "
      "it was given back past the switch",
      name(), block);
}

void capture_switch::deallocate_specially(void* block, std::size_t bytes, std::size_t align) {
  const fate decided = keep(block, bytes, align);
  if (decided == fate::refused) return;
  counter_.given_back(bytes);
  if (decided == fate::upstreams) options_.upstream->deallocate(block, bytes, align);
}

capture_switch::fate capture_switch::keep(void* block, std::size_t bytes, std::size_t align) noexcept {
  const auto given_back_before = [&] {
    detail::report_violation(
        violation_kind::bad_deallocate, name(),
        "capture_switch '%s': %zu bytes at %p are given back, which were given back already", name(), bytes,
        block);
    return fate::refused;
  };
  const std::scoped_lock lock{mutex_};
  if (detail::known_arena* const known = arena_of(block)) {
    const std::uint64_t refused = known->arena->bad_deallocations_;
    known->arena->deallocate(block, bytes, align);
    if (known->arena->bad_deallocations_ != refused) return fate::refused;
    // Saturating, because a block may be from before the arena was installed.
    known->blocks -= std::min<std::size_t>(known->blocks, 1);
    known->bytes -= std::min(known->bytes, bytes);
    return fate::kept;
  }
  const std::uintptr_t address = address_of(block);
  for (switched_blocks& of_one_capture : baked_) {
    const auto found = of_one_capture.find(address);
    if (found == of_one_capture.end()) continue;
    if (!found->second.in_use) return given_back_before();
    found->second.in_use = false;
    return fate::kept;
  }
  detail::capture_record* const record = record_of_this_thread();
  if (record == nullptr || !record->frozen) return fate::upstreams;
  try {
    if (!record->deferred.emplace(address, detail::switched_block{bytes, align, false}).second)
      return given_back_before();
  } catch (...) {
    detail::report_violation(
        violation_kind::exhausted, name(),
        "capture_switch '%s': no memory to note that %zu bytes at %p go back when the capture "
        "ends; they are lost",
        name(), bytes, block);
  }
  return fate::kept;
}

void capture_switch::release(switched_blocks& baked) noexcept {
  switched_blocks leaving;
  {
    const std::scoped_lock lock{mutex_};
    leaving.swap(baked);
    baked_.remove_if([&](switched_blocks const& of_one_capture) { return &of_one_capture == &baked; });
    // On a thread that captures now, they wait for the end of that.
    detail::capture_record* const record = record_of_this_thread();
    if (record != nullptr && record->frozen) {
      std::erase_if(leaving, [](auto const& entry) { return entry.second.in_use; });
      record->deferred.merge(leaving);
    }
    count_special();
  }
  give_back(*options_.upstream, leaving);
}

void baked_blocks::release() noexcept {
  if (switch_ == nullptr) return;
  std::exchange(switch_, nullptr)->release(*std::exchange(blocks_, nullptr));
}

std::size_t baked_blocks::size() const noexcept {
  if (switch_ == nullptr) return 0;
  const std::scoped_lock lock{switch_->mutex_};
  return blocks_->size();
}

// ---- captures ---------------------------------------------------------------------------------------------

void capture_switch::freeze() {
  const std::scoped_lock lock{mutex_};
  detail::capture_record* const record = record_of_this_thread();
  if (record != nullptr && record->frozen) {
    throw std::logic_error{message(*this, "freeze on a thread that has frozen it already")};
  }
  (record != nullptr ? *record : begin_record()).frozen = true;
}

baked_blocks capture_switch::unfreeze() noexcept {
  switched_blocks leaving;
  baked_blocks held;
  {
    const std::scoped_lock lock{mutex_};
    detail::capture_record* const record = record_of_this_thread();
    if (record == nullptr || !record->frozen) return held;
    record->frozen = false;
    leaving.swap(record->deferred);
    if (record->baked != nullptr) held = baked_blocks{*this, *std::exchange(record->baked, nullptr)};
    end_record_if_idle(*record);
  }
  give_back(*options_.upstream, leaving);
  return held;
}

bool capture_switch::is_frozen() const noexcept {
  const std::scoped_lock lock{mutex_};
  detail::capture_record const* const record = record_of_this_thread();
  return record != nullptr && record->frozen;
}

void capture_switch::install_arena(graph_arena& arena) {
  const std::scoped_lock lock{mutex_};
  detail::capture_record* const record = record_of_this_thread();
  if (record != nullptr && record->arena != nullptr) {
    throw std::logic_error{message(*this, "cannot install graph_arena '") + arena.name() + "': '" +
                           record->arena->name() + "' is installed on this thread"};
  }
  if (arena.known_to_ != nullptr && arena.known_to_ != this) {
    throw std::logic_error{message(*this, "cannot install graph_arena '") + arena.name() +
                           "': it is known to capture_switch '" + arena.known_to_->name() + "'"};
  }
  for (detail::capture_record const& other : records_) {
    if (other.arena == &arena) {
      throw std::logic_error{message(*this, "cannot install graph_arena '") + arena.name() +
                             "': another thread has it installed"};
    }
  }
  if (arena.known_to_ == nullptr) arenas_.reserve(arenas_.size() + 1);
  (record != nullptr ? *record : begin_record()).arena = &arena;
  if (std::exchange(arena.known_to_, this) == nullptr) arenas_.push_back({.arena = &arena});
  count_special();
}

graph_arena* capture_switch::clear_arena() noexcept {
  const std::scoped_lock lock{mutex_};
  detail::capture_record* const record = record_of_this_thread();
  if (record == nullptr || record->arena == nullptr) return nullptr;
  graph_arena* const installed = std::exchange(record->arena, nullptr);
  end_record_if_idle(*record);
  return installed;
}

bool capture_switch::has_arena() const noexcept {
  const std::scoped_lock lock{mutex_};
  detail::capture_record const* const record = record_of_this_thread();
  return record != nullptr && record->arena != nullptr;
}

void capture_switch::forget(graph_arena& arena) noexcept {
  const std::scoped_lock lock{mutex_};
  const auto gone =
      std::ranges::find_if(arenas_, [&](detail::known_arena const& known) { return known.arena == &arena; });
  if (gone != arenas_.end()) {
    counter_.given_back(gone->bytes, gone->blocks);
    arenas_.erase(gone);
  }
  for (auto record = records_.begin(); record != records_.end();) {
    const auto current = record++;
    if (current->arena != &arena) continue;
    current->arena = nullptr;
    end_record_if_idle(*current);
  }
  count_special();
}

// ---- records ----------------------------------------------------------------------------------------------

detail::capture_record const* capture_switch::record_of_this_thread() const noexcept {
  const unsigned long long thread = detail::this_thread_number();
  const auto found = std::ranges::find_if(
      records_, [&](detail::capture_record const& record) { return record.thread == thread; });
  return found != records_.end() ? &*found : nullptr;
}

detail::capture_record* capture_switch::record_of_this_thread() noexcept {
  return const_cast<detail::capture_record*>(std::as_const(*this).record_of_this_thread());
}

detail::capture_record& capture_switch::begin_record() {
  detail::capture_record& record = records_.emplace_back();
  record.thread = detail::this_thread_number();
  count_special();
  return record;
}

void capture_switch::end_record_if_idle(detail::capture_record& record) noexcept {
  if (record.frozen || record.arena != nullptr) return;
  records_.remove_if([&](detail::capture_record const& other) { return &other == &record; });
  count_special();
}

detail::known_arena* capture_switch::known(graph_arena const& arena) noexcept {
  const auto found =
      std::ranges::find_if(arenas_, [&](detail::known_arena const& one) { return one.arena == &arena; });
  return found != arenas_.end() ? &*found : nullptr;
}

detail::known_arena* capture_switch::arena_of(void const* block) noexcept {
  const auto found =
      std::ranges::find_if(arenas_, [&](detail::known_arena const& one) { return one.arena->owns(block); });
  return found != arenas_.end() ? &*found : nullptr;
}

bool capture_switch::lies_in_an_arena(std::uintptr_t address) const noexcept {
  return std::ranges::any_of(
      arenas_, [&](detail::known_arena const& one) { return one.arena->range().contains(address); });
}

bool capture_switch::is_baked(std::uintptr_t address) const noexcept {
  return std::ranges::any_of(
      baked_, [&](switched_blocks const& of_one_capture) { return of_one_capture.contains(address); });
}

void capture_switch::count_special() noexcept {
  special_.store(records_.size() + baked_.size() + arenas_.size(), std::memory_order_release);
}

// ---- what it tells of itself ------------------------------------------------------------------------------

void capture_switch::reset() {
  if (const std::size_t blocks = counter_.used_blocks(); blocks != 0) {
    throw allocator_busy{message(*this, "reset while ") + std::to_string(blocks) + " blocks are in use",
                         blocks};
  }
  counter_.restart();
}

capture_switch_stats capture_switch::stats() const noexcept {
  const resource_stats counted = counter_.stats(name());
  const std::scoped_lock lock{mutex_};
  std::size_t deferred = 0, frozen = 0;
  for (detail::capture_record const& record : records_) {
    deferred += record.deferred.size();
    frozen += record.frozen ? 1 : 0;
  }
  for (switched_blocks const& of_one_capture : baked_) {
    deferred += static_cast<std::size_t>(
        std::ranges::count_if(of_one_capture, [](auto const& baked) { return !baked.second.in_use; }));
  }
  return {counted, deferred, frozen};
}

char const* capture_switch::broken_invariant() const noexcept {
  const auto in_an_arena = [this](auto const& entry) { return lies_in_an_arena(entry.first); };
  for (auto record = records_.begin(); record != records_.end(); ++record) {
    if (!record->frozen && record->arena == nullptr) return "a record is frozen or has an arena";
    if (!record->frozen && !record->deferred.empty()) return "blocks are deferred while frozen";
    for (auto other = std::next(record); other != records_.end(); ++other) {
      if (other->thread == record->thread) return "a thread has one record at most";
    }
    if (std::ranges::any_of(record->deferred, in_an_arena)) return "what is deferred lies in no arena";
    if (std::ranges::any_of(record->deferred, [this](auto const& entry) { return is_baked(entry.first); }))
      return "what is deferred is not baked";
  }
  for (switched_blocks const& of_one_capture : baked_) {
    if (std::ranges::any_of(of_one_capture, in_an_arena)) return "what is baked lies in no arena";
  }
  for (detail::known_arena const& known : arenas_) {
    if (known.blocks > known.arena->used_blocks_) return "blocks handed out of an arena <= its blocks in use";
  }
  if (special_.load() != records_.size() + baked_.size() + arenas_.size())
    return "special == records + baked sets + arenas";
  return nullptr;
}

void capture_switch::check_invariants() const noexcept {
  const std::scoped_lock lock{mutex_};
  if (char const* formula = broken_invariant()) {
    detail::report_violation(violation_kind::invariant, name(), "capture_switch '%s': broken invariant: %s",
                             name(), formula);
  }
}

}  // namespace tidemark
