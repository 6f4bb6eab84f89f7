// SPDX-License-Identifier: Apache-2.0
#include <tidemark/graph/capture_switch.hpp>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_errors.hpp>

#include "../core/default_upstream.hpp"

namespace tidemark {
namespace {

using detail::address_of;
using detail::switched_blocks;

void deallocate_unused(std::pmr::memory_resource& upstream, switched_blocks const& to_return) noexcept {
  for (auto const& [address, block] : to_return) {
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
  std::size_t baked_by_captures = 0;
  for (auto const& [thread, record] : records_) {
    was_frozen = was_frozen || record.frozen;
    baked_by_captures += record.baked != nullptr ? 1 : 0;
    deallocate_unused(*options_.upstream, record.deferred);
  }
  for (switched_blocks const& baked : baked_) deallocate_unused(*options_.upstream, baked);
  if (was_frozen) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "capture_switch '%s' is destroyed while a thread has frozen it", name());
  }
  if (baked_.size() != baked_by_captures) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "capture_switch '%s' is destroyed while %zu graphs hold blocks of it", name(),
                             baked_.size() - baked_by_captures);
  }
  for (auto const& [arena, usage] : arenas_) arena->recognising_switch_ = nullptr;
}

// ---- blocks ----------------------------------------------------------------------------------------

void* capture_switch::allocate(std::size_t bytes, std::size_t align) {
  try {
    void* const block = special_.any() ? allocate_specially(bytes, align)
                                       : detail::allocate_from(*options_.upstream, name(), bytes, align);
    counter_.on_allocate(bytes);
    return block;
  } catch (...) {
    counter_.refused();
    throw;
  }
}

void* capture_switch::allocate_specially(std::size_t bytes, std::size_t align) {
  detail::capture_record* record = nullptr;
  {
    const std::scoped_lock lock{mutex_};
    record = frozen_record();
    if (record != nullptr && record->arena != nullptr) {
      void* const block = record->arena->allocate(bytes, align);
      detail::switched_usage& usage = arenas_[record->arena];
      ++usage.blocks;
      usage.bytes += bytes;
      return block;
    }
  }
  if (record != nullptr) return allocate_baked(*record, bytes, align);
  void* const block = detail::allocate_from(*options_.upstream, name(), bytes, align);
  if (check_level >= 2) check_new(block);
  return block;
}

// `record` belongs to the calling thread, so no other thread erases it.
void* capture_switch::allocate_baked(detail::capture_record& record, std::size_t bytes, std::size_t align) {
  if (options_.without_arena == frozen_policy::refuse) {
    throw allocator_frozen{
        message(*this, "frozen for a capture, and no graph arena is installed: cannot allocate ") +
        std::to_string(bytes) + " bytes"};
  }
  switched_blocks node_source;
  auto node = node_source.extract(node_source.emplace(0, detail::switched_block{bytes, align}).first);
  {
    const std::scoped_lock lock{mutex_};
    (void)baked_by(record);
  }
  void* const block = detail::allocate_from(*options_.upstream, name(), bytes, align);
  if (check_level >= 2) check_new(block);
  node.key() = address_of(block);
  const std::scoped_lock lock{mutex_};
  record.baked->insert(std::move(node));
  return block;
}

void capture_switch::check_new(void const* block) const noexcept {
  detail::late_reports late;
  const std::scoped_lock lock{mutex_};
  const std::uintptr_t address = address_of(block);
  const bool is_deferred = std::ranges::any_of(
      records_, [&](auto const& entry) { return entry.second.deferred.contains(address); });
  if (!is_deferred && !is_baked(address) && arena_at(address) == nullptr) return;
  late.add(violation_kind::bad_deallocate, name(),
           "capture_switch '%s': the upstream allocated %p, which a graph still uses: "
           "it was deallocated past the switch",
           name(), block);
}

void capture_switch::deallocate_specially(void* block, std::size_t bytes, std::size_t align) {
  if (!deallocate_or_defer(block, bytes, align)) options_.upstream->deallocate(block, bytes, align);
}

bool capture_switch::deallocate_or_defer(void* block, std::size_t bytes, std::size_t align) noexcept {
  detail::late_reports late;
  const auto refuse = [&] {
    late.add(violation_kind::bad_deallocate, name(),
             "capture_switch '%s': %zu bytes at %p were deallocated already", name(), bytes, block);
    return true;
  };
  const std::uintptr_t address = address_of(block);
  const std::scoped_lock lock{mutex_};
  const auto baked =
      std::ranges::find_if(baked_, [&](switched_blocks const& blocks) { return blocks.contains(address); });
  detail::capture_record* const record = frozen_record();
  bool is_handled = true;
  if (graph_arena* const arena = arena_at(address)) {
    if (!arena->is_block_in_use(address, bytes)) {
      arena->refuse(late, block, bytes);
      return true;
    }
    arena->deallocate(block, bytes, align);
    // Saturating, because a block may be older than the installation of the arena.
    detail::switched_usage& usage = arenas_[arena];
    usage.blocks -= std::min<std::size_t>(usage.blocks, 1);
    usage.bytes -= std::min(usage.bytes, bytes);
  } else if (baked != baked_.end() || record != nullptr) {
    if (baked != baked_.end() && !std::exchange(baked->at(address).in_use, false)) return refuse();
    if (record != nullptr && record->deferred.contains(address)) return refuse();
    try {
      // Work captured before, also by an earlier graph, may use the block at each launch.
      if (record != nullptr)
        baked_by(*record).try_emplace(address, detail::switched_block{bytes, align, false});
    } catch (...) {
      if (baked != baked_.end()) baked->erase(address);
      late.add(violation_kind::exhausted, name(),
               "capture_switch '%s': no memory to defer the deallocation of %zu bytes at %p: they are lost",
               name(), bytes, block);
    }
  } else {
    is_handled = false;
  }
  counter_.on_deallocate(bytes);
  return is_handled;
}

void capture_switch::release(switched_blocks& baked) noexcept {
  switched_blocks to_return;
  {
    const std::scoped_lock lock{mutex_};
    to_return.swap(baked);
    baked_.remove_if([&](switched_blocks const& other) { return &other == &baked; });
    std::erase_if(to_return, [this](auto const& entry) { return is_baked(entry.first); });  // in other graphs
    // On a frozen thread, the blocks wait for the end of its capture.
    if (detail::capture_record* const record = frozen_record()) {
      std::erase_if(to_return, [](auto const& entry) { return entry.second.in_use; });
      record->deferred.merge(to_return);
    }
    count_special();
  }
  deallocate_unused(*options_.upstream, to_return);
}

void baked_blocks::releaser::operator()(switched_blocks* blocks) const noexcept { owner->release(*blocks); }

std::size_t baked_blocks::size() const noexcept {
  if (blocks_ == nullptr) return 0;
  const std::scoped_lock lock{blocks_.get_deleter().owner->mutex_};
  return blocks_->size();
}

// ---- captures --------------------------------------------------------------------------------------

void capture_switch::freeze() {
  const std::scoped_lock lock{mutex_};
  if (std::exchange(records_[detail::this_thread_number()].frozen, true))
    throw std::logic_error{message(*this, "freeze on a thread that has frozen it already")};
  count_special();
}

baked_blocks capture_switch::unfreeze() noexcept {
  switched_blocks to_return;
  baked_blocks held;
  {
    const std::scoped_lock lock{mutex_};
    detail::capture_record* const record = frozen_record();
    if (record == nullptr) return held;
    record->frozen = false;
    to_return.swap(record->deferred);
    if (record->baked != nullptr) held = baked_blocks{*this, *std::exchange(record->baked, nullptr)};
    end_idle_records();
  }
  deallocate_unused(*options_.upstream, to_return);
  return held;
}

bool capture_switch::is_frozen() const noexcept {
  const std::scoped_lock lock{mutex_};
  detail::capture_record const* const own = own_record();
  return own != nullptr && own->frozen;
}

void capture_switch::install_arena(graph_arena& arena) {
  const std::scoped_lock lock{mutex_};
  const auto refuse = [&](std::string const& why) {
    throw std::logic_error{message(*this, "cannot install graph_arena '") + arena.name() + "': " + why};
  };
  if (detail::capture_record const* const own = own_record(); own != nullptr && own->arena != nullptr)
    refuse("'" + std::string{own->arena->name()} + "' is installed on this thread");
  if (arena.recognising_switch_ != nullptr && arena.recognising_switch_ != this)
    refuse("it is known to capture_switch '" + std::string{arena.recognising_switch_->name()} + "'");
  if (std::ranges::any_of(records_, [&](auto const& entry) { return entry.second.arena == &arena; }))
    refuse("another thread has it installed");
  decltype(arenas_) added;
  added.try_emplace(&arena);
  records_[detail::this_thread_number()].arena = &arena;
  arenas_.merge(added);  // an arena that is already known keeps its counts
  arena.recognising_switch_ = this;
  count_special();
}

graph_arena* capture_switch::clear_arena() noexcept {
  const std::scoped_lock lock{mutex_};
  detail::capture_record* const own = own_record();
  if (own == nullptr) return nullptr;
  graph_arena* const installed = std::exchange(own->arena, nullptr);
  end_idle_records();
  return installed;
}

bool capture_switch::has_arena() const noexcept {
  const std::scoped_lock lock{mutex_};
  detail::capture_record const* const own = own_record();
  return own != nullptr && own->arena != nullptr;
}

void capture_switch::forget(graph_arena& arena) noexcept {
  const std::scoped_lock lock{mutex_};
  const auto gone = arenas_.extract(&arena);
  counter_.on_deallocate(gone.mapped().bytes, gone.mapped().blocks);
  for (auto& [thread, record] : records_) {
    if (record.arena == &arena) record.arena = nullptr;
  }
  end_idle_records();
}

// ---- records ---------------------------------------------------------------------------------------

switched_blocks& capture_switch::baked_by(detail::capture_record& record) {
  if (record.baked == nullptr) {
    record.baked = &baked_.emplace_back();
    count_special();
  }
  return *record.baked;
}

detail::capture_record const* capture_switch::own_record() const noexcept {
  const auto found = records_.find(detail::this_thread_number());
  return found != records_.end() ? &found->second : nullptr;
}

detail::capture_record* capture_switch::own_record() noexcept {
  return const_cast<detail::capture_record*>(std::as_const(*this).own_record());
}

detail::capture_record* capture_switch::frozen_record() noexcept {
  detail::capture_record* const own = own_record();
  return own != nullptr && own->frozen ? own : nullptr;
}

void capture_switch::end_idle_records() noexcept {
  std::erase_if(records_,
                [](auto const& entry) { return !entry.second.frozen && entry.second.arena == nullptr; });
  count_special();
}

graph_arena* capture_switch::arena_at(std::uintptr_t address) const noexcept {
  if (arenas_.empty()) return nullptr;
  detail::capture_record const* const own = own_record();
  if (own != nullptr && own->arena != nullptr && own->arena->has_block_at(address)) return own->arena;
  graph_arena* found = nullptr;
  for (auto const& [arena, usage] : arenas_) {
    if (!arena->range().contains(address)) continue;
    found = arena;
    if (arena->has_block_at(address)) break;
  }
  return found;
}

bool capture_switch::is_baked(std::uintptr_t address) const noexcept {
  return std::ranges::any_of(baked_, [&](switched_blocks const& baked) { return baked.contains(address); });
}

void capture_switch::count_special() noexcept {
  special_.set(records_.size() + baked_.size() + arenas_.size());
}

// ---- statistics and invariants ---------------------------------------------------------------------

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
  for (auto const& [thread, record] : records_) {
    deferred += record.deferred.size();
    frozen += record.frozen ? 1 : 0;
  }
  for (auto baked = baked_.begin(); baked != baked_.end(); ++baked) {
    deferred += static_cast<std::size_t>(std::ranges::count_if(*baked, [&](auto const& entry) {
      const auto has_it = [&](switched_blocks const& later) { return later.contains(entry.first); };
      return !entry.second.in_use && std::none_of(std::next(baked), baked_.end(), has_it);
    }));
  }
  return {counted, deferred, frozen};
}

char const* capture_switch::broken_invariant() const noexcept {
  const auto in_an_arena = [this](auto const& entry) { return arena_at(entry.first) != nullptr; };
  for (auto const& [thread, one] : records_) {
    if (!one.frozen && one.arena == nullptr) return "a record is frozen or has an arena";
    if (!one.frozen && !one.deferred.empty()) return "blocks are deferred while frozen";
    if (std::ranges::any_of(one.deferred, in_an_arena)) return "what is deferred lies in no arena";
    if (std::ranges::any_of(one.deferred, [this](auto const& entry) { return is_baked(entry.first); }))
      return "what is deferred is not baked";
  }
  for (switched_blocks const& baked : baked_) {
    if (std::ranges::any_of(baked, in_an_arena)) return "what is baked lies in no arena";
  }
  for (auto const& [arena, usage] : arenas_) {
    if (usage.blocks > arena->used_blocks_) return "blocks allocated from an arena <= its blocks in use";
  }
  if (special_.value() != records_.size() + baked_.size() + arenas_.size())
    return "special == records + baked sets + arenas";
  return nullptr;
}

void capture_switch::check_invariants() const noexcept {
  char const* const broken = [&] {
    const std::scoped_lock lock{mutex_};
    return broken_invariant();
  }();
  detail::invariant_check{"capture_switch", name()}.report(broken);
}

}  // namespace tidemark
