// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensor headers of one slot: the last few shapes it was asked for, ready to be handed out again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include <tidemark/dlpack.hpp>

namespace tidemark::detail {

/// Most extents of a tensor that has a header.
inline constexpr std::size_t tensor_rank_max = 8;

/// Most headers of a slot, where their number has a limit.
inline constexpr unsigned cache_ways_max = 16;

/// One header, with room for its extents.
struct tensor_header {
  dl_tensor tensor;  // set with the shape, before anybody sees it
  bool column_major = false;
  std::array<std::int64_t, tensor_rank_max> shape{};
  std::array<std::int64_t, tensor_rank_max> strides{};
};

/// A few headers, which never move: a program in C may keep their addresses. With a limit a slot has one
/// chunk.
///
/// Invariant: `used <= capacity`; the headers follow the chunk in memory.
struct header_chunk {
  header_chunk* next = nullptr;
  std::size_t capacity = 0;
  std::size_t used = 0;
  std::size_t oldest = 0;  // the one that a further shape replaces, where there is a limit
  [[nodiscard]] tensor_header* headers() noexcept { return reinterpret_cast<tensor_header*>(this + 1); }
};

/// What is looked for.
struct header_key {
  void* data;
  std::size_t const* extents;
  std::size_t rank;
  bool column_major;
  dl_data_type type;
};

/// How a workspace makes headers.
struct header_source {
  std::pmr::memory_resource* bookkeeping;
  unsigned ways;  // for each slot; unlimited_cache_ways: as many as there are shapes
  dl_device device;
  std::size_t made = 0;  // headers in use, by all slots
};

/// The header of these extents in the chunks that begin with `first`: one made before, the same address each
/// time; else a new one, in the place of the oldest where there is a limit. O(headers of the slot).
/// @throws std::bad_alloc, with nothing changed, where memory for a chunk is needed and cannot be had.
dl_tensor& find_header(header_chunk*& first, header_key const& key, header_source& source);

/// Takes the data from tensors that were handed out, so that who uses one late finds a null pointer.
/// O(headers of the slot).
void withdraw_headers(header_chunk* first) noexcept;

/// Gives the chunks back.
void free_headers(header_chunk*& first, header_source& source) noexcept;

}  // namespace tidemark::detail
