// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/epoch_resource.hpp>

#include <cstring>
#include <ranges>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/epoch/use_after_epoch.hpp>

#include "../core/default_upstream.hpp"

namespace tidemark {
namespace {

epoch_options completed(epoch_options options, std::pmr::memory_resource* upstream) {
  options.upstream = detail::or_default(upstream != nullptr ? upstream : options.upstream);
  options.name = detail::name_or(options.name, epoch_options{}.name);
  // Not the default resource, because that may be this resource.
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  return options;
}

using range_use = detail::epoch_slab::range_use;

}  // namespace

epoch_resource::epoch_resource(epoch_options const& options, std::pmr::memory_resource* upstream)
    : options_{completed(options, upstream)},
      table_{options_.bookkeeping},
      small_classes_{name(), {}, detail::epoch_slab::min_block_bytes},
      max_small_bytes_{options_.host_memory && options_.max_quarantine_bytes == 0
                           ? detail::epoch_slab::max_block_bytes
                           : 0},
      slab_table_{options_.bookkeeping},
      quarantine_{options_.bookkeeping} {
  const std::scoped_lock lock{groups_mutex_};
  groups_mutex_.adapt_with(*this);
}

epoch_resource::~epoch_resource() {
  groups_mutex_.leave();
  for (auto& group : groups_) {
    if (!group->may_be_inconsistent()) {
      if (group->depth() == 0) {
        return_chunks(*group, true);
        continue;
      }
      detail::report_violation(violation_kind::scope_outlived, name(),
                               "epoch_resource '%s' was destroyed while '%s' was still open", name(),
                               group->innermost().name);
      while (group->depth() != 0) (void)end_frame(*group);
      return_chunks(*group, true);
    }
    group.release()->forget_resource();  // never freed: a thread's list or a buffer group points to it
  }
  (void)release_quarantine();
}

// ---- blocks -----------------------------------------------------------------------------------------------

void* epoch_resource::allocate_untracked(std::size_t bytes, std::size_t align) {
  void* const block = allocate_from_upstream(bytes, align);
  if (may_matter(block)) [[unlikely]]
    forget_previous(block);
  return block;
}

detail::tracked_block& epoch_resource::allocate_in(detail::block_group& group, std::size_t bytes,
                                                   std::size_t align) {
  group.reserve_one();
  void* const block = allocate_from_upstream(bytes, align);
  forget_reclaimed_small(block);
  detail::tracked_block* record = nullptr;
  try {
    record = &table_.find_or_add(detail::address_of(block));
  } catch (...) {
    options_.upstream->deallocate(block, bytes, align);
    throw;
  }
  detail::block_state before = record->load();
  if (before.is_held() || epoch_detector()) [[unlikely]] {
    forget_previous(block);
    before = record->load();
  }
  if (!before.is_in_filter()) [[unlikely]]
    filter_.insert(record->address);
  group.track(*record, before, bytes, align);
  return *record;
}

void* epoch_resource::allocate_small(detail::block_group& group, std::size_t bytes, std::size_t align) {
  const std::size_t index = class_of(bytes, align), block_bytes = small_classes_.bytes(index);
  try {
    void* block = group.has_chunks() ? group.allocate_small_in_free_slab(index, bytes, block_bytes) : nullptr;
    if (block == nullptr && group.next_chunk_bytes() != 0) {
      add_chunk(group);
      block = group.allocate_small_in_free_slab(index, bytes, block_bytes);
    }
    if (block != nullptr) return block;
  } catch (std::bad_alloc const&) {
    group.request_no_chunk();
  }
  return allocate_in(group, bytes, align).data();
}

void epoch_resource::add_chunk(detail::block_group& group) {
  // A chunk of two units contains at least one aligned range.
  constexpr std::size_t unit = detail::epoch_slab::range_bytes;
  const byte_range added = detail::allocate_by_halves(*options_.upstream, 2, group.next_chunk_bytes() / unit,
                                                      unit, alignof(std::max_align_t));
  try {
    const std::uintptr_t first = detail::epoch_slabs::first_range(added);
    for (std::size_t i = 0; i < detail::epoch_slabs::range_count(added); ++i) {
      const std::uintptr_t range = first + i * unit;
      if (slab_table_.find(range) != nullptr) continue;
      (void)slab_table_.find_or_add(range);
      range_filter_.insert(range);
    }
  } catch (...) {
    options_.upstream->deallocate(added.data(), added.size);
    throw;
  }
  group.add_chunk(added);
}

void epoch_resource::deallocate_by_range(void* block, std::size_t bytes, std::size_t align) noexcept {
  detail::epoch_slab* const slab = find_range(block);
  const auto use = slab == nullptr ? range_use::upstreams : slab->use.load(std::memory_order_acquire);
  if (use == range_use::upstreams) {
    const bool is_late = slab != nullptr && is_late_small(*slab, block, bytes, align);
    // The second load rules out that another epoch took the range meanwhile and cleared the mark of a late
    // block.
    if (!is_late && (slab == nullptr || slab->use.load(std::memory_order_acquire) == use)) {
      if (!may_have_record(block) || untrack(block, bytes, align))
        options_.upstream->deallocate(block, bytes, align);
      return;
    }
  }
  detail::block_group* const holder = slab->holder.load(std::memory_order_relaxed);
  if (use == range_use::held && holder == own_group() && is_small(bytes, align) &&
      slab->class_index == class_of(bytes, align)) {
    if (const std::size_t i = slab->block_at(block); i != slab->none && slab->is_live(i)) [[likely]]
      return holder->deallocate_small(*slab, i);
  }
  deallocate_from_outside(*slab, block, bytes, align);
}

void epoch_resource::deallocate_from_outside(detail::epoch_slab& slab, void* block, std::size_t bytes,
                                             std::size_t align) noexcept {
  using result = detail::block_group::small_result;
  const range_use use = slab.use.load(std::memory_order_acquire);
  const bool may_be_small = is_small(bytes, align);
  result done = result::late;
  if (use == range_use::held || use == range_use::kept) {
    const std::size_t index = may_be_small ? class_of(bytes, align) : detail::size_classes::none;
    detail::block_group& holder = *slab.holder.load(std::memory_order_relaxed);
    done = holder.deallocate_small_from_outside(slab, block, index);
    if (done == result::chunk_is_free) return_chunks(holder, false);
  }
  if (done == result::late) late_.fetch_add(1, std::memory_order_relaxed);
  if constexpr (check_level >= 2) {
    if (done == result::late) report_late(block, slab.ended_by.load(std::memory_order_relaxed));
    if (done == result::of_another_class) {
      detail::report_violation(
          violation_kind::bad_deallocate, name(),
          "epoch_resource '%s': %p was deallocated as a block of %zu bytes aligned to %zu, "
          "but no such block begins there",
          name(), block, bytes, align);
    }
  }
}

void epoch_resource::return_chunks(detail::block_group& group, bool also_used) noexcept {
  while (group.has_chunks()) {
    const byte_range gone = group.remove_chunk(also_used);
    if (gone.empty()) return;
    options_.upstream->deallocate(gone.data(), gone.size);
  }
}

// @param by null: the block was deallocated twice
void epoch_resource::report_late(void* block, char const* by) const noexcept {
  detail::report_violation(violation_kind::late_deallocate, name(),
                           "epoch_resource '%s': block %p was deallocated after '%s' had reclaimed it",
                           name(), block, by != nullptr ? by : "another deallocation");
}

void* epoch_resource::allocate_again(std::size_t bytes, std::size_t align) {
  if (release_quarantine() == 0) throw;
  return options_.upstream->allocate(bytes, align);
}

// The upstream has allocated the address again, so the previous generation of the block has ended.
void epoch_resource::forget_previous(void* block) noexcept {
  forget_reclaimed_small(block);
  if (!may_have_record(block)) return;
  detail::tracked_block* const record = table_.find(detail::address_of(block));
  if (record == nullptr) return;
  const detail::block_state before = record->load();
  if (before.status() == detail::block_status::reclaimed && epoch_detector()) {
    ended_generations_.add(*record, before.generation() - 1, record->last_ending());
  }
  (void)end_generation(*record, before.generation());  // ends a held block: the upstream reclaimed it
  if constexpr (check_level >= 2) record->bytes.store(0, std::memory_order_relaxed);
}

bool epoch_resource::remove(detail::tracked_block& block, detail::block_state before,
                            detail::block_state then) noexcept {
  detail::block_group* const holder = block.holder.load(std::memory_order_relaxed);
  // Groups live as long as the resource. The holder exists, although another thread may use it now.
  if (holder != own_group()) return holder->remove_from_outside(block, before, then);
  holder->remove(block, then);
  return true;
}

bool epoch_resource::untrack(void* block, std::size_t bytes, std::size_t align) noexcept {
  detail::tracked_block* const record = table_.find(detail::address_of(block));
  if (record == nullptr) return true;
  const detail::block_state before = record->load();
  if constexpr (check_level >= 2) {
    constexpr std::size_t deallocated = detail::tracked_block::deallocated;
    const std::size_t held_bytes = record->bytes.load(std::memory_order_relaxed);
    if (before.is_held() && (bytes != held_bytes || align != before.align())) {
      detail::report_violation(
          violation_kind::bad_deallocate, name(),
          "epoch_resource '%s': block %p of %zu bytes aligned to %zu was deallocated as %zu aligned to %zu",
          name(), block, held_bytes, before.align(), bytes, align);
      return false;
    }
    if (before.status() == detail::block_status::untracked &&
        record->bytes.exchange(deallocated) == deallocated) {
      detail::report_violation(violation_kind::bad_deallocate, name(),
                               "epoch_resource '%s': block %p was deallocated twice", name(), block);
      return false;
    }
  }
  // The block may have been reclaimed since the call began.
  const bool lived = before.status() != detail::block_status::reclaimed;
  if (lived && end_generation(*record, before.generation())) return true;
  late_.fetch_add(1, std::memory_order_relaxed);
  if constexpr (check_level >= 2) {
    report_late(block, record->ended_by.load(std::memory_order_relaxed));
  }
  return false;
}

bool epoch_resource::end_generation(detail::tracked_block& block, std::uint64_t generation) noexcept {
  for (;;) {
    const detail::block_state before = block.load();
    if (before.generation() != generation) return false;
    const detail::block_state then = before.ended_as(detail::block_status::untracked);
    if (!before.is_held()) {
      // No other thread changes the record meanwhile, because the caller owns the block.
      block.store(then.not_in_filter());
      if (before.is_in_filter()) filter_.erase(block.address);
    } else if (!remove(block, before, then)) {
      continue;  // meanwhile the block's epoch ended, and promoted or reclaimed the block
    }
    if constexpr (check_level >= 2) block.bytes.store(detail::tracked_block::deallocated);
    return true;
  }
}

// ---- ends of epochs ---------------------------------------------------------------------------------------

detail::block_group& epoch_resource::acquire_group() {
  detail::block_group* const last = last_released_.load(std::memory_order_acquire);
  return last != nullptr && last->try_acquire() ? *last : acquire_another_group();
}

detail::block_group& epoch_resource::acquire_another_group() {
  {
    const std::scoped_lock lock{groups_mutex_};
    for (auto const& group : groups_) {
      if (group->try_acquire()) return *group;
    }
  }
  // Without the lock, because the bookkeeping resource runs user code.
  auto added = std::make_unique<detail::block_group>(this, slab_table_, options_.bookkeeping);
  (void)added->try_acquire();
  const std::scoped_lock lock{groups_mutex_};
  return *groups_.emplace_back(std::move(added));
}

// Needs no atomic exchange. If two threads release groups at once, `acquire_another_group` finds the other.
void epoch_resource::release_group(detail::block_group& group) noexcept {
  group.release();
  last_released_.store(&group, std::memory_order_release);
}

detail::block_group& epoch_resource::group_of_this_thread() {
  detail::block_group*& newest = detail::open_groups;  // one access: a thread-local address may take a call
  if (detail::block_group* const group = find_own(newest)) return *group;
  detail::block_group& group = acquire_group();
  group.outer_on_thread = std::exchange(newest, &group);
  return group;
}

void epoch_resource::release_group_of_this_thread(detail::block_group& group) noexcept {
  detail::block_group** link = &detail::open_groups;
  while (*link != &group) link = &(*link)->outer_on_thread;
  *link = std::exchange(group.outer_on_thread, nullptr);
  release_group(group);
}

epoch_summary epoch_resource::end_frame(detail::block_group& group) noexcept {
  epoch_summary summary;
  const auto reclaimed = group.end(summary);
  // Reverse order lets a stack-like upstream reclaim its newest blocks.
  for (detail::tracked_block* const block : reclaimed | std::views::reverse) {
    if (block == nullptr) continue;
    const std::size_t bytes = block->bytes.load(std::memory_order_relaxed);
    if (check_level >= 2 && options_.host_memory)
      detail::report_frames_in(block->address, block->address + bytes, "epoch_resource", name());
    if (bytes != 0 && bytes <= options_.max_quarantine_bytes) quarantine(*block);
    else options_.upstream->deallocate(block->data(), bytes, block->load().align());
  }
  group.drop_reclaimed();
  if (group.depth() == 0) return_chunks(group, false);
  return summary;
}

void epoch_resource::quarantine(detail::tracked_block& block) noexcept {
  const quarantined entry{&block, block.load(), block.bytes.load(std::memory_order_relaxed)};
  if (options_.host_memory) {
    if constexpr (check_level >= 2) std::memset(block.data(), detail::freed_fill, entry.bytes);
    detail::poison(block.address, entry.bytes);
  }
  try {
    const std::scoped_lock lock{quarantine_mutex_};
    quarantine_.push_back(entry);
    quarantined_bytes_ += entry.bytes;
  } catch (...) {  // the bookkeeping resource has no memory for the entry
    (void)free_quarantined(entry);
  }
  (void)shrink_quarantine(options_.max_quarantine_bytes);
}

// Returns the bytes returned to the upstream.
std::size_t epoch_resource::free_quarantined(quarantined const& entry) noexcept {
  // A changed state means that a rewound upstream has allocated the address again.
  if (entry.block->load() != entry.state) return 0;
  if (options_.host_memory) detail::unpoison(entry.block->address, entry.bytes);
  options_.upstream->deallocate(entry.block->data(), entry.bytes, entry.state.align());
  return entry.bytes;
}

std::size_t epoch_resource::shrink_quarantine(std::size_t target_bytes) noexcept {
  std::size_t released_bytes = 0;
  for (;;) {
    quarantined oldest{};
    {
      const std::scoped_lock lock{quarantine_mutex_};
      if (quarantined_bytes_ <= target_bytes) return released_bytes;
      oldest = quarantine_.front();
      quarantine_.pop_front();
      quarantined_bytes_ -= oldest.bytes;
    }
    released_bytes += free_quarantined(oldest);  // without the lock, because the upstream runs user code
  }
}

// ---- forks ------------------------------------------------------------------------------------------------

// Only their own threads use the lists of epochs, without a lock. A child cannot trust lists of other
// threads.
void epoch_resource::adapt_to_child() noexcept {
  detail::block_group const* const own = own_group();
  for (auto const& group : groups_) {
    if (group.get() != own) group->mark_inconsistent_if_acquired();
  }
}

// ---- statistics -------------------------------------------------------------------------------------------

epoch_stats epoch_resource::stats() const noexcept {
  epoch_stats stats{.name = name(), .late = late_.load(std::memory_order_relaxed)};
  {
    const std::scoped_lock lock{groups_mutex_};
    for (auto const& group : groups_) group->add_to(stats);
  }
  const std::scoped_lock lock{quarantine_mutex_};
  stats.quarantined_bytes = quarantined_bytes_;
  return stats;
}

void epoch_resource::check_invariants() const noexcept {
  const detail::invariant_check require{"epoch_resource", name()};
  // Reports are made without the locks, because the violation handler may call `stats()`.
  char const* broken = nullptr;
  {
    const std::scoped_lock lock{groups_mutex_};
    for (auto const& group : groups_) {
      if (char const* formula = group->broken_invariant()) broken = formula;
    }
  }
  require.report(broken);
  const epoch_stats now = stats();
  require(now.allocations + now.adopted == now.deallocations + now.reclaimed + now.let_go + now.used_blocks,
          "allocations + adopted == deallocations + reclaimed + let_go + used_blocks");
  std::size_t quarantined_bytes = 0;
  {
    const std::scoped_lock lock{quarantine_mutex_};
    for (quarantined const& entry : quarantine_) quarantined_bytes += entry.bytes;
  }
  require(quarantined_bytes == now.quarantined_bytes, "quarantined_bytes == sum over blocks in quarantine");
  require(quarantined_bytes <= options_.max_quarantine_bytes, "quarantined_bytes <= max_quarantine_bytes");
}

// ---- handles ----------------------------------------------------------------------------------------------

namespace detail {

storage storage::allocate(epoch_resource& resource, std::size_t bytes, std::size_t align) {
  storage made;
  if (bytes == 0) return made;
  made.resource_ = &resource;
  made.bytes_ = bytes;
  made.align_ = align;
  if (block_group* const group = resource.own_group()) {
    tracked_block& record = resource.allocate_in(*group, bytes, align);
    made.data_ = record.data();
    made.set_record(record);
  } else {
    made.data_ = resource.allocate(bytes, align);
  }
  return made;
}

std::optional<ending> storage::how_it_ended() const noexcept {
  if (record_ == nullptr) return std::nullopt;
  if (const auto how = record_->how_reclaimed(generation_)) return how;
  return resource_->ended_generations_.find(*record_, generation_);
}

// Returns false if the block's epoch ends meanwhile.
bool storage::release_live() noexcept {
  if (record_ == nullptr) {
    resource_->deallocate(data_, bytes_, align_);
  } else {
    if (!resource_->end_generation(*record_, generation_)) return false;
    resource_->upstream_resource()->deallocate(data_, bytes_, align_);
  }
  return true;
}

}  // namespace detail
}  // namespace tidemark
