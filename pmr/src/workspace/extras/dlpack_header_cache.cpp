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
  bool used = false;
  std::array<std::int64_t, max_tensor_rank> shape{};
  std::array<std::int64_t, max_tensor_rank> strides{};
};

// With a limit, all headers exist from the beginning, and later shapes need no memory.
struct dlpack_header_cache {
  explicit dlpack_header_cache(workspace_options const& options)
      : headers(options.cache_ways == unlimited_cache_ways ? 0 : options.cache_ways, options.bookkeeping) {}
  // Headers do not move. Not a list: the standard library writes its links, unseen by MemorySanitizer.
  std::pmr::deque<tensor_header> headers;
  std::size_t next = 0;  // with a limit: index of an unused header, or of the oldest
};

namespace {

// Returns the existing header of the shape, at the same address each time. Otherwise returns a new header, or
// the oldest if there is a limit.
tensor_header& find_header(dlpack_header_cache*& cache, workspace_options const& options,
                           std::span<std::size_t const> extents, bool column_major) {
  if (cache == nullptr) {
    cache = std::pmr::polymorphic_allocator<>{options.bookkeeping}.new_object<dlpack_header_cache>(options);
  }
  auto& headers = cache->headers;
  const auto same = std::ranges::find_if(headers, [&](tensor_header const& kept) {
    return kept.used && kept.column_major == column_major &&
           std::cmp_equal(kept.tensor.ndim, extents.size()) &&
           std::equal(extents.begin(), extents.end(), kept.shape.begin(),
                      [](std::size_t extent, std::int64_t other) { return std::cmp_equal(extent, other); });
  });
  if (same != headers.end()) return *same;
  if (options.cache_ways == unlimited_cache_ways) return headers.emplace_back();
  return headers[std::exchange(cache->next, (cache->next + 1) % headers.size())];
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
    header.used = true;
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
  if (cache == nullptr) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(cache->headers, &tensor_header::used));
}

void withdraw_headers(dlpack_header_cache* headers) noexcept {
  if (headers == nullptr) return;
  for (tensor_header& header : headers->headers) header.tensor.data = nullptr;
}

void free_headers(dlpack_header_cache* headers, std::pmr::memory_resource* bookkeeping) noexcept {
  if (headers != nullptr) std::pmr::polymorphic_allocator<>{bookkeeping}.delete_object(headers);
}

}  // namespace tidemark::detail
