// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/slot_life.hpp>

#include <cstdio>
#include <mutex>
#include <new>
#include <string>

#include <tidemark/detail/extents.hpp>
#include <tidemark/workspace_errors.hpp>

namespace tidemark::detail {
namespace {

struct unused_lives {
  std::mutex mutex;
  slot_life* first = nullptr;
};

unused_lives& unused() {
  static auto* const lives = new unused_lives;  // views are looked up until the process is gone
  return *lives;
}

std::string place(std::source_location const& where) {
  return std::string{where.file_name()} + ":" + std::to_string(where.line());
}

}  // namespace

slot_life* take_slot_life(char const* workspace) {
  slot_life* life = nullptr;
  {
    const std::scoped_lock lock{unused().mutex};
    life = unused().first;
    if (life != nullptr) unused().first = life->next_free;
  }
  if (life == nullptr) life = new slot_life;
  life->next_free = nullptr;
  life->first = life->generation;
  std::snprintf(life->workspace, sizeof life->workspace, "%s", workspace);
  return life;
}

void give_slot_life(slot_life* life) noexcept {
  ++life->generation;
  const std::scoped_lock lock{unused().mutex};
  life->next_free = unused().first;
  unused().first = life;
}

void checked_life::throw_stale(char const* element, std::size_t const* extents, std::size_t rank) const {
  const bool is_the_views = generation_ >= slot_->first;  // the name in the record
  std::string text = (is_the_views ? std::string{"workspace '"} + slot_->workspace + "': " : "workspace: ") +
                     shape_text(element, extents, rank) + " acquired at " + place(acquired_) +
                     " is used after its memory was taken back";
  if (slot_->generation == generation_ + 1) text += " by the end of the scope at " + place(slot_->ended);
  throw stale_view{text + "; copy what is to outlive the scope, or acquire it from the scope around it"};
}

}  // namespace tidemark::detail
