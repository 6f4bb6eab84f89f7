// SPDX-License-Identifier: Apache-2.0
#include <tidemark/graph_arena.hpp>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

#include <tidemark/capture_switch.hpp>
#include <tidemark/detail/align.hpp>
#include <tidemark/graph_errors.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/violation.hpp>

#include "default_upstream.hpp"
#include "require.hpp"

namespace tidemark {
namespace {

using detail::monotone_layout;

constexpr std::size_t granule_bytes = graph_arena::default_alignment;

// The part of a range that blocks can lie in. Not at address 0, which would look like no block; and as much
// as one block may take.
monotone_layout layout_in(byte_range range) noexcept {
  constexpr std::uintptr_t last =
      detail::align_down(std::numeric_limits<std::uintptr_t>::max(), granule_bytes);
  if (range.begin >= last) return {last, last};
  const std::uintptr_t begin = detail::align_up(std::max<std::uintptr_t>(range.begin, 1), granule_bytes);
  const std::uintptr_t end = range.begin + std::min(range.size, last - range.begin);
  if (end <= begin) return {begin, begin};
  return {begin, begin + std::min(detail::align_down(end - begin, granule_bytes), graph_arena::bytes_max)};
}

graph_arena_options completed(graph_arena_options options) noexcept {
  if (options.name == nullptr) options.name = graph_arena_options{}.name;
  return options;
}

byte_range take(std::pmr::memory_resource* upstream, std::size_t bytes, std::size_t align, char const* name) {
  detail::require_power_of_two("graph_arena", name, align);
  if (bytes > graph_arena::bytes_max) {
    throw out_of_memory{{.resource = name,
                         .requested_bytes = bytes,
                         .alignment = align,
                         .used_bytes = 0,
                         .committed_bytes = 0,
                         .reserved_bytes = 0,
                         .largest_bytes = graph_arena::bytes_max}};
  }
  const std::size_t size = detail::align_up(bytes, granule_bytes);
  return {reinterpret_cast<std::uintptr_t>(upstream->allocate(size, monotone_layout::block_alignment(align))),
          size};
}

// What a plan needs in all. Its hash comes later.
graph_layout planned_layout(step_plan const& plan, std::size_t tail_bytes, char const* name) {
  plan.require_valid();
  if (plan.alignment % granule_bytes != 0) {
    throw std::invalid_argument{"graph_arena '" + std::string{name} +
                                "': a plan whose blocks are aligned to " + std::to_string(plan.alignment) +
                                " bytes, and not to 256"};
  }
  std::size_t align = plan.alignment;
  for (planned_block const& block : plan.blocks) align = std::max(align, block.life.alignment);
  return {.bytes = detail::add_saturating(plan.height, tail_bytes), .alignment = align};
}

}  // namespace

graph_arena::graph_arena(byte_range range, graph_arena_options const& options)
    : layout_{layout_in(range)},
      // From calloc, because that gets large tables as pages that read as 0 and are not there until touched.
      granules_{static_cast<granule_count*>(
          std::calloc(std::max<std::size_t>(index_of(layout_.end()), 1), sizeof(granule_count)))},
      options_{completed(options)} {
  if (granules_ == nullptr) throw std::bad_alloc{};
}

graph_arena::graph_arena(byte_range range, std::pmr::memory_resource* upstream, std::size_t upstream_align,
                         graph_arena_options const& options) try
    : graph_arena{range, options} {
  taken_ = range;
  upstream_ = upstream;
  upstream_align_ = upstream_align;
} catch (...) {
  upstream->deallocate(range.data(), range.size, upstream_align);
}

graph_arena::graph_arena(std::size_t bytes, std::pmr::memory_resource* upstream,
                         graph_arena_options const& options)
    : graph_arena{take(detail::or_default(upstream), bytes, granule_bytes, completed(options).name),
                  detail::or_default(upstream), granule_bytes, options} {}

graph_arena::graph_arena(graph_layout const& rehearsed, std::pmr::memory_resource* upstream,
                         graph_arena_options const& options)
    : graph_arena{
          take(detail::or_default(upstream), rehearsed.bytes, rehearsed.alignment, completed(options).name),
          detail::or_default(upstream), monotone_layout::block_alignment(rehearsed.alignment), options} {
  expected_ = rehearsed;
}

graph_arena::graph_arena(step_plan const& rehearsed, std::size_t tail_bytes,
                         std::pmr::memory_resource* upstream, graph_arena_options const& options)
    : graph_arena{planned_layout(rehearsed, tail_bytes, completed(options).name), upstream, options} {
  planned_ = std::make_unique<planned_part>(rehearsed);
  planned_->run.lie_at(layout_.begin(), false);  // graph arenas tell tools nothing of blocks
  begin_planned();
  monotone_layout followed = layout_;
  for (std::size_t i = 0; i < rehearsed.requests; ++i) {
    const detail::step_run::slot& slot = planned_->run.slots()[i];
    followed.note(slot.address, monotone_layout::block_bytes(planned_->run.planned(i).bytes));
  }
  expected_ = followed.layout();
}

graph_arena::~graph_arena() {
  if (known_to_ != nullptr) known_to_->forget(*this);
  if (upstream_ != nullptr) upstream_->deallocate(taken_.data(), taken_.size, upstream_align_);
}

void graph_arena::begin_planned() noexcept {
  layout_.leave(planned_->run.plan().height, planned_->run.alignment());
  layout_.close();
  planned_->run.begin(++planned_->now);
}

void* graph_arena::allocate_slow(std::size_t bytes, std::size_t align) {
  detail::require_power_of_two("graph_arena", name(), align);
  if (planned_ != nullptr) {
    if (void* const block = take_planned(bytes, align)) return block;
  }
  make_room(bytes, align);
  void* const block = place_next(bytes);
  if (planned_ != nullptr) layout_.close();
  return block;
}

// A capture may ask for more, less or other than rehearsed: what fits at its turn, and where nothing lives,
// is as planned. The others do not take the turn of those that come later.
void* graph_arena::take_planned(std::size_t bytes, std::size_t align) {
  detail::step_run& run = planned_->run;
  const std::size_t turn = run.cursor();
  if (!run.fits(turn, bytes, align)) return nullptr;
  run.go_on_at(turn + 1);
  detail::step_run::slot* const slot = run.clear_slot(turn);
  if (slot == nullptr) return nullptr;
  const std::size_t size = monotone_layout::block_bytes(bytes);
  layout_.note(slot->address, size);
  (void)run.hand_over(*slot, bytes, planned_->now);
  return note_use(slot->address, size);
}

void graph_arena::give_by_plan(std::uintptr_t address) noexcept {
  (void)planned_->run.give(address, planned_->now);  // false of one in the tail
}

void graph_arena::make_room(std::size_t bytes, std::size_t align) {
  const std::size_t block_align = monotone_layout::block_alignment(align);
  if (layout_.align_next(bytes, block_align)) return;
  throw out_of_memory{{.resource = name(),
                       .requested_bytes = bytes,
                       .alignment = align,
                       .used_bytes = layout_.high_water_bytes(),
                       .committed_bytes = range().size,
                       .reserved_bytes = range().size,
                       .largest_bytes = layout_.largest_bytes(block_align)}};
}

void graph_arena::refuse(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  ++bad_deallocations_;
  if (options_.bad_deallocate == bad_deallocate_policy::ignore) return;
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(block) - layout_.begin();
  char const* why = "it lies outside its range";
  if (offset < range().size)
    why = "no block in use begins there: it was given back before, or never handed out";
  if (offset < high_water_bytes() && offset % default_alignment == 0 &&
      granules_[offset / default_alignment] != 0)
    why = "the block has another size";
  detail::report_violation(violation_kind::bad_deallocate, name(),
                           "graph_arena '%s': deallocate of %zu bytes at %p: %s", name(), bytes, block, why);
}

void graph_arena::reset() {
  if (used_blocks_ != 0) {
    throw allocator_busy{"graph_arena '" + std::string{name()} + "': reset while " +
                             std::to_string(used_blocks_) + " blocks are in use",
                         used_blocks_};
  }
  layout_.reset();
  if (planned_ != nullptr) begin_planned();
  peak_bytes_ = peak_blocks_ = 0;
  bad_deallocations_ = 0;
}

graph_arena_stats graph_arena::stats() const noexcept {
  const std::uint64_t allocations = layout_.layout().allocations;
  return {.name = name(),
          .allocations = allocations,
          .deallocations = allocations - used_blocks_,
          .bad_deallocations = bad_deallocations_,
          .used_blocks = used_blocks_,
          .peak_blocks = peak_blocks_,
          .used_bytes = used_bytes_,
          .peak_bytes = peak_bytes_,
          .high_water_bytes = high_water_bytes(),
          .reserved_bytes = range().size};
}

void graph_arena::check_invariants() const noexcept {
  const auto require = [this](bool holds, char const* formula) {
    if (!holds) {
      detail::report_violation(violation_kind::invariant, name(), "graph_arena '%s': broken invariant: %s",
                               name(), formula);
    }
  };
  require(high_water_bytes() <= range().size, "high water <= end");
  require(high_water_bytes() % granule_bytes == 0 && range().size % granule_bytes == 0, "multiples of 256");
  std::size_t blocks = 0, granules = 0, free_from = 0;
  const std::size_t high = high_water_bytes() / granule_bytes, all = range().size / granule_bytes;
  for (std::size_t i = 0; i < all; ++i) {
    if (granules_[i] == 0) continue;
    require(i >= free_from, "blocks end at or below the beginning of the next");
    free_from = i + granules_[i];
    ++blocks;
    granules += granules_[i];
  }
  require(free_from <= high, "blocks end at or below the high water");
  require(blocks == used_blocks_, "used_blocks == number of granules != 0");
  require(granules * granule_bytes == used_bytes_, "used_bytes == 256 * sum of granules");
  require(used_bytes_ <= peak_bytes_ && peak_bytes_ <= high_water_bytes(),
          "used_bytes <= peak_bytes <= high water");
}

}  // namespace tidemark
