// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/block_resource.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>

#include <tidemark/detail/align.hpp>
#include <tidemark/detail/block_report.hpp>
#include <tidemark/violation.hpp>

#include "driver_block.hpp"
#include "refusal.hpp"

namespace tidemark::cuda {
namespace {

constexpr std::size_t unknown_bytes = std::numeric_limits<std::size_t>::max();

// What fits on a device, if it is the device's memory: of the others nobody knows how much there is.
std::size_t free_bytes(block_kind kind, driver& driver, device_number device) noexcept {
  if (kind != block_kind::device) return unknown_bytes;
  const detail::on_device here{driver, device};
  return here.result() == status::success ? detail::free_bytes(driver) : unknown_bytes;
}

}  // namespace

template <block_kind Kind>
block_resource<Kind>::block_resource(block_resource_options const& options, driver& driver)
    : driver_{&driver},
      device_{options.device},
      name_{options.name != nullptr ? options.name : detail::name_of(Kind)} {
  if (device_ >= 0) return;
  detail::require_memory(driver, "cuCtxGetDevice", driver.current_device(device_),
                         {.resource = name_, .largest_bytes = unknown_bytes});
}

template <block_kind Kind>
block_resource<Kind>::~block_resource() {
  if constexpr (check_level >= 2) tidemark::detail::report_leak("block_resource", name_, ledger_);
}

template <block_kind Kind>
void* block_resource<Kind>::allocate(std::size_t bytes, std::size_t align) {
  if (!std::has_single_bit(align)) {
    throw std::invalid_argument("block_resource '" + std::string(name_) + "': alignment " +
                                std::to_string(align) + " is not a power of two");
  }
  const std::size_t padding = align > driver_block_alignment ? align - driver_block_alignment : 0;
  const std::size_t least = std::max<std::size_t>(bytes, 1);
  std::uintptr_t taken = 0;
  const bool can_be = least <= std::numeric_limits<std::ptrdiff_t>::max() - padding;
  const status given = can_be ? detail::allocate_block(Kind, *driver_, device_, least + padding, taken)
                              : status::out_of_memory;
  if (given != status::success) {
    counter_.refused();
    const std::size_t used = counter_.used_bytes();
    detail::require_memory(*driver_, detail::allocating_call(Kind), given,
                           {.resource = name_,
                            .requested_bytes = bytes,
                            .alignment = align,
                            .used_bytes = used,
                            .committed_bytes = used,
                            .reserved_bytes = used,
                            .largest_bytes = free_bytes(Kind, *driver_, device_)});
  }
  const std::uintptr_t block = tidemark::detail::align_up(taken, align);
  record(block, taken, bytes, align);
  counter_.handed_out(bytes);
  return reinterpret_cast<void*>(block);
}

template <block_kind Kind>
void block_resource<Kind>::record(std::uintptr_t block, std::uintptr_t taken, std::size_t bytes,
                                  std::size_t align) {
  try {
    const std::scoped_lock lock{mutex_};
    if (block != taken) taken_.emplace(block, taken);
    if constexpr (check_level >= 1) {
      try {
        ledger_.add(reinterpret_cast<void*>(block), {bytes, align});
      } catch (...) {
        taken_.erase(block);
        throw;
      }
    }
  } catch (...) {
    counter_.refused();
    give_back(taken, bytes);
    throw;
  }
}

template <block_kind Kind>
void block_resource<Kind>::deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr && bytes == 0) return;
  auto taken = reinterpret_cast<std::uintptr_t>(block);
  {
    const std::scoped_lock lock{mutex_};
    if constexpr (check_level >= 1) {
      if (!ledger_.remove("block_resource", name_, block, bytes, align)) return;
    }
    if (const auto found = taken_.find(taken); found != taken_.end()) {
      taken = found->second;
      taken_.erase(found);
    }
  }
  counter_.given_back(bytes);
  give_back(taken, bytes);
}

template <block_kind Kind>
void block_resource<Kind>::give_back(std::uintptr_t taken, std::size_t bytes) noexcept {
  const status freed = detail::free_block(Kind, *driver_, device_, taken);
  if (freed == status::success) return;
  detail::report_lost(*driver_, name_, detail::freeing_call(Kind), freed, bytes);
}

template class block_resource<block_kind::device>;
template class block_resource<block_kind::pinned>;
template class block_resource<block_kind::managed>;

}  // namespace tidemark::cuda
