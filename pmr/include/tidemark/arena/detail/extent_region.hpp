// SPDX-License-Identifier: Apache-2.0
/// @file
/// `extent_region`: one region of memory from which threads claim extents. Owns its chunks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
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
#include <tidemark/core/detail/sanitizers.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark::detail {

/// What a region synchronises with. Tests pass one that tries every interleaving instead.
struct std_sync {
  template <class T>
  using atomic = std::atomic<T>;
  using mutex = fork_safe<>;
};

/// What a thread claimed: whole pages, which it alone uses.
struct extent {
  byte_range range;
  std::uintptr_t touched = 0;  // bytes at or above have not been touched since they were committed

  [[nodiscard]] bool empty() const noexcept { return range.empty(); }
};

/// Memory that any number of threads claim extents of, and one takes all back from.
///
/// A claim adds to `next` of the current chunk, by one compare-exchange: an addition that cannot pass
/// `committed`, so that a claim that fails has changed nothing for the others. Only what needs more memory,
/// or finds extents that were given back, takes the lock.
///
/// Invariants, of each chunk; the current one is the last with extents in it:
/// - `begin <= next <= committed <= end`, and all of them are multiples of the granule from `begin` on
/// - extents, free or in use, do not overlap, and fill `[begin, next)`; no free one ends at the current `next`
/// - the current chunk's bytes at or above `max(next, touched)` have not been touched since they were committed
/// - free extents are sorted by address and do not touch each other, but between `begin_rewind` and `end_rewind`
///
/// `claim` and `give_back`: any thread. All else: while no other thread uses the region. O(chunks), and
/// `give_back` O(free extents), unless a function says otherwise.
template <class AddressSpace, class Sync = std_sync>
class extent_region {
  static_assert(address_space<AddressSpace>, "a region's memory must come from an address_space");

 public:
  using mutex_type = Sync::mutex;

  /// The least that extents are multiples of: a page of most machines.
  static constexpr std::size_t min_granule = 4 * KiB;

  /// What of a request the address space refused.
  enum class refusal { none, addresses, memory };

  /// A region on `space`, which it uses with `mutex` locked. Both must outlive it. @param chunk_bytes in a chunk
  extent_region(AddressSpace& space, mutex_type& mutex, arena_options const& options, std::size_t chunk_bytes)
      : space_{&space},
        mutex_{&mutex},
        options_{&options},
        granule_{std::max(min_granule, space.granularity())},
        chunk_bytes_{align_up(std::max(chunk_bytes, granule_), granule_)} {}
  extent_region(extent_region const&) = delete;
  extent_region& operator=(extent_region const&) = delete;
  ~extent_region() {
    while (!chunks_.empty()) drop_last_chunk();
  }

  /// Bytes that extents are multiples of.
  [[nodiscard]] std::size_t granule() const noexcept { return granule_; }

  /// Claims at least `least` and at best `wanted` bytes, rounded up to whole granules.
  /// @return an empty extent if there is no memory; nothing has changed then. @throws what the space throws.
  [[nodiscard]] extent claim(std::size_t least, std::size_t wanted, refusal& refused) {
    least = align_up(least, granule_);
    wanted = std::max(least, align_up(wanted, granule_));
    if (free_bytes_.load(std::memory_order_relaxed) == 0) [[likely]] {
      chunk_record* const chunk = current_.load(std::memory_order_acquire);
      if (chunk != nullptr) [[likely]]
        if (const extent claimed = claim_committed(*chunk, wanted); !claimed.empty()) return claimed;
    }
    return claim_slow(least, wanted, refused);
  }

  /// Gives back an extent, which any thread may claim from now on. Without memory for a record it is lost
  /// until the region is released. Its bytes must not be touched any more.
  void give_back(byte_range range) noexcept {
    poison(range.begin, range.size);
    const std::scoped_lock lock{*mutex_};
    try {
      if (is_rewinding_) free_.push_back(range);
      else insert_free(range);
    } catch (std::bad_alloc const&) {
      return;
    }
    add_free_bytes(range.size);
    chunk_record* const chunk = current_.load(std::memory_order_relaxed);
    if (!is_rewinding_) lower_next(*chunk);
  }

  /// Many extents are about to be given back.
  void begin_rewind() noexcept { is_rewinding_ = true; }
  /// They were. O(n log n) of them; returns whole chunks while more than `retain` is committed.
  void end_rewind() noexcept {
    is_rewinding_ = false;
    sort_free();
    for (std::unique_ptr<chunk_record>& chunk : chunks_) lower_next(*chunk);
    settle();
    while (committed_bytes_ > options_->retain && chunks_.size() > current_index_ + 1) drop_last_chunk();
  }

  /// Returns what is committed more than `keep_bytes` above the last extent. @return bytes returned
  std::size_t trim(std::size_t keep_bytes) noexcept {
    const std::size_t committed_before = committed_bytes_;
    if (chunks_.empty()) return 0;
    chunk_record& chunk = *chunks_[current_index_];
    const std::uintptr_t next = chunk.next.load();
    std::size_t kept = chunk.committed.load() - next;
    for (std::size_t i = current_index_ + 1; i < chunks_.size();) {
      const std::size_t bytes = chunks_[i]->committed.load() - chunks_[i]->begin;
      if (add_saturating(kept, bytes) > keep_bytes) {
        std::rotate(chunks_.begin() + static_cast<std::ptrdiff_t>(i),
                    chunks_.begin() + static_cast<std::ptrdiff_t>(i) + 1, chunks_.end());
        drop_last_chunk();
      } else {
        kept += bytes;
        ++i;
      }
    }
    if constexpr (AddressSpace::commits) {
      const std::uintptr_t first =
          align_up(std::min(add_saturating(next, keep_bytes), chunk.committed.load()), space_->granularity());
      if (first < chunk.committed.load()) decommit(chunk, first);
    }
    return committed_before - committed_bytes_;
  }

  /// Reserves the first chunk, so that there is one. @return whether there is.
  [[nodiscard]] bool reserve() { return !chunks_.empty() || add_chunk(granule_) != nullptr; }
  /// Returns all memory. @pre no extent is in use
  void release() noexcept {
    while (!chunks_.empty()) drop_last_chunk();
    free_.clear();
    free_bytes_.store(0);
  }

  /// In extents, free ones too.
  [[nodiscard]] std::size_t claimed_bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& chunk : chunks_) sum += chunk->next.load() - chunk->begin;
    return sum;
  }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return free_bytes_.load(); }
  [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_bytes_; }
  [[nodiscard]] std::size_t reserved_bytes() const noexcept { return reserved_bytes_; }
  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_.size(); }
  [[nodiscard]] std::uint64_t system_calls() const noexcept { return system_calls_; }
  /// Room for the largest extent that memory or addresses held can serve. With the lock held.
  [[nodiscard]] std::size_t largest_bytes(refusal refused) const noexcept {
    std::size_t largest = 0;
    for (byte_range const& range : free_) largest = std::max(largest, range.size);
    for (auto const& chunk : chunks_) {
      const std::uintptr_t end = refused == refusal::memory ? chunk->committed.load() : chunk->end;
      largest = std::max<std::size_t>(largest, end - chunk->next.load());
    }
    return largest;
  }
  /// Whether the address lies in an extent, free or not. Any thread, with the lock held.
  [[nodiscard]] bool holds(std::uintptr_t address) const noexcept {
    return std::ranges::any_of(chunks_, [=](auto const& chunk) {
      return address >= chunk->begin && address < chunk->next.load(std::memory_order_acquire);
    });
  }
  /// The formula that does not hold; null if all do. @pre as `trim`
  [[nodiscard]] char const* broken_invariant() const noexcept {
    std::size_t committed = 0, reserved = 0, free = 0;
    for (auto const& chunk : chunks_) {
      const std::uintptr_t next = chunk->next.load();
      if (chunk->begin > next || next > chunk->committed.load() || chunk->committed.load() > chunk->end)
        return "begin <= next <= committed <= end";
      if ((next - chunk->begin) % granule_ != 0) return "(next - begin) % granule == 0";
      committed += chunk->committed.load() - chunk->begin;
      reserved += chunk->range.size;
    }
    for (std::size_t i = current_index_ + 1; i < chunks_.size(); ++i)
      if (chunks_[i]->next.load() != chunks_[i]->begin)
        return "there are no extents behind the current chunk";
    if (committed != committed_bytes_) return "committed_bytes == sum over chunks";
    if (reserved != reserved_bytes_) return "reserved_bytes == sum over chunks";
    for (std::size_t i = 0; i < free_.size(); ++i) {
      free += free_[i].size;
      if (i > 0 && free_[i - 1].end() >= free_[i].begin) return "free extents are sorted, and do not touch";
      if (!holds(free_[i].begin) || !holds(free_[i].end() - 1)) return "free extents lie in [begin, next)";
    }
    return free == free_bytes_.load() ? nullptr : "free_bytes == sum over free extents";
  }

 private:
  template <class T>
  using atomic = Sync::template atomic<T>;

  struct chunk_record {
    byte_range range;                     // as the space returned it
    std::uintptr_t begin = 0;             // its first address for an extent
    std::uintptr_t end = 0;               // one past the last
    atomic<std::uintptr_t> next{0};       // the next extent begins here
    atomic<std::uintptr_t> committed{0};  // memory is behind [begin, committed)
    atomic<std::uintptr_t> touched{0};    // extents above it are fresh
  };

  // From the committed part, if that has so much.
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

  TIDEMARK_COLD extent claim_slow(std::size_t least, std::size_t wanted, refusal& refused) {
    const std::scoped_lock lock{*mutex_};
    if (const extent found = take_free(least, wanted); !found.empty()) return found;
    for (chunk_record* chunk = current_.load(std::memory_order_relaxed); chunk != nullptr;) {
      if (const extent claimed = claim_from(*chunk, least, wanted, refused); !claimed.empty()) return claimed;
      if (refused == refusal::memory) return {};
      chunk = enter_kept_chunk(least);
    }
    if (!options_->growable && !chunks_.empty()) return {};
    chunk_record* const added = add_chunk(least);
    refused = added == nullptr ? refusal::addresses : refusal::none;
    if (added == nullptr) return {};
    const extent claimed = claim_from(*added, least, wanted, refused);
    if (claimed.empty()) drop_last_chunk();
    else make_current(chunks_.size() - 1);
    return claimed;
  }

  // With memory committed for it. Other threads may claim what was committed before this one does: then more is
  // committed. Where not all can be had, the least is tried.
  extent claim_from(chunk_record& chunk, std::size_t least, std::size_t wanted, refusal& refused) {
    for (;;) {
      const std::uintptr_t first = chunk.next.load(std::memory_order_relaxed);
      const std::size_t room = align_down(chunk.end - first, granule_);
      if (room < least) return {};
      std::size_t bytes = std::min(wanted, room);
      if (!commit_up_to(chunk, first + bytes)) {
        bytes = least;
        if (!commit_up_to(chunk, first + bytes)) {
          refused = refusal::memory;
          return {};
        }
      }
      if (const extent claimed = claim_committed(chunk, bytes); !claimed.empty()) return claimed;
    }
  }

  // First fit.
  extent take_free(std::size_t least, std::size_t wanted) noexcept {
    const auto found = std::ranges::find_if(free_, [=](byte_range range) { return range.size >= least; });
    if (found == free_.end()) return {};
    const byte_range taken{found->begin, std::min(found->size, wanted)};
    subtract_free_bytes(taken.size);
    if (taken.size == found->size) free_.erase(found);
    else *found = {taken.end(), found->size - taken.size};
    return {taken, taken.end()};
  }

  // Sorted by address, merged with its neighbours.
  void insert_free(byte_range range) {
    auto after = std::ranges::lower_bound(free_, range.begin, {}, &byte_range::begin);
    if (after != free_.end() && after->begin == range.end()) {
      *after = {range.begin, range.size + after->size};
    } else {
      after = free_.insert(after, range);
    }
    if (after != free_.begin() && std::prev(after)->end() == after->begin) {
      std::prev(after)->size += after->size;
      free_.erase(after);
    }
  }
  void sort_free() noexcept {
    std::ranges::sort(free_, {}, &byte_range::begin);
    std::size_t kept = 0;
    for (std::size_t i = 1; i < free_.size(); ++i) {
      if (free_[kept].end() == free_[i].begin) free_[kept].size += free_[i].size;
      else free_[++kept] = free_[i];
    }
    if (!free_.empty()) free_.resize(kept + 1);
  }
  // If a free extent is the last of the chunk, the next claim begins where it did. Its bytes are not fresh:
  // `touched` says so before a claim can find them.
  void lower_next(chunk_record& chunk) noexcept {
    std::uintptr_t next = chunk.next.load(std::memory_order_relaxed);
    const auto last = std::ranges::find(free_, next, &byte_range::end);
    if (last == free_.end() || last->begin < chunk.begin) return;
    chunk.touched.store(std::max(chunk.touched.load(std::memory_order_relaxed), next),
                        std::memory_order_relaxed);
    if (!chunk.next.compare_exchange_strong(next, last->begin, std::memory_order_acq_rel,
                                            std::memory_order_relaxed))
      return;  // a thread has claimed more in between
    subtract_free_bytes(last->size);
    free_.erase(last);
  }
  void add_free_bytes(std::size_t bytes) noexcept {
    free_bytes_.store(free_bytes_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  void subtract_free_bytes(std::size_t bytes) noexcept { add_free_bytes(std::size_t{0} - bytes); }

  void make_current(std::size_t index) noexcept {
    current_index_ = index;
    current_.store(chunks_[index].get(), std::memory_order_release);
  }
  // The last chunk with extents in it becomes the current one.
  void settle() noexcept {
    std::size_t index = current_index_;
    while (index > 0 && chunks_[index]->next.load() == chunks_[index]->begin) --index;
    if (!chunks_.empty()) make_current(index);
  }
  // The first chunk behind the current one with so much room; null if there is none.
  chunk_record* enter_kept_chunk(std::size_t least) noexcept {
    for (std::size_t i = current_index_ + 1; i < chunks_.size(); ++i) {
      if (align_down(chunks_[i]->end - chunks_[i]->begin, granule_) < least) continue;
      std::swap(chunks_[i], chunks_[current_index_ + 1]);
      make_current(current_index_ + 1);
      return chunks_[current_index_].get();
    }
    return nullptr;
  }

  // Behind all others; null without addresses or memory for its record.
  chunk_record* add_chunk(std::size_t least) {
    ++system_calls_;
    chunks_.reserve(chunks_.size() + 1);
    auto chunk = std::make_unique<chunk_record>();
    // Room for a whole extent wherever the range begins.
    const std::size_t slack = AddressSpace::block_alignment;
    chunk->range = space_->reserve(add_saturating(least, slack), std::max(chunk_bytes_, least));
    if (chunk->range.empty()) return nullptr;
    chunk->begin = align_up(std::max<std::uintptr_t>(chunk->range.begin, 1), AddressSpace::block_alignment);
    chunk->end = std::max(chunk->begin, align_down(chunk->range.end(), AddressSpace::block_alignment));
    chunk->next.store(chunk->begin);
    chunk->committed.store(AddressSpace::commits ? chunk->begin : chunk->end);
    chunk->touched.store(AddressSpace::fresh_is_zero ? chunk->begin : chunk->end);
    committed_bytes_ += chunk->committed.load() - chunk->begin;
    reserved_bytes_ += chunk->range.size;
    chunks_.push_back(std::move(chunk));
    if (chunks_.size() == 1) make_current(0);
    return chunks_.back().get();
  }
  void drop_last_chunk() noexcept {
    chunk_record& chunk = *chunks_.back();
    unpoison(chunk.begin, chunk.committed.load() - chunk.begin);
    ++system_calls_;
    space_->release(chunk.range);
    committed_bytes_ -= chunk.committed.load() - chunk.begin;
    reserved_bytes_ -= chunk.range.size;
    if (current_.load() == &chunk) {
      current_.store(nullptr);
      current_index_ = 0;
    }
    chunks_.pop_back();
  }

  // Commits ahead, so that growing takes O(log n) calls; if the system refuses so much, what is needed.
  bool commit_up_to(chunk_record& chunk, std::uintptr_t last) noexcept {
    const std::uintptr_t committed = chunk.committed.load(std::memory_order_relaxed);
    if (last <= committed) return true;
    if constexpr (AddressSpace::commits) {
      const std::size_t step = align_up(std::max(options_->commit_step, committed_bytes_ / 8), granule_);
      const std::uintptr_t ahead = std::min(chunk.end, committed + std::max(step, last - committed));
      if (ahead > last && commit(chunk, committed, ahead)) return true;
      return commit(chunk, committed, last);
    }
    return false;
  }
  bool commit(chunk_record& chunk, std::uintptr_t from, std::uintptr_t to) noexcept {
    ++system_calls_;
    if (!space_->commit({from, to - from})) return false;
    poison(from, to - from);
    committed_bytes_ += to - from;
    chunk.committed.store(to, std::memory_order_release);
    return true;
  }
  void decommit(chunk_record& chunk, std::uintptr_t first) noexcept {
    ++system_calls_;
    const std::size_t bytes = chunk.committed.load() - first;
    unpoison(first, bytes);
    if (!space_->decommit({first, bytes})) return poison(first, bytes);
    committed_bytes_ -= bytes;
    chunk.committed.store(first);
    if constexpr (AddressSpace::fresh_is_zero) chunk.touched.store(std::min(chunk.touched.load(), first));
  }

  atomic<chunk_record*> current_{nullptr};  // claims are from this one; null before the first
  atomic<std::size_t> free_bytes_{0};       // sum over `free_`
  // With the lock held, or while no other thread uses the region:
  AddressSpace* space_;
  mutex_type* mutex_;
  arena_options const* options_;
  std::size_t granule_;
  std::size_t chunk_bytes_;
  std::vector<std::unique_ptr<chunk_record>> chunks_;  // up to the current one in use, behind it kept
  std::size_t current_index_ = 0;
  std::vector<byte_range> free_;  // extents given back that are not the last
  std::size_t committed_bytes_ = 0;
  std::size_t reserved_bytes_ = 0;
  std::uint64_t system_calls_ = 0;
  bool is_rewinding_ = false;
};

}  // namespace tidemark::detail
