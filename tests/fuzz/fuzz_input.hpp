// SPDX-License-Identifier: Apache-2.0
// What the targets of resources and models share: which calls fail, and how a program ends that has found something.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include <tidemark/core/violation.hpp>

#include "choices.hpp"
#include "told_program.hpp"

namespace tidemark::test {

/// Ends the program if an expectation failed, so that the fuzzer keeps the input.
inline void stop_if_failed() {
  if (!testing::Test::HasFailure()) return;
  told_program::current().print();
  std::abort();
}

/// From now on a violation ends the program in the same way, unless a model expects it, and so does an exception.
inline void stop_at_violations() {
  std::set_terminate([] {
    told_program::current().print();
    std::abort();
  });
  set_violation_handler([](violation const& found) {
    std::fprintf(stderr, "%s\n", found.message);
    told_program::current().print();
    std::abort();
  });
}

/// Some calls of a supply fail from now on, where it is one whose calls can. Not those of a device: memory that a driver
/// will not take back is lost, and a device here runs out of memory besides.
template <class Supply>
void fail_some_calls(Supply& supply, choices& next) {
  if constexpr (requires { supply.fail_from = 1; } && !requires { supply.device; }) {
    supply.fail_from = next() % 256;
    supply.fail_count = next() % 8;
    tell("supply.fail_from = supply.calls + ", supply.fail_from, "; supply.fail_count = ", supply.fail_count,
         ";");
    supply.fail_from += supply.calls;
  }
}

}  // namespace tidemark::test
