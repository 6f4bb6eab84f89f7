// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/async_resource.hpp>

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/detail/on_device.hpp>
#include <tidemark/out_of_memory.hpp>

#include "behind_event.hpp"
#include "complete_name.hpp"
#include "refusal.hpp"

namespace tidemark::cuda {
namespace {

async_resource_options completed(async_resource_options options, driver& driver) {
  detail::complete_name(options);
  if (options.pool == nullptr) {
    throw std::invalid_argument("async_resource '" + std::string{options.name} +
                                "': the pool is null; memory comes from a cuda::memory_pool");
  }
  if (options.device < 0) {
    detail::require_memory(driver, "cuCtxGetDevice", driver.current_device(options.device),
                           {.resource = options.name, .largest_bytes = detail::nobody_knows});
  }
  return options;
}

}  // namespace

async_resource::async_resource(async_resource_options const& options, driver& driver)
    : driver_{&driver}, options_{completed(options, driver)} {}

void* async_resource::allocate(std::size_t bytes, std::size_t align) {
  if (!std::has_single_bit(align)) {
    throw std::invalid_argument("async_resource '" + std::string{name()} + "': alignment " +
                                std::to_string(align) + " is not a power of two");
  }
  try {
    void* const block = ask(bytes, align);
    counter_.handed_out(bytes);
    return block;
  } catch (...) {
    counter_.refused();
    throw;
  }
}

void* async_resource::ask(std::size_t bytes, std::size_t align) {
  const std::size_t used = counter_.used_bytes();
  const exhaustion_report report{.resource = options_.name,
                                 .requested_bytes = bytes,
                                 .alignment = align,
                                 .used_bytes = used,
                                 .committed_bytes = used,
                                 .reserved_bytes = used,
                                 .largest_bytes = detail::nobody_knows};
  const std::size_t room = detail::over_aligned::room(bytes, align);
  if (room == 0) throw out_of_memory{report};
  const bool is_over_aligned = align > default_alignment;
  detail::over_aligned::record record;
  if (is_over_aligned) record = detail::over_aligned::make_record();
  const detail::on_device here{*driver_, options_.device};
  detail::require_memory(*driver_, "cuCtxSetCurrent", here.result(), report);
  std::uintptr_t block = 0;
  detail::require_memory(*driver_, "cuMemAllocFromPoolAsync",
                         driver_->allocate_async(room, options_.pool, options_.stream, block), report);
  if (is_over_aligned) block = over_aligned_.part_of(block, align, std::move(record));
  return reinterpret_cast<void*>(block);
}

// The driver is called even if the device could not be made current: only the default stream needs it.
void async_resource::deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) return;
  auto first = reinterpret_cast<std::uintptr_t>(block);
  if (align > default_alignment) first = over_aligned_.block_of(first);
  const detail::on_device here{*driver_, options_.device};
  const status freed = driver_->free_async(first, options_.stream);
  if (freed != status::success) detail::report_lost(*driver_, options_.name, "cuMemFreeAsync", freed, bytes);
  counter_.given_back(bytes);
}

void async_resource::deallocate_after(void* block, std::size_t bytes, std::size_t align,
                                      event_handle event) noexcept {
  if (block == nullptr) return;
  const detail::on_device here{*driver_, options_.device};
  if (detail::put_behind(*driver_, options_.stream, event, options_.name, bytes))
    deallocate(block, bytes, align);
  else counter_.given_back(bytes);
}

}  // namespace tidemark::cuda
