// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/slab_store.hpp>

#include <algorithm>
#include <utility>

#include <tidemark/detail/align.hpp>

namespace tidemark::detail {
namespace {

// A slab is at least a page, so that what the upstream adds to it does not count, and from then on a 32nd of
// what the class has, so that its unused part does not count either: both stay below 5 %. Above 1 MiB nothing
// is gained.
constexpr std::size_t slab_bytes_min = 4 * KiB;
constexpr std::size_t slab_bytes_max = 1 * MiB;
constexpr std::size_t growth_divisor = 32;

// As many blocks are carved at once as fit in a page, so that a page is touched when its blocks are about to
// be used.
constexpr std::size_t carve_bytes = 4 * KiB;

free_block* block_at(std::uintptr_t address) noexcept { return reinterpret_cast<free_block*>(address); }
std::uintptr_t address_of(free_block const* block) noexcept {
  return reinterpret_cast<std::uintptr_t>(block);
}

}  // namespace

slab_store::slab_store(size_classes const& classes, std::pmr::memory_resource* upstream,
                       std::size_t blocks_max)
    : classes_{classes}, upstream_{upstream}, blocks_max_{blocks_max}, slabs_{upstream} {}

slab_store::slab const* slab_store::find(std::uintptr_t address) const noexcept {
  auto above = std::ranges::upper_bound(slabs_, address, {}, &slab::first);
  if (above == slabs_.begin()) return nullptr;
  slab const& candidate = *--above;
  return address - candidate.first < bytes_of(candidate) ? &candidate : nullptr;
}

std::size_t slab_store::add_slab(std::size_t index, std::size_t blocks_wanted, std::size_t bytes_max) {
  const std::size_t block_bytes = classes_.bytes(index);
  tier& its_tier = tiers_[index];
  std::size_t blocks = blocks_wanted;
  if (blocks == 0) {
    blocks = std::clamp(its_tier.blocks * block_bytes / growth_divisor, slab_bytes_min, slab_bytes_max) /
             block_bytes;
  }
  if (blocks_max_ != 0) blocks = std::min(blocks, blocks_max_);
  blocks = std::max<std::size_t>(1, std::min(blocks, bytes_max / block_bytes));
  const std::size_t bytes = blocks * block_bytes;
  if (slabs_.size() == slabs_.capacity()) slabs_.reserve(std::max<std::size_t>(16, 2 * slabs_.capacity()));
  void* const memory = upstream_->allocate(bytes, classes_.alignment(index));
  const auto first = reinterpret_cast<std::uintptr_t>(memory);
  const slab added{first, blocks, index, blocks, 0, nullptr, 0, false, nullptr, nullptr, nullptr};
  slabs_.insert(std::ranges::upper_bound(slabs_, first, {}, &slab::first), added);
  its_tier.carving = first;
  its_tier.blocks += blocks;
  uncarved_bytes_ += bytes;
  held_bytes_ += bytes;
  withhold(first, bytes);
  return bytes;
}

block_chain slab_store::carve(std::size_t index, std::size_t bytes_max) noexcept {
  slab* const from = find(tiers_[index].carving);
  if (from == nullptr || from->index != index || from->uncarved == 0) return {};
  const std::size_t block_bytes = classes_.bytes(index);
  const std::size_t bytes = std::min(carve_bytes, bytes_max);
  const std::size_t blocks = std::min(from->uncarved, std::max<std::size_t>(1, bytes / block_bytes));
  const std::uintptr_t first = from->first + (from->blocks - from->uncarved) * block_bytes;
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::uintptr_t block = first + i * block_bytes;
    link(block_at(block), i + 1 < blocks ? block_at(block + block_bytes) : nullptr);
  }
  from->uncarved -= blocks;
  uncarved_bytes_ -= blocks * block_bytes;
  return {block_at(first), blocks};
}

block_chain slab_store::take_stranded(std::size_t index, std::size_t bytes_max) noexcept {
  tier& its_tier = tiers_[index];
  if (its_tier.stranded == 0) return {};
  slab* from = find(its_tier.stranding);
  if (from == nullptr || from->index != index || from->stranded == 0) {
    from = &*std::ranges::find_if(slabs_, [&](slab const& s) { return s.index == index && s.stranded > 0; });
    its_tier.stranding = from->first;
  }
  const std::size_t blocks_max = std::max<std::size_t>(1, bytes_max / classes_.bytes(index));
  block_chain chain{from->stranded_list, 1};
  free_block* last = chain.first;
  for (free_block* next = next_of(last); next != nullptr && chain.blocks < blocks_max; next = next_of(last)) {
    last = next;
    ++chain.blocks;
  }
  from->stranded_list = next_of(last);
  link(last, nullptr);
  from->stranded -= chain.blocks;
  its_tier.stranded -= chain.blocks;
  stranded_bytes_ -= chain.blocks * classes_.bytes(index);
  return chain;
}

// Blocks of one slab in a row stay linked as they are: only the links between such runs are written.
slab_store::slab* slab_store::thread_by_slab(free_block* list) noexcept {
  slab* first_met = nullptr;
  slab** end_of_met = &first_met;
  while (list != nullptr) {
    slab& its_slab = *find(address_of(list));
    if (its_slab.counted == 0) {
      its_slab.first_counted = list;
      *end_of_met = &its_slab;
      end_of_met = &its_slab.next_met;
    } else {
      link(its_slab.last_counted,
           list);  // NOLINT(readability-suspicious-call-argument): it is the next there
    }
    const std::uintptr_t first = its_slab.first;
    const std::size_t bytes = bytes_of(its_slab);
    std::size_t run = 0;
    do {
      its_slab.last_counted = list;
      list = next_of(list);
      ++run;
    } while (list != nullptr && address_of(list) - first < bytes);
    its_slab.counted += run;
  }
  return first_met;
}

free_block* slab_store::joined(slab* met) noexcept {
  free_block* list = nullptr;
  free_block* last = nullptr;
  for (slab* s = met; s != nullptr; s = std::exchange(s->next_met, nullptr)) {
    if (!s->leaving) {
      if (last == nullptr) list = s->first_counted;
      else link(last, s->first_counted);  // NOLINT(readability-suspicious-call-argument): it is the next
      last = s->last_counted;
    }
    s->counted = 0;
    s->first_counted = s->last_counted = nullptr;
  }
  if (last != nullptr) link(last, nullptr);
  return list;
}

slab_store::trimmed slab_store::release_free_slabs(std::size_t index, free_block*& list,
                                                   std::size_t bytes_wanted) noexcept {
  slab* const met = thread_by_slab(list);
  trimmed gone;
  std::size_t bytes_gone = 0;  // stranded blocks of slabs included
  const auto consider = [&](slab& s) {
    const bool enough = bytes_gone >= bytes_wanted;
    if (enough || s.leaving || s.counted + s.uncarved + s.stranded != s.blocks) return;
    s.leaving = true;
    gone.listed += s.counted;
    gone.uncarved += s.uncarved;
    bytes_gone += bytes_of(s);
  };
  if (slab* carving = find(tiers_[index].carving); carving != nullptr && carving->index == index) {
    consider(*carving);
  }
  if (std::exchange(tiers_[index].may_be_free, false)) {
    for (slab& s : slabs_) {
      if (s.index == index) consider(s);
    }
    tiers_[index].may_be_free = bytes_gone >= bytes_wanted;  // then some were not considered
  }
  for (slab* s = met; s != nullptr && bytes_gone < bytes_wanted; s = s->next_met) consider(*s);
  list = joined(met);
  if (bytes_gone == 0) return gone;
  std::erase_if(slabs_, [&](slab const& s) {
    if (!s.leaving) return false;
    give_back(s);
    return true;
  });
  return gone;
}

std::size_t slab_store::set_aside(std::size_t index, free_block*& list, std::size_t blocks_max) noexcept {
  slab& its_slab = *find(address_of(list));
  const std::size_t bytes = bytes_of(its_slab);
  free_block* const first = list;
  free_block* last = nullptr;
  std::size_t blocks = 0;
  do {
    last = list;
    list = next_of(last);
    ++blocks;
  } while (blocks < blocks_max && list != nullptr && address_of(list) - its_slab.first < bytes);
  link(last, its_slab.stranded_list);
  its_slab.stranded_list = first;
  its_slab.stranded += blocks;
  tiers_[index].stranding = its_slab.first;
  // Other threads may have freed the last of its blocks since the trim looked for such slabs.
  if (its_slab.stranded + its_slab.uncarved == its_slab.blocks) tiers_[index].may_be_free = true;
  return blocks;
}

slab_store::trimmed slab_store::strand(std::size_t index, free_block*& list,
                                       std::size_t bytes_wanted) noexcept {
  const std::size_t block_bytes = classes_.bytes(index);
  const std::size_t blocks_wanted = bytes_wanted / block_bytes + (bytes_wanted % block_bytes != 0 ? 1 : 0);
  trimmed gone;
  while (list != nullptr && gone.listed < blocks_wanted) {
    gone.listed += set_aside(index, list, blocks_wanted - gone.listed);
  }
  while (gone.listed + gone.uncarved < blocks_wanted) {
    block_chain chain = carve(index, bytes_wanted);
    if (chain.blocks == 0) break;
    gone.uncarved += set_aside(index, chain.first, chain.blocks);
  }
  tiers_[index].stranded += gone.listed + gone.uncarved;
  stranded_bytes_ += (gone.listed + gone.uncarved) * block_bytes;
  return gone;
}

void slab_store::give_back(slab const& s) noexcept {
  const std::size_t bytes = bytes_of(s), block_bytes = classes_.bytes(s.index);
  tiers_[s.index].blocks -= s.blocks;
  tiers_[s.index].stranded -= s.stranded;
  stranded_bytes_ -= s.stranded * block_bytes;
  uncarved_bytes_ -= s.uncarved * block_bytes;
  held_bytes_ -= bytes;
  hand_out(s.first, bytes);
  upstream_->deallocate(reinterpret_cast<void*>(s.first), bytes, classes_.alignment(s.index));
}

void slab_store::release() noexcept {
  for (slab const& s : slabs_) give_back(s);
  std::pmr::vector<slab>{slabs_.get_allocator()}.swap(slabs_);  // its memory is the upstream's too
  tiers_ = {};
  held_bytes_ = 0;
}

bool slab_store::is_block_of(void const* block, std::size_t index) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  slab const* const its_slab = find(address);
  return its_slab != nullptr && its_slab->index == index &&
         (address - its_slab->first) % classes_.bytes(index) == 0;
}

char const* slab_store::broken_invariant() const noexcept {
  std::size_t held = 0, stranded = 0, uncarved = 0;
  std::array<std::size_t, size_classes::count_max> carving{}, blocks{};
  std::uintptr_t last_end = 0;
  for (slab const& s : slabs_) {
    if (s.first < last_end) return "slabs are sorted and do not overlap";
    last_end = s.first + bytes_of(s);
    if (s.uncarved + s.stranded > s.blocks) return "uncarved + stranded <= blocks";
    std::size_t listed = 0;
    for (free_block* block = s.stranded_list; block != nullptr; block = next_of(block)) {
      if (find(address_of(block)) != &s) return "a stranded block lies in its slab";
      ++listed;
    }
    if (listed != s.stranded) return "stranded == length of the stranded list";
    held += bytes_of(s);
    stranded += s.stranded * classes_.bytes(s.index);
    uncarved += s.uncarved * classes_.bytes(s.index);
    carving[s.index] += s.uncarved > 0 ? 1 : 0;
    blocks[s.index] += s.blocks;
  }
  if (held != held_bytes_) return "held_bytes == sum over slabs";
  if (stranded != stranded_bytes_) return "stranded_bytes == sum over slabs";
  if (uncarved != uncarved_bytes_) return "uncarved_bytes == sum over slabs";
  if (std::ranges::max(carving) > 1) return "at most one slab of a class has uncarved blocks";
  for (std::size_t i = 0; i < classes_.count(); ++i) {
    if (blocks[i] != tiers_[i].blocks) return "tier.blocks == sum over slabs";
  }
  return nullptr;
}

}  // namespace tidemark::detail
