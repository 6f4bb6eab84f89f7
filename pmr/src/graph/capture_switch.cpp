// SPDX-License-Identifier: Apache-2.0
#include <tidemark/graph/capture_switch.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_errors.hpp>

namespace tidemark {
namespace detail {

/// An upstream block that a capture switch holds back.
struct switched_block {
  std::size_t bytes = 0, align = 0;
  bool in_use = true;       // false once deallocated
  std::size_t holders = 0;  // sets of addresses that contain the block
};

/// Record of a thread that has frozen a switch, or has an arena installed in it.
struct capture_record {
  graph_arena* arena = nullptr;               // installed arena; null: none
  std::unique_ptr<switched_addresses> baked;  // upstream blocks of the capture; null: not frozen
  switched_addresses waiting;                 // blocks of graphs that ended during the capture
};

/// Records of a switch.
struct switch_records {
  std::map<unsigned long long, capture_record> records;  // by the thread's number
  std::map<std::uintptr_t, switched_block> held;         // by address: blocks of active captures and graphs
  std::set<graph_arena*> arenas;                         // known: installed once, and not ended
};

}  // namespace detail

namespace {

using detail::address_of;
using detail::switched_block;
using switched_blocks = std::map<std::uintptr_t, switched_block>;

void return_to(std::pmr::memory_resource& upstream, switched_blocks const& unused) noexcept {
  for (auto const& [address, block] : unused)
    upstream.deallocate(reinterpret_cast<void*>(address), block.bytes, block.align);
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

capture_switch::capture_switch(capture_switch_options const& options)
    : options_{completed(options)}, of_{std::make_unique<detail::switch_records>()} {}

capture_switch::~capture_switch() {
  std::erase_if(of_->held, [](auto const& entry) { return entry.second.in_use; });
  return_to(*options_.upstream, of_->held);
  if (std::ranges::any_of(of_->records, [](auto const& entry) { return entry.second.baked != nullptr; })) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "capture_switch '%s' is destroyed while a thread has frozen it", name());
  } else if (!of_->held.empty()) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "capture_switch '%s' is destroyed while graphs hold %zu blocks of it", name(),
                             of_->held.size());
  }
  for (graph_arena* const arena : of_->arenas) arena->recognising_switch_ = nullptr;
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
      ++record->arena->switched_blocks_;
      record->arena->switched_bytes_ += bytes;
      return block;
    }
  }
  if (record != nullptr) return allocate_baked(*record->baked, bytes, align);
  void* const block = detail::allocate_from(*options_.upstream, name(), bytes, align);
  if (check_level >= 2) check_new(block);
  return block;
}

// `baked` belongs to the calling thread's capture, so no other thread ends it.
void* capture_switch::allocate_baked(detail::switched_addresses& baked, std::size_t bytes,
                                     std::size_t align) {
  if (options_.without_arena == frozen_policy::refuse) {
    throw allocator_frozen{
        message(*this, "frozen for a capture, and no graph arena is installed: cannot allocate ") +
        std::to_string(bytes) + " bytes"};
  }
  switched_blocks made{{0, switched_block{bytes, align}}};
  detail::switched_addresses address{0};
  auto block_node = made.extract(made.begin());
  auto address_node = address.extract(address.begin());
  void* const block = detail::allocate_from(*options_.upstream, name(), bytes, align);
  if (check_level >= 2) check_new(block);
  block_node.key() = address_node.value() = address_of(block);
  const std::scoped_lock lock{mutex_};
  const auto held = of_->held.insert(std::move(block_node)).position;
  if (baked.insert(std::move(address_node)).inserted) ++held->second.holders;
  count_special();
  return block;
}

void capture_switch::check_new(void const* block) const noexcept {
  detail::late_reports late;
  const std::scoped_lock lock{mutex_};
  const std::uintptr_t address = address_of(block);
  if (!of_->held.contains(address) && arena_at(address) == nullptr) return;
  detail::report_violation(violation_kind::bad_deallocate, name(),
                           "capture_switch '%s': the upstream allocated %p, which a graph still uses: "
                           "it was deallocated past the switch",
                           name(), block);
}

bool capture_switch::deallocate_or_defer(void* block, std::size_t bytes, std::size_t align) noexcept {
  detail::late_reports late;
  const auto refuse = [&] {
    detail::report_violation(violation_kind::bad_deallocate, name(),
                             "capture_switch '%s': %zu bytes at %p were deallocated already", name(), bytes,
                             block);
    return true;
  };
  const std::uintptr_t address = address_of(block);
  const std::scoped_lock lock{mutex_};
  const auto held = of_->held.find(address);
  detail::capture_record* const record = frozen_record();
  if (graph_arena* const arena = arena_at(address)) {
    if (!arena->is_block_in_use(address, bytes)) {
      arena->refuse(block, bytes);
      return true;
    }
    arena->deallocate(block, bytes, align);
    // Saturating, because a block may be older than the installation of the arena.
    arena->switched_blocks_ -= std::min<std::size_t>(arena->switched_blocks_, 1);
    arena->switched_bytes_ -= std::min(arena->switched_bytes_, bytes);
  } else if (held != of_->held.end() || record != nullptr) {
    if (held != of_->held.end() && !std::exchange(held->second.in_use, false)) return refuse();
    try {
      // Work captured before, also by an earlier graph, may use the block at each launch.
      if (record != nullptr) {
        switched_block& later =
            of_->held.try_emplace(address, switched_block{bytes, align, false}).first->second;
        if (record->baked->insert(address).second) ++later.holders;
      }
    } catch (...) {
      of_->held.erase(address);
      detail::report_violation(
          violation_kind::exhausted, name(),
          "capture_switch '%s': no memory to defer the deallocation of %zu bytes at %p: they are lost",
          name(), bytes, block);
    }
    count_special();
  } else {
    return false;
  }
  counter_.on_deallocate(bytes);
  return true;
}

void capture_switch::release(detail::switched_addresses& held) noexcept {
  switched_blocks unused;
  {
    const std::scoped_lock lock{mutex_};
    // On a frozen thread, the blocks wait for the end of its capture. Blocks that wait already stay in `held`.
    if (detail::capture_record* const record = frozen_record()) record->waiting.merge(held);
    for (const std::uintptr_t address : held) {
      const auto block = of_->held.find(address);
      if (block == of_->held.end() || --block->second.holders != 0) continue;
      if (block->second.in_use) of_->held.erase(block);
      else unused.insert(of_->held.extract(block));
    }
    count_special();
  }
  return_to(*options_.upstream, unused);
}

void baked_blocks::releaser::operator()(detail::switched_addresses* blocks) const noexcept {
  owner->release(*std::unique_ptr<detail::switched_addresses>{blocks});
}

// ---- captures --------------------------------------------------------------------------------------

void capture_switch::freeze() {
  auto baked = std::make_unique<detail::switched_addresses>();
  const std::scoped_lock lock{mutex_};
  detail::capture_record& own = of_->records[detail::this_thread_number()];
  if (own.baked != nullptr)
    throw std::logic_error{message(*this, "freeze on a thread that has frozen it already")};
  own.baked = std::move(baked);
  count_special();
}

baked_blocks capture_switch::unfreeze() noexcept {
  std::unique_ptr<detail::switched_addresses> baked;
  detail::switched_addresses waiting;
  {
    const std::scoped_lock lock{mutex_};
    detail::capture_record* const record = frozen_record();
    if (record == nullptr) return {};
    baked = std::move(record->baked);
    waiting.swap(record->waiting);
    end_idle_records();
  }
  release(waiting);
  if (baked->empty()) return {};
  return {*this, std::move(baked)};
}

bool capture_switch::is_frozen() const noexcept {
  const std::scoped_lock lock{mutex_};
  return frozen_record() != nullptr;
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
  if (std::ranges::any_of(of_->records, [&](auto const& entry) { return entry.second.arena == &arena; }))
    refuse("another thread has it installed");
  std::set<graph_arena*> added{&arena};
  of_->records[detail::this_thread_number()].arena = &arena;
  of_->arenas.merge(added);
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
  of_->arenas.erase(&arena);
  counter_.on_deallocate(arena.switched_bytes_, arena.switched_blocks_);
  for (auto& [thread, record] : of_->records) {
    if (record.arena == &arena) record.arena = nullptr;
  }
  end_idle_records();
}

// ---- records ---------------------------------------------------------------------------------------

detail::capture_record* capture_switch::own_record() const noexcept {
  const auto found = of_->records.find(detail::this_thread_number());
  return found != of_->records.end() ? &found->second : nullptr;
}

detail::capture_record* capture_switch::frozen_record() const noexcept {
  detail::capture_record* const own = own_record();
  return own != nullptr && own->baked != nullptr ? own : nullptr;
}

void capture_switch::end_idle_records() noexcept {
  std::erase_if(of_->records, [](auto const& entry) {
    return entry.second.baked == nullptr && entry.second.arena == nullptr;
  });
  count_special();
}

graph_arena* capture_switch::arena_at(std::uintptr_t address) const noexcept {
  if (of_->arenas.empty()) return nullptr;
  detail::capture_record const* const own = own_record();
  if (own != nullptr && own->arena != nullptr && own->arena->has_block_at(address)) return own->arena;
  graph_arena* found = nullptr;
  for (graph_arena* const arena : of_->arenas) {
    if (!arena->range().contains(address)) continue;
    found = arena;
    if (arena->has_block_at(address)) break;
  }
  return found;
}

void capture_switch::count_special() noexcept {
  special_.set(of_->records.size() + of_->held.size() + of_->arenas.size());
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
  const auto count = [](auto const& entries, auto holds) {
    return static_cast<std::size_t>(
        std::ranges::count_if(entries, [&](auto const& entry) { return holds(entry.second); }));
  };
  return {counted, count(of_->held, [](switched_block const& block) { return !block.in_use; }),
          count(of_->records, [](detail::capture_record const& record) { return record.baked != nullptr; })};
}

void capture_switch::check_invariants() const noexcept {
  detail::late_reports late;
  const std::scoped_lock lock{mutex_};
  const detail::invariant_check require{"capture_switch", name()};
  for (auto const& [thread, one] : of_->records) {
    require(one.baked != nullptr || one.arena != nullptr, "a record is frozen or has an arena");
    require(one.baked != nullptr || one.waiting.empty(), "blocks wait while frozen");
  }
  for (auto const& [address, block] : of_->held) {
    require(arena_at(address) == nullptr, "held blocks lie in no arena");
    require(block.holders != 0, "a held block has a holder");
  }
  for (graph_arena const* const arena : of_->arenas)
    require(arena->switched_blocks_ <= arena->used_blocks_,
            "blocks allocated from an arena <= its blocks in use");
  require(special_.value() == of_->records.size() + of_->held.size() + of_->arenas.size(),
          "special == records + held blocks + arenas");
}

}  // namespace tidemark
