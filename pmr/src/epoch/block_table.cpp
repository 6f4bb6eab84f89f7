// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/detail/block_table.hpp>

#include <memory>
#include <new>

namespace tidemark::detail {

tracked_block& block_table::add(std::uintptr_t address) {
  const std::scoped_lock lock{mutex_};
  if (tracked_block* const found = find(address)) return *found;
  if (empty() || 2 * (count_ + 1) > index_.load(std::memory_order_relaxed)->mask + 1) grow();
  auto* const record =
      ::new (memory_.allocate(sizeof(tracked_block), alignof(tracked_block))) tracked_block{address};
  put(*index_.load(std::memory_order_relaxed), record);
  ++count_;
  return *record;
}

void block_table::put(index const& in, tracked_block* record) noexcept {
  std::size_t i = in.home(record->address);
  while (in.places[i & in.mask].load(std::memory_order_relaxed) != nullptr) ++i;
  in.places[i & in.mask].store(record, std::memory_order_release);
}

void block_table::grow() {
  constexpr std::size_t min_places = 64;
  index const& before = *index_.load(std::memory_order_relaxed);
  const std::size_t places = empty() ? min_places : 2 * (before.mask + 1);
  using place = std::atomic<tracked_block*>;
  auto* const first = static_cast<place*>(memory_.allocate(places * sizeof(place), alignof(place)));
  std::uninitialized_value_construct_n(first, places);
  auto* const after = ::new (memory_.allocate(sizeof(index), alignof(index)))
      index{first, places - 1, 64 - std::countr_zero(std::uint64_t{places})};
  for (std::size_t i = 0; i <= before.mask; ++i) {
    if (tracked_block* const record = before.places[i].load(std::memory_order_relaxed)) put(*after, record);
  }
  index_.store(after, std::memory_order_release);
}

}  // namespace tidemark::detail
