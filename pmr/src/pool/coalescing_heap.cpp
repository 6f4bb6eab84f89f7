// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/coalescing_heap.hpp>

#include <algorithm>
#include <new>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {

// ---- bins -------------------------------------------------------------------------------------------------

void coalescing_heap::bins::insert(tag* range) noexcept {
  const std::size_t bin = index_of(range->bytes);
  tag* const next = first_[bin];
  *opened_block{links_of(range)}.operator->() = {nullptr, next};
  if (next != nullptr) opened_block{links_of(next)}->previous = range;
  first_[bin] = range;
  has_range_[bin / 64] |= std::uint64_t{1} << bin % 64;
}

void coalescing_heap::bins::remove(tag* range) noexcept {
  const std::size_t bin = index_of(range->bytes);
  const links around = *opened_block{links_of(range)}.operator->();
  if (around.next != nullptr) opened_block{links_of(around.next)}->previous = around.previous;
  if (around.previous != nullptr) {
    opened_block{links_of(around.previous)}->next = around.next;
  } else {
    first_[bin] = around.next;
    if (around.next == nullptr) has_range_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
  }
}

coalescing_heap::tag* coalescing_heap::bins::find(std::size_t bytes) const noexcept {
  const std::size_t own = index_of(bytes);
  tag* range = first_[own];
  for (std::size_t i = 0; range != nullptr && i < max_ranges_tried; ++i) {
    if (range->bytes >= bytes) return range;
    range = opened_block{links_of(range)}->next;
  }
  const std::size_t larger = first_from(own + 1);
  return larger == none ? nullptr : first_[larger];
}

coalescing_heap::tag* coalescing_heap::bins::find_largest() const noexcept {
  const auto found = std::ranges::find_if(first_.rbegin(), first_.rend(), [](tag* first) { return first; });
  return found != first_.rend() ? *found : nullptr;
}

std::size_t coalescing_heap::bins::first_from(std::size_t index) const noexcept {
  if (index >= count) return none;
  std::size_t word = index / 64;
  std::uint64_t bits = has_range_[word] & (~std::uint64_t{0} << index % 64);
  while (bits == 0 && ++word < has_range_.size()) bits = has_range_[word];
  return bits == 0 ? none : word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
}

// ---- ranges -----------------------------------------------------------------------------------------------

coalescing_heap::tag* coalescing_heap::make_range(tag* where, std::size_t previous_bytes,
                                                  std::size_t bytes) noexcept {
  unpoison(address_of(where), sizeof(tag));
  tag* const made = ::new (where) tag{previous_bytes, bytes, 0};
  if (bytes != 0) next_of(made)->previous_bytes = bytes;
  return made;
}

void coalescing_heap::insert_free(tag* range) noexcept {
  range->is_free = 1;
  count_of(range) += range->bytes;
  bins_of(range).insert(range);
}

void coalescing_heap::remove_free(tag* range) noexcept {
  range->is_free = 0;
  count_of(range) -= range->bytes;
  bins_of(range).remove(range);
}

coalescing_heap::tag* coalescing_heap::split(tag* range, std::size_t offset) noexcept {
  tag* const behind = make_range(at(range, offset), offset, range->bytes - offset);
  range->bytes = offset;
  return behind;
}

// Free ranges before and after the aligned block stay in the bins.
void* coalescing_heap::cut(tag* range, std::size_t bytes, std::size_t align) noexcept {
  remove_free(range);
  const std::uintptr_t first = address_of(block_of(range));
  if (const std::size_t before = align_up(first, align) - first; before > 0) {
    tag* const own = split(range, before);
    insert_free(range);
    range = own;
  }
  const std::size_t own_bytes = range_bytes(bytes);
  if (own_bytes < range->bytes) insert_free(split(range, own_bytes));
  requested_bytes_ += bytes;
  unpoison(address_of(block_of(range)), bytes);
  return block_of(range);
}

void* coalescing_heap::try_allocate(std::size_t bytes, std::size_t align) noexcept {
  const std::size_t wanted = range_bytes(bytes) + bytes_before(align);
  tag* range = stranded_.find(wanted);
  tag* const whole = whole_.find(wanted);
  if (range == nullptr || (whole != nullptr && whole->bytes < range->bytes)) range = whole;
  return range != nullptr ? cut(range, bytes, align) : nullptr;
}

void coalescing_heap::deallocate(void* block, std::size_t requested_bytes) noexcept {
  tag* range = static_cast<tag*>(block) - 1;
  poison_freed(block, range->bytes - sizeof(tag));
  requested_bytes_ -= requested_bytes;
  std::size_t bytes = range->bytes;
  if (tag* const next = next_of(range); next->is_free) {
    remove_free(next);
    bytes += next->bytes;
    poison(address_of(next), sizeof(tag));
  }
  if (range->previous_bytes != 0) {
    tag* const previous = reinterpret_cast<tag*>(reinterpret_cast<std::byte*>(range) - range->previous_bytes);
    if (previous->is_free) {
      remove_free(previous);
      bytes += previous->bytes;
      poison(address_of(range), sizeof(tag));
      range = previous;
    }
  }
  range->bytes = bytes;
  next_of(range)->previous_bytes = bytes;
  insert_free(range);
}

// ---- chunks -----------------------------------------------------------------------------------------------

// Adds a chunk of `wanted_bytes` for ranges if the upstream has these, and of at least `least_bytes`. Its
// single range is live, and starts with an aligned block.
coalescing_heap::tag* coalescing_heap::add_chunk(std::size_t least_bytes, std::size_t wanted_bytes,
                                                 std::size_t align) {
  const std::size_t first_align = std::max(align, granule_bytes), overhead = overhead_of(first_align);
  const byte_range memory =
      allocate_by_halves(*upstream_, least_bytes / granule_bytes, wanted_bytes / granule_bytes, granule_bytes,
                         upstream_align, overhead);
  // malloc's memory is anonymous; nothing is known about other upstreams.
  if (upstream_ == std::pmr::new_delete_resource()) advise_huge_pages_if_large(memory, default_os_memory());
  const std::size_t bytes = memory.size - overhead;
  tag* const range = reinterpret_cast<tag*>(align_up(memory.begin + header_bytes, first_align)) - 1;
  auto* const added = ::new (memory.data()) chunk{nullptr, chunks_, bytes, overhead, range};
  ::new (&chunk_of(range)) chunk* {added};
  if (chunks_ != nullptr) chunks_->previous = added;
  chunks_ = added;
  held_bytes_ += bytes;
  poison(address_of(range), bytes + sizeof(tag));
  make_range(at(range, bytes), bytes, 0);
  make_range(range, 0, bytes);
  return range;
}

void* coalescing_heap::allocate(std::size_t bytes, std::size_t align, std::size_t max_more_bytes) {
  if (add_saturating(bytes, add_saturating(align, page_bytes)) > max_block_bytes) throw std::bad_alloc{};
  // The padding before a block stays in its range, because the range then serves an equal request again. The
  // exception is a chunk that returns with the block.
  const bool is_alone = max_more_bytes == 0;
  const std::size_t own_bytes = range_bytes(bytes) + (is_alone ? 0 : bytes_before(align));
  std::size_t chunk_bytes = std::min(held_bytes_ / growth_divisor, add_saturating(own_bytes, max_more_bytes));
  if (bytes >= min_lone_bytes) chunk_bytes = 0;
  chunk_bytes = align_down(chunk_bytes, page_bytes);  // whole pages, including the overhead
  tag* const range = add_chunk(
      own_bytes, chunk_bytes > own_bytes + page_bytes ? chunk_bytes - overhead_of(granule_bytes) : 0,
      is_alone ? align : granule_bytes);
  insert_free(range);
  return cut(range, bytes, align);
}

void coalescing_heap::return_to_upstream(chunk* gone) noexcept {
  (gone->previous != nullptr ? gone->previous->next : chunks_) = gone->next;
  if (gone->next != nullptr) gone->next->previous = gone->previous;
  held_bytes_ -= gone->bytes;
  unpoison(address_of(gone->first), gone->bytes + sizeof(tag));
  upstream_->deallocate(gone, gone->bytes + gone->overhead_bytes, upstream_align);
}

std::size_t coalescing_heap::release_free(std::size_t bytes_wanted) noexcept {
  std::size_t gone = 0;
  while (gone < bytes_wanted) {
    tag* range = whole_.find(bytes_wanted - gone);
    if (range == nullptr) range = whole_.find_largest();
    if (range == nullptr) break;
    gone += range->bytes;
    remove_free(range);
    return_to_upstream(chunk_of(range));
  }
  return gone;
}

void coalescing_heap::release() noexcept {
  while (chunks_ != nullptr) return_to_upstream(chunks_);
  cached_bytes_ = stranded_bytes_ = requested_bytes_ = 0;
  whole_ = stranded_ = {};
}

// ---- checks -----------------------------------------------------------------------------------------------

std::size_t coalescing_heap::bins::count_bytes() const noexcept {
  std::size_t sum = 0;
  for (std::size_t bin = 0; bin < count; ++bin) {
    if ((first_[bin] != nullptr) != ((has_range_[bin / 64] >> bin % 64 & 1U) != 0)) return wrong;
    for (tag* range = first_[bin]; range != nullptr; range = opened_block{links_of(range)}->next) {
      if (!range->is_free || index_of(range->bytes) != bin) return wrong;
      sum += range->bytes;
    }
  }
  return sum;
}

char const* coalescing_heap::broken_invariant() const noexcept {
  std::size_t held = 0, whole = 0, stranded = 0;
  for (chunk* each = chunks_; each != nullptr; each = each->next) {
    std::size_t previous_bytes = 0, bytes = 0;
    bool previous_is_free = false;
    for (tag* range = each->first; range->bytes != 0; range = next_of(range)) {
      if (range->previous_bytes != previous_bytes) return "ranges follow each other without gaps";
      if (range->is_free && previous_is_free) return "no two neighbours are free";
      if (range->is_free) (is_whole_chunk(range) ? whole : stranded) += range->bytes;
      previous_is_free = range->is_free;
      previous_bytes = range->bytes;
      bytes += previous_bytes;
    }
    if (bytes != each->bytes) return "ranges follow each other without gaps";
    held += bytes;
  }
  if (held != held_bytes_) return "held_bytes == sum over chunks";
  if (whole != cached_bytes_) return "cached_bytes == sum over free chunks";
  if (stranded != stranded_bytes_) return "stranded_bytes == sum over free ranges of other chunks";
  for (bins const* each : {&whole_, &stranded_})
    if (each->count_bytes() == bins::wrong) return "a free range lies in the bin of its size";
  if (whole_.count_bytes() != whole) return "sum over bins of free chunks == sum over free chunks";
  if (stranded_.count_bytes() != stranded) return "stranded_bytes == sum over bins of stranded ranges";
  return nullptr;
}

}  // namespace tidemark::detail
