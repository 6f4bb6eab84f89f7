// SPDX-License-Identifier: Apache-2.0
#include <tidemark/rehearse.hpp>

#include <algorithm>

#include <tidemark/graph_arena.hpp>
#include <tidemark/out_of_memory.hpp>

#include "require.hpp"

namespace tidemark {
namespace {

constexpr char const* kind = "rehearsal";
constexpr char const* name = "body";

constexpr std::size_t at_least_a_granule(std::size_t align) noexcept {
  return std::max(align, graph_arena::default_alignment);
}

}  // namespace

rehearsal::~rehearsal() {
  if (memory_ == nullptr) return;
  for (auto const& [address, entry] : blocks_.live()) {
    memory_->deallocate(reinterpret_cast<void*>(address), entry.bytes, at_least_a_granule(entry.align));
  }
}

void* rehearsal::do_allocate(std::size_t bytes, std::size_t align) {
  detail::require_power_of_two(kind, name, align);
  detail::monotone_layout next = layout_;
  const bool fits = bytes <= graph_arena::bytes_max &&
                    next.high_water_bytes() <= graph_arena::bytes_max - bytes &&
                    next.align_next(bytes, at_least_a_granule(align));
  if (!fits) {
    throw out_of_memory{{.resource = kind,
                         .requested_bytes = bytes,
                         .alignment = align,
                         .used_bytes = next.high_water_bytes(),
                         .committed_bytes = graph_arena::bytes_max,
                         .reserved_bytes = graph_arena::bytes_max,
                         .largest_bytes = graph_arena::bytes_max - next.high_water_bytes()}};
  }
  const std::uintptr_t address = next.place(bytes);
  void* block = reinterpret_cast<void*>(address);
  if (memory_ != nullptr) block = memory_->allocate(bytes, at_least_a_granule(align));
  try {
    blocks_.add(block, {.bytes = bytes, .align = align});
  } catch (...) {
    if (memory_ != nullptr) memory_->deallocate(block, bytes, at_least_a_granule(align));
    throw;
  }
  layout_ = next;
  return block;
}

void rehearsal::do_deallocate(void* block, std::size_t bytes, std::size_t align) {
  if (!blocks_.remove(kind, name, block, bytes, align)) return;
  if (memory_ != nullptr) memory_->deallocate(block, bytes, at_least_a_granule(align));
}

}  // namespace tidemark
