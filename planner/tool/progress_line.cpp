// SPDX-License-Identifier: Apache-2.0
#include "progress_line.hpp"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "texts.hpp"

namespace tidemark::tools {
namespace {

constexpr std::chrono::milliseconds pause{100};  // a faster display could not be read
constexpr char const* erase_line = "\r\x1b[K";

std::string height_text(planner::progress const& now) {
  if (now.height == 0) return "no plan yet";
  return "height " + number_text(now.height) + " B, ratio " +
         decimal_text(static_cast<double>(now.height) / static_cast<double>(now.lower_bound), 4);
}

}  // namespace

progress_line::progress_line() : is_on_terminal_{isatty(STDERR_FILENO) == 1} {}

progress_line::~progress_line() {
  if (is_shown_ && is_on_terminal_) std::fputs(erase_line, stderr);
}

void progress_line::show(planner::progress const& now) {
  if (is_shown_ && now.elapsed < shown_at_ + pause) return;
  is_shown_ = true;
  shown_at_ = now.elapsed;
  const std::string line = std::string{now.stage} + ": " + height_text(now) + ", " + number_text(now.nodes) +
                           " blocks placed, " + duration_text(now.elapsed);
  if (is_on_terminal_) {
    std::fprintf(stderr, "%s%s", erase_line, line.c_str());
    std::fflush(stderr);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace tidemark::tools
