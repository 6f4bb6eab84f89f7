// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>
#include <tidemark/workspace/workspace.hpp>

namespace tidemark::detail {
namespace {

struct unused_records {
  fork_safe<> mutex;
  slot_generation* first = nullptr;

  ~unused_records() {
    while (first != nullptr) delete std::exchange(first, first->next_free);
  }
};
unused_records& unused() {
  static auto& records = *new until_unload<unused_records>;  // views read records until the process ends
  return records.value;
}

}  // namespace

slot_generation* acquire_slot_generation(char const* workspace) {
  const std::scoped_lock lock{unused().mutex};
  slot_generation* const record = unused().first != nullptr ? unused().first : new slot_generation;
  if (record == unused().first) unused().first = record->next_free;
  record->first = record->number.load(std::memory_order_relaxed);
  std::snprintf(record->workspace, sizeof record->workspace, "%s", workspace);
  return record;
}

void return_slot_generation(slot_generation* record) noexcept {
  record->number.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock{unused().mutex};
  record->next_free = unused().first;
  unused().first = record;
}

void checked_generation::throw_stale(char const* element, std::span<std::size_t const> extents) const {
  std::string name;
  std::string text = "workspace";
  {
    const std::scoped_lock lock{unused().mutex};
    if (number_ >= slot_->first) {  // not the name of another workspace
      name = slot_->workspace;
      text += " '" + name + "'";
    }
  }
  text += ": " + shape_text(element, extents) + " acquired at " + place_text(acquired_) +
          " is used after its memory was freed";
  if (slot_->number.load(std::memory_order_relaxed) == number_ + 1) {
    text += " by the end of the scope at " + place_text(slot_->ended.load(std::memory_order_relaxed));
  }
  text += "; copy the data, or acquire it from the enclosing scope";
  report_violation(by_default::is_not_called, violation_kind::stale_view, name.c_str(), "%s", text.c_str());
  throw stale_view{text};
}

}  // namespace tidemark::detail
