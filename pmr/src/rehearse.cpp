// SPDX-License-Identifier: Apache-2.0
#include <tidemark/rehearse.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>

#include <tidemark/out_of_memory.hpp>

#include "require.hpp"

namespace tidemark {
namespace {

using detail::monotone_layout;

constexpr char const* rehearsal_kind = "rehearsal";
constexpr char const* rehearsal_name = "body";

}  // namespace

rehearsal::~rehearsal() {
  if (memory_ == nullptr) return;
  for (auto const& [address, entry] : blocks_.live()) {
    memory_->deallocate(reinterpret_cast<void*>(address), entry.bytes,
                        monotone_layout::block_alignment(entry.align));
  }
}

step_plan rehearsal::plan(plan_options const& options) {
  if (options.alignment < monotone_layout::granule_bytes) {
    throw std::invalid_argument{
        "rehearsal: a graph arena's blocks are aligned to 256 bytes at least, not to " +
        std::to_string(options.alignment)};
  }
  return record_.plan_it(options);
}

void* rehearsal::do_allocate(std::size_t bytes, std::size_t align) {
  detail::require_power_of_two(rehearsal_kind, rehearsal_name, align);
  const std::size_t block_align = monotone_layout::block_alignment(align);
  detail::monotone_layout next = layout_;
  if (!next.align_next(bytes, block_align)) {
    throw out_of_memory{{.resource = rehearsal_kind,
                         .requested_bytes = bytes,
                         .alignment = align,
                         .used_bytes = layout_.high_water_bytes(),
                         .committed_bytes = detail::monotone_layout::bytes_max,
                         .reserved_bytes = detail::monotone_layout::bytes_max,
                         .largest_bytes = layout_.largest_bytes(block_align)}};
  }
  const std::uintptr_t address = next.place(bytes);
  void* block = reinterpret_cast<void*>(address);
  if (memory_ != nullptr) block = memory_->allocate(bytes, block_align);
  try {
    blocks_.add(block, {.bytes = bytes, .align = align});
  } catch (...) {
    if (memory_ != nullptr) memory_->deallocate(block, bytes, block_align);
    throw;
  }
  layout_ = next;
  record_.came(block, {.born = now_++, .died = 0, .bytes = bytes, .align = block_align});
  return block;
}

void rehearsal::do_deallocate(void* block, std::size_t bytes, std::size_t align) {
  if (block == nullptr || !blocks_.remove(rehearsal_kind, rehearsal_name, block, bytes, align)) return;
  record_.goes(block, now_);
  if (memory_ != nullptr) memory_->deallocate(block, bytes, monotone_layout::block_alignment(align));
}

}  // namespace tidemark
