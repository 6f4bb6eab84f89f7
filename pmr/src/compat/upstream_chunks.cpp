// SPDX-License-Identifier: Apache-2.0
#include <tidemark/compat/detail/upstream_chunks.hpp>

#include <algorithm>
#include <new>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/allocate_by_halves.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {

byte_range upstream_chunks::add(std::size_t needed, std::size_t wanted, std::size_t unit_bytes,
                                std::size_t align) {
  align = std::max(align, alignof(std::max_align_t));
  const byte_range chunk = allocate_by_halves(*upstream_, needed, wanted, unit_bytes, align, sizeof(record));
  const byte_range room{chunk.begin, chunk.size - sizeof(record)};
  newest_ = ::new (static_cast<std::byte*>(chunk.data()) + room.size) record{newest_, chunk.size, align};
  poison(room.begin, room.size);
  return room;
}

void upstream_chunks::refuse() {
  const auto ask = [this](std::size_t bytes, std::size_t align) {
    upstream_->deallocate(upstream_->allocate(bytes, align), bytes, align);
  };
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  ask(most, most / 2 + 1);  // aligned to less, the size could wrap in an upstream that adds to it
  throw std::bad_alloc{};
}

void upstream_chunks::release() noexcept {
  while (newest_ != nullptr) {
    const record gone = *newest_;
    std::byte* const memory = reinterpret_cast<std::byte*>(newest_ + 1) - gone.bytes;
    newest_ = gone.previous;
    unpoison(address_of(memory), gone.bytes);
    upstream_->deallocate(memory, gone.bytes, gone.align);
  }
}

}  // namespace tidemark::detail
