// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark::test {

/// std::string::contains of C++23.
inline bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tidemark::test
