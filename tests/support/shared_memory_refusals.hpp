// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

#include <tidemark/process/shared_memory.hpp>

namespace tidemark::test {

/// Returns the message of the shared_memory_error that `body` throws for this reason, or otherwise a
/// description of the outcome.
template <class Body>
std::string refusal_of(shared_memory_refusal reason, Body body) {
  try {
    body();
  } catch (shared_memory_error const& error) {
    EXPECT_EQ(error.reason(), reason) << error.what();
    return error.what();
  } catch (std::exception const& error) {
    return std::string{"another exception: "} + error.what();
  }
  return "it was not refused";
}

}  // namespace tidemark::test
