// SPDX-License-Identifier: Apache-2.0
// The memories that a program runs on, by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "program.hpp"

namespace tidemark::bench {

/// malloc is the process's, so that a preloaded one can take its place.
[[nodiscard]] std::vector<std::string_view> const& memory_names();

/// One for each thread; their resource is the same one where any thread may use it.
/// @return none if there is no memory of that name
[[nodiscard]] std::vector<std::unique_ptr<step_memory>> make_memories(std::string_view name,
                                                                      unsigned threads);

}  // namespace tidemark::bench
