// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch_resource.hpp>

#include <cstring>
#include <ranges>
#include <utility>

#include <tidemark/detail/sanitizers.hpp>
#include <tidemark/use_after_epoch.hpp>
#include <tidemark/violation.hpp>

#include "default_upstream.hpp"
#include "require.hpp"

namespace tidemark {
namespace {

// Not the default resource: that may be this one.
epoch_options completed(epoch_options options, std::pmr::memory_resource* upstream) {
  options.upstream = detail::or_default(upstream);
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  return options;
}

}  // namespace

epoch_resource::epoch_resource(epoch_options const& options, std::pmr::memory_resource* upstream)
    : options_{completed(options, upstream)},
      upstream_{options_.upstream},
      table_{options_.bookkeeping},
      quarantine_{options_.bookkeeping} {}

epoch_resource::~epoch_resource() {
  for (auto& group : groups_) {
    if (group->depth() == 0) continue;
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "epoch_resource '%s' was destroyed while '%s' was still open", name(),
                             group->innermost().name);
    while (group->depth() != 0) (void)end_frame(*group);
    group->forget_resource();
    static_cast<void>(group.release());  // NOLINT(bugprone-unused-return-value): a thread's list leads to it
  }
  (void)release_quarantine();
}

// ---- blocks -----------------------------------------------------------------------------------------------

detail::tracked_block& epoch_resource::allocate_in(detail::block_group& group, std::size_t bytes,
                                                   std::size_t align) {
  if constexpr (check_level >= 2) detail::require_power_of_two("epoch_resource", name(), align);
  group.reserve_one();
  void* const block = ask_upstream(bytes, align);
  detail::tracked_block* record = nullptr;
  try {
    record = &table_.find_or_add(block);
  } catch (...) {
    upstream_->deallocate(block, bytes, align);
    throw;
  }
  detail::block_state before = record->load();
  if (before.is_held()) [[unlikely]] {
    note_untracked(block);
    before = record->load();
  } else if (detail::epoch_detector_is_on()) [[unlikely]] {
    remember_end_of(*record);
  }
  if (!before.is_noted()) [[unlikely]]
    table_.note(record->address);
  group.track(*record, before, bytes, align);
  return *record;
}

void* epoch_resource::allocate_tracked(detail::block_group& group, std::size_t bytes, std::size_t align) {
  return allocate_in(group, bytes, align).data();
}

void* epoch_resource::allocate_untracked(std::size_t bytes, std::size_t align) {
  void* const block = ask_upstream(bytes, align);
  if (must_look_up(block)) [[unlikely]]
    note_untracked(block);
  return block;
}

// Called while the exception is being handled that the upstream threw.
void* epoch_resource::ask_upstream_again(std::size_t bytes, std::size_t align) {
  if (release_quarantine() == 0) throw;
  return upstream_->allocate(bytes, align);
}

// The upstream has handed out an address: whatever was known of it is over.
void epoch_resource::note_untracked(void* block) noexcept {
  detail::tracked_block* const record = table_.find(block);
  if (record == nullptr) return;
  const detail::block_state before = record->load();
  const detail::block_state then = before.ended_as(detail::block_status::untracked);
  if (before.is_held()) {  // the upstream had taken the memory back by itself
    (void)remove(*record, before, then);
  } else if (before.status() == detail::block_status::reclaimed) {
    if (detail::epoch_detector_is_on()) remember_end_of(*record);
    forget(*record, then);
  } else if (before.is_noted()) {
    forget(*record, before);
  }
  if constexpr (check_level >= 2) record->bytes.store(0, std::memory_order_relaxed);
}

// Who calls it owns the block, so that nobody else changes the record meanwhile.
void epoch_resource::forget(detail::tracked_block& block, detail::block_state then) noexcept {
  block.store(then.not_noted());
  if (then.is_noted()) table_.take_note_away(block.address);
}

bool epoch_resource::remove(detail::tracked_block& block, detail::block_state before,
                            detail::block_state then) noexcept {
  detail::block_group* const holder = block.holder.load(std::memory_order_relaxed);
  detail::block_group* const own = own_group();
  if (own == nullptr || holder != own) {
    // Groups live as long as the resource, so that this one is there although it may be another's by now.
    return holder->remove_from_outside(block, before, then);
  }
  own->remove(block, then);
  return true;
}

void epoch_resource::note_late(detail::tracked_block const& block) noexcept {
  late_.fetch_add(1, std::memory_order_relaxed);
  if constexpr (check_level >= 2) {
    char const* const by = block.ended_by.load(std::memory_order_relaxed);  // null: nobody, but it went twice
    detail::report_violation(violation_kind::late_deallocate, name(),
                             "epoch_resource '%s': block %p was given back after '%s' had reclaimed it",
                             name(), block.data(), by != nullptr ? by : "somebody");
  }
}

bool epoch_resource::may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  detail::tracked_block* const record = table_.find(block);
  if (record == nullptr) return true;
  const std::uint64_t life = record->load().life();
  for (;;) {
    const detail::block_state before = record->load();
    if (before.life() != life) {  // reclaimed since the caller came in, whoever has the address by now
      note_late(*record);
      return false;
    }
    const detail::block_state then = before.ended_as(detail::block_status::untracked);
    switch (before.status()) {
      case detail::block_status::untracked:
        if constexpr (check_level >= 2) {
          if (record->bytes.exchange(detail::tracked_block::given_back) ==
              detail::tracked_block::given_back) {
            detail::report_violation(violation_kind::bad_deallocate, name(),
                                     "epoch_resource '%s': block %p was given back twice", name(), block);
            return false;
          }
        }
        forget(*record, then);
        return true;
      case detail::block_status::reclaimed:
        note_late(*record);
        return false;
      default:
        break;
    }
    if constexpr (check_level >= 2) {
      const std::size_t held_bytes = record->bytes.load(std::memory_order_relaxed);
      if (bytes != held_bytes || align != before.align()) {
        detail::report_violation(
            violation_kind::bad_deallocate, name(),
            "epoch_resource '%s': block %p of %zu bytes aligned to %zu was given back as %zu aligned to %zu",
            name(), block, held_bytes, before.align(), bytes, align);
        return false;
      }
    }
    if (remove(*record, before, then)) {
      if constexpr (check_level >= 2) {
        record->bytes.store(detail::tracked_block::given_back, std::memory_order_relaxed);
      }
      return true;
    }
    // Its epoch has ended meanwhile, or moved it outwards.
  }
}

bool epoch_resource::release(detail::tracked_block& block, std::uint64_t life) noexcept {
  const std::size_t bytes = block.bytes.load(std::memory_order_relaxed);
  for (;;) {
    const detail::block_state before = block.load();
    if (before.life() != life) return false;
    const detail::block_state then = before.ended_as(detail::block_status::untracked);
    if (before.is_held()) {
      if (!remove(block, before, then)) continue;
    } else {
      block.store(then);
    }
    if constexpr (check_level >= 2) {
      block.bytes.store(detail::tracked_block::given_back, std::memory_order_relaxed);
    }
    upstream_->deallocate(block.data(), bytes, before.align());
    return true;
  }
}

void epoch_resource::remember_end_of(detail::tracked_block const& block) noexcept {
  const detail::block_state state = block.load();
  if (state.status() != detail::block_status::reclaimed) return;
  ended_lives_.add(
      block, state.life() - 1,
      {block.ended_by.load(std::memory_order_relaxed), block.position.load(std::memory_order_relaxed)});
}

std::optional<detail::ending> epoch_resource::ending_of(detail::tracked_block const& block,
                                                        std::uint64_t life) const noexcept {
  const detail::block_state before = block.load();
  if (before.status() == detail::block_status::reclaimed && before.life() == life + 1) {
    const detail::ending how{block.ended_by.load(std::memory_order_relaxed),
                             block.position.load(std::memory_order_relaxed)};
    if (block.load() == before) return how;  // otherwise it was handed out again meanwhile
  }
  return ended_lives_.find(block, life);
}

// ---- ends of epochs ---------------------------------------------------------------------------------------

detail::block_group& epoch_resource::acquire_group() {
  detail::block_group* const last = last_given_up_.load(std::memory_order_acquire);
  if (last != nullptr && last->try_take()) return *last;
  const std::scoped_lock lock{groups_mutex_};
  for (auto const& group : groups_) {
    if (group->try_take()) return *group;
  }
  detail::block_group& added =
      *groups_.emplace_back(std::make_unique<detail::block_group>(this, options_.bookkeeping));
  (void)added.try_take();
  return added;
}

// Costs no atomic exchange. Where two threads give up groups at once, one is found by looking through all.
void epoch_resource::give_up_group(detail::block_group& group) noexcept {
  group.give_up();
  last_given_up_.store(&group,
                       std::memory_order_release);  // also what made it, for who has not met it before
}

detail::block_group& epoch_resource::group_of_this_thread() {
  if (detail::block_group* const group = own_group()) return *group;
  detail::block_group& group = acquire_group();
  group.outer_on_thread = std::exchange(detail::open_groups, &group);
  return group;
}

void epoch_resource::leave_group_of_this_thread(detail::block_group& group) noexcept {
  detail::block_group** link = &detail::open_groups;
  while (*link != &group) link = &(*link)->outer_on_thread;
  *link = std::exchange(group.outer_on_thread, nullptr);
  give_up_group(group);
}

epoch_summary epoch_resource::end_frame(detail::block_group& group) noexcept {
  epoch_summary summary;
  const auto reclaimed = group.end(summary);
  // In the reverse order, so that a stack-like upstream can take back what is on top.
  for (detail::tracked_block* const block : reclaimed | std::views::reverse) {
    if (block == nullptr) continue;
    const std::size_t bytes = block->bytes.load(std::memory_order_relaxed);
    if (bytes != 0 && bytes <= options_.quarantine_bytes_max) withhold(*block);
    else upstream_->deallocate(block->data(), bytes, block->load().align());
  }
  group.drop_reclaimed();
  return summary;
}

void epoch_resource::withhold(detail::tracked_block& block) noexcept {
  const withheld entry{&block, block.load(), block.bytes.load(std::memory_order_relaxed)};
  if (options_.host_memory) {
    if constexpr (check_level >= 2) std::memset(block.data(), detail::rewound_fill, entry.bytes);
    detail::withhold(block.address, entry.bytes);
  }
  try {
    const std::scoped_lock lock{quarantine_mutex_};
    quarantine_.push_back(entry);
    quarantined_bytes_ += entry.bytes;
  } catch (...) {  // whatever the bookkeeping resource throws: there is no memory to note it
    (void)let_out(entry);
  }
  (void)shrink_quarantine(options_.quarantine_bytes_max);
}

// Returns bytes given back.
std::size_t epoch_resource::let_out(withheld const& entry) noexcept {
  // An upstream that was rewound has handed out the address again: it is somebody else's block by now.
  if (entry.block->load() != entry.state) return 0;
  if (options_.host_memory) detail::hand_out(entry.block->address, entry.bytes);
  upstream_->deallocate(entry.block->data(), entry.bytes, entry.state.align());
  return entry.bytes;
}

std::size_t epoch_resource::shrink_quarantine(std::size_t target_bytes) noexcept {
  std::size_t released_bytes = 0;
  for (;;) {
    withheld oldest{};
    {
      const std::scoped_lock lock{quarantine_mutex_};
      if (quarantined_bytes_ <= target_bytes) return released_bytes;
      oldest = quarantine_.front();
      quarantine_.pop_front();
      quarantined_bytes_ -= oldest.bytes;
    }
    released_bytes += let_out(oldest);  // not with the lock held, because the upstream is anybody's code
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
  stats.bytes_quarantined = quarantined_bytes_;
  return stats;
}

void epoch_resource::check_invariants() const noexcept {
  const auto require = [this](bool holds, char const* formula) {
    if (!holds) {
      detail::report_violation(violation_kind::invariant, name(), "epoch_resource '%s': broken invariant: %s",
                               name(), formula);
    }
  };
  // Reports come from without the locks, because their handler may ask for statistics.
  char const* broken = nullptr;
  {
    const std::scoped_lock lock{groups_mutex_};
    for (auto const& group : groups_) {
      if (char const* formula = group->broken_invariant()) broken = formula;
    }
  }
  if (broken != nullptr) require(false, broken);
  const epoch_stats now = stats();
  require(now.allocations + now.adopted == now.deallocations + now.reclaimed + now.let_go + now.used_blocks,
          "allocations + adopted == deallocations + reclaimed + let_go + used_blocks");
  std::size_t quarantined_bytes = 0;
  {
    const std::scoped_lock lock{quarantine_mutex_};
    for (withheld const& entry : quarantine_) quarantined_bytes += entry.bytes;
  }
  require(quarantined_bytes == now.bytes_quarantined, "bytes_quarantined == sum over blocks in quarantine");
  require(quarantined_bytes <= options_.quarantine_bytes_max, "bytes_quarantined <= quarantine_bytes_max");
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
  return record_ == nullptr ? std::nullopt : resource_->ending_of(*record_, life_);
}

// False if its epoch ends meanwhile.
bool storage::release_live() noexcept {
  if (record_ != nullptr) return resource_->release(*record_, life_);
  resource_->deallocate(data_, bytes_, align_);
  return true;
}

}  // namespace detail
}  // namespace tidemark
