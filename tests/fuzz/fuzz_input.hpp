// SPDX-License-Identifier: Apache-2.0
// Common parts of the targets for resources and models: the calls that fail, and the end of a program that
// has found a fault.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include <tidemark/core/violation.hpp>

#include "choices.hpp"
#include "program_log.hpp"

namespace tidemark::test {

/// Ends the program if an expectation failed, so that the fuzzer keeps the input.
inline void stop_if_failed() {
  if (!testing::Test::HasFailure()) return;
  program_log::current().print();
  std::abort();
}

/// From now on a violation ends the program in the same way, unless a model expects it, and so does an
/// exception.
inline void stop_at_violations() {
  std::set_terminate([] {
    program_log::current().print();
    std::abort();
  });
  set_violation_handler([](violation const& found) {
    std::fprintf(stderr, "%s\n", found.message);
    program_log::current().print();
    std::abort();
  });
}

/// Makes some calls of a supply fail from now on, if it supports this. Excludes calls of a device: memory
/// that a driver does not free is lost, and a device here runs out of memory anyway.
template <class Supply>
void fail_some_calls(Supply& supply, choices& next) {
  if constexpr (requires { supply.fail_from = 1; } && !requires { supply.device; }) {
    supply.fail_from = next() % 256;
    supply.fail_count = next() % 8;
    log_line("supply.fail_from = supply.calls + ", supply.fail_from,
             "; supply.fail_count = ", supply.fail_count, ";");
    supply.fail_from += supply.calls;
  }
}

}  // namespace tidemark::test
