// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/driver_resource.hpp>

#include <algorithm>
#include <limits>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {
namespace {

// Returns the bytes of a block with room for an aligned part; 0 if no block can be so large.
std::size_t padded_bytes(std::size_t bytes, std::size_t align) noexcept {
  using tidemark::detail::max_block_bytes;
  const std::size_t padding = align > driver_block_alignment ? align - driver_block_alignment : 0;
  if (padding > max_block_bytes || bytes > max_block_bytes - padding) return 0;
  return std::max<std::size_t>(bytes, 1) + padding;  // the driver has no blocks of 0 bytes
}

}  // namespace

driver_resource::driver_resource(char const* kind, char const* name, device_number device, driver& driver,
                                 counting budget, bool checks_blocks)
    : driver_{&driver},
      kind_{kind},
      name_{name},
      device_{device_or_current(driver, device, name)},
      checks_blocks_{checks_blocks} {
  if (budget != counting::none) budget_ = &driver.budget(device_);
}

driver_resource::~driver_resource() {
  if constexpr (check_level >= 2) {
    if (checks_blocks_) tidemark::detail::report_leak(kind_, name_, ledger_);
  }
}

// Allocates a block within the budget, or fails.
outcome driver_resource::allocate_in_budget(std::size_t bytes, std::uintptr_t& block) {
  if (budget_ == nullptr) return allocate_block(bytes, block);
  const auto allocate_once = [&]() -> outcome {
    device_budget::claim claim{*budget_, bytes, pool_record_.get()};
    if (!claim.is_allowed()) return {status::out_of_memory, limit_call};
    const outcome allocated = allocate_block(bytes, block);
    if (!allocated.good()) return allocated;
    if (pool_record_ != nullptr && !budget_->trim_to_limit() && free_block(block, bytes).good()) {
      block = 0;
      (void)budget_->trim_pools();
      return {status::out_of_memory, limit_call};
    }
    claim.commit();
    return allocated;
  };
  const outcome first = allocate_once();
  return first.result == status::out_of_memory && budget_->relieve() ? allocate_once() : first;
}

void* driver_resource::allocate(std::size_t bytes, std::size_t align) {
  tidemark::detail::require_power_of_two(kind_, name_, align);
  const std::size_t padded = padded_bytes(bytes, align);
  std::uintptr_t block = 0, part = 0;
  try {
    const outcome allocated =
        padded != 0 ? allocate_in_budget(padded, block) : outcome{status::out_of_memory, ""};
    if (!allocated.good()) {
      const std::size_t used = counter_.used_bytes();
      require_memory(*driver_, allocated.call, allocated.result,
                     {.resource = name_,
                      .requested_bytes = bytes,
                      .alignment = align,
                      .used_bytes = used,
                      .committed_bytes = used,
                      .reserved_bytes = used,
                      .largest_bytes = largest_bytes(),
                      .because = padded == 0                    ? ""
                                 : allocated.call == limit_call ? device_limit_reached
                                                                : device_memory_exhausted});
    }
    part = align > default_alignment ? tidemark::detail::align_up(block, align) : block;
    const std::scoped_lock lock{mutex_};
    if (align > default_alignment) over_aligned_.emplace(part, block);
    if (checks_blocks_) ledger_.add({reinterpret_cast<void*>(part), bytes, align});
  } catch (...) {
    counter_.refused();
    if (block != 0) {  // no memory for its record
      std::unique_lock lock{mutex_};
      over_aligned_.erase(part);
      lock.unlock();
      free_padded(block, bytes, padded);
    }
    throw;
  }
  counter_.on_allocate(bytes);
  return reinterpret_cast<void*>(part);
}

void driver_resource::deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) return;
  if (checks_blocks_) {
    tidemark::detail::late_reports late;
    const std::scoped_lock lock{mutex_};
    if (!ledger_.remove(kind_, name_, block, bytes, align)) return;
  }
  counter_.on_deallocate(bytes);
  auto whole = reinterpret_cast<std::uintptr_t>(block);
  if (align > default_alignment) {
    const std::scoped_lock lock{mutex_};
    const auto found = over_aligned_.extract(whole);
    if (!found.empty()) whole = found.mapped();
  }
  free_padded(whole, bytes, padded_bytes(bytes, align));
}

// The budget still counts memory that could not be freed.
void driver_resource::free_padded(std::uintptr_t block, std::size_t bytes, std::size_t padded) noexcept {
  const outcome freed = free_block(block, padded);
  if (!freed.good()) return report_lost(*driver_, name_, freed.call, freed.result, bytes);
  if (budget_ != nullptr) budget_->subtract_bytes(padded, pool_record_.get());
}

}  // namespace tidemark::gpu::detail
