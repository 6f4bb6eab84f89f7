// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/detail/device_blocks.hpp>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/allocate_by_halves.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/resources/detail/ordered_upstream.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>

namespace tidemark::gpu::detail {
namespace {

using tidemark::detail::address_of;
using tidemark::detail::free_result;

using tidemark::detail::max_block_bytes;
constexpr char const* slab_too_large = "slabs of slab_bytes are more than any resource has";

// Room for `more`, doubled, so that a class that grows copies its records O(1) times each.
template <class Records>
void make_room(Records& records, std::size_t more) {
  const std::size_t wanted = records.size() + more;
  if (wanted > records.capacity()) records.reserve(std::max(wanted, 2 * records.capacity()));
}

}  // namespace

device_blocks::device_blocks(device_pool_options const& options, driver& driver)
    : largest_bytes_{options.largest_pooled_bytes},
      wanted_slab_bytes_{options.slab_bytes},
      max_cached_bytes_{options.max_cached_bytes},
      name_{options.name},
      driver_{&driver},
      device_{options.device},
      upstream_{options.upstream},
      places_{device_classes::index_of(largest_bytes_) + 1, options.bookkeeping},
      slabs_{places_.size(), options.bookkeeping},
      large_{options.bookkeeping} {
  if (upstream_ == nullptr) {
    // What the pool returns is to leave the driver's pool too.
    upstream_ = &own_.emplace(memory_pool_options{.device = device_, .release_threshold_bytes = 0},
                              options.stream, name_, options.bookkeeping, driver);
  } else {
    upstream_ = ordered_upstream(waiting_, options, driver);
  }
  for (std::size_t i = 0; i < places_.size(); ++i) classes_[i].block_bytes = device_classes::bytes(i);
  gives_back_ = driver.budget(device_).add_member([this] { return post_trim(), false; });
}

// Without a call of the upstream: free slabs would go back for nothing.
void device_blocks::refuse(std::size_t bytes, std::size_t align, char const* because) const {
  throw out_of_memory{{.resource = name_,
                       .requested_bytes = bytes,
                       .alignment = align,
                       .used_bytes = live_bytes() + large_bytes_,
                       .committed_bytes = held_bytes(),
                       .reserved_bytes = held_bytes(),
                       .largest_bytes = exhaustion_report::unknown_bytes,
                       .because = because}};
}

// Free blocks may be the memory that the upstream lacks: they go back, the ladder of the device's budget
// trims the pool's own upstream among others, and the upstream is called once more.
template <class Call>
auto device_blocks::call_upstream(Call call) {
  try {
    return call();
  } catch (std::bad_alloc const&) {
    const std::size_t released = release_free(0);
    if (!driver_->budget(device_).relieve(&gives_back_) && released == 0) throw;
  }
  return call();
}

void* device_blocks::take_slow(std::size_t bytes, std::size_t align) {
  if (pending_.take(device_classes::granule_bytes)) (void)release_free(0);
  if (!serves(bytes, align)) return allocate_large(bytes, align);
  void* block = take_listed(bytes);
  if (block == nullptr) {
    refill(bytes, align);
    block = take_listed(bytes);
  }
  return block;
}

void device_blocks::give_slow(void* block, std::size_t bytes, std::size_t align,
                              free_result result) noexcept {
  if (result != free_result::not_listed) return;
  if (!serves(bytes, align)) return deallocate_large(block, bytes, align);
  if (pending_.take(device_classes::granule_bytes)) {
    const bool is_listed = list(block, bytes) != free_result::not_listed;
    (void)release_free(0);
    if (is_listed) return;
  }
  tidemark::detail::report_violation(
      violation_kind::bad_deallocate, name_,
      "device_pool '%s': %zu bytes are deallocated at %p, while all blocks of their class are free: a double "
      "free, a wrong size or a foreign pointer",
      name_, bytes, block);
}

// Lists stranded blocks, or those of a new slab, as many as the limit has room for beside the one that is
// requested.
void device_blocks::refill(std::size_t bytes, std::size_t align) {
  const std::size_t index = device_classes::index_of(bytes);
  size_class& to = classes_[index];
  const std::size_t room = max_cached_bytes_ - std::min(cached_bytes_, max_cached_bytes_);
  const std::size_t fit = room / to.block_bytes + 1;
  if (const std::size_t blocks = std::min(to.stranded_blocks(), fit); blocks > 0) {
    to.floor -= blocks;
    cached_bytes_ += blocks * to.block_bytes;
    stranded_bytes_ -= blocks * to.block_bytes;
    return;
  }
  const std::size_t blocks = std::clamp<std::size_t>(wanted_slab_bytes_ / to.block_bytes, 1, fit);
  if (blocks > max_block_bytes / to.block_bytes) refuse(bytes, align, slab_too_large);
  call_upstream([&] { add_slab(index, blocks); });
  ++misses_;
}

void* device_blocks::allocate_large(std::size_t bytes, std::size_t align) {
  if (bytes > max_block_bytes) refuse(bytes, align, "");
  void* const block = call_upstream([&] { return upstream_->allocate(bytes, align); });
  try {
    large_.insert_or_assign(block, large_block{bytes, align});
  } catch (...) {
    upstream_->deallocate(block, bytes, align);
    throw;
  }
  large_bytes_ += bytes;
  ++large_allocations_;
  ++misses_;
  return block;
}

void device_blocks::deallocate_large(void* block, std::size_t bytes, std::size_t align) noexcept {
  const auto found = large_.find(block);
  if (found == large_.end() || found->second.bytes != bytes || found->second.align != align) {
    tidemark::detail::report_violation(
        violation_kind::bad_deallocate, name_,
        "device_pool '%s': %zu bytes aligned to %zu are deallocated at %p, where no block of that size and "
        "alignment is live",
        name_, bytes, align, block);
    return;
  }
  large_.erase(found);
  large_bytes_ -= bytes;
  upstream_->deallocate(block, bytes, align);
}

void device_blocks::point_to(std::size_t index, std::size_t stranded, std::size_t free) noexcept {
  size_class& of = classes_[index];
  of.begin = places_[index].data();
  of.floor = of.begin + stranded;
  of.top = of.begin + free;
  of.end = of.begin + places_[index].size();
}

void device_blocks::add_slab(std::size_t index, std::size_t blocks) {
  size_class const& of = classes_[index];
  // First, because a callback that makes room may deallocate blocks of this pool.
  const byte_range memory = tidemark::detail::allocate_by_halves(*upstream_, 1, blocks, of.block_bytes,
                                                                 device_classes::granule_bytes);
  void* const first = memory.data();
  const std::size_t bytes = memory.size;
  blocks = bytes / of.block_bytes;
  const auto stranded = of.stranded_blocks();
  const auto free = static_cast<std::size_t>(of.top - of.begin);
  try {
    make_room(slabs_[index], 1);
    make_room(places_[index], blocks);
  } catch (...) {
    point_to(index, stranded, free);
    upstream_->deallocate(first, bytes, device_classes::granule_bytes);
    throw;
  }
  slabs& all = slabs_[index];
  all.insert(std::ranges::lower_bound(all, address_of(first), {}, &slab::first),
             slab{.first = address_of(first), .blocks = blocks, .free = 0});
  places_[index].resize(places_[index].size() + blocks);
  point_to(index, stranded, free + blocks);
  for (std::size_t i = 0; i < blocks; ++i)  // the first of the slab is allocated first
    of.top[-1 - static_cast<std::ptrdiff_t>(i)] =
        reinterpret_cast<void*>(address_of(first) + i * of.block_bytes);
  cached_bytes_ += bytes;
  slab_bytes_ += bytes;
}

void device_blocks::strand(std::size_t target_bytes) noexcept {
  for (std::size_t i = places_.size(); i-- > 0 && cached_bytes_ > target_bytes;) {
    size_class& of = classes_[i];
    const std::size_t wanted = (cached_bytes_ - target_bytes + of.block_bytes - 1) / of.block_bytes;
    const std::size_t blocks = std::min(of.listed_blocks(), wanted);
    of.floor += blocks;
    cached_bytes_ -= blocks * of.block_bytes;
    stranded_bytes_ += blocks * of.block_bytes;
  }
}

device_blocks::slab const* device_blocks::find(std::size_t index, void const* block) const noexcept {
  slabs const& among = slabs_[index];
  const auto after = std::ranges::upper_bound(among, address_of(block), {}, &slab::first);
  if (after == among.begin()) return nullptr;
  slab const& below = *std::prev(after);
  const std::size_t offset = address_of(block) - below.first, block_bytes = classes_[index].block_bytes;
  return offset % block_bytes == 0 && offset / block_bytes < below.blocks ? &below : nullptr;
}

// How many blocks of each slab of a class are free. Returns false if a free block is of none.
bool device_blocks::count_free(std::size_t index) const noexcept {
  size_class const& of = classes_[index];
  for (slab const& each : slabs_[index]) each.free = 0;
  for (void** place = of.begin; place != of.top; ++place) {
    slab const* const its_slab = find(index, *place);
    if (its_slab == nullptr) return false;
    ++its_slab->free;
  }
  return true;
}

void device_blocks::return_to_upstream(std::size_t index, slab const& gone) noexcept {
  const std::size_t bytes = gone.blocks * classes_[index].block_bytes;
  slab_bytes_ -= bytes;
  upstream_->deallocate(reinterpret_cast<void*>(gone.first), bytes, device_classes::granule_bytes);
}

std::size_t device_blocks::release_free_of(std::size_t index, std::size_t bytes_wanted) noexcept {
  size_class& of = classes_[index];
  if (of.top == of.begin) return 0;
  (void)count_free(index);
  std::size_t blocks_gone = 0;
  for (slab& each : slabs_[index]) {
    if (each.free != each.blocks || blocks_gone * of.block_bytes >= bytes_wanted) each.free = 0;  // it stays
    blocks_gone += each.free;
  }
  if (blocks_gone == 0) return 0;
  const auto goes = [&](void const* block) { return find(index, block)->free != 0; };
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
    return_to_upstream(index, each);
    return true;
  });
  return blocks_gone * of.block_bytes;
}

// Starts with the largest blocks, of which the fewest need to be touched.
std::size_t device_blocks::release_free(std::size_t target_bytes) noexcept {
  std::size_t gone = 0;
  for (std::size_t i = places_.size(); i-- > 0 && cached_bytes_ + stranded_bytes_ > target_bytes;)
    gone += release_free_of(i, cached_bytes_ + stranded_bytes_ - target_bytes);
  if (own_) own_->free_deallocated();  // large blocks that were deallocated during a capture
  return gone;
}

void device_blocks::release() noexcept {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (slab const& each : slabs_[i]) return_to_upstream(i, each);
    slabs_[i].clear();
    places_[i].clear();
    point_to(i, 0, 0);
  }
  for (auto const& [block, large] : large_) upstream_->deallocate(block, large.bytes, large.align);
  large_.clear();
  cached_bytes_ = stranded_bytes_ = requested_bytes_ = large_bytes_ = 0;
}

tidemark::detail::block_counts device_blocks::counts() const noexcept {
  std::uint64_t allocations = large_allocations_, live = large_.size();
  for (size_class const& each : classes_) {
    allocations += each.allocations;
    live += each.live_blocks();
  }
  return {allocations, allocations - live, misses_};
}

char const* device_blocks::broken_invariant() const noexcept {
  std::size_t cached = 0, stranded = 0, held = 0, large = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    size_class const& of = classes_[i];
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
    cached += of.listed_blocks() * of.block_bytes;
    stranded += of.stranded_blocks() * of.block_bytes;
    held += blocks * of.block_bytes;
  }
  if (cached != cached_bytes_) return "cached_bytes == sum over listed blocks";
  if (stranded != stranded_bytes_) return "stranded_bytes == sum over stranded blocks";
  if (held != slab_bytes_) return "slab_bytes == sum over slabs";
  for (auto const& [block, each] : large_) large += each.bytes;
  if (large != large_bytes_) return "large_bytes == sum over large blocks";
  return nullptr;
}

}  // namespace tidemark::gpu::detail
