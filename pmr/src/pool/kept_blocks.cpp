// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/kept_blocks.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tidemark::detail {

// A sweep lets the number of sizes double before the next sweep, so sweeps cost O(1) for each new size.
blocks_of_size& kept_blocks::size_entry(kept_size wanted) {
  if (blocks_of_size* const found = find(wanted)) return *found;
  if (ready_sizes_.size() + other_sizes_.size() >= max_sizes_) {
    for (sizes* const of : {&ready_sizes_, &other_sizes_})
      std::erase_if(*of, [](auto const& entry) { return entry.second.empty(); });
    recent_.fill({});
    max_sizes_ = std::max(max_empty_sizes, 2 * (ready_sizes_.size() + other_sizes_.size()));
  }
  return other_sizes_[wanted];
}

kept_block* kept_blocks::take_ready(std::size_t bytes, std::size_t align) noexcept {
  blocks_of_size* const of_size = find({bytes, align});
  if (of_size == nullptr) return nullptr;
  kept_block* const next = of_size->ready.front();
  if (next != nullptr) remove_ready(*next);
  return next;
}

// Removes and returns the next block of a list whose fence is done; the other list still has the block. Null
// if `left` allows no more queries.
template <kept_block::links kept_block::* Links>
kept_block* kept_blocks::take_done(pending_blocks<Links>& from, pending_looks& left,
                                   held_lock& lock) noexcept {
  while (kept_block* const asked = from.begin_query(left)) {
    lock.unlock();
    const bool is_done = asked->fence.done();
    lock.lock();
    from.end_query(*asked, is_done, left);
    if (is_done) return asked;
  }
  return nullptr;
}

kept_block* kept_blocks::take(std::size_t bytes, std::size_t align, held_lock& lock) noexcept {
  if (kept_block* const ready = take_ready(bytes, align)) return ready;
  blocks_of_size* const of_size = find({bytes, align});
  if (of_size == nullptr) return nullptr;
  auto& pending = of_size->pending;
  pending_looks looks = pending.looks(max_looks);
  kept_block* const done = take_done(pending, looks, lock);
  if (done == nullptr) return nullptr;
  pending_.remove(*done);
  pending_bytes_ -= done->bytes;
  return done;
}

bool kept_blocks::keep(void* block, std::size_t bytes, std::size_t align, reuse_fence& fence,
                       void const* order, kept_chain& leaving) noexcept {
  blocks_of_size* of_size = nullptr;
  try {
    of_size = &size_entry({bytes, align});
    if (!fence.empty()) {
      of_size->pending.reserve_one();
      pending_.reserve_one();
    }
    if (spare_.empty()) spare_.push_back(records_.emplace_back());
  } catch (...) {  // any exception of the bookkeeping resource
    return false;
  }
  kept_block& record = *spare_.front();
  spare_.remove(record);
  record.block = block;
  record.bytes = bytes;
  record.align = align;
  record.of_size = of_size;
  if (fence.empty()) {
    add_ready(record, leaving);
  } else {
    record.fence = std::move(fence);
    record.order = order;
    pending_.push_back(record);
    of_size->pending.push_back(record);
    pending_bytes_ += bytes;
  }
  return true;
}

void kept_blocks::look(std::span<reuse_fence> fences, kept_chain& leaving, held_lock& lock) noexcept {
  pending_looks looks = pending_.looks(fences.size());
  for (reuse_fence& fence : fences) {
    kept_block* const done = take_done(pending_, looks, lock);
    if (done == nullptr) return;
    remove_pending(*done);
    fence = std::move(done->fence);
    add_ready(*done, leaving);
  }
}

void kept_blocks::remove_pending(kept_block& block) noexcept {
  block.of_size->pending.remove(block);
  pending_bytes_ -= block.bytes;
}

void kept_blocks::take_out_ready(kept_chain& leaving) noexcept {
  for (auto& [size, of_size] : ready_sizes_) {
    while (!of_size.ready.empty()) evict(*of_size.ready.front(), leaving);
  }
}

void kept_blocks::take_out_pending(kept_chain& leaving) noexcept {
  while (kept_block* const taken = pending_.take_any()) {
    remove_pending(*taken);
    leaving.push_back(*taken);
  }
}

void kept_blocks::take_out_done(kept_chain& leaving, held_lock& lock) noexcept {
  pending_looks looks = pending_.looks(pending_.size());
  while (kept_block* const taken = take_done(pending_, looks, lock)) {
    remove_pending(*taken);
    leaving.push_back(*taken);
  }
}

// A block larger than the limit leaves itself, because evicting all others would keep nothing.
void kept_blocks::add_ready(kept_block& block, kept_chain& leaving) noexcept {
  if (max_cached_bytes_ != 0 && block.bytes > max_cached_bytes_) {
    leaving.push_back(block);
    return;
  }
  blocks_of_size& of_size = *block.of_size;
  if (!std::exchange(of_size.is_ready_size, true))
    ready_sizes_.insert(other_sizes_.extract(kept_size{block.bytes, block.align}));
  of_size.ready.push_back(block);
  ready_bytes_ += block.bytes;
  if (max_blocks_per_size_ != 0 && of_size.ready.size() > max_blocks_per_size_)
    evict(*of_size.ready.front(), leaving);
  while (max_cached_bytes_ != 0 && ready_bytes_ > max_cached_bytes_) evict(next_to_leave(), leaving);
  peak_ready_bytes_ = std::max(peak_ready_bytes_, ready_bytes_);
}

void kept_blocks::remove_ready(kept_block& block) noexcept {
  block.of_size->ready.remove(block);
  ready_bytes_ -= block.bytes;
}

void kept_blocks::evict(kept_block& block, kept_chain& leaving) noexcept {
  remove_ready(block);
  leaving.push_back(block);
}

// Returns the oldest block of the largest size. A hit leaves its size in `ready_sizes_`, even without ready
// blocks. This function removes such sizes, at most once for each block that becomes ready.
kept_block& kept_blocks::next_to_leave() noexcept {
  auto largest = std::prev(ready_sizes_.end());
  for (; largest->second.ready.empty(); largest = std::prev(ready_sizes_.end())) {
    largest->second.is_ready_size = false;
    other_sizes_.insert(ready_sizes_.extract(largest));
  }
  return *largest->second.ready.front();
}

char const* kept_blocks::broken_invariant() const noexcept {
  std::size_t ready_bytes = 0, pending_bytes = 0, ready = 0, pending = 0;
  bool belongs = true, fences_fit = true;
  for (sizes const* const of : {&ready_sizes_, &other_sizes_}) {
    for (auto const& [size, of_size] : *of) {
      const auto check = [&](kept_block const& block, bool has_fence) {
        belongs = belongs && kept_size{block.bytes, block.align} == size && block.of_size == &of_size;
        fences_fit = fences_fit && block.fence.empty() != has_fence;
        (has_fence ? pending_bytes : ready_bytes) += block.bytes;
      };
      for (kept_block const* block = of_size.ready.front(); block != nullptr;
           block = kept_list<&kept_block::in_size>::after(*block))
        check(*block, false);
      of_size.pending.for_each([&](kept_block const& block) { check(block, true); });
      if (!of_size.pending.is_valid()) return "a pending block is in its size's queue of its fence's order";
      if (max_blocks_per_size_ != 0 && of_size.ready.size() > max_blocks_per_size_)
        return "blocks of a size <= max_blocks_per_size";
      if (of_size.is_ready_size != (of == &ready_sizes_) ||
          (!of_size.ready.empty() && !of_size.is_ready_size))
        return "a size with a ready block is in ready_sizes";
      ready += of_size.ready.size();
      pending += of_size.pending.size();
    }
  }
  for (auto const& [size, entry] : recent_) {
    const auto has_entry = [&](sizes const& of) {
      const auto found = of.find(size);
      return found != of.end() && &found->second == entry;
    };
    if (entry != nullptr && !has_entry(ready_sizes_) && !has_entry(other_sizes_))
      return "recent: entry == nullptr || entry == &sizes.at(size)";
  }
  if (!belongs) return "the lists of a size have blocks of that size and alignment";
  if (!fences_fit) return "a ready block has no fence, and a pending block has a fence";
  if (!pending_.is_valid()) return "a pending block is in the queue of its fence's order";
  if (ready_bytes != ready_bytes_) return "cached_bytes == sum over ready blocks";
  if (pending_bytes != pending_bytes_) return "pending_bytes == sum over pending blocks";
  if (pending != pending_.size()) return "each pending block is in the list of its size";
  if (ready + pending + spare_.size() > records_.size()) return "a record is in one list";
  if (max_cached_bytes_ != 0 && ready_bytes_ > max_cached_bytes_) return "cached_bytes <= max_cached_bytes";
  if (ready_bytes_ > peak_ready_bytes_) return "cached_bytes <= peak_cached_bytes";
  return nullptr;
}

}  // namespace tidemark::detail
