// SPDX-License-Identifier: Apache-2.0
#include <tidemark/compat/monotonic_buffer_resource.hpp>

#include <algorithm>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::compat {

void* monotonic_buffer_resource::do_allocate(std::size_t bytes, std::size_t align) {
  const std::size_t room = std::max<std::size_t>(bytes, 1);
  std::uintptr_t block = detail::align_up(cursor_, align);
  if (block < cursor_ || block > end_ || end_ - block < room) {
    add_chunk(room, align);
    block = cursor_;
  }
  cursor_ = block + room;
  detail::unpoison(block, bytes);
  return reinterpret_cast<void*>(block);
}

// A chunk that begins at a multiple of `align`. What is left of the one before is not used any more.
void monotonic_buffer_resource::add_chunk(std::size_t least_bytes, std::size_t align) {
  constexpr std::size_t max_bytes = detail::upstream_chunks::max_bytes;
  if (least_bytes > max_bytes || align > max_bytes) chunks_.refuse();
  constexpr std::size_t word = alignof(std::size_t);
  // A chunk for one block ends at a multiple of 16, as malloc's blocks do: a small block may fit behind it.
  constexpr std::size_t overhead = detail::upstream_chunks::overhead_bytes;
  const std::size_t least = detail::align_up(least_bytes + overhead, alignof(std::max_align_t)) - overhead;
  const byte_range room = chunks_.add(least / word, detail::align_up(next_bytes_, word) / word, word, align);
  cursor_ = room.begin;
  end_ = room.end();
  next_bytes_ = std::min(grown(next_bytes_), max_bytes);
}

void monotonic_buffer_resource::release() noexcept {
  chunks_.release();
  begin_anew();
}

}  // namespace tidemark::compat
