// SPDX-License-Identifier: Apache-2.0
#include "mapping_cache.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <new>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/os_memory.hpp>

namespace tidemark::numpy {
namespace {

// NumPy requests no huge pages below this size: rounding up to them would waste much of the array.
constexpr std::size_t min_aligned_bytes = 4 * MiB;

std::size_t page_bytes() noexcept {
  static const std::size_t bytes = system_memory().page_size();
  return bytes;
}

// Maps accessible or inaccessible pages; null if the system refuses.
std::byte* map_pages(std::size_t bytes, int protection) noexcept {
  constexpr std::size_t align = mapping_cache::huge_page_bytes;
  const std::size_t slack = bytes < min_aligned_bytes ? 0 : align - page_bytes();
  void* const found = mmap(nullptr, bytes + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(found);
  if (slack == 0) return begin;
  const std::size_t before = detail::align_up(detail::address_of(begin), align) - detail::address_of(begin);
  if (before != 0) (void)munmap(begin, before);
  if (before != slack) (void)munmap(begin + before + bytes, slack - before);
  return begin + before;
}

// Returns the bytes of a request: whole pages, with the header; the largest size if no object can be so
// large.
std::size_t bytes_needed(std::size_t bytes) noexcept {
  if (bytes > std::size_t{std::numeric_limits<std::ptrdiff_t>::max()} / 2)
    return std::numeric_limits<std::size_t>::max();
  return detail::align_up(std::max(bytes + sizeof(mapping), mapping_cache::min_bytes), page_bytes());
}

// Returns the pages after the first page to the system if few of them were touched; they read as 0 again. The
// function samples pages, because reading the state of each page of 64 MiB takes 0.1 ms. Returning many
// touched pages takes longer than clearing them.
bool return_sparse_pages([[maybe_unused]] mapping* of) noexcept {
  constexpr std::size_t samples = 8;
  if (of->bytes < min_aligned_bytes || of->dirty_bytes > page_bytes())
    return false;  // not fresh at its allocation
  auto* const begin = reinterpret_cast<std::byte*>(of);
  const std::size_t stride = of->bytes / samples & ~(page_bytes() - 1);
  std::size_t touched = 0;
  for (std::size_t i = 1; i < samples; ++i) {
    unsigned char state = 1;
    if (mincore(begin + i * stride, page_bytes(), &state) != 0) return false;
    touched += state & 1U;
  }
  return touched == 0 && madvise(begin + page_bytes(), of->bytes - page_bytes(), MADV_DONTNEED) == 0;
}

mapping* at(mapping* first, std::size_t offset) noexcept {
  return reinterpret_cast<mapping*>(reinterpret_cast<std::byte*>(first) + offset);
}

}  // namespace

// ---- free mappings ----------------------------------------------------------------------------------------

std::size_t mapping_cache::bin_of(std::size_t bytes) noexcept {
  const auto size_log2 = static_cast<std::size_t>(std::bit_width(bytes)) - 1;
  const std::size_t quarter = bytes >> (size_log2 - 2) & 3U;
  constexpr std::size_t first = std::size_t{std::countr_zero(min_bytes)} * 4;
  return std::min(size_log2 * 4 + quarter - first, bin_count - 1);
}

mapping* mapping_cache::find(std::size_t bytes) const noexcept {
  mapping* best = nullptr;
  for (std::size_t bin = bin_of(bytes); bin < bin_count && best == nullptr; ++bin) {
    mapping* each = bins_[bin];
    for (std::size_t i = 0; each != nullptr && i < max_mappings_tried; each = each->free.next, ++i) {
      if (each->bytes >= bytes && (best == nullptr || each->bytes < best->bytes)) best = each;
    }
  }
  return best;
}

void mapping_cache::insert(mapping* added) noexcept {
  mapping*& bin = bins_[bin_of(added->bytes)];
  added->is_free = 1;
  added->free = {.previous = nullptr, .next = bin, .older = newest_, .newer = nullptr};
  if (bin != nullptr) bin->free.previous = added;
  bin = added;
  (newest_ != nullptr ? newest_->free.newer : oldest_) = added;
  newest_ = added;
  cached_bytes_ += added->bytes;
}

void mapping_cache::remove(mapping* from) noexcept {
  const auto around = from->free;
  (around.previous != nullptr ? around.previous->free.next : bins_[bin_of(from->bytes)]) = around.next;
  if (around.next != nullptr) around.next->free.previous = around.previous;
  (around.older != nullptr ? around.older->free.newer : oldest_) = around.newer;
  (around.newer != nullptr ? around.newer->free.older : newest_) = around.older;
  cached_bytes_ -= from->bytes;
  from->is_free = 0;
}

// Its neighbours have no neighbour on this side afterwards.
void mapping_cache::unmap(mapping* gone) noexcept {
  if (gone->before != nullptr) gone->before->after = nullptr;
  if (gone->after != nullptr) gone->after->before = nullptr;
  (void)munmap(gone, gone->bytes);
}

void mapping_cache::unmap_oldest_to(std::size_t max_bytes) noexcept {
  while (oldest_ != nullptr && cached_bytes_ + slack_bytes_ > max_bytes) {
    mapping* const gone = oldest_;
    remove(gone);
    unmap(gone);
  }
}

// Cuts the bytes after the first `bytes` into a free mapping.
void mapping_cache::cut(mapping* from, std::size_t bytes) noexcept {
  auto* const rest = ::new (at(from, bytes)) mapping{};
  rest->bytes = from->bytes - bytes;
  rest->dirty_bytes = std::max(sizeof(mapping), from->dirty_bytes - std::min(from->dirty_bytes, bytes));
  rest->before = from;
  rest->after = from->after;
  if (rest->after != nullptr) rest->after->before = rest;
  from->after = rest;
  from->bytes = bytes;
  from->dirty_bytes = std::min(from->dirty_bytes, bytes);
  release(rest);
}

void mapping_cache::merge_with_next(mapping* first) noexcept {
  mapping* const next = first->after;
  first->dirty_bytes = first->bytes + next->dirty_bytes;
  first->bytes += next->bytes;
  first->after = next->after;
  if (first->after != nullptr) first->after->before = first;
}

void mapping_cache::release(mapping* gone) noexcept {
  if (gone->after != nullptr && gone->after->is_free) {
    remove(gone->after);
    merge_with_next(gone);
  }
  if (gone->before != nullptr && gone->before->is_free) {
    gone = gone->before;
    remove(gone);
    merge_with_next(gone);
  }
  if (gone->bytes > max_cached_bytes_) unmap(gone);
  else insert(gone);
}

// ---- requests ---------------------------------------------------------------------------------------------

// Takes the largest free mapping that is too small but has half of the needed bytes.
mapping* mapping_cache::remove_largest(std::size_t bytes) noexcept {
  for (std::size_t bin = bin_of(bytes) + 1; bin-- > bin_of(std::max(min_bytes, bytes / 2));) {
    if (bins_[bin] == nullptr || bins_[bin]->bytes >= bytes) continue;
    mapping* const found = bins_[bin];
    remove(found);
    return found;
  }
  return nullptr;
}

// Extends a mapping by more pages, perhaps at other addresses; null, with nothing changed, if the system
// refuses.
mapping* mapping_cache::grow(mapping* from, std::size_t bytes) noexcept {
  const std::size_t old_bytes = from->bytes;
  void* grown = MAP_FAILED;
  if (from->after == nullptr) grown = mremap(from, old_bytes, bytes, 0);
  if (grown == MAP_FAILED) {
    // Moves to aligned addresses, because whole page tables are moved there at once.
    std::byte* const place = map_pages(bytes, PROT_NONE);
    if (place == nullptr) return nullptr;
    grown = mremap(from, old_bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    // Kernels before 6.17 may have unmapped the place by then, and another thread may have mapped it again.
    // The addresses are left alone; no memory is behind them.
    if (grown == MAP_FAILED) return nullptr;
  }
  auto* const moved = static_cast<mapping*>(grown);
  if (moved != from) {  // it left its neighbours
    if (moved->before != nullptr) moved->before->after = nullptr;
    if (moved->after != nullptr) moved->after->before = nullptr;
    moved->before = moved->after = nullptr;
  }
  moved->bytes = bytes;
  return moved;
}

// Makes the mapping live and frees the unneeded part.
void mapping_cache::use(mapping* taken, std::size_t bytes) noexcept {
  // With likely huge pages, the cut is between two huge pages: the rest is then aligned too.
  const std::size_t end = bytes < min_aligned_bytes ? bytes : detail::align_up(bytes, huge_page_bytes);
  if (taken->bytes >= end + std::max(min_bytes, bytes / 8)) cut(taken, end);
  taken->live.needed_bytes = bytes;
  used_bytes_ += taken->bytes;
  slack_bytes_ += taken->bytes - bytes;
  unmap_oldest_to(max_cached_bytes_);
}

void mapping_cache::unuse(mapping* from) noexcept {
  used_bytes_ -= from->bytes;
  slack_bytes_ -= from->bytes - from->live.needed_bytes;
}

mapping* mapping_cache::allocate(std::size_t bytes) {
  const std::size_t needed = bytes_needed(bytes);
  if (needed < bytes || needed == std::numeric_limits<std::size_t>::max()) throw std::bad_alloc{};
  const std::scoped_lock lock{mutex_};
  mapping* taken = find(needed);
  if (taken != nullptr) {
    remove(taken);
  } else if (mapping* const small = remove_largest(needed)) {
    taken = grow(small, needed);
    if (taken == nullptr) insert(small);
  }
  if (taken != nullptr) {
    ++hits_;
  } else {
    std::byte* const first = map_pages(needed, PROT_READ | PROT_WRITE);
    if (first == nullptr) throw std::bad_alloc{};
    ++misses_;
    taken = ::new (first) mapping{};
    taken->bytes = needed;
    taken->dirty_bytes = sizeof(mapping);
  }
  use(taken, needed);
  return taken;
}

void mapping_cache::deallocate(mapping* gone) noexcept {
  const std::scoped_lock lock{mutex_};
  ++deallocations_;
  unuse(gone);
  gone->dirty_bytes = return_sparse_pages(gone) ? page_bytes() : gone->bytes;
  release(gone);
  unmap_oldest_to(max_cached_bytes_);
}

mapping* mapping_cache::resize(mapping* live, std::size_t bytes) noexcept {
  const std::size_t needed = bytes_needed(bytes);
  if (needed == std::numeric_limits<std::size_t>::max()) return nullptr;
  const std::scoped_lock lock{mutex_};
  mapping* resized = live;
  unuse(live);
  live->dirty_bytes = live->bytes;
  if (needed > live->bytes) {
    if (live->after != nullptr && live->after->is_free && live->bytes + live->after->bytes >= needed) {
      remove(live->after);
      merge_with_next(live);
    } else {
      resized = grow(live, needed);
    }
  }
  if (resized != nullptr) {
    use(resized, needed);
  } else {
    used_bytes_ += live->bytes;
    slack_bytes_ += live->bytes - live->live.needed_bytes;
  }
  return resized;
}

void mapping_cache::trim() noexcept {
  const std::scoped_lock lock{mutex_};
  while (oldest_ != nullptr) {
    mapping* const gone = oldest_;
    remove(gone);
    unmap(gone);
  }
}

void mapping_cache::stop_caching() noexcept {
  {
    const std::scoped_lock lock{mutex_};
    max_cached_bytes_ = 0;
  }
  trim();
}

mapping_cache_stats mapping_cache::stats() const noexcept {
  const std::scoped_lock lock{mutex_};
  return {.hits = hits_,
          .misses = misses_,
          .deallocations = deallocations_,
          .used_bytes = used_bytes_,
          .cached_bytes = cached_bytes_};
}

char const* mapping_cache::broken_invariant() const noexcept {
  const std::scoped_lock lock{mutex_};
  std::size_t cached = 0, listed = 0;
  for (std::size_t bin = 0; bin < bin_count; ++bin) {
    mapping const* previous = nullptr;
    for (mapping const* each = bins_[bin]; each != nullptr; previous = each, each = each->free.next) {
      if (bin_of(each->bytes) != bin || each->free.previous != previous || !each->is_free)
        return "a free mapping lies in the bin of its size";
      if ((each->before != nullptr && each->before->is_free) ||
          (each->after != nullptr && each->after->is_free))
        return "no two neighbours are free";
      cached += each->bytes;
    }
  }
  for (mapping const* each = oldest_; each != nullptr; each = each->free.newer) listed += each->bytes;
  if (cached != cached_bytes_ || listed != cached_bytes_) return "cached_bytes == sum over bins";
  if (cached_bytes_ != 0 && cached_bytes_ + slack_bytes_ > max_cached_bytes_)
    return "cached_bytes + slack_bytes <= max_cached_bytes";
  return nullptr;
}

}  // namespace tidemark::numpy
