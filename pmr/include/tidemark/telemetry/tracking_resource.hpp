// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tracking_resource`: records every live block and its site. The upstream owns the memory.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <source_location>
#include <type_traits>

#include <tidemark/telemetry/detail/resource_adaptor.hpp>

namespace tidemark {

/// Finds leaks: records each live block with its site, and reports the blocks that are live at its
/// destruction.
///
/// Use it on a program that grows. It neither touches nor pads blocks, so addresses are unchanged.
/// `test_resource` finds more and costs more.
///
/// ```cpp
/// tracking_resource tracked{&pool, "weights"};
/// void* block = tracked.allocate(64);            // the site is this line
/// std::vector<live_block> live = tracked.leaks();  // 64 bytes, from model.cpp:12
/// ```
/// Through `std::pmr` the site is the thread's innermost `allocation_site`, or unknown.
///
/// Invariants: `leaks().size() == stats().used_blocks`, and their bytes sum to `stats().used_bytes`.
///
/// Complexity: O(log live blocks), and an allocation by `operator new` for the record. Thread-safe if the
/// upstream is. The violation handler is called without the mutex and may use the resource. A forked child
/// may use the resource too; blocks of other threads become leaks if it ends there.
class tracking_resource final : public detail::ledger_adaptor<tracking_resource> {
 public:
  /// @param upstream source of the memory; must outlive this object. Blocks that it reclaims itself, as a
  /// rewound arena does, stay recorded as leaks: track a resource above it that deallocates its blocks
  /// instead
  /// @param name used in messages and statistics; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null.
  explicit tracking_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                             char const* name = "tracking")
      : ledger_adaptor{"tracking_resource", upstream, name} {}
  /// Reports all live blocks in one `violation_kind::leak`. Does not free them, because they may still be in
  /// use.
  ~tracking_resource() override;

  /// Allocates memory from the upstream and records it at `site`, or at the innermost `allocation_site` for
  /// null.
  /// @throws the upstream's exception, or std::bad_alloc; only `refused` has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t),
      std::optional<std::source_location> site = std::source_location::current());

  /// Returns a block to the upstream. Ignores null. Reports a double free, another size or alignment, or an
  /// interior or foreign pointer as `violation_kind::bad_deallocate`; nothing else happens if the handler
  /// returns.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));
};

}  // namespace tidemark
