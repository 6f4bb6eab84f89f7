// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/header_cache.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include <tidemark/workspace_options.hpp>

namespace tidemark::detail {
namespace {

constexpr std::size_t unlimited_chunk = 8;  // headers of a chunk, where there is no limit

static_assert(sizeof(header_chunk) % alignof(tensor_header) == 0 &&
              alignof(header_chunk) >= alignof(tensor_header));

std::size_t chunk_bytes(std::size_t capacity) {
  return sizeof(header_chunk) + capacity * sizeof(tensor_header);
}

bool has_shape(tensor_header const& header, header_key const& key) noexcept {
  return std::cmp_equal(header.tensor.ndim, key.rank) && header.column_major == key.column_major &&
         std::equal(key.extents, key.extents + key.rank, header.shape.begin(),
                    [](std::size_t extent, std::int64_t kept) { return std::cmp_equal(extent, kept); });
}

// The strides count elements, as DLPack has them.
void write_header(tensor_header& header, header_key const& key, dl_device device) noexcept {
  header.column_major = key.column_major;
  std::uint64_t stride = 1;  // may go round, of a tensor without elements
  for (std::size_t i = 0; i < key.rank; ++i) {
    const std::size_t r = key.column_major ? i : key.rank - 1 - i;
    header.shape[r] = static_cast<std::int64_t>(key.extents[r]);
    header.strides[r] = static_cast<std::int64_t>(stride);
    stride *= std::max<std::size_t>(key.extents[r], 1);
  }
  header.tensor = {.data = key.data,
                   .device = device,
                   .ndim = static_cast<int>(key.rank),
                   .dtype = key.type,
                   .shape = header.shape.data(),
                   .strides = header.strides.data(),
                   .byte_offset = 0};
}

tensor_header& new_header(header_chunk*& first, header_source& source) {
  const bool unlimited = source.ways == unlimited_cache_ways;
  if (first == nullptr || (unlimited && first->used == first->capacity)) {
    const std::size_t capacity = unlimited ? unlimited_chunk : source.ways;
    void* const memory = source.bookkeeping->allocate(chunk_bytes(capacity), alignof(header_chunk));
    auto* const chunk = new (memory) header_chunk{.next = first, .capacity = capacity};
    std::uninitialized_default_construct_n(chunk->headers(), capacity);
    first = chunk;
  }
  if (first->used < first->capacity) {
    ++source.made;
    return first->headers()[first->used++];
  }
  tensor_header& replaced = first->headers()[first->oldest];
  first->oldest = (first->oldest + 1) % first->capacity;
  return replaced;
}

}  // namespace

dl_tensor& find_header(header_chunk*& first, header_key const& key, header_source& source) {
  tensor_header* found = nullptr;
  for (header_chunk* chunk = first; chunk != nullptr && found == nullptr; chunk = chunk->next) {
    tensor_header* const end = chunk->headers() + chunk->used;
    tensor_header* const same =
        std::find_if(chunk->headers(), end, [&](auto& kept) { return has_shape(kept, key); });
    if (same != end) found = same;
  }
  if (found == nullptr) found = &new_header(first, source);
  // Anew each time: the slot may have grown, and who had the header may have changed it.
  write_header(*found, key, source.device);
  return found->tensor;
}

void withdraw_headers(header_chunk* first) noexcept {
  for (header_chunk* chunk = first; chunk != nullptr; chunk = chunk->next) {
    for (std::size_t i = 0; i < chunk->used; ++i) chunk->headers()[i].tensor.data = nullptr;
  }
}

void free_headers(header_chunk*& first, header_source& source) noexcept {
  while (first != nullptr) {
    header_chunk* const chunk = first;
    first = chunk->next;
    source.made -= chunk->used;
    source.bookkeeping->deallocate(chunk, chunk_bytes(chunk->capacity), alignof(header_chunk));
  }
}

}  // namespace tidemark::detail
