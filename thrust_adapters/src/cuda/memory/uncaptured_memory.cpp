// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/uncaptured_memory.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {

uncaptured_memory::uncaptured_memory(memory_pool_options const& pool, stream_handle stream, char const* name,
                                     std::pmr::memory_resource* bookkeeping, driver& driver)
    : driver_resource{"uncaptured_memory", name, pool.device, driver, counting::none, false},
      pool_budget_{&driver.budget(device())},
      pool_{pool, driver},
      stream_{stream},
      maps_all_{whole_allocations::are_needed()},
      waiting_{bookkeeping} {
  pool_record_ = pool_budget_->find_pool(pool_);
  waits_ = pool_budget_->add_member([this] { return wait(); }, device_budget::member_kind::pool_user);
}

uncaptured_memory::~uncaptured_memory() {
  waits_ = {};
  const std::size_t bytes = waiting_.bytes();
  if (bytes == 0) return;
  const on_device here{*driver_, device()};
  if (capture_state_of(*driver_, stream_) == capture_state::none) {
    free_waiting();
    return;
  }
  tidemark::detail::report_violation(violation_kind::open_capture, name(),
                                     "%s: destroyed while its stream is capturing: %zu bytes are lost, "
                                     "because the free would become part of the graph",
                                     name(), bytes);
}

outcome uncaptured_memory::allocate_block(std::size_t bytes, std::uintptr_t& block) {
  const on_device here{*driver_, device()};
  if (maps_all_ || capture_state_of(*driver_, stream_) != capture_state::none)
    return allocate_mapped(bytes, block);
  if (here.result() != status::success) return {here.result(), "cuCtxSetCurrent"};
  free_waiting();
  device_budget::claim claim{*pool_budget_, bytes, pool_record_.get()};
  if (!claim.is_allowed()) return {status::out_of_memory, limit_call};
  const outcome allocated{driver_->allocate_async(bytes, pool_, stream_, block), "cuMemAllocFromPoolAsync"};
  if (!allocated.good()) return allocated;
  if (!pool_budget_->trim_to_limit() && driver_->free_async(block, stream_) == status::success) {
    (void)pool_budget_->trim_pools();
    return {status::out_of_memory, limit_call};
  }
  waiting_.add();
  claim.commit();
  return allocated;
}

outcome uncaptured_memory::free_block(std::uintptr_t block, std::size_t bytes) noexcept {
  const bool was_mapped = deallocate_mapped(block);
  const on_device here{*driver_, device()};
  if (capture_state_of(*driver_, stream_) != capture_state::none) {
    if (!was_mapped) waiting_.push({reinterpret_cast<void*>(block), bytes, default_alignment});
    return {};
  }
  if (!was_mapped) waiting_.remove();
  free_waiting();
  if (was_mapped) return {};
  const outcome freed{driver_->free_async(block, stream_), "cuMemFreeAsync"};
  if (freed.good()) pool_budget_->subtract_bytes(bytes, pool_record_.get());
  return freed;
}

outcome uncaptured_memory::allocate_mapped(std::size_t bytes, std::uintptr_t& block) {
  constexpr std::size_t max_chunk_bytes = 64 * MiB;
  const std::size_t size = tidemark::detail::align_up(bytes, default_alignment);
  block = allocate_in_chunk(size);
  if (block != 0) return {};
  const auto refuse = [&](char const* because) {
    throw out_of_memory{{.resource = name(),
                         .requested_bytes = bytes,
                         .alignment = default_alignment,
                         .largest_bytes = exhaustion_report::unknown_bytes,
                         .because = because}};
  };
  if (!maps_all_ && !driver_->maps_during_captures(device())) refuse(no_mapping_in_captures);
  std::size_t wanted = size;
  if (!maps_all_) {
    const std::scoped_lock lock{chunks_mutex_};
    std::size_t mapped = 0;
    for (chunk const& each : chunks_) mapped += each.range.size;
    wanted = std::max(size, std::min(mapped, max_chunk_bytes));
  }
  std::list<chunk> made;  // made before memory is mapped, because the record must not fail
  chunk& added = made.emplace_back(
      virtual_memory{virtual_memory_options{.device = device(), .stream = stream_}, *driver_});
  const byte_range range = added.space.reserve(size, wanted);
  const std::size_t committed = range.empty() ? 0 : added.space.commit(range, size);
  if (committed == 0) refuse(added.space.refusal());
  added.range = {range.begin, committed};
  added.used_bytes = size;
  added.live_blocks = 1;
  block = range.begin;
  const std::scoped_lock lock{chunks_mutex_};
  chunks_.splice(chunks_.begin(), made);
  return {};
}

// Returns the next bytes of a chunk; 0 if no chunk has room.
std::uintptr_t uncaptured_memory::allocate_in_chunk(std::size_t bytes) noexcept {
  if (maps_all_) return 0;
  const std::scoped_lock lock{chunks_mutex_};
  for (chunk& each : chunks_) {
    if (each.range.size - each.used_bytes < bytes) continue;
    ++each.live_blocks;
    return each.range.begin + std::exchange(each.used_bytes, each.used_bytes + bytes);
  }
  return 0;
}

// Returns false if the block belongs to the pool.
bool uncaptured_memory::deallocate_mapped(std::uintptr_t block) noexcept {
  const std::scoped_lock lock{chunks_mutex_};
  const auto found =
      std::ranges::find_if(chunks_, [=](chunk const& each) { return each.range.contains(block); });
  if (found == chunks_.end()) return false;
  if (--found->live_blocks == 0) found->used_bytes = 0;
  return true;
}

// Unmaps chunks without live blocks, each after a wait for the stream. If a capture has begun meanwhile, a
// chunk stays, but is not reused, because `release` has taken its range.
void uncaptured_memory::free_chunks() noexcept {
  std::list<chunk> unused;
  {
    const std::scoped_lock lock{chunks_mutex_};
    for (auto at = chunks_.begin(); at != chunks_.end();) {
      const auto next = std::next(at);
      if (at->live_blocks == 0) unused.splice(unused.end(), chunks_, at);
      at = next;
    }
  }
  if (unused.empty()) return;
  for (chunk& each : unused) each.space.release(each.range);
  std::erase_if(unused, [](chunk const& each) { return each.space.held_bytes() == 0; });
  for (chunk& each : unused) each.used_bytes = each.range.size;
  const std::scoped_lock lock{chunks_mutex_};
  chunks_.splice(chunks_.end(), unused);
}

// Memory freed on the stream is unused memory of the pool afterwards. Returns false if the stream is
// capturing.
bool uncaptured_memory::wait() noexcept {
  const on_device here{*driver_, device()};
  if (here.result() != status::success || capture_state_of(*driver_, stream_) != capture_state::none)
    return false;
  free_waiting();
  return driver_->synchronize(stream_) == status::success;
}

void uncaptured_memory::free_deallocated() noexcept {
  const on_device here{*driver_, device()};
  if (capture_state_of(*driver_, stream_) == capture_state::none) free_waiting();
}

void uncaptured_memory::free_waiting() noexcept {
  free_chunks();
  while (const std::optional<waiting_blocks::block> next = waiting_.pop()) {
    waiting_.remove();
    const status freed = driver_->free_async(reinterpret_cast<std::uintptr_t>(next->first), stream_);
    if (freed == status::success) pool_budget_->subtract_bytes(next->bytes, pool_record_.get());
    else report_lost(*driver_, name(), "cuMemFreeAsync", freed, next->bytes);
  }
}

}  // namespace tidemark::gpu::detail
