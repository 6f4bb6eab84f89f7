// SPDX-License-Identifier: Apache-2.0
/// @file
/// `same_layout`: compares the offsets of the blocks of all ranks. Owns nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/graph/graph_layout.hpp>
#include <tidemark/mpi/detail/calls.hpp>
#include <tidemark/mpi/detail/mpi_header.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::mpi {

/// Result of a comparison of layouts, the same on all ranks.
struct layout_comparison {
  int rank = -1;                ///< first rank that differs from rank 0; -1: no rank differs
  std::string difference = {};  ///< one sentence with rank and place; empty if no rank differs

  /// Returns true if all layouts are the same.
  explicit operator bool() const noexcept { return rank < 0; }
};

namespace detail {

/// A layout as numbers, each with a name for messages.
struct layout_numbers {
  std::vector<std::uint64_t> values;
  /// `name(i)` is the name of value `i`. A function, because names are needed only if ranks differ.
  std::function<std::string(std::size_t index)> name;
};

[[nodiscard]] inline layout_comparison compare_layouts(MPI_Comm comm, layout_numbers const& mine) {
  const returned_errors returned{comm};
  int rank = 0;
  require_success(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");

  // FNV-1a over the values. All hashes are equal if the largest equals the smallest: the maximum of `~hash`
  // is the complement of the minimum.
  std::uint64_t hash = tidemark::detail::fnv_basis;
  for (std::uint64_t value : mine.values) hash = tidemark::detail::fnv_more(hash, value);
  std::array<std::uint64_t, 2> bounds{hash, ~hash};
  require_success(MPI_Allreduce(MPI_IN_PLACE, bounds.data(), 2, MPI_UINT64_T, MPI_MAX, comm),
                  "MPI_Allreduce");
  if (bounds[0] == ~bounds[1]) return {};

  // Each rank compares its values with rank 0's, and the first rank that differs informs the others. The
  // values are sent in pieces, because no rank may need memory for them between collective calls.
  std::array<std::uint64_t, 4096> of_rank_0;
  const std::uint64_t own_count = mine.values.size();
  std::uint64_t count = own_count;
  require_success(MPI_Bcast(&count, 1, MPI_UINT64_T, 0, comm), "MPI_Bcast");
  std::uint64_t index = (std::min)(count, own_count);  // of the first difference, if any
  std::uint64_t value_of_rank_0 = 0;
  bool differs = count != own_count;
  bool found = false;
  for (std::uint64_t first = 0; first < count; first += of_rank_0.size()) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(of_rank_0.size(), count - first));
    if (rank == 0)
      std::copy_n(mine.values.begin() + static_cast<std::ptrdiff_t>(first), n, of_rank_0.begin());
    require_success(MPI_Bcast(of_rank_0.data(), static_cast<int>(n), MPI_UINT64_T, 0, comm), "MPI_Bcast");
    for (std::size_t i = 0; i < n && !found; ++i) {
      found = first + i >= own_count || mine.values[first + i] != of_rank_0[i];
      if (found) index = first + i, value_of_rank_0 = of_rank_0[i];
    }
  }
  differs = differs || found;
  int different = differs ? rank : (std::numeric_limits<int>::max)();
  require_success(MPI_Allreduce(MPI_IN_PLACE, &different, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  // The index, the presence and value of this rank's number, and the same of rank 0.
  std::array<std::uint64_t, 5> place{};
  if (differs)
    place = {index, index < own_count, index < own_count ? mine.values[index] : 0, index < count,
             value_of_rank_0};
  require_success(MPI_Bcast(place.data(), 5, MPI_UINT64_T, different, comm), "MPI_Bcast");
  const auto text_of = [](std::uint64_t is_there, std::uint64_t number) {
    return is_there != 0 ? std::to_string(number) : std::string{"nothing"};
  };
  return {different, "rank " + std::to_string(different) + " has " + text_of(place[1], place[2]) + " as " +
                         mine.name(place[0]) + ", and rank 0 has " + text_of(place[3], place[4])};
}

}  // namespace detail

/// Compares plans: requests, sizes, lifetimes and offsets. Collective. Ranks with equal plans have each block
/// of a step at the same offset from their memory's first byte. One address of a rank therefore identifies
/// all blocks, and a persistent collective fits on all ranks.
///
/// Equal plans take one reduction of 16 bytes; otherwise rank 0's plan is sent to all. Equality is tested by
/// a hash of 64 bits (FNV-1a), which misses a difference once in 2^64.
/// @throws mpi_error; std::invalid_argument for MPI_COMM_NULL; std::bad_alloc, before the first message: the
/// other ranks then wait, as for any rank that does not call.
[[nodiscard]] inline layout_comparison same_layout(MPI_Comm comm, step_plan const& plan) {
  // Requests come before offsets, because the first difference should be a cause.
  std::vector<std::uint64_t> values{plan.requests, plan.blocks.size(), plan.alignment};
  for (planned_block const& block : plan.blocks)
    values.insert(values.end(),
                  {block.request, block.life.lower, block.life.upper, block.life.size, block.life.alignment});
  for (planned_block const& block : plan.blocks) values.push_back(block.life.offset.value_or(0));
  values.push_back(plan.height);
  const auto name = [blocks = plan.blocks.size()](std::size_t index) -> std::string {
    constexpr std::array<char const*, 3> of_plan{"number of requests", "number of blocks", "alignment"};
    constexpr std::array<char const*, 5> of_block{"request", "lower end", "upper end", "size", "alignment"};
    if (index < of_plan.size()) return std::string{"the "} + of_plan[index] + " of the plan";
    index -= of_plan.size();
    if (index < 5 * blocks)
      return std::string{"the "} + of_block[index % 5] + " of block " + std::to_string(index / 5);
    index -= 5 * blocks;
    return index < blocks ? "the offset of block " + std::to_string(index) : "the height of the plan";
  };
  return detail::compare_layouts(comm, {std::move(values), name});
}

/// Compares results of `rehearse` or `graph_arena::layout()`, which have a hash of the offsets.
[[nodiscard]] inline layout_comparison same_layout(MPI_Comm comm, graph_layout const& layout) {
  return detail::compare_layouts(
      comm, {{layout.allocations, layout.bytes, layout.alignment, layout.hash}, [](std::size_t index) {
               constexpr std::array<char const*, 4> names{"the number of blocks", "the bytes of all blocks",
                                                          "the alignment", "the hash of offsets and sizes"};
               return std::string{names[index]};
             }});
}

/// Compares offsets, in bytes from the first byte of each rank's memory.
[[nodiscard]] inline layout_comparison same_layout(MPI_Comm comm, std::span<std::size_t const> offsets) {
  return detail::compare_layouts(comm, {{offsets.begin(), offsets.end()},
                                        [](std::size_t index) { return "offset " + std::to_string(index); }});
}

}  // namespace tidemark::mpi
