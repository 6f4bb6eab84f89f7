// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/device_cache.hpp>

#include <new>
#include <utility>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/pool/byte_cap.hpp>

#include "../driver/driver_errors.hpp"
#include "completed_options.hpp"

namespace tidemark {

namespace {

constexpr char const* limit_variable = "TIDEMARK_DEVICE_CACHE_MIB";
constexpr std::size_t default_limit = 1 * GiB;
constexpr char const* not_relieved = "cached memory cannot be returned while its stream is capturing";

device_cache_options completed(device_cache_options options, gpu::driver& driver) {
  gpu::detail::complete(options, driver);
  gpu::detail::require_one_stream("device_cache", options.name, options.stream);
  if (!options.max_cached_bytes) {
    options.max_cached_bytes = mib_cap_from_environment(limit_variable, default_limit);
  }
  return options;
}

}  // namespace

device_cache::device_cache(device_cache_options const& options, gpu::driver& driver)
    : driver_{&driver},
      options_{completed(options, driver)},
      returns_{driver,
               options_.device,
               options_.stream,
               options_.name,
               options_.bookkeeping,
               {.free_now =
                    [](void* cache, gpu::detail::returned_block const& each) noexcept {
                      static_cast<device_cache*>(cache)->deallocate(each.block, each.bytes, each.align);
                    },
                .free_behind =
                    [](void* cache, gpu::detail::returned_block const& each, reuse_fence fence) noexcept {
                      static_cast<device_cache*>(cache)->cache_.deallocate_after(
                          each.block, each.bytes, aligned(each.align), std::move(fence));
                    },
                .context = this}},
      cache_{options_of_cache(), this} {
  // Other resources ask the cache on their threads. A user's upstream or bookkeeping may not permit that.
  if (own_ && options_.bookkeeping == std::pmr::new_delete_resource())
    budget_subscription_ = driver.budget(options_.device).add_member([this] { return collect(true) != 0; });
}

// The cache's device is current also while blocks return to a user's upstream.
device_cache::~device_cache() {
  budget_subscription_ = {};
  const gpu::detail::on_device here{*driver_, options_.device};
  (void)release_captured();
  (void)cache_.collect(true);
}

// Also makes the upstream if the cache has none.
reuse_cache_options device_cache::options_of_cache() {
  if (options_.upstream == nullptr) options_.upstream = &own_.emplace(options_, *driver_);
  return {.max_cached_bytes = *options_.max_cached_bytes,
          .max_blocks_per_size = options_.max_blocks_per_size,
          .name = options_.name,
          .upstream = own_ ? &*own_ : gpu::detail::ordered_upstream(waiting_, options_, *driver_),
          .bookkeeping = options_.bookkeeping};
}

void* device_cache::allocate(std::size_t bytes, std::size_t align) {
  try {
    return cache_.allocate(bytes, aligned(align));
  } catch (out_of_memory const& refusal) {
    refuse(bytes, align, refusal.report().because);
  } catch (std::bad_alloc const&) {
    refuse(bytes, align, "");
  }
}

// Makes only driver calls that are known to be permitted in a capture.
void device_cache::refuse(std::size_t bytes, std::size_t align, char const* because) const {
  const reuse_cache_stats now = stats();
  const gpu::detail::on_device here{*driver_, options_.device};
  const bool in_capture = is_capturing();
  if (in_capture && *because == '\0') because = not_relieved;
  throw out_of_memory{
      {.resource = options_.name,
       .requested_bytes = bytes,
       .alignment = align,
       .used_bytes = now.used_bytes,
       .committed_bytes = now.held_bytes,
       .reserved_bytes = now.held_bytes,
       .largest_bytes = in_capture ? exhaustion_report::unknown_bytes : gpu::detail::free_bytes(*driver_),
       .because = because}};
}

bool device_cache::is_capturing() const noexcept {
  return gpu::detail::capture_state_of(*driver_, options_.stream) != gpu::detail::capture_state::none;
}

// Returns all blocks, because the upstream may lack one large piece. The budget waits for the streams of
// pools, not for the device, because captures and other work continue. The cache's own heap asks the budget
// itself.
bool device_cache::relieve() noexcept {
  const gpu::detail::on_device here{*driver_, options_.device};
  if (is_capturing()) return false;
  (void)collect(true);
  if (!own_) (void)driver_->budget(options_.device).relieve();
  return true;
}

void device_cache::deallocate(void* block, std::size_t bytes, std::size_t align,
                              gpu::stream_handle last_used_on) noexcept {
  if (block != nullptr) returns_.route_return({block, bytes, align}, last_used_on);
}

std::size_t device_cache::release_captured() noexcept { return returns_.release_held(true); }

std::size_t device_cache::collect(bool force) noexcept {
  const gpu::detail::on_device here{*driver_, options_.device};
  if (is_capturing()) return 0;
  (void)returns_.release_held(false);
  const std::size_t bytes = cache_.collect(force);
  if (own_ && force) own_->release_unused();
  return bytes;
}

}  // namespace tidemark
