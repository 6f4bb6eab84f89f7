// SPDX-License-Identifier: Apache-2.0
// The DLPack headers of one slot. Headers do not move, because a program in C may store their addresses.
#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <memory_resource>
#include <utility>

#include <tidemark/workspace/extras/dlpack.hpp>

namespace tidemark::detail {

struct tensor_header {
  dl_tensor tensor{};
  bool column_major = false;
  std::array<std::int64_t, max_tensor_rank> shape{};
  std::array<std::int64_t, max_tensor_rank> strides{};
};

// Headers do not move. Not a list: the standard library writes its links, unseen by MemorySanitizer.
struct dlpack_header_cache : std::pmr::deque<tensor_header> {
  using std::pmr::deque<tensor_header>::deque;
  std::size_t next = 0;  // the oldest header, which the next shape replaces once `cache_ways` exist
};

namespace {

// Returns the existing header of the shape, at the same address each time. Otherwise returns a new header, or
// the oldest if there is a limit.
tensor_header& find_header(dlpack_header_cache*& cache, workspace_options const& options,
                           std::span<std::size_t const> extents, bool column_major) {
  if (cache == nullptr) {
    cache = std::pmr::polymorphic_allocator<>{options.bookkeeping}.new_object<dlpack_header_cache>();
  }
  dlpack_header_cache& headers = *cache;
  const auto same = std::ranges::find_if(headers, [&](tensor_header const& kept) {
    return kept.column_major == column_major && std::cmp_equal(kept.tensor.ndim, extents.size()) &&
           std::equal(extents.begin(), extents.end(), kept.shape.begin(),
                      [](std::size_t extent, std::int64_t other) { return std::cmp_equal(extent, other); });
  });
  if (same != headers.end()) return *same;
  if (headers.size() < options.cache_ways) return headers.emplace_back();
  return headers[std::exchange(headers.next, (headers.next + 1) % headers.size())];
}

}  // namespace

dl_tensor& header_of(workspace_core& core, slot_list& list, slot& newest,
                     std::span<std::size_t const> extents, bool column_major, dl_data_type type) {
  try {
    if (std::ranges::any_of(extents, [](std::size_t n) { return n > INT64_MAX; })) {  // DLPack's are signed
      core.throw_out_of_memory(list, SIZE_MAX);
    }
    // Written each time: the slot may have grown, and a user may have changed the header.
    tensor_header& header = find_header(newest.headers, core.options(), extents, column_major);
    header.column_major = column_major;
    std::uint64_t stride = 1;  // in elements; may overflow for a tensor without elements
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const std::size_t r = column_major ? i : extents.size() - 1 - i;
      header.shape[r] = static_cast<std::int64_t>(extents[r]);
      header.strides[r] = static_cast<std::int64_t>(stride);
      stride *= std::max<std::size_t>(extents[r], 1);
    }
    header.tensor = {.data = newest.data,
                     .device = {static_cast<decltype(dl_device::device_type)>(core.options().device_type),
                                core.options().device_id},
                     .ndim = static_cast<int>(extents.size()),
                     .dtype = type,
                     .shape = header.shape.data(),
                     .strides = header.strides.data(),
                     .byte_offset = 0};
    return header.tensor;
  } catch (...) {
    core.retire_newest(list);
    throw;
  }
}

std::size_t header_count(dlpack_header_cache const* cache) noexcept {
  return cache == nullptr ? 0 : cache->size();
}

void withdraw_headers(dlpack_header_cache* headers) noexcept {
  if (headers == nullptr) return;
  for (tensor_header& header : *headers) header.tensor.data = nullptr;
}

void free_headers(dlpack_header_cache* headers, std::pmr::memory_resource* bookkeeping) noexcept {
  if (headers != nullptr) std::pmr::polymorphic_allocator<>{bookkeeping}.delete_object(headers);
}

}  // namespace tidemark::detail
