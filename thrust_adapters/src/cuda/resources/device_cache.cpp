// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/device_cache.hpp>

#include <new>
#include <utility>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/pool/byte_cap.hpp>

#include "../driver/driver_errors.hpp"
#include "completed_options.hpp"

namespace tidemark {
namespace {

constexpr char const* limit_variable = "TIDEMARK_DEVICE_CACHE_MIB";
constexpr std::size_t limit_by_default = 1 * GiB;
constexpr char const* not_relieved = "its stream is capturing, so that what is kept is not returned";

device_cache_options completed(device_cache_options options, cuda::driver& driver) {
  cuda::detail::complete(options, driver);
  if (!options.max_cached_bytes) {
    const byte_cap limit = mib_cap_from_environment(limit_variable, limit_by_default);
    options.max_cached_bytes = limit.bytes;
    if (!limit.warning.empty()) {
      detail::report_warning(warning_kind::refused_setting, limit_variable, "%s", limit.warning.c_str());
    }
  }
  return options;
}

}  // namespace

device_cache::device_cache(device_cache_options const& options, cuda::driver& driver)
    : driver_{&driver},
      options_{completed(options, driver)},
      events_{driver, options_.device, options_.stream, options_.bookkeeping},
      cache_{options_of_cache()} {}

// Blocks are returned to an upstream of the user's with the cache's device current, too.
device_cache::~device_cache() {
  const cuda::detail::on_device here{*driver_, options_.device};
  (void)cache_.collect(true);
}

// Makes the upstream, too, if there is none.
reuse_cache_options device_cache::options_of_cache() {
  if (options_.upstream == nullptr) {
    own_.emplace(cuda::memory_pool_options{.device = options_.device,
                                           .release_threshold_bytes = options_.release_threshold_bytes},
                 options_.stream, options_.name, options_.bookkeeping, *driver_);
    options_.upstream = &*own_;
  }
  return {
      .max_cached_bytes = *options_.max_cached_bytes,
      .max_blocks_per_size = options_.max_blocks_per_size,
      .reuse = reuse_order::oldest,
      .eviction = eviction_order::largest,
      .relief = {.call = [](void* cache) noexcept { return static_cast<device_cache*>(cache)->relieve(); },
                 .context = this},
      .name = options_.name,
      .upstream = options_.upstream,
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

// In a capture only calls of the driver are made that are known to be allowed there.
void device_cache::refuse(std::size_t bytes, std::size_t align, char const* because) const {
  const reuse_cache_stats now = stats();
  const cuda::detail::on_device here{*driver_, options_.device};
  const bool in_capture = cuda::detail::is_capturing(*driver_, options_.stream);
  if (in_capture && *because == '\0') because = not_relieved;
  throw out_of_memory{
      {.resource = options_.name,
       .requested_bytes = bytes,
       .alignment = align,
       .used_bytes = now.used_bytes,
       .committed_bytes = now.held_bytes,
       .reserved_bytes = now.held_bytes,
       .largest_bytes = in_capture ? exhaustion_report::unknown_bytes : cuda::detail::free_bytes(*driver_),
       .because = because}};
}

// The ladder. All is drained, because what the driver lacks may be one large piece. The stream is waited for,
// and not the device: what was drained is free when the stream has come there, and other streams' captures
// and work are none of its concern.
bool device_cache::relieve() noexcept {
  const cuda::detail::on_device here{*driver_, options_.device};
  if (cuda::detail::may_be_capturing(*driver_, options_.stream)) return false;
  (void)cache_.collect(true);
  (void)driver_->synchronize(options_.stream);
  if (own_) own_->trim();
  return true;
}

void device_cache::deallocate(void* block, std::size_t bytes, std::size_t align,
                              cuda::stream_handle last_used_on) noexcept {
  if (block == nullptr) return;
  reuse_fence fence;
  if (last_used_on != options_.stream) fence = fence_behind(last_used_on);
  cache_.deallocate_after(block, bytes, aligned(align), std::move(fence));
}

// Without an event the thread waits, and where that is refused, or would invalidate a capture, for the
// device.
reuse_fence device_cache::fence_behind(cuda::stream_handle other) noexcept {
  const cuda::detail::on_device here{*driver_, options_.device};
  if (cuda::detail::is_capturing(*driver_, other)) return fence_of_device();
  if (std::optional<reuse_fence> fence = events_.record(other)) return std::move(*fence);
  if (cuda::detail::shows_end_of_work(driver_->synchronize(other))) return {};
  return fence_of_device();
}

// For work that no event can be put behind: it has ended at the latest when the device has been waited for.
reuse_fence device_cache::fence_of_device() noexcept {
  constexpr auto wait = [](void* cache) noexcept {
    auto const& of = *static_cast<device_cache*>(cache);
    const cuda::detail::on_device here{*of.driver_, of.options_.device};
    (void)of.driver_->synchronize();
  };
  static constexpr reuse_fence::functions calls{
      .done = [](void*) noexcept { return false; }, .wait = wait, .destroy = nullptr};
  return {calls, this};
}

std::size_t device_cache::collect(bool force) noexcept {
  const cuda::detail::on_device here{*driver_, options_.device};
  if (cuda::detail::may_be_capturing(*driver_, options_.stream)) return 0;
  return cache_.collect(force);
}

}  // namespace tidemark
