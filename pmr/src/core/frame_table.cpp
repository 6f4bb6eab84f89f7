// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/frame_table.hpp>

#include <atomic>

namespace tidemark::detail {
namespace {

std::atomic<frame_table*> installed_frames{nullptr};

frame_table* table() noexcept { return installed_frames.load(std::memory_order_acquire); }

}  // namespace

void install_frame_table(frame_table& table) noexcept {
  installed_frames.store(&table, std::memory_order_release);
}

void report_frames_in(std::uintptr_t first, std::uintptr_t last, char const* kind,
                      char const* resource) noexcept {
  if (frame_table* const frames = table()) frames->report_in(first, last, kind, resource);
}

std::size_t report_frames_of(std::pmr::memory_resource const& memory, char const* kind,
                             char const* resource) noexcept {
  frame_table* const frames = table();
  return frames != nullptr ? frames->report_of(memory, kind, resource) : 0;
}

void untrack_frames_in(std::uintptr_t first, std::uintptr_t last) noexcept {
  if (frame_table* const frames = table()) frames->untrack_in(first, last);
}

void untrack_frames_of(std::pmr::memory_resource const& memory) noexcept {
  if (frame_table* const frames = table()) frames->untrack_of(memory);
}

}  // namespace tidemark::detail
