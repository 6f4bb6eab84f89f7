// SPDX-License-Identifier: Apache-2.0
/// @file
/// `extent_region`: one region of memory from which threads claim extents. Owns its chunks.
///
/// A claim adds to `next` of the current chunk by one compare-exchange. The addition cannot pass `committed`,
/// and a failed claim changes nothing. Only a claim that needs more memory or finds free extents takes the
/// lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <tidemark/arena/arena_options.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {

/// An extent that one thread has claimed: whole pages for its use alone.
struct extent {
  byte_range range;
  std::uintptr_t touched = 0;  // bytes at or above this address are untouched since their commit

  [[nodiscard]] bool empty() const noexcept { return range.empty(); }
};

/// A region from which any number of threads claim extents, and into which one thread returns all of them.
///
/// Invariants of each chunk:
/// - `begin <= next <= committed <= end`, and `next - begin` is a multiple of the granule
/// - Its extents, free or in use, do not overlap and fill `[begin, next)`. While the region is not used, no
///   free extent ends at `next`.
/// - Bytes at or above `max(next, touched)` are untouched since their commit.
/// - Its free extents are sorted by address and apart, except between `begin_rewind` and `end_rewind`.
///
/// Thread-safety: `claim` and `return_extent` on any thread; other functions only while no other thread uses
/// the region. Complexity: O(chunks), and `return_extent` O(free extents), unless stated otherwise.
template <class AddressSpace, class Sync = std_sync>
class extent_region {
  static_assert(address_space<AddressSpace>, "a region's memory must come from an address_space");

 public:
  using mutex_type = Sync::mutex;

  /// Minimum granule of extents in bytes: the page size of most machines.
  static constexpr std::size_t min_granule = 4 * KiB;

  /// Makes a region on `space`, which it uses with `mutex` locked. Both must outlive the region.
  /// @param chunk_bytes bytes of a chunk
  extent_region(AddressSpace& space, mutex_type& mutex, arena_options const& options, std::size_t chunk_bytes,
                std::size_t retain_bytes)
      : space_{&space},
        mutex_{&mutex},
        options_{&options},
        retain_bytes_{retain_bytes},
        granule_{(std::max)(min_granule, space.granularity())},
        chunk_bytes_{align_up((std::max)(chunk_bytes, granule_), granule_)} {}
  ~extent_region() { release(); }

  /// Returns the granule of extents in bytes.
  [[nodiscard]] std::size_t granule() const noexcept { return granule_; }

  /// Claims at least `least` and at best `wanted` bytes, rounded up to whole granules.
  /// @return an empty extent if there is no memory; nothing has changed then. @throws the exceptions of the
  /// space.
  [[nodiscard]] extent claim(std::size_t least, std::size_t wanted, space_refusal& refused) {
    least = align_up(least, granule_);
    wanted = (std::max)(least, align_up(wanted, granule_));
    if (free_bytes_.load(std::memory_order_relaxed) == 0) [[likely]] {
      if (chunk_record* const chunk = current_.load(std::memory_order_acquire)) [[likely]]
        if (const extent claimed = claim_committed(*chunk, wanted); !claimed.empty()) return claimed;
    }
    return claim_slow(least, wanted, refused);
  }

  /// Returns whole granules of an extent to the region, and any thread may claim them. Do not access the
  /// bytes afterwards. Without memory for a record, the bytes are lost until `release`.
  void return_extent(byte_range range) noexcept {
    poison(range.begin, range.size);
    const std::scoped_lock lock{*mutex_};
    chunk_record& chunk = chunk_of(range.begin);
    std::vector<byte_range>& free = chunk.free;
    try {
      free.push_back(range);
    } catch (std::bad_alloc const&) {
      lost_bytes_ += range.size;
      return;
    }
    free_bytes_.fetch_add(range.size, std::memory_order_relaxed);
    if (is_rewinding_) return;
    const auto at = std::upper_bound(free.begin(), free.end() - 1, range, is_below);
    std::rotate(at, free.end() - 1, free.end());
    merge_free(free, at - (at != free.begin() ? 1 : 0), at + (free.end() - at > 1 ? 2 : 1));
    lower_next(chunk);
  }

  /// Announces that many extents are returned next.
  void begin_rewind() noexcept { is_rewinding_ = true; }
  /// Ends the announced returns. Returns empty chunks to the space while more than `retain_bytes` are
  /// committed. O(n log n) for n returned extents.
  void end_rewind() noexcept {
    is_rewinding_ = false;
    for (std::unique_ptr<chunk_record>& chunk : chunks_) {
      std::sort(chunk->free.begin(), chunk->free.end(), is_below);
      merge_free(chunk->free, chunk->free.begin(), chunk->free.end());
      lower_next(*chunk);
    }
    for (std::size_t i = chunks_.size(); i-- > 1 && committed_bytes_ > retain_bytes_;)
      if (is_empty(*chunks_[i])) drop(i);
    if (!chunks_.empty()) make_current(*chunks_.front());
  }

  /// Returns committed memory beyond `keep_bytes` above the last extents: whole chunks except the first, and
  /// pages.
  /// @return bytes returned
  std::size_t trim(std::size_t keep_bytes) noexcept {
    const std::size_t committed_before = committed_bytes_;
    std::size_t kept_bytes = 0;
    for (std::size_t i = 0; i < chunks_.size();) {
      chunk_record& chunk = *chunks_[i];
      const std::uintptr_t next = chunk.next.load();
      const std::size_t unused = chunk.committed.load() - next;
      if (i > 0 && is_empty(chunk) && add_saturating(kept_bytes, unused) > keep_bytes) {
        drop(i);
        continue;
      }
      if constexpr (AddressSpace::traits.commits) {
        const std::size_t keep_here = (std::min)(unused, keep_bytes - (std::min)(keep_bytes, kept_bytes));
        const std::uintptr_t first = align_up(next + keep_here, space_->granularity());
        if (first < chunk.committed.load()) decommit(chunk, first);
      }
      kept_bytes += chunk.committed.load() - next;
      ++i;
    }
    if (!chunks_.empty()) make_current(*chunks_.front());
    return committed_before - committed_bytes_;
  }

  /// Reserves the first chunk unless the region has a chunk. @return true if the region has a chunk now
  [[nodiscard]] bool reserve() {
    if (chunks_.empty() && add_chunk(granule_) != nullptr) make_current(*chunks_.front());
    return !chunks_.empty();
  }
  /// Returns all memory. @pre No extent is in use.
  void release() noexcept {
    current_.store(nullptr);
    while (!chunks_.empty()) drop(chunks_.size() - 1);
    free_bytes_.store(0);
    lost_bytes_ = 0;
  }

  /// Returns the bytes in extents, free extents included.
  [[nodiscard]] std::size_t claimed_bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& chunk : chunks_) sum += chunk->next.load() - chunk->begin;
    return sum;
  }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return free_bytes_.load(); }
  /// Returns the bytes that were returned without memory for a record.
  [[nodiscard]] std::size_t lost_bytes() const noexcept { return lost_bytes_; }
  [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_bytes_; }
  [[nodiscard]] std::size_t reserved_bytes() const noexcept { return reserved_bytes_; }
  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_.size(); }
  [[nodiscard]] std::uint64_t system_calls() const noexcept { return system_calls_; }
  /// Returns the bytes of the largest extent that the held memory or addresses can serve. Requires the lock.
  [[nodiscard]] std::size_t largest_bytes(space_refusal refused) const noexcept {
    std::size_t largest = 0;
    for (auto const& chunk : chunks_) {
      for (byte_range const& range : chunk->free) largest = (std::max)(largest, range.size);
      const std::uintptr_t end = refused == space_refusal::memory ? chunk->committed.load() : chunk->end;
      largest = std::max<std::size_t>(largest, align_down(end - chunk->next.load(), granule_));
    }
    return largest;
  }
  /// Returns the reason why the address space refused memory; empty if unknown. Requires the lock.
  [[nodiscard]] char const* refusal_text() const noexcept { return detail::refusal_of(*space_); }
  /// Returns true if the address is in an extent, free or not. Any thread, with the lock held.
  [[nodiscard]] bool holds(std::uintptr_t address) const noexcept {
    return std::ranges::any_of(chunks_, [=](auto const& chunk) {
      return address >= chunk->begin && address < chunk->next.load(std::memory_order_acquire);
    });
  }
  /// Returns the formula that does not hold; null if all hold. @pre as `trim`
  [[nodiscard]] char const* broken_invariant() const noexcept {
    std::size_t committed = 0, reserved = 0, free = 0;
    for (auto const& chunk : chunks_) {
      const std::uintptr_t next = chunk->next.load();
      if (chunk->begin > next || next > chunk->committed.load() || chunk->committed.load() > chunk->end)
        return "begin <= next <= committed <= end";
      if ((next - chunk->begin) % granule_ != 0) return "(next - begin) % granule == 0";
      std::uintptr_t above = chunk->begin;
      for (byte_range const& range : chunk->free) {
        if (range.begin < above || range.end() >= next)
          return "free extents are sorted, apart, and below next";
        above = range.end() + 1;
        free += range.size;
      }
      committed += chunk->committed.load() - chunk->begin;
      reserved += chunk->range.size;
    }
    if (committed != committed_bytes_) return "committed_bytes == sum over chunks";
    if (reserved != reserved_bytes_) return "reserved_bytes == sum over chunks";
    return free == free_bytes_.load() ? nullptr : "free_bytes == sum over free extents";
  }

 private:
  template <class T>
  using atomic = Sync::template atomic<T>;

  struct chunk_record {
    byte_range range;                     // as returned by the space
    std::uintptr_t begin = 0;             // first address for an extent
    std::uintptr_t end = 0;               // one past the last address for an extent
    atomic<std::uintptr_t> next{0};       // start of the next extent
    atomic<std::uintptr_t> committed{0};  // [begin, committed) is backed by memory
    atomic<std::uintptr_t> touched{0};    // extents above this address are fresh
    std::vector<byte_range> free;         // extents below `next` that are not in use
  };

  // Claims from the committed part; empty if the part is too small.
  static extent claim_committed(chunk_record& chunk, std::size_t bytes) noexcept {
    const std::uintptr_t committed = chunk.committed.load(std::memory_order_acquire);
    std::uintptr_t first = chunk.next.load(std::memory_order_relaxed);
    do {
      if (first > committed || committed - first < bytes) return {};
    } while (!chunk.next.compare_exchange_weak(first, first + bytes, std::memory_order_acq_rel,
                                               std::memory_order_relaxed));
    const std::uintptr_t touched = chunk.touched.load(std::memory_order_relaxed);
    return {{first, bytes}, std::clamp(touched, first, first + bytes)};
  }

  // Tries free extents, then the current chunk, then all chunks, then a new chunk. Other threads see the new
  // chunk after it has served this claim.
  TIDEMARK_COLD extent claim_slow(std::size_t least, std::size_t wanted, space_refusal& refused) {
    late_reports late;
    const std::scoped_lock lock{*mutex_};
    for (std::unique_ptr<chunk_record>& chunk : chunks_)
      if (const extent found = claim_free(*chunk, least, wanted); !found.empty()) return found;
    if (chunk_record* const current = current_.load(std::memory_order_relaxed))
      if (const extent claimed = claim_from(*current, least, wanted, refused); !claimed.empty())
        return claimed;
    for (std::unique_ptr<chunk_record>& chunk : chunks_) {
      if (const extent claimed = claim_from(*chunk, least, wanted, refused); !claimed.empty()) {
        make_current(*chunk);
        return claimed;
      }
    }
    if (refused == space_refusal::memory || (!options_->growable && !chunks_.empty())) return {};
    chunk_record* const added = add_chunk(least);
    if (added == nullptr) {
      refused = space_refusal::addresses;
      return {};
    }
    const extent claimed = claim_from(*added, least, wanted, refused);
    if (claimed.empty()) drop(chunks_.size() - 1);
    else make_current(*added);
    return claimed;
  }

  // Claims after committing the memory. Commits more if other threads claim the committed memory first. Tries
  // the least size if the memory for the wanted size is refused.
  extent claim_from(chunk_record& chunk, std::size_t least, std::size_t wanted, space_refusal& refused) {
    for (;;) {
      const std::uintptr_t first = chunk.next.load(std::memory_order_relaxed);
      const std::size_t room = align_down(chunk.end - first, granule_);
      if (room < least) return {};
      std::size_t bytes = (std::min)(wanted, room);
      if (!commit_up_to(chunk, first + bytes)) {
        bytes = least;
        if (!commit_up_to(chunk, first + bytes)) {
          refused = space_refusal::memory;
          return {};
        }
      }
      if (const extent claimed = claim_committed(chunk, bytes); !claimed.empty()) return claimed;
    }
  }

  // First fit.
  extent claim_free(chunk_record& chunk, std::size_t least, std::size_t wanted) noexcept {
    const auto found =
        std::ranges::find_if(chunk.free, [=](byte_range range) { return range.size >= least; });
    if (found == chunk.free.end()) return {};
    const byte_range taken{found->begin, (std::min)(found->size, wanted)};
    free_bytes_.fetch_sub(taken.size, std::memory_order_relaxed);
    if (taken.size == found->size) chunk.free.erase(found);
    else *found = {taken.end(), found->size - taken.size};
    return {taken, taken.end()};
  }

  static bool is_below(byte_range a, byte_range b) noexcept { return a.begin < b.begin; }
  // Merges adjacent free extents in [first, end), which are sorted.
  static void merge_free(std::vector<byte_range>& free, std::vector<byte_range>::iterator first,
                         std::vector<byte_range>::iterator end) noexcept {
    if (first == end) return;
    auto kept = first;
    for (auto each = first + 1; each != end; ++each) {
      if (kept->end() == each->begin) kept->size += each->size;
      else *++kept = *each;
    }
    free.erase(kept + 1, end);
  }
  // Lowers `next` to the start of a free extent at the end of the chunk. Its bytes are not fresh, and
  // `touched` is raised before a claim can find them.
  void lower_next(chunk_record& chunk) noexcept {
    std::uintptr_t next = chunk.next.load(std::memory_order_relaxed);
    if (chunk.free.empty() || chunk.free.back().end() != next) return;
    const byte_range last = chunk.free.back();
    chunk.touched.store((std::max)(chunk.touched.load(std::memory_order_relaxed), next),
                        std::memory_order_relaxed);
    if (!chunk.next.compare_exchange_strong(next, last.begin, std::memory_order_acq_rel,
                                            std::memory_order_relaxed))
      return;  // a thread has claimed more in between
    free_bytes_.fetch_sub(last.size, std::memory_order_relaxed);
    chunk.free.pop_back();
  }

  void make_current(chunk_record& chunk) noexcept { current_.store(&chunk, std::memory_order_release); }
  chunk_record& chunk_of(std::uintptr_t address) noexcept {
    return **std::ranges::find_if(chunks_, [=](auto const& chunk) { return chunk->range.contains(address); });
  }
  static bool is_empty(chunk_record const& chunk) noexcept { return chunk.next.load() == chunk.begin; }

  // Adds a chunk after all others. @return null without addresses or memory for the record
  chunk_record* add_chunk(std::size_t least) {
    ++system_calls_;
    chunks_.reserve(chunks_.size() + 1);
    auto chunk = std::make_unique<chunk_record>();
    // Room for a whole extent at any start of the range.
    const std::size_t slack = space_->granularity() < granule_ ? granule_ : 0;
    chunk->range = space_->reserve(add_saturating(least, slack), (std::max)(chunk_bytes_, least));
    if (chunk->range.empty()) return nullptr;
    chunk->begin = align_up(std::max<std::uintptr_t>(chunk->range.begin, 1), granule_);
    chunk->end = (std::max)(chunk->begin, align_down(chunk->range.end(), granule_));
    chunk->next.store(chunk->begin);
    chunk->committed.store(AddressSpace::traits.commits ? chunk->begin : chunk->end);
    chunk->touched.store(AddressSpace::traits.fresh_is_zero ? chunk->begin : chunk->end);
    committed_bytes_ += chunk->committed.load() - chunk->begin;
    reserved_bytes_ += chunk->range.size;
    return chunks_.emplace_back(std::move(chunk)).get();
  }
  // Drops a chunk that no thread uses or claims from.
  void drop(std::size_t index) noexcept {
    chunk_record& chunk = *chunks_[index];
    unpoison(chunk.begin, chunk.committed.load() - chunk.begin);
    ++system_calls_;
    space_->release(chunk.range);
    committed_bytes_ -= chunk.committed.load() - chunk.begin;
    reserved_bytes_ -= chunk.range.size;
    chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  // Commits ahead, and growth therefore takes O(log n) calls. Commits only the need if the system refuses
  // more.
  bool commit_up_to(chunk_record& chunk, std::uintptr_t last) noexcept {
    const std::uintptr_t committed = chunk.committed.load(std::memory_order_relaxed);
    if (last <= committed || !AddressSpace::traits.commits) return last <= committed;
    const std::size_t step = align_up((std::max)(options_->commit_step, committed_bytes_ / 8), granule_);
    const std::uintptr_t ahead = (std::min)(chunk.end, committed + (std::max)(step, last - committed));
    ++system_calls_;
    const std::size_t bytes =
        (std::min)(space_->commit({committed, ahead - committed}, last - committed), chunk.end - committed);
    poison(committed, bytes);
    committed_bytes_ += bytes;
    chunk.committed.store(committed + bytes, std::memory_order_release);
    return bytes != 0;
  }
  void decommit(chunk_record& chunk, std::uintptr_t first) noexcept {
    ++system_calls_;
    const std::size_t bytes = chunk.committed.load() - first;
    unpoison(first, bytes);
    if (!space_->decommit({first, bytes})) return poison(first, bytes);
    committed_bytes_ -= bytes;
    chunk.committed.store(first);
    if constexpr (AddressSpace::traits.fresh_is_zero)
      chunk.touched.store((std::min)(chunk.touched.load(), first));
  }

  atomic<chunk_record*> current_{nullptr};  // first chunk that claims try; null before the first chunk
  atomic<std::size_t> free_bytes_{0};       // sum over the chunks' free extents
  // Used with the lock held, or while no other thread uses the region:
  AddressSpace* space_;
  mutex_type* mutex_;
  arena_options const* options_;
  std::size_t retain_bytes_;
  std::size_t granule_;
  std::size_t chunk_bytes_;
  std::vector<std::unique_ptr<chunk_record>> chunks_;
  std::size_t committed_bytes_ = 0;
  std::size_t reserved_bytes_ = 0;
  std::size_t lost_bytes_ = 0;
  std::uint64_t system_calls_ = 0;
  bool is_rewinding_ = false;
};

}  // namespace tidemark::detail
