// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exceptions of captures and of the resources around them. Each owns its text.
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

/// Thrown if blocks are in use that must not be. `reset` and the update of a graph throw it with nothing
/// changed. The capture of a graph with a shared arena throws it if blocks outlive the body.
class allocator_busy final : public std::logic_error {
 public:
  /// @param text a sentence @param blocks number of blocks in use
  allocator_busy(std::string const& text, std::size_t blocks) : logic_error{text}, blocks_{blocks} {}
  /// Number of blocks in use.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }

 private:
  std::size_t blocks_;
};

/// Thrown if a capture did not allocate as rehearsed. No graph exists then.
class layout_mismatch final : public std::runtime_error {
 public:
  /// @param text a sentence @param expected the rehearsed layout @param found the layout of the capture
  layout_mismatch(std::string const& text, graph_layout const& expected, graph_layout const& found)
      : runtime_error{text}, expected_{expected}, found_{found} {}
  /// The rehearsed layout.
  [[nodiscard]] graph_layout const& expected() const noexcept { return expected_; }
  /// The layout of the capture.
  [[nodiscard]] graph_layout const& found() const noexcept { return found_; }

 private:
  graph_layout expected_, found_;
};

/// Thrown if a capture recorded nothing to replay. No graph exists then.
class empty_capture final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tidemark
