// SPDX-License-Identifier: Apache-2.0
/// @file `progress_line`: how far a search is, on standard error.
#pragma once

#include <chrono>
#include <cstddef>

#include <tidemark/planner.hpp>

namespace tidemark::tools {

/// How far a search is, on standard error: in one line that is written over on a terminal, and is gone at the
/// end; elsewhere in one line each time.
class progress_line {
 public:
  progress_line();
  progress_line(progress_line const&) = delete;
  progress_line& operator=(progress_line const&) = delete;
  ~progress_line();

  [[nodiscard]] bool is_on_terminal() const { return is_on_terminal_; }
  void show(planner::progress const& now);

 private:
  bool is_on_terminal_;
  bool is_shown_ = false;
  std::chrono::nanoseconds shown_at_{0};
};

}  // namespace tidemark::tools
