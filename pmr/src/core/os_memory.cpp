// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/os_memory.hpp>

#include <atomic>
#include <stdexcept>

#include <malloc.h>

void tidemark::detail::trim_heap() noexcept { (void)malloc_trim(0); }

namespace tidemark {
namespace {

std::atomic<os_memory*> default_table{nullptr};

}  // namespace

os_memory& default_os_memory() noexcept {
  os_memory* const table = default_table.load(std::memory_order_acquire);
  return table != nullptr ? *table : system_memory();
}

os_memory* set_default_os_memory(os_memory* table) noexcept {
  os_memory* const before = default_table.exchange(table, std::memory_order_acq_rel);
  return before != nullptr ? before : &system_memory();
}

std::uint64_t entropy_seed() {
  std::uint64_t seed = 0;
  if (!default_os_memory().entropy(&seed, sizeof seed)) {
    throw std::runtime_error("entropy_seed: the operating system returned no entropy");
  }
  return seed;
}

}  // namespace tidemark
