// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/detail/device_blocks.hpp>

#include <algorithm>
#include <utility>

namespace tidemark::cuda::detail {
namespace {

std::uintptr_t address_of(void const* block) noexcept { return reinterpret_cast<std::uintptr_t>(block); }

// Room for `more`, doubled, so that a class that grows copies its records O(1) times each.
template <class Records>
void make_room(Records& records, std::size_t more) {
  const std::size_t wanted = records.size() + more;
  if (wanted > records.capacity()) records.reserve(std::max(wanted, 2 * records.capacity()));
}

}  // namespace

device_blocks::device_blocks(std::size_t largest_bytes, std::pmr::memory_resource* upstream,
                             std::pmr::memory_resource* bookkeeping)
    : largest_bytes_{device_classes::bytes(device_classes::index_of(largest_bytes))},
      upstream_{upstream},
      places_{device_classes::index_of(largest_bytes) + 1, bookkeeping},
      slabs_{places_.size(), bookkeeping} {
  for (std::size_t i = 0; i < places_.size(); ++i) buckets_[i].block_bytes = device_classes::bytes(i);
}

void device_blocks::point_to(std::size_t index, std::size_t stranded, std::size_t free) noexcept {
  bucket& of = buckets_[index];
  of.begin = places_[index].data();
  of.floor = of.begin + stranded;
  of.top = of.begin + free;
  of.end = of.begin + places_[index].size();
}

void device_blocks::add_slab(std::size_t index, std::size_t blocks) {
  bucket const& of = buckets_[index];
  const auto stranded = static_cast<std::size_t>(of.floor - of.begin);
  const auto free = static_cast<std::size_t>(of.top - of.begin);
  const std::size_t bytes = blocks * of.block_bytes;
  make_room(slabs_[index], 1);
  make_room(places_[index], blocks);
  point_to(index, stranded, free);  // they may have moved
  void* const first = upstream_->allocate(bytes, device_classes::granule_bytes);
  slabs& all = slabs_[index];
  all.insert(std::ranges::lower_bound(all, address_of(first), {}, &slab::first),
             slab{.first = address_of(first), .blocks = blocks, .free = 0});
  places_[index].resize(places_[index].size() + blocks);
  point_to(index, stranded, free + blocks);
  for (std::size_t i = 0; i < blocks; ++i)  // the first of the slab is the first to be handed out
    of.top[-1 - static_cast<std::ptrdiff_t>(i)] =
        reinterpret_cast<void*>(address_of(first) + i * of.block_bytes);
  cached_bytes_ += bytes;
  held_bytes_ += bytes;
}

std::size_t device_blocks::take_stranded(std::size_t index, std::size_t bytes_max) noexcept {
  bucket& of = buckets_[index];
  const std::size_t blocks = std::min(static_cast<std::size_t>(of.floor - of.begin),
                                      std::max<std::size_t>(bytes_max / of.block_bytes, 1));
  of.floor -= blocks;
  cached_bytes_ += blocks * of.block_bytes;
  stranded_bytes_ -= blocks * of.block_bytes;
  return blocks;
}

void device_blocks::strand(std::size_t target_bytes) noexcept {
  for (std::size_t i = places_.size(); i-- > 0 && cached_bytes_ > target_bytes;) {
    bucket& of = buckets_[i];
    const std::size_t wanted = (cached_bytes_ - target_bytes + of.block_bytes - 1) / of.block_bytes;
    const std::size_t blocks = std::min(static_cast<std::size_t>(of.top - of.floor), wanted);
    of.floor += blocks;
    cached_bytes_ -= blocks * of.block_bytes;
    stranded_bytes_ += blocks * of.block_bytes;
  }
}

device_blocks::slab* device_blocks::find(slabs& among, std::size_t block_bytes, void const* block) noexcept {
  const auto after = std::ranges::upper_bound(among, address_of(block), {}, &slab::first);
  if (after == among.begin()) return nullptr;
  slab& below = *std::prev(after);
  const std::size_t offset = address_of(block) - below.first;
  return offset % block_bytes == 0 && offset / block_bytes < below.blocks ? &below : nullptr;
}

// How many blocks of each slab of a class are free. Returns false if a free block is of none.
bool device_blocks::count_free(std::size_t index) noexcept {
  bucket const& of = buckets_[index];
  for (slab& each : slabs_[index]) each.free = 0;
  for (void** place = of.begin; place != of.top; ++place) {
    slab* const its_slab = find(slabs_[index], of.block_bytes, *place);
    if (its_slab == nullptr) return false;
    ++its_slab->free;
  }
  return true;
}

void device_blocks::give_back(std::size_t index, slab const& gone) noexcept {
  const std::size_t bytes = gone.blocks * buckets_[index].block_bytes;
  held_bytes_ -= bytes;
  upstream_->deallocate(reinterpret_cast<void*>(gone.first), bytes, device_classes::granule_bytes);
}

std::size_t device_blocks::release_free_slabs_of(std::size_t index, std::size_t bytes_wanted) noexcept {
  bucket& of = buckets_[index];
  if (of.top == of.begin) return 0;
  (void)count_free(index);
  std::size_t blocks_gone = 0;
  for (slab& each : slabs_[index]) {
    if (each.free != each.blocks || blocks_gone * of.block_bytes >= bytes_wanted) each.free = 0;  // it stays
    blocks_gone += each.free;
  }
  if (blocks_gone == 0) return 0;
  const auto goes = [&](void const* block) { return find(slabs_[index], of.block_bytes, block)->free != 0; };
  void** const stranded_end = std::remove_if(of.begin, of.floor, goes);
  void** const listed_end = std::remove_if(of.floor, of.top, goes);
  cached_bytes_ -= static_cast<std::size_t>(of.top - listed_end) * of.block_bytes;
  stranded_bytes_ -= static_cast<std::size_t>(of.floor - stranded_end) * of.block_bytes;
  void** const top = std::move(of.floor, listed_end, stranded_end);
  const auto stranded = static_cast<std::size_t>(stranded_end - of.begin);
  const auto free = static_cast<std::size_t>(top - of.begin);
  places_[index].resize(places_[index].size() - blocks_gone);
  point_to(index, stranded, free);
  std::erase_if(slabs_[index], [&](slab const& each) {
    if (each.free == 0) return false;
    give_back(index, each);
    return true;
  });
  return blocks_gone * of.block_bytes;
}

// Starts with the largest blocks, of which the fewest need to be touched.
std::size_t device_blocks::release_free_slabs(std::size_t target_bytes) noexcept {
  std::size_t gone = 0;
  for (std::size_t i = places_.size(); i-- > 0 && cached_bytes_ + stranded_bytes_ > target_bytes;)
    gone += release_free_slabs_of(i, cached_bytes_ + stranded_bytes_ - target_bytes);
  return gone;
}

void device_blocks::release() noexcept {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (slab const& each : slabs_[i]) give_back(i, each);
    slabs_[i].clear();
    places_[i].clear();
    point_to(i, 0, 0);
  }
  cached_bytes_ = stranded_bytes_ = requested_bytes_ = 0;
}

std::uint64_t device_blocks::allocations() const noexcept {
  std::uint64_t sum = 0;
  for (bucket const& each : buckets_) sum += each.allocations;
  return sum;
}

std::size_t device_blocks::used_blocks() const noexcept {
  std::size_t sum = 0;
  for (bucket const& each : buckets_) sum += static_cast<std::size_t>(each.end - each.top);
  return sum;
}

char const* device_blocks::broken_invariant() noexcept {
  std::size_t cached = 0, stranded = 0, held = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    bucket const& of = buckets_[i];
    if (of.begin > of.floor || of.floor > of.top || of.top > of.end) return "begin <= floor <= top <= end";
    std::uintptr_t last_end = 0;
    std::size_t blocks = 0;
    for (slab const& each : slabs_[i]) {
      if (each.first < last_end) return "slabs of a class are sorted and do not overlap";
      last_end = each.first + each.blocks * of.block_bytes;
      blocks += each.blocks;
    }
    if (of.begin != places_[i].data() || of.end != of.begin + blocks) return "end == begin + blocks in slabs";
    if (!count_free(i)) return "a free block is one of a slab of its class";
    for (slab const& each : slabs_[i]) {
      if (each.free > each.blocks) return "free blocks of a slab <= its blocks";
    }
    cached += static_cast<std::size_t>(of.top - of.floor) * of.block_bytes;
    stranded += static_cast<std::size_t>(of.floor - of.begin) * of.block_bytes;
    held += blocks * of.block_bytes;
  }
  if (cached != cached_bytes_) return "cached_bytes == sum over listed blocks";
  if (stranded != stranded_bytes_) return "stranded_bytes == sum over stranded blocks";
  if (held != held_bytes_) return "held_bytes == sum over slabs";
  return nullptr;
}

}  // namespace tidemark::cuda::detail
