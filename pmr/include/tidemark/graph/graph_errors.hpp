// SPDX-License-Identifier: Apache-2.0
/// @file
/// What captures and the resources around them throw at their misuse. Each owns its text.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include <tidemark/graph/graph_layout.hpp>

namespace tidemark {

/// Thrown by a frozen `capture_switch` that has no graph arena and must not call its upstream. Nothing has
/// changed.
class allocator_frozen final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Thrown where blocks are in use that must not be: by `reset`, and by an update of a graph whose body had
/// allocated them, with nothing changed; and by the capture of a graph whose arena shares its memory.
class allocator_busy final : public std::logic_error {
 public:
  /// With a sentence and the number of blocks.
  allocator_busy(std::string const& text, std::size_t blocks) : logic_error{text}, blocks_{blocks} {}
  /// Blocks in use.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }

 private:
  std::size_t blocks_;
};

/// Thrown where a capture did not allocate what was rehearsed. There is no graph then.
class layout_mismatch final : public std::runtime_error {
 public:
  /// With a sentence and both layouts.
  layout_mismatch(std::string const& text, graph_layout const& expected, graph_layout const& found)
      : runtime_error{text}, expected_{expected}, found_{found} {}
  /// What was rehearsed.
  [[nodiscard]] graph_layout const& expected() const noexcept { return expected_; }
  /// What the capture allocated.
  [[nodiscard]] graph_layout const& found() const noexcept { return found_; }

 private:
  graph_layout expected_, found_;
};

/// Thrown where a capture ended without anything in it to be replayed. There is no graph then.
class empty_capture final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tidemark
