// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/device_pool.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

#include <tidemark/cuda/detail/on_device.hpp>
#include <tidemark/detail/align.hpp>
#include <tidemark/detail/identity.hpp>
#include <tidemark/out_of_memory.hpp>

#include "behind_event.hpp"
#include "complete_name.hpp"
#include "refusal.hpp"

namespace tidemark {
namespace {

constexpr std::size_t bytes_max{std::numeric_limits<std::ptrdiff_t>::max()};  // what no resource has more of
constexpr char const* slab_too_large = "slabs of slab_bytes are more than any resource has";

device_pool_options completed(device_pool_options options, cuda::driver& driver) {
  using classes = cuda::detail::device_classes;
  cuda::detail::complete_name(options);
  if (options.largest_pooled_bytes > classes::bytes_max) {
    throw std::invalid_argument("device_pool '" + std::string{options.name} + "': largest_pooled_bytes is " +
                                std::to_string(options.largest_pooled_bytes) +
                                "; blocks of up to 16 GiB can be pooled");
  }
  options.largest_pooled_bytes = classes::bytes(classes::index_of(options.largest_pooled_bytes));
  if (options.device < 0) {
    cuda::detail::require_memory(driver, "cuCtxGetDevice", driver.current_device(options.device),
                                 {.resource = options.name, .largest_bytes = cuda::detail::nobody_knows});
  }
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  return options;
}

}  // namespace

device_pool::device_pool(device_pool_options const& options, cuda::driver& driver)
    : driver_{&driver},
      options_{completed(options, driver)},
      blocks_{options_.largest_pooled_bytes, own_or(options_.upstream), options_.bookkeeping},
      large_{options_.bookkeeping},
      trim_times_{options_.max_cached_bytes} {
  options_.upstream = blocks_.upstream();
  note_cached();
}

device_pool::~device_pool() { give_back_all(); }

std::pmr::memory_resource* device_pool::own_or(std::pmr::memory_resource* upstream) {
  if (upstream != nullptr) return upstream;
  return &own_.emplace(cuda::block_resource_options{.device = options_.device, .name = options_.name},
                       *driver_);
}

// Without asking the upstream: free slabs would go back for nothing.
void device_pool::refuse(std::size_t bytes, std::size_t align, char const* because) const {
  const pool_stats now = stats();
  throw out_of_memory{{.resource = options_.name,
                       .requested_bytes = bytes,
                       .alignment = align,
                       .used_bytes = now.used_bytes,
                       .committed_bytes = now.held_bytes,
                       .reserved_bytes = now.held_bytes,
                       .largest_bytes = cuda::detail::nobody_knows,
                       .because = because}};
}

// What is free may be what the upstream lacks: it goes back, and the upstream is asked once more.
template <class Ask>
auto device_pool::ask_upstream(Ask ask) {
  try {
    return ask();
  } catch (std::bad_alloc const&) {
    if (blocks_.release_free_slabs(0) == 0) throw;
  }
  return ask();
}

void* device_pool::allocate_slow(std::size_t bytes, std::size_t align) {
  if (!blocks_.serves(bytes, align)) return allocate_large(bytes, align);
  void* block = blocks_.take(bytes, align);
  if (block == nullptr) {
    refill(bytes, align);
    block = blocks_.take(bytes, align);
  }
  note_cached();
  return block;
}

void device_pool::deallocate_slow(void* block, std::size_t bytes, std::size_t align, given result) noexcept {
  if (result == given::not_served) {
    deallocate_large(block, bytes, align);
    return;
  }
  if (result == given::all_free) {
    detail::report_violation(
        violation_kind::bad_deallocate, name(),
        "device_pool '%s': %zu bytes are given back at %p, while all blocks of their class "
        "are free: a double free, a wrong size or a foreign pointer",
        name(), bytes, block);
    return;
  }
  if (blocks_.cached_bytes() > trim_due_at()) trim_to(trim_times_.target_bytes());
  note_cached();
}

// Puts blocks into an empty list: stranded ones, or those of a new slab, as many as the limit has room for
// beside the one that is asked for.
void device_pool::refill(std::size_t bytes, std::size_t align) {
  const std::size_t index = cuda::detail::device_classes::index_of(bytes);
  const std::size_t cached = blocks_.cached_bytes();
  const std::size_t room = options_.max_cached_bytes - std::min(cached, options_.max_cached_bytes);
  const std::size_t block_bytes = cuda::detail::device_classes::bytes(index);
  if (blocks_.take_stranded(index, detail::add_saturating(room, block_bytes)) > 0) return;
  const std::size_t fit = room / block_bytes + 1;
  const std::size_t blocks = std::clamp<std::size_t>(options_.slab_bytes / block_bytes, 1, fit);
  if (blocks > bytes_max / block_bytes) refuse(bytes, align, slab_too_large);
  ask_upstream([&] { blocks_.add_slab(index, blocks); });
  ++misses_;
}

void* device_pool::allocate_large(std::size_t bytes, std::size_t align) {
  if (bytes > bytes_max) refuse(bytes, align, "");
  void* const block = ask_upstream([&] { return options_.upstream->allocate(bytes, align); });
  try {
    large_.insert_or_assign(block, large_block{bytes, align});
  } catch (...) {
    options_.upstream->deallocate(block, bytes, align);
    throw;
  }
  large_bytes_ += bytes;
  ++large_allocations_;
  ++misses_;
  return block;
}

void device_pool::deallocate_large(void* block, std::size_t bytes, std::size_t align) noexcept {
  const auto found = large_.find(block);
  if (found == large_.end() || found->second.bytes != bytes || found->second.align != align) {
    detail::report_violation(
        violation_kind::bad_deallocate, name(),
        "device_pool '%s': %zu bytes aligned to %zu are given back at %p, where no block of "
        "that size and alignment is handed out",
        name(), bytes, align, block);
    return;
  }
  large_.erase(found);
  large_bytes_ -= bytes;
  options_.upstream->deallocate(block, bytes, align);
}

void device_pool::deallocate_after(void* block, std::size_t bytes, std::size_t align,
                                   cuda::event_handle event) noexcept {
  if (block == nullptr) return;
  const cuda::detail::on_device here{*driver_, options_.device};
  if (cuda::detail::put_behind(*driver_, options_.stream, event, name(), bytes))
    deallocate(block, bytes, align);
}

void device_pool::note_cached() noexcept {
  peak_cached_bytes_ = std::max(peak_cached_bytes_, blocks_.cached_bytes());
  blocks_.set_watermark(std::min(peak_cached_bytes_, trim_due_at()));
}

std::size_t device_pool::live_bytes() const noexcept {
  return blocks_.held_bytes() - blocks_.cached_bytes() - blocks_.stranded_bytes();
}

std::size_t device_pool::trim_due_at() const noexcept {
  return trim_times_.due_at(blocks_.cached_bytes(), live_bytes(), blocks_.stranded_bytes());
}

std::size_t device_pool::trim_to(std::size_t target_bytes) noexcept {
  const std::size_t returned = blocks_.release_free_slabs(target_bytes);
  blocks_.strand(target_bytes);
  trim_times_.trimmed(live_bytes());
  return returned;
}

std::size_t device_pool::trim(std::size_t target_bytes) noexcept {
  if constexpr (check_level >= 2) before_use("trim");
  const std::size_t returned = trim_to(target_bytes);
  note_cached();
  return returned;
}

void device_pool::release() noexcept {
  if constexpr (check_level >= 2) {
    before_use("release");
    ledger_.clear();
  }
  give_back_all();
  trim_times_.trimmed(0);
  note_cached();
}

void device_pool::give_back_all() noexcept {
  blocks_.release();
  for (auto const& [block, large] : large_) options_.upstream->deallocate(block, large.bytes, large.align);
  large_.clear();
  large_bytes_ = 0;
}

device_pool::counts device_pool::totals() const noexcept {
  const std::uint64_t allocations = blocks_.allocations() + large_allocations_;
  return {allocations, allocations - blocks_.used_blocks() - large_.size(), misses_};
}

pool_stats device_pool::stats() const noexcept {
  const counts total = totals();
  pool_stats stats{.name = options_.name,
                   .allocations = total.allocations - at_reset_.allocations,
                   .deallocations = total.deallocations - at_reset_.deallocations,
                   .pool_misses = total.misses - at_reset_.misses,
                   .used_blocks = total.allocations - total.deallocations,
                   .bytes_requested = blocks_.requested_bytes() + large_bytes_,
                   .bytes_cached = blocks_.cached_bytes(),
                   .peak_cached_bytes = peak_cached_bytes_,
                   .bytes_stranded = blocks_.stranded_bytes(),
                   .held_bytes = blocks_.held_bytes() + large_bytes_};
  stats.pool_hits = stats.allocations - stats.pool_misses;
  stats.bytes_allocated = stats.held_bytes - stats.bytes_cached - stats.bytes_stranded;
  stats.used_bytes = stats.bytes_allocated;
  return stats;
}

void device_pool::reset_stats() noexcept {
  at_reset_ = totals();
  peak_cached_bytes_ = 0;
  note_cached();
}

void device_pool::check_invariants() noexcept {
  const auto require = [this](bool holds, char const* formula) {
    if (!holds) {
      detail::report_violation(violation_kind::invariant, name(), "device_pool '%s': broken invariant: %s",
                               name(), formula);
    }
  };
  if (char const* formula = blocks_.broken_invariant()) require(false, formula);
  std::size_t large = 0;
  for (auto const& [block, each] : large_) large += each.bytes;
  const pool_stats now = stats();
  require(large == large_bytes_, "large_bytes == sum over large blocks");
  require(now.bytes_cached <= now.peak_cached_bytes, "bytes_cached <= peak_cached_bytes");
  require(now.bytes_cached <= options_.max_cached_bytes, "bytes_cached <= max_cached_bytes");
  require(now.bytes_requested <= now.bytes_allocated, "bytes_requested <= bytes_allocated");
  require(now.pool_misses <= now.allocations, "pool_misses <= allocations");
}

// ---- level 2 ----------------------------------------------------------------------------------------------

void device_pool::before_use(char const* operation) const noexcept {
  const unsigned long long thread = detail::this_thread_number();
  if (owner_thread_ == 0) owner_thread_ = thread;
  if (owner_thread_ == thread) return;
  detail::report_violation(violation_kind::wrong_thread, name(),
                           "device_pool '%s': %s on a thread that does not own the pool; see hand_over()",
                           name(), operation);
}

void* device_pool::allocate_checked(std::size_t bytes, std::size_t align) {
  before_use("allocate");
  if (!std::has_single_bit(align)) {
    throw std::invalid_argument("device_pool '" + std::string{name()} + "': alignment " +
                                std::to_string(align) + " is not a power of two");
  }
  void* block = blocks_.take(bytes, align);
  if (block == nullptr) block = allocate_slow(bytes, align);
  try {
    ledger_.add(block, {bytes, align});
  } catch (...) {
    const given result = blocks_.give(block, bytes, align);
    if (result != given::kept) deallocate_slow(block, bytes, align, result);
    throw;
  }
  return block;
}

bool device_pool::may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  before_use("deallocate");
  return ledger_.remove("device_pool", name(), block, bytes, align).has_value();
}

}  // namespace tidemark
