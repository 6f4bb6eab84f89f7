// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {
namespace {

std::atomic<driver*> default_table{nullptr};

}  // namespace

driver& default_driver() noexcept {
  driver* const table = default_table.load(std::memory_order_acquire);
  return table != nullptr ? *table : system_driver();
}

driver* set_default_driver(driver* table) noexcept {
  driver* const before = default_table.exchange(table, std::memory_order_acq_rel);
  return before != nullptr ? before : &system_driver();
}

}  // namespace tidemark::gpu
