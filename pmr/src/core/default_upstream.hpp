// SPDX-License-Identifier: Apache-2.0
// Default upstream of resources whose options name none.
#pragma once

#include <memory_resource>

namespace tidemark::detail {

[[nodiscard]] inline std::pmr::memory_resource* or_default(std::pmr::memory_resource* upstream) noexcept {
  return upstream != nullptr ? upstream : std::pmr::get_default_resource();
}

}  // namespace tidemark::detail
