// SPDX-License-Identifier: Apache-2.0
#include <tidemark/compat/detail/upstream_chunks.hpp>

#include <algorithm>
#include <new>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/sanitizers.hpp>

namespace tidemark::detail {

std::uintptr_t upstream_chunks::add(std::size_t bytes, std::size_t align) {
  const record added{newest_, bytes + sizeof(record), std::max(align, alignof(std::max_align_t))};
  auto* const memory = static_cast<std::byte*>(upstream_->allocate(added.bytes, added.align));
  newest_ = ::new (memory + bytes) record{added};
  poison(address_of(memory), bytes);
  return address_of(memory);
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
