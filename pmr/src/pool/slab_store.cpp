// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/slab_store.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/virtual_memory.hpp>

namespace tidemark::detail {
namespace {

// A slab is at least a page, so that the upstream's overhead stays below 5 %. A slab is a 32nd of its class,
// so that its unused part also stays below 5 %. Slabs above 1 MiB gain nothing.
constexpr std::size_t min_slab_bytes = 4 * KiB;
constexpr std::size_t max_slab_bytes = 1 * MiB;
constexpr std::size_t growth_divisor = 32;

// One page of blocks is carved at once, so that a page is touched only shortly before use.
constexpr std::size_t carve_bytes = 4 * KiB;

// Slabs with a limit of blocks grow by half, as in the standard's pools, because users of those count
// upstream calls.
std::size_t slab_bytes(std::size_t block_bytes, std::size_t class_bytes, std::size_t max_blocks) noexcept {
  if (max_blocks == 0) return std::clamp(class_bytes / growth_divisor, min_slab_bytes, max_slab_bytes);
  return std::min(1 * KiB + class_bytes / 2, std::max(512 * KiB, 16 * block_bytes));
}

// Returns the memory behind a free range of a heap to the system, except its tag and links.
// `os_memory::decommit` would protect the pages: a failure to unprotect them would leave them unusable.
void discard_pages(std::uintptr_t first, std::uintptr_t end) noexcept {
  const std::size_t page_bytes = default_os_memory().page_size();
  constexpr std::size_t tag_and_links_bytes = 64;
  const std::uintptr_t begin = align_up(first + tag_and_links_bytes, page_bytes);
  const std::uintptr_t behind = align_down(end, page_bytes);
  // A refusal is harmless: the pages stay.
  if (begin < behind) (void)madvise(reinterpret_cast<void*>(begin), behind - begin, MADV_DONTNEED);
}

free_block* block_at(std::uintptr_t address) noexcept { return reinterpret_cast<free_block*>(address); }

}  // namespace

slab_store::slab_store(size_classes const& classes, std::pmr::memory_resource* upstream,
                       std::size_t max_blocks)
    : classes_{classes}, upstream_{upstream}, max_blocks_{max_blocks}, slabs_{upstream} {}

slab_store::slab const* slab_store::find(std::uintptr_t address) const noexcept {
  auto above = std::ranges::upper_bound(slabs_, address, {}, &slab::first);
  if (above == slabs_.begin()) return nullptr;
  slab const& candidate = *--above;
  return address - candidate.first < bytes_of(candidate) ? &candidate : nullptr;
}

std::size_t slab_store::add_slab(std::size_t index, std::size_t blocks_wanted, std::size_t max_bytes) {
  const std::size_t block_bytes = classes_.bytes(index);
  size_class& its_class = of_class_[index];
  std::size_t blocks = blocks_wanted;
  if (blocks == 0)
    blocks = slab_bytes(block_bytes, its_class.blocks * block_bytes, max_blocks_) / block_bytes;
  if (max_blocks_ != 0) blocks = std::min(blocks, max_blocks_);
  blocks = std::max<std::size_t>(1, std::min(blocks, max_bytes / block_bytes));
  // The table grows first, because the slab may take all remaining memory. The old table stays if the slab
  // fails.
  std::pmr::vector<slab> grown{slabs_.get_allocator()};
  if (slabs_.size() == slabs_.capacity()) grown.reserve(std::max<std::size_t>(16, 2 * slabs_.capacity()));
  byte_range memory = allocate_in_region(index, blocks);
  const bool is_in_region = !memory.empty();
  if (!is_in_region)
    memory = allocate_by_halves(*upstream_, 1, blocks, block_bytes, classes_.alignment(index));
  const auto [first, bytes] = memory;
  if (grown.capacity() != 0) {
    grown.assign(slabs_.begin(), slabs_.end());
    slabs_.swap(grown);
  }
  blocks = bytes / block_bytes;
  const slab added{
      .first = first, .blocks = blocks, .index = index, .uncarved = blocks, .is_in_region = is_in_region};
  slabs_.insert(std::ranges::upper_bound(slabs_, first, {}, &slab::first), added);
  its_class.carving = first;
  its_class.blocks += blocks;
  uncarved_bytes_ += bytes;
  held_bytes_ += bytes;
  poison(first, bytes);
  return bytes;
}

// The heap requests huge pages behind a chunk as large as a region. A larger slab has memory of its own.
byte_range slab_store::allocate_in_region(std::size_t index, std::size_t blocks) noexcept {
  constexpr std::size_t region_bytes = virtual_memory::min_huge_commit_bytes;
  static_assert(max_slab_bytes <= region_bytes / 8);
  const std::size_t block_bytes = classes_.bytes(index);
  const bool is_suitable = held_bytes_ >= min_bytes_with_regions && blocks * block_bytes <= max_slab_bytes;
  if (!is_suitable || upstream_ != std::pmr::new_delete_resource()) return {};
  try {
    if (regions_ == nullptr) regions_ = std::make_unique<coalescing_heap>(upstream_);
    for (;;) {
      // A shorter slab fills the end of a region, whose huge page is used anyway.
      for (std::size_t fewer = blocks; fewer > 0 && fewer >= blocks / 4; fewer /= 2) {
        const std::size_t bytes = fewer * block_bytes;
        if (void* const memory = regions_->try_allocate(bytes, classes_.alignment(index)))
          return {reinterpret_cast<std::uintptr_t>(memory), bytes};
      }
      regions_->add_free_chunk(region_bytes, virtual_memory::range_alignment);
    }
  } catch (std::bad_alloc const&) {
    return {};
  }
}

block_chain slab_store::carve(std::size_t index, std::size_t max_bytes) noexcept {
  slab* const from = find(of_class_[index].carving);
  if (from == nullptr || from->index != index || from->uncarved == 0) return {};
  const std::size_t block_bytes = classes_.bytes(index);
  const std::size_t bytes = std::min(carve_bytes, max_bytes);
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

block_chain slab_store::unstrand(std::size_t index, std::size_t max_bytes) noexcept {
  size_class& its_class = of_class_[index];
  if (its_class.stranded == 0) return {};
  slab* from = find(its_class.stranding);
  if (from == nullptr || from->index != index || from->stranded == 0) {
    from = &*std::ranges::find_if(slabs_, [&](slab const& s) { return s.index == index && s.stranded > 0; });
    its_class.stranding = from->first;
  }
  const block_chain chain = cut_front(from->stranded_list, max_bytes / classes_.bytes(index));
  from->stranded -= chain.blocks;
  its_class.stranded -= chain.blocks;
  stranded_bytes_ -= chain.blocks * classes_.bytes(index);
  return chain;
}

template <class Visit>
void slab_store::for_each_block(free_block* list, Visit visit) noexcept {
  slab* its_slab = nullptr;
  for (free_block* block = list; block != nullptr;) {
    if (its_slab == nullptr || address_of(block) - its_slab->first >= bytes_of(*its_slab))
      its_slab = find(address_of(block));
    free_block* const next = next_of(block);
    visit(block, *its_slab);
    block = next;
  }
}

std::size_t slab_store::release_free_slabs(std::size_t index, block_chain& list,
                                           std::size_t bytes_wanted) noexcept {
  size_class& its_class = of_class_[index];
  for_each_block(list.first, [](free_block*, slab& s) { ++s.listed; });
  std::size_t delisted_blocks = 0, bytes_to_return = 0;  // bytes_to_return includes stranded blocks
  const auto consider = [&](slab& s) {
    const bool is_enough = bytes_to_return >= bytes_wanted;
    if (is_enough || s.is_returned || s.listed + s.uncarved + s.stranded != s.blocks) return;
    s.is_returned = true;
    delisted_blocks += s.listed + s.uncarved;
    bytes_to_return += bytes_of(s);
  };
  if (slab* const carving = find(its_class.carving); carving != nullptr && carving->index == index)
    consider(*carving);
  if (std::exchange(its_class.may_be_free, false)) {
    for (slab& s : slabs_)
      if (s.index == index) consider(s);
    its_class.may_be_free = bytes_to_return >= bytes_wanted;  // true: some slabs were not considered
  }
  for_each_block(list.first, [&](free_block*, slab& s) { consider(s); });
  // Removes the blocks of returned slabs from the list.
  block_chain kept;
  free_block* last = nullptr;
  for_each_block(list.first, [&](free_block* block, slab& s) {
    s.listed = 0;
    if (s.is_returned) return;
    if (last == nullptr) kept.first = block;
    else link(last, block);  // NOLINT(readability-suspicious-call-argument): it is the next
    last = block;
    ++kept.blocks;
  });
  if (last != nullptr) link(last, nullptr);
  list = kept;
  if (bytes_to_return == 0) return 0;
  std::erase_if(slabs_, [&](slab const& s) {
    if (!s.is_returned) return false;
    return_to_upstream(s);
    return true;
  });
  return delisted_blocks;
}

std::size_t slab_store::strand_from_slab(std::size_t index, block_chain& list,
                                         std::size_t max_blocks) noexcept {
  slab& its_slab = *find(address_of(list.first));
  const std::size_t bytes = bytes_of(its_slab);
  free_block* const first = list.first;
  free_block* last = nullptr;
  std::size_t blocks = 0;
  do {
    last = list.first;
    list.first = next_of(last);
    ++blocks;
  } while (blocks < max_blocks && list.first != nullptr && address_of(list.first) - its_slab.first < bytes);
  list.blocks -= blocks;
  link(last, its_slab.stranded_list);
  its_slab.stranded_list = first;
  its_slab.stranded += blocks;
  of_class_[index].stranding = its_slab.first;
  // Other threads may have freed the last live blocks of the slab since the trim searched for free slabs.
  if (its_slab.stranded + its_slab.uncarved == its_slab.blocks) of_class_[index].may_be_free = true;
  return blocks;
}

std::size_t slab_store::strand(std::size_t index, block_chain& list, std::size_t bytes_wanted) noexcept {
  const std::size_t block_bytes = classes_.bytes(index);
  const std::size_t blocks_wanted = bytes_wanted / block_bytes + (bytes_wanted % block_bytes != 0 ? 1 : 0);
  std::size_t gone = 0;
  while (gone < blocks_wanted) {
    if (list.first == nullptr) list = carve(index, bytes_wanted);
    if (list.first == nullptr) break;
    gone += strand_from_slab(index, list, blocks_wanted - gone);
  }
  of_class_[index].stranded += gone;
  stranded_bytes_ += gone * block_bytes;
  return gone;
}

void slab_store::return_to_upstream(slab const& s) noexcept {
  const std::size_t bytes = bytes_of(s), block_bytes = classes_.bytes(s.index);
  of_class_[s.index].blocks -= s.blocks;
  of_class_[s.index].stranded -= s.stranded;
  stranded_bytes_ -= s.stranded * block_bytes;
  uncarved_bytes_ -= s.uncarved * block_bytes;
  held_bytes_ -= bytes;
  unpoison(s.first, bytes);
  if (s.is_in_region) {
    regions_->deallocate(reinterpret_cast<void*>(s.first), bytes);
    if (regions_->release_free(regions_->cached_bytes()) == 0) discard_pages(s.first, s.first + bytes);
    return;
  }
  upstream_->deallocate(reinterpret_cast<void*>(s.first), bytes, classes_.alignment(s.index));
}

void slab_store::release() noexcept {
  for (slab const& s : slabs_) return_to_upstream(s);
  std::pmr::vector<slab>{slabs_.get_allocator()}.swap(slabs_);  // the table is upstream memory, too
  of_class_ = {};
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
  std::array<std::size_t, size_classes::max_count> carving{}, blocks{};
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
    if (s.uncarved + s.stranded == s.blocks && find(of_class_[s.index].carving) != &s &&
        !of_class_[s.index].may_be_free)
      return "a slab without live and listed blocks is being carved, or its class may be free";
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
    if (blocks[i] != of_class_[i].blocks) return "blocks of a class == sum over slabs";
  }
  return nullptr;
}

}  // namespace tidemark::detail
