// SPDX-License-Identifier: Apache-2.0
// Texts of a workspace: its description, and the message of an escape.
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <tidemark/workspace/detail/workspace_core.hpp>
#include <tidemark/workspace/workspace.hpp>

namespace tidemark::detail {
namespace {

std::string bytes_text(std::size_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < units.size(); ++unit) amount /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", amount, units[unit]);
  return text;
}

std::string counted(std::size_t n, char const* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

std::string describe(workspace_core const& core) {
  workspace_stats const now = core.stats();
  return std::string{"workspace '"} + now.name + "': checks " + (core.checked() ? "1" : "0") +
         (core.pooling() ? "" : ", pooling off") + ", " + counted(now.types, "type") + ", " +
         counted(now.slot_count, "slot") + " (" + std::to_string(now.active_slots) + " active), " +
         bytes_text(now.held_bytes);
}

std::string report(workspace_core const& core) {
  std::string text = describe(core);
  core.for_each_type([&](workspace_type_stats const& one) {
    text += std::string{"\n  "} + one.element + ": " + counted(one.slot_count, "slot") + " (" +
            std::to_string(one.active_slots) + " active), " + counted(one.elements, "element") + " in use, " +
            bytes_text(one.held_bytes);
  });
  return text;
}

void throw_escape(workspace_core const& core, workspace_core::overlap escaping, std::source_location where) {
  const auto [list, taken] = escaping;
  element_info const& element = *list->element;
  const std::array extents{taken->size * element.elements};
  throw workspace_escape{std::string{"workspace '"} + core.options().name +
                         "': " + shape_text(element.name, extents) + " acquired at " +
                         place_text(taken->generation->acquired) + " would leave its scope at " +
                         place_text(where) + "; return a copy, or acquire it from the enclosing scope"};
}

void throw_ended_scope(std::source_location opened) {
  throw std::logic_error{"acquisition through a workspace's scope that has ended, opened at " +
                         place_text(opened)};
}

}  // namespace tidemark::detail
