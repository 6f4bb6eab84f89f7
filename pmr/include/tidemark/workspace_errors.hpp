// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a checked workspace throws at whoever holds on to memory that was taken back. Each owns its text.
#pragma once

#include <stdexcept>

namespace tidemark {

/// Thrown by a view whose memory was taken back when it is used: names the elements, where they were acquired
/// and what ended them. Nothing was read or written.
class stale_view final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Thrown where a value would leave a scope that refers to memory of that scope: names the elements, where
/// they were acquired, where they would have left, and what to do instead. The scope has ended, as it would
/// have.
class workspace_escape final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace tidemark
