// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark::test {

/// Searches of texts for EXPECT_PRED2, which prints both.
inline bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}
inline bool begins_with(std::string const& text, std::string const& part) { return text.starts_with(part); }

}  // namespace tidemark::test
