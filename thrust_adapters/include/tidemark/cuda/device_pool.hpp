// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_pool`: a device's blocks that come back by size class, for one thread. The pool owns the memory it
/// took from its upstream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <type_traits>
#include <unordered_map>

#include <tidemark/config.hpp>
#include <tidemark/cuda/block_resource.hpp>
#include <tidemark/cuda/detail/device_blocks.hpp>
#include <tidemark/cuda/device_pool_options.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/detail/block_ledger.hpp>
#include <tidemark/detail/trim_times.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/pool_stats.hpp>
#include <tidemark/violation.hpp>

namespace tidemark {

/// Memory of a device for blocks that are freed in any order: a freed block comes back to the next request of
/// its size class.
///
/// Use it where one thread makes many blocks of many sizes: a call is a few nanoseconds. Where they repeat a
/// few sizes exactly `device_cache` wastes nothing and serves any thread and other streams; for blocks that
/// die together a `device_arena` is faster still. The pool is `pool` for memory that the host must not touch:
/// its free lists lie beside the memory, never in it, and so it does for any resource's memory.
///
/// ```cpp
/// device_pool blocks{{.stream = stream}};
/// void* x = blocks.allocate(3000);
/// launch(kernel, stream, x);
/// blocks.deallocate(x, 3000);  // the next allocate(3000) gives the same block to later work of `stream`
/// device_pool of_arena{{.stream = stream, .upstream = &step}};  // slabs of a `device_arena`
/// ```
/// One pool, one stream: a block goes to work that is put on the pool's stream, and so may be handed out
/// again as soon as it was given back, because later work comes behind it. Work of another stream that uses a
/// block is put behind an event, and `deallocate_after` lets the pool's stream wait for that.
///
/// A request takes the last block of its class's list (a hit). If the list is empty, a slab comes from the
/// upstream (a miss). Classes are multiples of 256 bytes, from 2 KiB on four for each power of two. Requests
/// beyond the largest class, or aligned to more than 256 bytes, go to the upstream one by one (a miss each)
/// and straight back. Free blocks are held up to `max_cached_bytes`; beyond, slabs whose blocks are all free
/// go back, and where that is not enough free blocks whose slab holds live ones are set aside. Where the
/// upstream throws std::bad_alloc the free slabs go back, and it is asked once more.
///
/// In a capture the pool makes no call to the driver as long as it hits; what the upstream does then is its
/// own matter, but `cuda::device_resource` the driver refuses. What a graph uses comes from a `graph_arena`.
///
/// Invariants, checked by `check_invariants()`: those of `pool_stats`, and for each class
/// `blocks in slabs == handed out + listed + stranded`, every free block being one of them.
///
/// Complexity: allocate and deallocate O(1), but for misses, O(blocks of the slab), and for trims, O(free
/// blocks * log(slabs)). The limit trims once in `max_cached_bytes / 2` bytes of deallocations at most, and
/// then each time half of what lived at the last trim is gone. Records are allocated only where slabs or
/// large blocks are. Thread-safety: one thread at a time, whom level 2 checks; the first to use the pool owns
/// it until `hand_over()`.
class device_pool final : public std::pmr::memory_resource {
 public:
  /// Alignment of every block, at least.
  static constexpr std::size_t default_alignment = cuda::detail::device_classes::granule_bytes;

  /// As `options` say. @param driver the calls to use; must outlive this object.
  /// @throws std::invalid_argument if `largest_pooled_bytes` is too much; cuda_error if the driver cannot
  /// tell which device is current, out_of_memory if that is for want of memory.
  explicit device_pool(device_pool_options const& options = {},
                       cuda::driver& driver = cuda::default_driver());
  device_pool(device_pool const&) = delete;
  device_pool& operator=(device_pool const&) = delete;
  /// Gives everything back to the upstream, also what is still handed out.
  ~device_pool() override;

  /// A block, for work that is put on the stream from now on.
  /// @param bytes may be 0: the block is then as good as one of the smallest class, and differs from all
  /// others.
  /// @param align a power of two.
  /// @throws what the upstream throws, after giving back what is free and asking once more; out_of_memory,
  /// with the pool's own numbers, for sizes and for slabs beyond PTRDIFF_MAX. Nothing is handed out then, and
  /// the pool can be used as before.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) {
    if constexpr (check_level >= 2) return allocate_checked(bytes, align);
    if (void* block = blocks_.take(bytes, align)) [[likely]]
      return block;
    return allocate_slow(bytes, align);
  }

  /// Gives a block back, with the size and alignment it was asked for with. Null is nothing, and nothing
  /// happens. Level 2 reports a block given back twice, of another size, interior or foreign, and then does
  /// nothing; the other levels do so of what is more blocks of a class than there are, and of large blocks
  /// that are not the pool's.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if (block == nullptr) [[unlikely]]
      return;
    if constexpr (check_level >= 2) {
      if (!may_deallocate(block, bytes, align)) return;
    }
    const auto result = blocks_.give(block, bytes, align);
    if (result != cuda::detail::device_blocks::given::kept) [[unlikely]]
      deallocate_slow(block, bytes, align, result);
  }

  /// Gives a block back behind `event`: later work of the stream, whatever block it uses, comes behind it.
  /// The event is the caller's, who may destroy it at once. If the stream cannot wait for it, the calling
  /// thread does; if that cannot either, the block stays handed out: a warning (`refused_return`).
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, cuda::event_handle event) noexcept;

  /// Gives free memory back to the upstream until `bytes_cached <= target_bytes`: slabs whose blocks are all
  /// free. Where that is not enough, free blocks whose slab holds live ones are set aside (`bytes_stranded`);
  /// they are used again before the upstream is asked. @return bytes given back. O(free blocks * log(slabs)).
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

  /// The options that hold: device, resources and the largest class as they were found out.
  [[nodiscard]] device_pool_options const& options() const noexcept { return options_; }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// The stream whose work uses the blocks.
  [[nodiscard]] cuda::stream_handle stream() const noexcept { return options_.stream; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Lets another thread be the one that uses the pool: the next one that does.
  void hand_over() noexcept { owner_thread_ = 0; }

  /// Reports a violation for every invariant of the class comment that does not hold. O(free blocks *
  /// log(slabs)).
  void check_invariants() noexcept;

 private:
  using given = cuda::detail::device_blocks::given;
  struct large_block {
    std::size_t bytes, align;
  };
  struct counts {
    std::uint64_t allocations = 0, deallocations = 0, misses = 0;
  };

  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                     given result) noexcept;
  [[nodiscard]] void* allocate_checked(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;
  void before_use(char const* operation) const noexcept;
  void refill(std::size_t bytes, std::size_t align);
  [[noreturn]] TIDEMARK_COLD void refuse(std::size_t bytes, std::size_t align, char const* because) const;
  [[nodiscard]] void* allocate_large(std::size_t bytes, std::size_t align);
  void deallocate_large(void* block, std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] std::pmr::memory_resource* own_or(std::pmr::memory_resource* upstream);
  template <class Ask>
  auto ask_upstream(Ask ask);
  void give_back_all() noexcept;
  std::size_t trim_to(std::size_t target_bytes) noexcept;
  void note_cached() noexcept;
  [[nodiscard]] std::size_t live_bytes() const noexcept;
  [[nodiscard]] std::size_t trim_due_at() const noexcept;
  [[nodiscard]] counts totals() const noexcept;

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  cuda::driver* driver_;
  device_pool_options options_;
  std::optional<cuda::device_resource> own_;
  cuda::detail::device_blocks blocks_;
  std::pmr::unordered_map<void*, large_block> large_;  // handed out
  std::size_t large_bytes_ = 0;
  std::uint64_t large_allocations_ = 0;
  std::uint64_t misses_ = 0;  // of large blocks, too
  counts at_reset_{};         // totals when counting began anew
  std::size_t peak_cached_bytes_ = 0;
  detail::trim_times trim_times_;
  mutable unsigned long long owner_thread_ = 0;  // level 2 only
  detail::block_ledger ledger_;                  // level 2 only
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, device_pool>);
static_assert(!std::is_copy_constructible_v<device_pool>, "blocks know their resource by its address");

}  // namespace tidemark
