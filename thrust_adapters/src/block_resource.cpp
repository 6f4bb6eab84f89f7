// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/block_resource.hpp>

#include <bit>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

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
  try {
    const std::uintptr_t block = ask(bytes, align);
    counter_.handed_out(bytes);
    return reinterpret_cast<void*>(block);
  } catch (...) {
    counter_.refused();
    throw;
  }
}

template <block_kind Kind>
std::uintptr_t block_resource<Kind>::ask(std::size_t bytes, std::size_t align) {
  const bool is_over_aligned = align > driver_block_alignment;
  detail::over_aligned::record record;
  if (is_over_aligned) record = detail::over_aligned::make_record();
  const std::size_t room = detail::over_aligned::room(bytes, align);
  std::uintptr_t block = 0;
  const status given =
      room != 0 ? detail::allocate_block(Kind, *driver_, device_, room, block) : status::out_of_memory;
  if (given != status::success) {
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
  if (is_over_aligned) block = over_aligned_.part_of(block, align, std::move(record));
  if constexpr (check_level >= 1) {
    try {
      const std::scoped_lock lock{mutex_};
      ledger_.add(reinterpret_cast<void*>(block), {bytes, align});
    } catch (...) {
      give_back(block, bytes, align);
      throw;
    }
  }
  return block;
}

template <block_kind Kind>
void block_resource<Kind>::deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) return;
  if constexpr (check_level >= 1) {
    const std::scoped_lock lock{mutex_};
    if (!ledger_.remove("block_resource", name_, block, bytes, align)) return;
  }
  counter_.given_back(bytes);
  give_back(reinterpret_cast<std::uintptr_t>(block), bytes, align);
}

template <block_kind Kind>
void block_resource<Kind>::give_back(std::uintptr_t block, std::size_t bytes, std::size_t align) noexcept {
  if (align > driver_block_alignment) block = over_aligned_.block_of(block);
  const status freed = detail::free_block(Kind, *driver_, device_, block);
  if (freed == status::success) return;
  detail::report_lost(*driver_, name_, detail::freeing_call(Kind), freed, bytes);
}

template class block_resource<block_kind::device>;
template class block_resource<block_kind::pinned>;
template class block_resource<block_kind::managed>;

}  // namespace tidemark::cuda
