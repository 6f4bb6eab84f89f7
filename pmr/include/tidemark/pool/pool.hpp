// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pool`: blocks that are reused by size, for one thread. The pool owns the memory it took from its
/// upstream.
#pragma once

#include <concepts>
#include <memory_resource>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/pool/detail/basic_pool.hpp>
#include <tidemark/pool/detail/block_store.hpp>
#include <tidemark/pool/memory_pressure.hpp>
#include <tidemark/pool/pool_options.hpp>

namespace tidemark {

extern template class detail::basic_pool<detail::pool_blocks>;

/// Memory for blocks that are freed in any order: a freed block comes back to the next request of its size
/// class.
///
/// Use it for blocks of a few sizes: nodes of containers, tensors of a training loop. For blocks that die
/// together an `arena` is faster still; for several threads there is `synchronized_pool`. It takes the place
/// of `std::pmr::unsynchronized_pool_resource`: `release()` and `upstream_resource()` are the
/// same, and constructors take the standard's options too.
///
/// ```cpp
/// pool nodes{{.max_cached_bytes = 64 * MiB, .name = "nodes"}};
/// std::pmr::map<int, double> table{&nodes};
/// void* tensor = nodes.allocate(4096);
/// nodes.deallocate(tensor, 4096);  // the next allocate(4096) returns the same address
/// ```
/// A request takes the first block of its class's list (a hit). If the list is empty, a slab of blocks comes
/// from the upstream (a miss). No such block has a header. A request beyond the largest class takes what it
/// needs of a free range of a chunk (a hit), or of a new chunk (a miss); free neighbours are merged. Blocks
/// aligned to more than 256 bytes that no class has are allocations of the upstream and go straight back, and
/// where `keep_large_blocks` is false all large ones. Free blocks are held up to `max_cached_bytes`; beyond
/// that and when memory is short (`on_memory_pressure`) chunks and slabs all of which is free are returned to
/// the upstream.
///
/// On purpose it differs from the standard's class, whose rules `compat::unsynchronized_pool_resource` keeps:
/// it is final; construction may take memory, from the heap besides the upstream; slabs grow slowly and their
/// records lie in a block of their own; `options()` are `tidemark::pool_options`, and so is a list in braces,
/// `pool{{...}}`; a size near the largest is refused without a call of the upstream.
///
/// Invariants, checked by `check_invariants()`: those of `pool_stats`, and for each class
/// `blocks in slabs == live + listed + uncarved + stranded`, every listed block being one of them.
///
/// Complexity: allocate and deallocate O(1); misses O(slabs), trims O(cached blocks * log(slabs)). The limit
/// trims once in `max_cached_bytes / 2` bytes of deallocations at most, and while it holds more than that,
/// each time half of what lived at the last trim is gone, and at least an eighth of the limit, or all.
/// Thread-safety: one thread at a time, which level 2 checks; the first to use the pool owns it until
/// `release_thread_ownership()`. Pressure may be signalled by any thread.
class pool final : public detail::basic_pool<detail::pool_blocks> {
 public:
  /// Blocks of the default classes, from the default resource.
  pool() : pool{pool_options{}} {}
  /// The same from `upstream`.
  explicit pool(std::pmr::memory_resource* upstream) : pool{pool_options{}, upstream} {}
  /// As `options` say. @throws std::invalid_argument for impossible options, or what the upstream throws.
  explicit pool(pool_options const& options) : pool{options, options.upstream} {}
  /// As `options` say, but from `upstream`. @throws as above.
  pool(pool_options const& options, std::pmr::memory_resource* upstream);
  /// A wrong form: does not compile, and says which form is right.
  explicit pool(std::integral auto bytes) : pool{} {
    static_assert(detail::right_form<decltype(bytes)>,
                  "a pool takes its limit as an option: write pool p{{.max_cached_bytes = 64 * MiB}}");
  }
  /// As the standard's pools are made: the default classes from 16 bytes, and beyond them doubles, up to
  /// `largest_required_pool_block` (16 KiB if that is 0, 1 MiB at most), slabs of at most
  /// `max_blocks_per_chunk` blocks, and larger blocks straight back to the upstream. The options must be
  /// named: `pool{std::pmr::pool_options{...}}`. @throws as above.
  explicit pool(std::derived_from<std::pmr::pool_options> auto const& options)
      : pool{detail::from_standard(options)} {}
  /// The same, from `upstream`. @throws as above.
  pool(std::derived_from<std::pmr::pool_options> auto const& options, std::pmr::memory_resource* upstream)
      : pool{detail::from_standard(options), upstream} {}
  /// Returns everything to the upstream, also live blocks. Level 2, and a build for AddressSanitizer, report
  /// live blocks as `violation_kind::leak`, with the places of their allocations; `release()` is for blocks
  /// that are meant to go with the pool, and reports none.
  ~pool() override = default;

  /// The options that hold, with the upstream and all sizes of classes.
  [[nodiscard]] pool_options const& options() const noexcept { return lists().options(); }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options().upstream; }

 private:
  detail::pressure_handle pressure_;
};

}  // namespace tidemark
