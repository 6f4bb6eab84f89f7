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
  const std::scoped_lock lock{unused().mutex};
  slot_life* const life = unused().first != nullptr ? unused().first : new slot_life;
  if (life == unused().first) unused().first = life->next_free;
  life->next_free = nullptr;
  life->first = life->generation.load(std::memory_order_relaxed);
  std::snprintf(life->workspace, sizeof life->workspace, "%s", workspace);
  return life;
}

void give_slot_life(slot_life* life) noexcept {
  life->generation.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock{unused().mutex};
  life->next_free = unused().first;
  unused().first = life;
}

void checked_life::throw_stale(char const* element, std::size_t const* extents, std::size_t rank) const {
  std::string text = "workspace";
  {
    const std::scoped_lock lock{unused().mutex};
    if (generation_ >= slot_->first) text += std::string{" '"} + slot_->workspace + "'";  // no other's name
  }
  text += ": " + shape_text(element, extents, rank) + " acquired at " + place(acquired_) +
          " is used after its memory was taken back";
  const std::source_location ended = slot_->ended.load(std::memory_order_relaxed);
  if (slot_->generation.load(std::memory_order_relaxed) == generation_ + 1) {
    text += " by the end of the scope at " + place(ended);
  }
  throw stale_view{text + "; copy what is to outlive the scope, or acquire it from the scope around it"};
}

}  // namespace tidemark::detail
