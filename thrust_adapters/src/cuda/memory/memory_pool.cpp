// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/memory_pool.hpp>

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu {
namespace {

constexpr char const* resource_name = "memory_pool";

}  // namespace

memory_pool::memory_pool(memory_pool_options const& options, driver& driver)
    : device_{detail::device_or_current(driver, options.device, resource_name)}, handle_{driver} {
  const detail::relaxed_mode creating{driver};
  detail::require_peers(driver, "gpu::memory_pool", device_, options.accessible_from);
  detail::require_memory(driver, "cuMemPoolCreate",
                         driver.create_pool({device_, options.exported_as}, handle_.out()), resource_name);
  detail::require_memory(driver, "cuMemPoolSetAttribute",
                         driver.set_release_threshold(get(), options.release_threshold_bytes), resource_name);
  counted_ = driver.budget(device_).add_pool(driver, get());
  if (options.accessible_from.empty()) return;
  detail::require_memory(driver, "cuMemPoolSetAccess", driver.set_pool_access(get(), options.accessible_from),
                         resource_name);
}

void memory_pool::trim(std::size_t keep_bytes) {
  const detail::relaxed_mode trimming{handle_.calls()};
  require_success(handle_.calls(), "cuMemPoolTrimTo", handle_.calls().trim_pool(get(), keep_bytes));
}

void memory_pool::destroy(driver& driver, pool_handle pool) noexcept {
  const detail::relaxed_mode destroying{driver};
  const status destroyed = driver.destroy_pool(pool);
  if (destroyed == status::success || destroyed == status::deinitialized ||
      detail::shows_that_nothing_runs(destroyed))
    return;
  tidemark::detail::report_warning(
      warning_kind::refused_return, resource_name,
      "%s: its memory is lost, because the driver did not destroy it: cuMemPoolDestroy: %s (%s)",
      resource_name, driver.error_name(destroyed), driver.error_string(destroyed));
}

}  // namespace tidemark::gpu
