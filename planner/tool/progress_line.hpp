// SPDX-License-Identifier: Apache-2.0
/// @file `progress_line`: shows the progress of a search on standard error.
#pragma once

#include <chrono>
#include <cstddef>

#include <tidemark/planner.hpp>

namespace tidemark::tools {

/// Shows the progress of a search on standard error. A terminal has one line that is overwritten, and erased
/// at the end. Other outputs get a new line each time.
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
