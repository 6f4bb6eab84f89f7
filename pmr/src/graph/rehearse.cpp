// SPDX-License-Identifier: Apache-2.0
#include <tidemark/graph/rehearse.hpp>

#include <stdexcept>
#include <string>

#include <tidemark/core/detail/request.hpp>

#include "../plan/replay/step_records.hpp"

namespace tidemark {
namespace {

using detail::monotone_layout;

constexpr char const* rehearsal_kind = "rehearsal";
constexpr char const* rehearsal_name = "body";

}  // namespace

rehearsal::rehearsal(std::pmr::memory_resource* memory)
    : recorder_{std::make_unique<detail::step_recorder>()}, memory_{memory} {}

rehearsal::~rehearsal() {
  if (memory_ == nullptr) return;
  for (auto const& [address, entry] : blocks_.live()) {
    memory_->deallocate(reinterpret_cast<void*>(address), entry.bytes,
                        monotone_layout::block_alignment(entry.align));
  }
}

step_plan rehearsal::plan(std::size_t alignment) {
  if (alignment < monotone_layout::granule_bytes) {
    throw std::invalid_argument{
        "rehearsal: a graph arena's blocks are aligned to 256 bytes at least, not to " +
        std::to_string(alignment)};
  }
  return detail::plan_of(detail::learn(*recorder_), {.alignment = alignment});
}

void* rehearsal::do_allocate(std::size_t bytes, std::size_t align) {
  detail::require_power_of_two(rehearsal_kind, rehearsal_name, align);
  const std::size_t block_align = monotone_layout::block_alignment(align);
  monotone_layout next = layout_;
  if (!next.align_next(bytes, block_align))
    detail::throw_out_of_layout(rehearsal_kind, layout_, bytes, align);
  const std::uintptr_t address = next.place(bytes);
  void* block = reinterpret_cast<void*>(address);
  if (memory_ != nullptr) block = detail::allocate_from(*memory_, rehearsal_name, bytes, block_align);
  try {
    blocks_.add({block, bytes, align});
  } catch (...) {
    if (memory_ != nullptr) memory_->deallocate(block, bytes, block_align);
    throw;
  }
  layout_ = next;
  recorder_->on_allocate(block, {.born = now_++, .died = 0, .bytes = bytes, .align = block_align});
  return block;
}

void rehearsal::do_deallocate(void* block, std::size_t bytes, std::size_t align) {
  detail::late_reports late;
  if (block == nullptr || !blocks_.remove(rehearsal_kind, rehearsal_name, block, bytes, align)) return;
  recorder_->on_deallocate(block, bytes, now_);
  if (memory_ != nullptr) memory_->deallocate(block, bytes, monotone_layout::block_alignment(align));
}

}  // namespace tidemark
