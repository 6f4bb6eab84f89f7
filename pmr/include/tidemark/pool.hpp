// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pool`: blocks that come back by size, for one thread. The pool owns the memory it took from its upstream.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/config.hpp>
#include <tidemark/detail/block_cache.hpp>
#include <tidemark/detail/block_ledger.hpp>
#include <tidemark/detail/large_blocks.hpp>
#include <tidemark/detail/size_classes.hpp>
#include <tidemark/detail/slab_store.hpp>
#include <tidemark/detail/trim_times.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/memory_pressure.hpp>
#include <tidemark/pool_options.hpp>
#include <tidemark/pool_stats.hpp>

namespace tidemark {

/// Memory for blocks that are freed in any order: a freed block comes back to the next request of its size
/// class.
///
/// Use it where blocks of a few sizes come and go: nodes of containers, tensors of a training loop. For
/// blocks that die together an `arena` is faster still; for several threads there is `synchronized_pool`. It
/// takes the place of `std::pmr::unsynchronized_pool_resource`: the same constructors, `release()` and
/// `upstream_resource()`.
///
/// ```cpp
/// pool nodes{{.max_cached_bytes = 64 * MiB, .name = "nodes"}};
/// std::pmr::map<int, double> table{&nodes};
/// void* tensor = nodes.allocate(4096);
/// nodes.deallocate(tensor, 4096);  // the next allocate(4096) returns the same address
/// ```
/// A request takes the first block of its class's list (a hit). If the list is empty, a slab of blocks comes
/// from the upstream (a miss). No such block has a header. A request beyond the largest class takes a free
/// block that is at most a quarter larger (a hit), or one of its own size from the upstream (a miss). Blocks
/// aligned to more than 256 bytes that no class has go straight back, and where `keep_large_blocks` is false
/// all large ones. Free blocks are held up to `max_cached_bytes`; beyond that and when memory is short
/// (`on_memory_pressure`) large blocks, the largest first, and slabs whose blocks are all free go back to the
/// upstream.
///
/// Invariants, checked by `check_invariants()`: those of `pool_stats`, and for each class
/// `blocks in slabs == handed out + listed + uncarved + stranded`, every listed block being one of them.
///
/// Complexity: allocate and deallocate O(1), but for misses, O(slabs), and for trims, O(cached blocks *
/// log(slabs)). The limit trims once in `max_cached_bytes / 2` bytes of deallocations at most, and while
/// it holds more than that, each time half of what lived at the last trim is gone, and at least an eighth of
/// the limit, or all. Thread-safety: one thread at a time, whom level 2 checks; the first to use the pool
/// owns it until `hand_over()`. Pressure may be signalled by any thread.
class pool final : public std::pmr::memory_resource {
 public:
  /// Alignment of every block, at least, where none is asked for.
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);

  /// Blocks of the default classes, from the default resource.
  pool() : pool{pool_options{}} {}
  /// The same from `upstream`.
  explicit pool(std::pmr::memory_resource* upstream) : pool{pool_options{}, upstream} {}
  /// As `options` say. @throws std::invalid_argument for impossible options, or what the upstream throws.
  explicit pool(pool_options const& options) : pool{options, options.upstream} {}
  /// As `options` say, but from `upstream`. @throws as above.
  pool(pool_options const& options, std::pmr::memory_resource* upstream);
  /// As the standard's pools are made: classes that double from 64 bytes up to `largest_required_pool_block`
  /// (16 KiB if that is 0, 1 MiB at most), slabs of at most `max_blocks_per_chunk` blocks, nothing taken at
  /// the start, and larger blocks straight back to the upstream.
  explicit pool(std::pmr::pool_options const& options,
                std::pmr::memory_resource* upstream = std::pmr::get_default_resource());
  pool(pool const&) = delete;
  pool& operator=(pool const&) = delete;
  /// Gives everything back to the upstream, also what is still handed out.
  ~pool() override;

  /// A block.
  /// @param bytes may be 0: the block is then as good as one of the smallest class, and differs from all
  /// others.
  /// @param align a power of two.
  /// @throws what the upstream throws, after giving back what is cached and asking once more; std::bad_alloc
  /// for sizes near the largest. Nothing is handed out then, and the pool can be used as before.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) {
    if constexpr (check_level >= 2) return allocate_checked(bytes, align);
    if (void* block = cache_.take(bytes, align)) [[likely]]
      return block;
    return allocate_slow(bytes, align);
  }

  /// Gives a block back, with the size and alignment it was asked for with. Level 2 reports a block given
  /// back twice, of another size, interior or foreign, and then does nothing.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if constexpr (check_level >= 2) {
      if (!may_deallocate(block, bytes, align)) return;
    }
    const detail::given result = cache_.give(block, bytes, align);
    if (result != detail::given::kept) [[unlikely]]
      deallocate_slow(block, bytes, align, result);
  }

  /// Gives cached memory back to the upstream until `bytes_cached <= target_bytes`: large blocks, the largest
  /// first, then slabs whose blocks are all free. Where that is not enough, free blocks whose slab holds live
  /// ones are set aside (`bytes_stranded`); they are used again before the upstream is asked. @return bytes
  /// given back. O(cached blocks * log(slabs)).
  std::size_t trim(std::size_t target_bytes = 0) noexcept;

  /// `trim(0)`: nothing is cached afterwards. Blocks that are handed out stay good, counts go on.
  void clear() noexcept { (void)trim(0); }

  /// Gives everything back, also what is handed out; it counts as given back. The pool can go on.
  void release() noexcept;

  /// A snapshot in numbers. O(classes).
  [[nodiscard]] pool_stats stats() const noexcept;

  /// Starts counting anew: allocations, deallocations, hits and misses from 0, the peak from what is cached
  /// now. What is handed out and cached stays known.
  void reset_stats() noexcept;

  /// The options that hold, with all sizes of classes.
  [[nodiscard]] pool_options const& options() const noexcept { return options_; }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return store_.upstream(); }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Lets another thread be the one that uses the pool: the next one that does.
  void hand_over() noexcept { owner_thread_ = 0; }

  /// Reports a violation for every invariant of the class comment that does not hold. O(cached blocks).
  void check_invariants() const noexcept;

 private:
  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                     detail::given result) noexcept;
  [[nodiscard]] void* allocate_large(std::size_t bytes, std::size_t align);
  void deallocate_large(void* block, std::size_t bytes) noexcept;
  void make_room() noexcept;
  [[nodiscard]] std::size_t held_bytes() const noexcept { return store_.held_bytes() + large_.held_bytes(); }
  [[nodiscard]] void* allocate_checked(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;
  void before_use(char const* operation) const noexcept;
  void refill(std::size_t index);
  template <class Ask>
  auto ask_upstream(Ask ask);
  void attend() noexcept;
  void note_cached() noexcept;
  [[nodiscard]] std::size_t live_bytes() const noexcept;
  [[nodiscard]] std::size_t trim_due_at() const noexcept;
  std::size_t release_free_slabs(std::size_t target_bytes) noexcept;
  void strand(std::size_t target_bytes) noexcept;
  std::size_t trim_to(std::size_t target_bytes) noexcept;
  void account(std::size_t index, detail::slab_store::trimmed gone) noexcept;

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  // What is counted off the fast path, and of large blocks. By one thread, so plain numbers.
  struct counts {
    std::uint64_t allocations = 0, deallocations = 0, misses = 0;
  };
  [[nodiscard]] counts totals() const noexcept;

  detail::block_cache cache_;
  detail::slab_store store_;
  detail::large_blocks large_;
  pool_options options_;
  counts of_large_{};  // of blocks beyond the classes
  std::uint64_t misses_ = 0;
  counts at_reset_{};  // totals when counting began anew
  std::size_t peak_cached_bytes_ = 0;
  detail::trim_times trim_times_;
  mutable unsigned long long owner_thread_ = 0;  // level 2 only
  detail::block_ledger ledger_;                  // level 2 only
  pressure_subscription pressure_;
};

}  // namespace tidemark
