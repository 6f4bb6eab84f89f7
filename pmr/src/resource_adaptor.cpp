// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/resource_adaptor.hpp>

#include <stdexcept>
#include <string>

namespace tidemark::detail {

void resource_adaptor::refuse_null_upstream(char const* kind) const {
  throw std::invalid_argument(std::string{kind} + " '" + name_ + "': the upstream resource is null");
}

}  // namespace tidemark::detail
