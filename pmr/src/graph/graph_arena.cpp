// SPDX-License-Identifier: Apache-2.0
#include <tidemark/graph/graph_arena.hpp>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_errors.hpp>

namespace tidemark {
namespace {

using detail::monotone_layout;

constexpr std::size_t granule_bytes = graph_arena::default_alignment;

// Returns the usable part of a range: not address 0, which looks like no block, and at most `max_bytes`.
monotone_layout layout_in(byte_range range) noexcept {
  constexpr std::uintptr_t last =
      detail::align_down(std::numeric_limits<std::uintptr_t>::max(), granule_bytes);
  if (range.begin >= last) return {last, last};
  const std::uintptr_t begin = detail::align_up(std::max<std::uintptr_t>(range.begin, 1), granule_bytes);
  const std::uintptr_t end = range.begin + std::min(range.size, last - range.begin);
  if (end <= begin) return {begin, begin};
  return {begin, begin + std::min(detail::align_down(end - begin, granule_bytes), graph_arena::max_bytes)};
}

graph_arena_options completed(graph_arena_options options) noexcept {
  if (options.name == nullptr) options.name = graph_arena_options{}.name;
  return options;
}

std::shared_ptr<unique_block const> allocate_block_of(std::pmr::memory_resource* upstream,
                                                      graph_layout const& layout, char const* name) {
  detail::require_power_of_two("graph_arena", name, layout.alignment);
  if (layout.bytes > graph_arena::max_bytes) {
    throw out_of_memory{{.resource = name,
                         .requested_bytes = layout.bytes,
                         .alignment = layout.alignment,
                         .largest_bytes = graph_arena::max_bytes}};
  }
  return std::make_shared<unique_block const>(upstream, detail::align_up(layout.bytes, granule_bytes),
                                              monotone_layout::block_alignment(layout.alignment));
}

// @throws std::invalid_argument if the memory is null or empty
byte_range whole(unique_block const* memory, char const* name) {
  if (memory != nullptr && *memory) return {detail::address_of(memory->data()), memory->bytes()};
  throw std::invalid_argument{"graph_arena '" + std::string{name} +
                              "': the memory to be shared is null or empty"};
}

// Bytes of the planned part, rounded up to whole granules; the tail begins there.
std::size_t planned_bytes(step_plan const& plan) noexcept {
  return plan.height < graph_arena::max_bytes ? detail::align_up(plan.height, granule_bytes) : plan.height;
}

// Returns the memory that a plan needs, including the tail. `add_plan` sets the hash later.
graph_layout planned_layout(step_plan const& plan, std::size_t tail_bytes, char const* name) {
  plan.require_valid();
  if (plan.alignment % granule_bytes != 0) {
    throw std::invalid_argument{"graph_arena '" + std::string{name} + "': the plan's alignment is " +
                                std::to_string(plan.alignment) + " bytes, not a multiple of 256"};
  }
  std::size_t align = plan.alignment;
  for (planned_block const& block : plan.blocks) align = std::max(align, block.life.alignment);
  return {.bytes = detail::add_saturating(planned_bytes(plan), tail_bytes), .alignment = align};
}

}  // namespace

void detail::throw_out_of_layout(char const* resource, monotone_layout const& layout, std::size_t bytes,
                                 std::size_t align, char const* because) {
  throw out_of_memory{{.resource = resource,
                       .requested_bytes = bytes,
                       .alignment = align,
                       .used_bytes = layout.high_water_bytes(),
                       .committed_bytes = layout.end() - layout.begin(),
                       .reserved_bytes = layout.end() - layout.begin(),
                       .largest_bytes = layout.largest_bytes(monotone_layout::block_alignment(align)),
                       .because = because}};
}

graph_arena::graph_arena(byte_range range, graph_arena_options const& options)
    : layout_{layout_in(range)},
      // calloc maps large tables as zero pages that are committed only when touched.
      granules_{static_cast<granule_count*>(
                    std::calloc(std::max<std::size_t>(index_of(layout_.end()), 1), sizeof(granule_count))),
                std::free},
      options_{completed(options)} {
  if (granules_ == nullptr) throw std::bad_alloc{};
}

graph_arena::graph_arena(std::size_t bytes, std::pmr::memory_resource* upstream,
                         graph_arena_options const& options)
    : graph_arena{graph_layout{.bytes = bytes}, upstream, options} {
  expected_.reset();
}

graph_arena::graph_arena(graph_layout const& rehearsed, std::pmr::memory_resource* upstream,
                         graph_arena_options const& options)
    : graph_arena{rehearsed,
                  allocate_block_of(detail::or_default(upstream), rehearsed, completed(options).name),
                  options} {
  upstream_ = detail::or_default(upstream);
}

graph_arena::graph_arena(step_plan const& rehearsed, std::size_t tail_bytes,
                         std::pmr::memory_resource* upstream, graph_arena_options const& options)
    : graph_arena{planned_layout(rehearsed, tail_bytes, completed(options).name), upstream, options} {
  add_plan(rehearsed);
}

graph_arena::graph_arena(std::shared_ptr<unique_block const> memory, graph_arena_options const& options)
    : graph_arena{whole(memory.get(), completed(options).name), options} {
  memory_ = std::move(memory);
}

graph_arena::graph_arena(graph_layout const& rehearsed, std::shared_ptr<unique_block const> memory,
                         graph_arena_options const& options)
    : graph_arena{std::move(memory), options} {
  detail::require_power_of_two("graph_arena", name(), rehearsed.alignment);
  if (layout_.begin() % rehearsed.alignment != 0 || rehearsed.bytes > range().size)
    detail::throw_out_of_layout(name(), layout_, rehearsed.bytes, rehearsed.alignment);
  expected_ = rehearsed;
}

graph_arena::graph_arena(step_plan const& rehearsed, std::shared_ptr<unique_block const> memory,
                         graph_arena_options const& options)
    : graph_arena{planned_layout(rehearsed, 0, completed(options).name), std::move(memory), options} {
  add_plan(rehearsed);
}

void graph_arena::add_plan(step_plan const& rehearsed) {
  planned_ = std::make_unique<detail::plan_replayer>(rehearsed);
  planned_->bind(layout_.begin(), false);  // false: graph arenas do not report blocks to tools
  begin_planned();
  monotone_layout followed = layout_;
  for (std::size_t i = 0; i < rehearsed.requests; ++i) {
    const detail::plan_replayer::slot& slot = planned_->all_slots()[i];
    followed.count_block(slot.address, monotone_layout::block_bytes(planned_->planned_bytes(i)));
  }
  expected_ = followed.layout();
}

graph_arena::~graph_arena() {
  if (recognising_switch_ != nullptr) recognising_switch_->forget(*this);
}

void graph_arena::begin_planned() noexcept {
  layout_.reserve_front(planned_bytes(planned_->plan()), planned_->alignment());
  layout_.close();
  planned_->begin(++now_);
}

void* graph_arena::allocate_slow(std::size_t bytes, std::size_t align) {
  detail::require_power_of_two("graph_arena", name(), align);
  if (planned_ != nullptr) {
    if (void* const block = allocate_planned(bytes, align)) return block;
  }
  if (!layout_.align_next(bytes, monotone_layout::block_alignment(align))) {
    detail::throw_out_of_layout(
        name(), layout_, bytes, align,
        expected_ ? "the rehearsal needed less: rehearse again with the same inputs" : "");
  }
  void* const block = place_next(bytes);
  if (planned_ != nullptr) layout_.close();
  return block;
}

// A capture may differ from the rehearsal. A request follows the plan if it fits the next slot and no live
// block overlaps the slot. Other requests leave the slots of later requests free.
void* graph_arena::allocate_planned(std::size_t bytes, std::size_t align) {
  detail::plan_replayer& run = *planned_;
  const std::size_t next = run.cursor();
  if (!run.fits(next, bytes, align)) return nullptr;
  run.advance_to(next + 1);
  detail::plan_replayer::slot* const slot = run.clear_slot(next, [](auto const&) { return true; });
  if (slot == nullptr) return nullptr;
  const std::size_t size = monotone_layout::block_bytes(bytes);
  layout_.count_block(slot->address, size);
  (void)run.assign(*slot, bytes, now_);
  return count_use(slot->address, size);
}

void graph_arena::deallocate_planned(std::uintptr_t address) noexcept {
  (void)planned_->deallocate(address, now_);  // false for a block in the tail
}

void graph_arena::refuse(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  ++bad_deallocations_;
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(block) - layout_.begin();
  char const* why = "it lies outside its range";
  if (offset < range().size)
    why = "no block in use begins there: it was deallocated before, or never allocated";
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
          .peak_blocks = std::max(peak_blocks_, used_blocks_),
          .used_bytes = used_bytes_,
          .peak_bytes = std::max(peak_bytes_, used_bytes_),
          .high_water_bytes = high_water_bytes(),
          .reserved_bytes = range().size};
}

void graph_arena::check_invariants() const noexcept {
  const detail::invariant_check require{"graph_arena", name()};
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
  require(std::max(used_bytes_, peak_bytes_) <= high_water_bytes(), "used_bytes, peak_bytes <= high water");
}

}  // namespace tidemark
