// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tracking_resource`: records every live block and where it was allocated. The upstream owns the memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <source_location>
#include <type_traits>

#include <tidemark/telemetry/detail/resource_adaptor.hpp>

namespace tidemark {

/// Finds leaks: records each live block with its site, and reports the live blocks when it is destroyed.
///
/// Use it on a program that grows. It neither touches nor pads blocks, so that addresses are the same
/// without it; `test_resource` finds more and costs more.
///
/// ```cpp
/// tracking_resource tracked{&pool, "weights"};
/// void* block = tracked.allocate(64);            // the site is this line
/// std::vector<live_block> live = tracked.leaks();  // 64 bytes, from model.cpp:12
/// ```
/// Through `std::pmr` the site is the thread's innermost `allocation_site`, or unknown.
///
/// A wrong deallocation (a double free, another size or alignment, an interior or foreign pointer) is
/// reported as `violation_kind::bad_deallocate`; if the handler returns, nothing else happens. At
/// destruction all live blocks are reported in one `violation_kind::leak`, and not freed: they may still
/// be in use.
///
/// Invariants: `leaks().size() == stats().used_blocks`, and their bytes sum up to `stats().used_bytes`. If
/// the upstream reclaims memory itself, such as a rewound arena, its blocks stay recorded and are reported
/// as leaks: track a resource above such an upstream that deallocates its blocks.
///
/// Complexity: O(log live blocks) and an allocation by `operator new` for the record. Thread-safety: any
/// thread, if the upstream allows it; a mutex guards the records. The handler is called without
/// the mutex and may use the resource. A forked child may use it too; blocks of other threads are leaks if
/// they end there. Exceptions: the upstream's, or std::bad_alloc if there is no memory for the record; only
/// `refused` has changed then.
class tracking_resource final : public detail::ledger_adaptor<tracking_resource> {
 public:
  /// @param upstream where memory comes from; must outlive this object
  /// @param name in messages and statistics; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null.
  explicit tracking_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                             char const* name = "tracking")
      : ledger_adaptor{"tracking_resource", upstream, name} {}
  /// Reports the live blocks, if there are any.
  ~tracking_resource() override;

  /// Memory from the upstream, recorded as allocated at `site`; null: at the innermost `allocation_site`.
  /// @throws what the upstream throws, or std::bad_alloc; only `refused` has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t),
      std::optional<std::source_location> site = std::source_location::current());

  /// Returns a block to the upstream, or reports a wrong deallocation. Null: nothing happens.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));

 private:
  std::atomic<std::uint64_t> requests_{0};  // so far
};

}  // namespace tidemark
