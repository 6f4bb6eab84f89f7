// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/detail/resource_adaptor.hpp>

#include <stdexcept>
#include <string>

namespace tidemark::detail {

void throw_null_upstream(char const* kind, char const* name) {
  throw std::invalid_argument(std::string{kind} + " '" + name + "': the upstream resource is null");
}

}  // namespace tidemark::detail
