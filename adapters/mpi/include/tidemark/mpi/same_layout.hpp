// SPDX-License-Identifier: Apache-2.0
/// @file
/// `same_layout`: whether the blocks of all ranks lie at the same offsets. Owns nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/detail/fnv.hpp>
#include <tidemark/graph/graph_layout.hpp>
#include <tidemark/mpi/detail/calls.hpp>
#include <tidemark/mpi/detail/mpi_header.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::mpi {

/// What ranks found when they compared their layouts: the same on all of them.
struct layout_comparison {
  int rank = -1;                ///< the first that differs from rank 0; -1: none does
  std::string difference = {};  ///< one sentence that names rank and place; empty if none differs

  /// Whether all layouts are the same.
  explicit operator bool() const noexcept { return rank < 0; }
};

namespace detail {

/// A layout as numbers, each of which has a name in messages.
struct layout_numbers {
  std::vector<std::uint64_t> values;
  /// `name(i)` is what value `i` is. A function, because names are needed only if ranks differ.
  std::string (*name)(std::size_t index);
};

[[nodiscard]] inline layout_comparison compare_layouts(MPI_Comm comm, layout_numbers const& mine) {
  const returned_errors returned{comm};
  int rank = 0;
  require_success(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");

  // FNV-1a over the values. If the largest and the smallest hash are one, all are: of `~hash` the maximum
  // is the complement of the minimum.
  std::uint64_t hash = tidemark::detail::fnv_basis;
  for (std::uint64_t value : mine.values) hash = tidemark::detail::fnv_more(hash, value);
  std::array<std::uint64_t, 2> bounds{hash, ~hash};
  require_success(MPI_Allreduce(MPI_IN_PLACE, bounds.data(), 2, MPI_UINT64_T, MPI_MAX, comm),
                  "MPI_Allreduce");
  if (bounds[0] == ~bounds[1]) return {};

  // Each compares its own with rank 0's, and the first rank that differs tells the others.
  std::uint64_t count = mine.values.size();
  require_success(MPI_Bcast(&count, 1, MPI_UINT64_T, 0, comm), "MPI_Bcast");
  std::vector<std::uint64_t> first = mine.values;
  first.resize(count);
  constexpr std::size_t values_max = std::size_t{1} << 20;  // in one call, whose count is an int
  for (std::size_t i = 0; i < count; i += values_max) {
    const int n = static_cast<int>(std::min<std::size_t>(values_max, count - i));
    require_success(MPI_Bcast(first.data() + i, n, MPI_UINT64_T, 0, comm), "MPI_Bcast");
  }
  const auto [at_first, at_mine] = std::ranges::mismatch(first, mine.values);
  const bool has_value = at_mine != mine.values.end();
  const bool differs = has_value || at_first != first.end();
  int different = differs ? rank : std::numeric_limits<int>::max();
  require_success(MPI_Allreduce(MPI_IN_PLACE, &different, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  std::array<std::uint64_t, 3> place{};  // the index, whether that rank has a value there, and which
  if (differs)
    place = {static_cast<std::uint64_t>(at_mine - mine.values.begin()), has_value, has_value ? *at_mine : 0};
  require_success(MPI_Bcast(place.data(), 3, MPI_UINT64_T, different, comm), "MPI_Bcast");
  const auto [index, is_there, value] = place;
  const auto text_of = [](bool there, std::uint64_t number) {
    return there ? std::to_string(number) : std::string{"nothing"};
  };
  return {different, "rank " + std::to_string(different) + " has " + text_of(is_there != 0, value) + " as " +
                         mine.name(index) + ", and rank 0 has " +
                         text_of(index < count, index < count ? first[index] : 0)};
}

}  // namespace detail

/// Compares plans: requests, sizes, lifetimes and offsets. Collective. Ranks whose plans are the same find
/// each block of a step at the same offset from their memory's first byte, so one address of a rank is
/// enough to name all of them, and a persistent collective fits on all.
///
/// One reduction of 16 bytes where they are the same. Where they differ, rank 0's plan goes to all. That they
/// are the same is known by a hash of 64 bits (FNV-1a), so a difference is missed once in 2^64.
/// @throws mpi_error; std::bad_alloc
[[nodiscard]] inline layout_comparison same_layout(MPI_Comm comm, step_plan const& plan) {
  std::vector<std::uint64_t> values{plan.requests, plan.alignment, plan.height};
  for (planned_block const& block : plan.blocks)
    values.insert(values.end(), {block.request, block.life.lower, block.life.upper, block.life.size,
                                 block.life.alignment, block.life.offset.value_or(0)});
  return detail::compare_layouts(
      comm, {std::move(values), [](std::size_t index) {
               constexpr std::array<char const*, 3> of_plan{"number of requests", "alignment", "height"};
               constexpr std::array<char const*, 6> of_block{"request", "lower end", "upper end",
                                                             "size",    "alignment", "offset"};
               if (index < of_plan.size()) return std::string{"the "} + of_plan[index] + " of the plan";
               index -= of_plan.size();
               return std::string{"the "} + of_block[index % 6] + " of block " + std::to_string(index / 6);
             }});
}

/// The same of what `rehearse` found, or of `graph_arena::layout()`, which has a hash of the offsets.
[[nodiscard]] inline layout_comparison same_layout(MPI_Comm comm, graph_layout const& layout) {
  return detail::compare_layouts(
      comm, {{layout.allocations, layout.bytes, layout.alignment, layout.hash}, [](std::size_t index) {
               constexpr std::array<char const*, 4> names{"the number of blocks", "the bytes of all blocks",
                                                          "the alignment", "the hash of offsets and sizes"};
               return std::string{names[index]};
             }});
}

/// The same of offsets, in bytes from the first byte of each rank's memory.
[[nodiscard]] inline layout_comparison same_layout(MPI_Comm comm, std::span<std::size_t const> offsets) {
  return detail::compare_layouts(comm, {{offsets.begin(), offsets.end()},
                                        [](std::size_t index) { return "offset " + std::to_string(index); }});
}

}  // namespace tidemark::mpi
