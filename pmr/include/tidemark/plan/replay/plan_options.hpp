// SPDX-License-Identifier: Apache-2.0
/// @file
/// `plan_options`: how a recorded step is planned.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tidemark/plan/make_plan.hpp>

namespace tidemark {

/// Options of `make_plan` for a recorded step. Only `alignment` is used: there is no search to limit.
struct plan_options {
  std::size_t alignment = default_plan_alignment;  ///< bytes
  std::chrono::nanoseconds time_limit = std::chrono::milliseconds{100};
  std::uint64_t node_limit = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace tidemark
