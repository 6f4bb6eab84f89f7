// SPDX-License-Identifier: Apache-2.0
// Options of a device's pool and cache as they hold.
#pragma once

#include <memory_resource>

#include <tidemark/cuda/driver/driver.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {

/// Replaces what was left out: null names, which messages print, by the default; the device by the current
/// one; the bookkeeping resource by `new` and `delete`. @throws as `device_or_current`.
template <class Options>
void complete(Options& options, driver& driver) {
  if (options.name == nullptr) options.name = Options{}.name;
  options.device = device_or_current(driver, options.device, options.name);
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
}

}  // namespace tidemark::gpu::detail
