// SPDX-License-Identifier: Apache-2.0
// The memories on which a program runs, by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "program.hpp"

namespace tidemark::bench {

/// malloc is the process's malloc, so that a preloaded library can replace it.
[[nodiscard]] std::vector<std::string_view> const& memory_names();

/// Makes one memory for each thread. They share a resource that any thread may use.
/// @return empty if no memory has that name
[[nodiscard]] std::vector<std::unique_ptr<step_memory>> make_memories(std::string_view name,
                                                                      unsigned threads);

}  // namespace tidemark::bench
