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

using gpu::detail::capture_state;

namespace {

constexpr char const* limit_variable = "TIDEMARK_DEVICE_CACHE_MIB";
constexpr std::size_t limit_of_unknown_device = 1 * GiB;
constexpr char const* not_relieved = "cached memory cannot be returned while its stream is capturing";

// Returns a quarter of the device. On a large device this covers the temporaries of a step, whose largest
// blocks are then not returned and allocated again each time. Live blocks and other allocators get the rest.
std::size_t limit_by_default(device_cache_options const& options, gpu::driver& driver) noexcept {
  const gpu::detail::on_device here{driver, options.device};
  gpu::memory_info info;
  const bool is_known = here.result() == gpu::status::success &&
                        gpu::detail::capture_state_of(driver, options.stream) == capture_state::none &&
                        driver.memory(info) == gpu::status::success && info.total_bytes >= 4;
  return is_known ? info.total_bytes / 4 : limit_of_unknown_device;
}

device_cache_options completed(device_cache_options options, gpu::driver& driver) {
  gpu::detail::complete(options, driver);
  gpu::detail::require_one_stream("device_cache", options.name, options.stream);
  if (!options.max_cached_bytes) {
    const byte_cap limit = mib_cap_from_environment(limit_variable, limit_by_default(options, driver));
    options.max_cached_bytes = limit.bytes;
    if (!limit.warning.empty()) {
      detail::report_warning(warning_kind::refused_setting, limit_variable, "%s", limit.warning.c_str());
    }
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
      cache_{options_of_cache()} {
  // Other resources ask the cache on their threads. A user's upstream or bookkeeping may not permit that.
  if (own_ && options_.bookkeeping == std::pmr::new_delete_resource())
    budget_subscription_ =
        driver.budget(options_.device).add_member([this] { return return_cached_blocks(); });
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
  if (options_.upstream == nullptr) {
    own_.emplace(gpu::memory_pool_options{.device = options_.device,
                                          .release_threshold_bytes = options_.release_threshold_bytes},
                 options_.stream, options_.name, options_.bookkeeping, *driver_);
    options_.upstream = &*own_;
    options_.upstream_is_ordered = true;
  }
  return {
      .max_cached_bytes = *options_.max_cached_bytes,
      .max_blocks_per_size = options_.max_blocks_per_size,
      .relief = {.call = [](void* cache) noexcept { return static_cast<device_cache*>(cache)->relieve(); },
                 .context = this},
      .query_scope = {.call =
                          [](void* events, void (*queries)(void*) noexcept, void* state) noexcept {
                            static_cast<gpu::detail::event_stock*>(events)->query(queries, state);
                          },
                      .context = &returns_.events()},
      .name = options_.name,
      .upstream = gpu::detail::ordered_upstream(waiting_, options_, *driver_),
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
  const bool in_capture = gpu::detail::capture_state_of(*driver_, options_.stream) != capture_state::none;
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

// Drains all blocks, because the driver may lack one large piece. The budget then trims the cache's own pool
// after a wait for the stream, not for the device. Drained blocks are free once the stream has passed their
// frees, and captures and work of other streams continue.
bool device_cache::relieve() noexcept {
  const gpu::detail::on_device here{*driver_, options_.device};
  if (gpu::detail::capture_state_of(*driver_, options_.stream) != capture_state::none) return false;
  (void)returns_.release_held(false);
  (void)cache_.collect(true);
  if (!own_) (void)driver_->synchronize(options_.stream);
  (void)driver_->budget(options_.device).relieve(&budget_subscription_);
  return true;
}

// Returns the blocks to its own pool, which the budget trims next.
bool device_cache::return_cached_blocks() noexcept {
  const gpu::detail::on_device here{*driver_, options_.device};
  if (gpu::detail::capture_state_of(*driver_, options_.stream) != capture_state::none) return false;
  (void)returns_.release_held(false);
  return cache_.collect(true) != 0;
}

void device_cache::deallocate(void* block, std::size_t bytes, std::size_t align,
                              gpu::stream_handle last_used_on) noexcept {
  if (block != nullptr) returns_.route_return({block, bytes, align}, last_used_on);
}

std::size_t device_cache::release_captured() noexcept { return returns_.release_held(true); }

std::size_t device_cache::collect(bool force) noexcept {
  const gpu::detail::on_device here{*driver_, options_.device};
  if (gpu::detail::capture_state_of(*driver_, options_.stream) != capture_state::none) return 0;
  (void)returns_.release_held(false);
  const std::size_t bytes = cache_.collect(force);
  if (own_) {  // the pool keeps its memory until it is trimmed
    if (force)
      (void)driver_->synchronize(options_.stream);  // returned blocks are free once the stream has passed
    own_->trim();
  }
  return bytes;
}

}  // namespace tidemark
