// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/driver_resource.hpp>

#include <algorithm>
#include <limits>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/block_report.hpp>
#include <tidemark/core/detail/require.hpp>
#include <tidemark/core/violation.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::cuda::detail {
namespace {

// Bytes of a block with room for an aligned part; 0 if no block can be so large.
std::size_t padded_bytes(std::size_t bytes, std::size_t align) noexcept {
  constexpr auto largest = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  const std::size_t padding = align > driver_block_alignment ? align - driver_block_alignment : 0;
  if (padding > largest || bytes > largest - padding) return 0;
  return std::max<std::size_t>(bytes, 1) + padding;  // the driver has no blocks of 0 bytes
}

}  // namespace

driver_resource::driver_resource(char const* kind, char const* name, device_number device, driver& driver,
                                 bool checks_blocks)
    : driver_{&driver},
      kind_{kind},
      name_{name},
      device_{device_or_current(driver, device, name)},
      checks_blocks_{checks_blocks} {}

driver_resource::~driver_resource() {
  if constexpr (check_level >= 2) {
    if (checks_blocks_) tidemark::detail::report_leak(kind_, name_, ledger_);
  }
}

void* driver_resource::allocate(std::size_t bytes, std::size_t align) {
  tidemark::detail::require_power_of_two(kind_, name_, align);
  std::uintptr_t block = 0, part = 0;
  try {
    const std::size_t padded = padded_bytes(bytes, align);
    const outcome allocated =
        padded != 0 ? allocate_block(padded, block) : outcome{status::out_of_memory, ""};
    if (!allocated.good()) {
      const std::size_t used = counter_.used_bytes();
      require_memory(*driver_, allocated.call, allocated.result,
                     {.resource = name_,
                      .requested_bytes = bytes,
                      .alignment = align,
                      .used_bytes = used,
                      .committed_bytes = used,
                      .reserved_bytes = used,
                      .largest_bytes = largest_bytes()});
    }
    part = align > default_alignment ? tidemark::detail::align_up(block, align) : block;
    const std::scoped_lock lock{mutex_};
    if (align > default_alignment) over_aligned_.emplace(part, block);
    if (checks_blocks_) ledger_.add({reinterpret_cast<void*>(part), bytes, align});
  } catch (...) {
    counter_.refused();
    if (block != 0) {  // there is no memory for its record
      std::unique_lock lock{mutex_};
      over_aligned_.erase(part);
      lock.unlock();
      free_aligned(block, bytes, default_alignment);
    }
    throw;
  }
  counter_.on_allocate(bytes);
  return reinterpret_cast<void*>(part);
}

void driver_resource::deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) return;
  if (checks_blocks_) {
    const std::scoped_lock lock{mutex_};
    if (!ledger_.remove(kind_, name_, block, bytes, align)) return;
  }
  counter_.on_deallocate(bytes);
  free_aligned(reinterpret_cast<std::uintptr_t>(block), bytes, align);
}

void driver_resource::free_aligned(std::uintptr_t block, std::size_t bytes, std::size_t align) noexcept {
  if (align > default_alignment) {
    const std::scoped_lock lock{mutex_};
    const auto found = over_aligned_.extract(block);
    if (!found.empty()) block = found.mapped();
  }
  const outcome freed = free_block(block, bytes);
  if (!freed.good()) report_lost(*driver_, name_, freed.call, freed.result, bytes);
}

}  // namespace tidemark::cuda::detail
