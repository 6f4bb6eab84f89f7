// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/require.hpp>

#include <bit>
#include <stdexcept>
#include <string>

#include <tidemark/core/detail/request.hpp>

namespace tidemark::detail {

void require_power_of_two(char const* kind, char const* name, std::size_t align) {
  if (std::has_single_bit(align)) return;
  throw std::invalid_argument(std::string{kind} + " '" + name_or(name, kind) + "': alignment " +
                              std::to_string(align) + " is not a power of two");
}

}  // namespace tidemark::detail
