// SPDX-License-Identifier: Apache-2.0
// What a resource is called if nobody says.
#pragma once

namespace tidemark::cuda::detail {

/// Options whose name is null get the name that they have by default, so that messages can print it.
template <class Options>
void complete_name(Options& options) noexcept {
  if (options.name == nullptr) options.name = Options{}.name;
}

}  // namespace tidemark::cuda::detail
