// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pool`: blocks that are reused by size, for one thread. Owns the memory taken from its upstream.
#pragma once

#include <concepts>
#include <memory_resource>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/pool/detail/basic_pool.hpp>
#include <tidemark/pool/detail/block_store.hpp>
#include <tidemark/pool/pool_options.hpp>

namespace tidemark {

extern template class detail::basic_pool<detail::pool_blocks>;

/// Memory for blocks that are freed in any order. A freed block serves the next request of its size class.
///
/// Use it for blocks of a few sizes, such as nodes of containers or tensors of a training loop. An `arena` is
/// faster for blocks freed together; `synchronized_pool` serves several threads. `pool` replaces
/// `std::pmr::unsynchronized_pool_resource`.
///
/// ```cpp
/// pool nodes{{.max_cached_bytes = 64 * MiB, .name = "nodes"}};
/// std::pmr::map<int, double> table{&nodes};
/// void* tensor = nodes.allocate(4096);
/// nodes.deallocate(tensor, 4096);  // the next allocate(4096) returns the same address
/// ```
/// Blocks of the size classes have no header (docs/pool.md).
///
/// Invariants, checked by `check_invariants()`: those of `pool_stats`, and for each class `blocks in slabs ==
/// live + listed + uncarved + stranded`.
///
/// Allocate and deallocate are O(1), misses O(slabs), and trims O(cached blocks * log(slabs)), amortised.
/// Thread-safety: one thread at a time, which level 2 checks; the first user owns the pool until
/// `release_thread_ownership()`.
class pool final : public detail::basic_pool<detail::pool_blocks> {
 public:
  /// Uses the default size classes and the default resource.
  pool() : pool{pool_options{}} {}
  /// Uses the default size classes and `upstream`.
  explicit pool(std::pmr::memory_resource* upstream) : pool{pool_options{}, upstream} {}
  /// Uses `options`. @throws std::invalid_argument for impossible options; whatever the upstream throws
  explicit pool(pool_options const& options) : pool{options, options.upstream} {}
  /// Uses `options`, but `upstream`. @throws as above
  pool(pool_options const& options, std::pmr::memory_resource* upstream);
  /// Rejected at compile time, with a message that shows the right form.
  explicit pool(std::integral auto bytes) : pool{} {
    static_assert(detail::right_form<decltype(bytes)>,
                  "a pool takes its limit as an option: write pool p{{.max_cached_bytes = 64 * MiB}}");
  }
  /// Uses the standard's options, which must be named: `pool{std::pmr::pool_options{...}}`. The size classes
  /// are the default classes from 16 bytes, and then doubles, up to `largest_required_pool_block` (16 KiB if
  /// 0, at most 1 MiB). Slabs have at most `max_blocks_per_chunk` blocks. Larger blocks go directly to the
  /// upstream. @throws as above
  ///
  /// `pool` has the constructors, `release()` and `upstream_resource()` of the standard's class. It differs
  /// as follows (`compat::unsynchronized_pool_resource` does not): `pool` is final; construction may
  /// allocate, also from the heap; slabs grow slowly, and their records lie in their own block;
  /// `options()` and braces mean `tidemark::pool_options`; impossible sizes never reach the upstream.
  explicit pool(std::derived_from<std::pmr::pool_options> auto const& options)
      : pool{detail::from_standard(options)} {}
  /// Uses the standard's options and `upstream`. @throws as above
  pool(std::derived_from<std::pmr::pool_options> auto const& options, std::pmr::memory_resource* upstream)
      : pool{detail::from_standard(options), upstream} {}
  /// Rejected: blocks belong to one pool.
  pool TIDEMARK_NO_COPY(pool, "a pool cannot be copied or moved: pass pool& or pool*");
  /// Returns all memory to the upstream, including live blocks. Level 2 and AddressSanitizer builds report
  /// live blocks as `violation_kind::leak`, with their allocation sites. Call `release()` first for blocks
  /// that may end with the pool.
  ~pool() override = default;

  /// The options in effect, with the upstream and the sizes of all classes.
  [[nodiscard]] pool_options const& options() const noexcept { return lists().options(); }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options().upstream; }

 private:
  pressure_subscription pressure_;
};

}  // namespace tidemark
