// SPDX-License-Identifier: Apache-2.0
// The exception of a call, as a value to compare.
#pragma once

#include <stdexcept>
#include <string>

namespace tidemark::test {

/// The exception that `body` throws. The test fails if it throws none, or one of another type.
template <class Error, class Body>
Error caught(Body const& body) {
  try {
    body();
  } catch (Error const& error) {
    return error;
  }
  throw std::logic_error{"nothing was thrown"};
}

/// Its text, also of a type derived from `Error`.
template <class Error, class Body>
std::string message_of(Body const& body) {
  try {
    body();
  } catch (Error const& error) {
    return error.what();
  }
  throw std::logic_error{"nothing was thrown"};
}

/// The same, or `otherwise` if it throws none.
template <class Error, class Body>
std::string message_or(std::string otherwise, Body const& body) {
  try {
    body();
  } catch (Error const& error) {
    return error.what();
  }
  return otherwise;
}

}  // namespace tidemark::test
