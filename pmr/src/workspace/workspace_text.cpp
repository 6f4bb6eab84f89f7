// SPDX-License-Identifier: Apache-2.0
// Texts of workspaces and views, and the records of generations, from which a view makes its message.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>
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

struct unused_records {
  fork_safe<> mutex;
  slot_generation* first = nullptr;
  // Names of all workspaces with checked slots, because views outlive the workspaces. No std::set of strings:
  // MemorySanitizer does not see the writes of the C++ library.
  std::vector<std::vector<char>> names;

  ~unused_records() {
    while (first != nullptr) delete std::exchange(first, first->next_free);
  }
};
unused_records& unused() {
  static auto& records = *new until_unload<unused_records>;  // views read records until the process ends
  return records.value;
}

}  // namespace

std::string workspace_core::describe() const {
  workspace_stats const now = stats();
  return std::string{"workspace '"} + now.name + "': checks " + (checked_ ? "1" : "0") +
         (pooling_ ? "" : ", pooling off") + ", " + counted(now.types, "type") + ", " +
         counted(now.slot_count, "slot") + " (" + std::to_string(now.active_slots) + " active), " +
         bytes_text(now.held_bytes);
}

std::string workspace_core::report() const {
  std::string text = describe();
  for_each_type([&](workspace_type_stats const& one) {
    text += std::string{"\n  "} + one.element + ": " + counted(one.slot_count, "slot") + " (" +
            std::to_string(one.active_slots) + " active), " + counted(one.elements, "element") + " in use, " +
            bytes_text(one.held_bytes);
  });
  return text;
}

void throw_ended_scope(std::source_location opened) {
  throw std::logic_error{"acquisition through a workspace's scope that has ended, opened at " +
                         place_text(opened)};
}

// ---- stale views -----------------------------------------------------------------------------------------

slot_generation* acquire_slot_generation(char const* workspace) {
  const std::scoped_lock lock{unused().mutex};
  std::vector<std::vector<char>>& names = unused().names;
  auto name =
      std::ranges::find_if(names, [&](auto& each) { return std::strcmp(each.data(), workspace) == 0; });
  if (name == names.end()) {
    names.emplace_back(workspace, workspace + std::strlen(workspace) + 1);
    name = names.end() - 1;
  }
  slot_generation* const record = unused().first != nullptr ? unused().first : new slot_generation;
  unused().first = record->next_free;
  record->workspace = name->data();
  return record;
}

void return_slot_generation(slot_generation& record) noexcept {
  record.number.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock{unused().mutex};
  record.next_free = std::exchange(unused().first, &record);
}

void checked_generation::throw_stale(char const* element, std::span<std::size_t const> extents) const {
  std::string text = std::string{"workspace '"} + workspace_ + "': " + shape_text(element, extents) +
                     " acquired at " + place_text(acquired_) + " is used after its memory was freed";
  if (slot_->number.load(std::memory_order_relaxed) == number_ + 1) {
    text += " by the end of the scope at " + place_text(slot_->ended.load(std::memory_order_relaxed));
  }
  text += "; copy the data, or acquire it from the enclosing scope";
  report_violation(by_default::is_not_called, violation_kind::stale_view, workspace_, "%s", text.c_str());
  throw stale_view{text};
}

}  // namespace tidemark::detail
