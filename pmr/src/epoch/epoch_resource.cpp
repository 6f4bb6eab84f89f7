// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/epoch_resource.hpp>

#include <ranges>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/epoch/use_after_epoch.hpp>

namespace tidemark {
namespace {

using range_use = detail::epoch_slab::range_use;

}  // namespace

epoch_options epoch_resource::completed(epoch_options options, std::pmr::memory_resource* upstream) {
  options.upstream = detail::or_default(upstream != nullptr ? upstream : options.upstream);
  options.name = detail::name_or(options.name, epoch_options{}.name);
  // Not the default resource, because that may be this resource.
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  return options;
}

void epoch_resource::attach() {
  const std::scoped_lock lock{groups_mutex_};
  groups_mutex_.adapt_with(*this);
}

void epoch_resource::detach() noexcept {
  groups_mutex_.deregister();
  for (auto& group : groups_) {
    if (!group->may_be_inconsistent()) {
      const bool is_open = group->depth() != 0;
      if (is_open) {
        detail::report_violation(violation_kind::scope_outlived, name(),
                                 "epoch_resource '%s' was destroyed while '%s' was still open", name(),
                                 group->innermost().name);
      }
      while (group->depth() != 0) (void)end_frame(*group);
      return_chunks(group->remove_chunks(true));
      if (!is_open) continue;
    }
    group.release()->detach_resource();  // never freed: a thread's list or a buffer group points to it
  }
}

// ---- blocks -----------------------------------------------------------------------------------------------

detail::tracked_block& epoch_resource::allocate_in(detail::block_group& group, std::size_t bytes,
                                                   std::size_t align) {
  group.reserve_one();
  void* const block = allocate_from_upstream(bytes, align);
  remove_reclaimed_small(block);
  detail::tracked_block* record = group.expected();
  try {
    if (record == nullptr || record->address != detail::address_of(block))
      record = &table_.find_or_add(detail::address_of(block));
  } catch (...) {
    options_.upstream->deallocate(block, bytes, align);
    throw;
  }
  detail::block_state before = record->load();
  if (before.is_held() || !before.is_in_filter() || epoch_detector()) [[unlikely]] {
    remove_previous(block);
    before = record->load();
    if (!before.is_in_filter()) filter_.insert(record->address);
  }
  group.track(*record, before, bytes, align);
  return *record;
}

void* epoch_resource::allocate_slow(detail::block_group& group, std::size_t bytes, std::size_t align) {
  const std::size_t index = small_class(bytes, align);
  if (index == detail::size_classes::none) return allocate_in(group, bytes, align).data();
  const std::size_t block_bytes = small_classes_.bytes(index);
  try {
    if (!group.find_room(index, block_bytes) && group.next_chunk_bytes() != 0) {
      // A chunk of two units contains at least one aligned range.
      constexpr std::size_t unit = detail::epoch_slab::range_bytes;
      const byte_range added = detail::allocate_by_halves(
          *options_.upstream, 2, group.next_chunk_bytes() / unit, unit, alignof(std::max_align_t));
      had_slabs_.store(true, std::memory_order_relaxed);
      try {
        group.add_chunk(added, filter_, index, block_bytes);
      } catch (...) {
        options_.upstream->deallocate(added.data(), added.size);
        throw;
      }
    }
    if (void* const block = group.try_allocate_small(index, bytes)) return block;
  } catch (std::bad_alloc const&) {
    group.request_no_chunk();
  }
  return allocate_in(group, bytes, align).data();
}

// Level 2 also compares the size.
bool epoch_resource::deallocate_own(detail::block_group& group, detail::epoch_slab& slab, void* block,
                                    [[maybe_unused]] std::size_t bytes,
                                    [[maybe_unused]] std::size_t align) noexcept {
  if constexpr (check_level >= 2)
    if (slab.class_index != small_class(bytes, align)) return false;
  const std::size_t i = slab.block_at(block);
  if (i == slab.none || !slab.is_live(i)) return false;
  group.deallocate_small(slab, i);
  return true;
}

void epoch_resource::deallocate_in_epoch(detail::block_group& newest, void* block, std::size_t bytes,
                                         std::size_t align) noexcept {
  detail::block_group* const own = find_own(&newest);
  if (own != nullptr) [[likely]] {
    detail::epoch_slab* const slab = own->find_recent(detail::epoch_slab::range_of(block));
    if (slab != nullptr && deallocate_own(*own, *slab, block, bytes, align)) [[likely]]
      return;
  }
  deallocate_outside_epochs(own, block, bytes, align);
}

void epoch_resource::deallocate_outside_epochs(detail::block_group* own, void* block, std::size_t bytes,
                                               std::size_t align) noexcept {
  if (may_matter(block)) deallocate_by_range(own, block, bytes, align);
  else options_.upstream->deallocate(block, bytes, align);
}

void epoch_resource::deallocate_by_range(detail::block_group* own, void* block, std::size_t bytes,
                                         std::size_t align) noexcept {
  detail::epoch_slab* const slab = find_range(block);
  const auto use = slab == nullptr ? range_use::upstreams : slab->use.load(std::memory_order_acquire);
  if (use == range_use::held && slab->holder.load(std::memory_order_relaxed) == own &&
      // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): the holder of a held range
      deallocate_own(*own, *slab, block, bytes, align))
    return own->set_recent(*slab);
  if (use == range_use::upstreams) {
    const bool is_late =
        slab != nullptr && slab->class_index == small_class(bytes, align) && slab->was_reclaimed(block);
    // The second load rules out that another epoch took the range meanwhile and cleared the mark of a late
    // block.
    if (!is_late && (slab == nullptr || slab->use.load(std::memory_order_acquire) == use)) {
      if (filter_.count(detail::address_of(block)) == 0 || untrack(block))
        options_.upstream->deallocate(block, bytes, align);
      return;
    }
  }
  deallocate_from_outside(*slab, block, bytes, align);
}

void epoch_resource::deallocate_from_outside(detail::epoch_slab& slab, void* block, std::size_t bytes,
                                             std::size_t align) noexcept {
  using result = detail::block_group::small_result;
  // The range was ever a slab, and its holder lives as long as the resource.
  detail::block_group& holder = *slab.holder.load(std::memory_order_relaxed);
  const result done = holder.deallocate_small_from_outside(slab, block, small_class(bytes, align));
  if (done == result::chunk_is_free) return_chunks(holder.remove_chunks(false));
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

void epoch_resource::return_chunks(detail::epoch_slab* chunk) noexcept {
  while (chunk != nullptr) {
    const byte_range gone = chunk->chunk_memory;
    chunk = chunk->next_chunk;  // read before another thread can allocate the chunk
    options_.upstream->deallocate(gone.data(), gone.size);
  }
}

// @param by null: the block was deallocated twice
void epoch_resource::report_late(void* block, char const* by) const noexcept {
  detail::report_violation(violation_kind::late_deallocate, name(),
                           "epoch_resource '%s': block %p was deallocated after '%s' had reclaimed it",
                           name(), block, by != nullptr ? by : "another deallocation");
}

// The upstream has allocated the address again, so the previous generation of the block has ended.
void epoch_resource::remove_previous(void* block) noexcept {
  remove_reclaimed_small(block);
  if (filter_.count(detail::address_of(block)) == 0) return;
  detail::tracked_block* const record = table_.find(detail::address_of(block));
  if (record == nullptr) return;
  const detail::block_state before = record->load();
  if (before.status() == detail::block_status::reclaimed && epoch_detector()) {
    ended_generations_.add(*record, before.generation() - 1, record->last_ending());
  }
  (void)end_generation(*record, before.generation());  // ends a held block: the upstream reclaimed it
}

bool epoch_resource::untrack(void* block) noexcept {
  detail::tracked_block* const record = table_.find(detail::address_of(block));
  if (record == nullptr) return true;
  const detail::block_state before = record->load();
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
  detail::epoch_slab* free_chunks = nullptr;
  const auto reclaimed = group.end(summary, free_chunks);
  // Reverse order lets a stack-like upstream reclaim its newest blocks.
  for (detail::tracked_block* const block : reclaimed | std::views::reverse) {
    if (block == nullptr) continue;
    const std::size_t bytes = block->bytes.load(std::memory_order_relaxed);
    if (check_level >= 2 && options_.host_memory)
      detail::report_frames_in(block->address, block->address + bytes, "epoch_resource", name());
    options_.upstream->deallocate(block->data(), bytes, block->load().align());
  }
  group.drop_reclaimed();
  return_chunks(free_chunks);
  return summary;
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
  const std::scoped_lock lock{groups_mutex_};
  for (auto const& group : groups_) group->add_to(stats);
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
}

// ---- handles ----------------------------------------------------------------------------------------------

namespace detail {

std::optional<ending> storage::how_it_ended() const noexcept {
  if (record == nullptr) return std::nullopt;
  if (const auto how = record->how_reclaimed(generation)) return how;
  return resource->ended_generations_.find(*record, generation);
}

// Returns false if the block's epoch ends meanwhile.
bool storage::release_live() noexcept {
  if (record == nullptr) {
    resource->deallocate(address, bytes, align);
  } else {
    if (!resource->end_generation(*record, generation)) return false;
    resource->upstream_resource()->deallocate(address, bytes, align);
  }
  return true;
}

}  // namespace detail
}  // namespace tidemark
