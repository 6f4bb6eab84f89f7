// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory_pool.hpp>

#include <limits>

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/warning.hpp>

#include "refusal.hpp"

namespace tidemark::cuda {
namespace {

constexpr char const* resource_name = "memory_pool";
constexpr exhaustion_report nothing_yet{.resource = resource_name,
                                        .largest_bytes = std::numeric_limits<std::size_t>::max()};

}  // namespace

memory_pool::memory_pool(memory_pool_options const& options, driver& driver)
    : driver_{&driver}, device_{options.device} {
  if (device_ < 0) {
    detail::require_memory(driver, "cuCtxGetDevice", driver.current_device(device_), nothing_yet);
  }
  detail::require_memory(driver, "cuMemPoolCreate", driver.create_pool(device_, handle_), nothing_yet);
  const status set = driver.set_release_threshold(handle_, options.release_threshold_bytes);
  if (set != status::success) {
    destroy();
    detail::require_memory(driver, "cuMemPoolSetAttribute", set, nothing_yet);
  }
}

void memory_pool::trim(std::size_t keep_bytes) {
  require(*driver_, "cuMemPoolTrimTo", driver_->trim_pool(handle_, keep_bytes));
}

void memory_pool::destroy() noexcept {
  if (handle_ == nullptr) return;
  const status gone = driver_->destroy_pool(handle_);
  if (gone == status::success || gone == status::deinitialized) return;
  tidemark::detail::report_warning(warning_kind::refused_return, resource_name,
                                   "%s: what it holds is lost, because the driver would not destroy it: "
                                   "cuMemPoolDestroy: %s (%s)",
                                   resource_name, driver_->error_name(gone), driver_->error_string(gone));
}

}  // namespace tidemark::cuda
