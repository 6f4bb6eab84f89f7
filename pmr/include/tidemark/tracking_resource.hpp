// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tracking_resource`: knows every block that is not given back, and where it was asked for. The memory
/// stays the upstream's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <source_location>
#include <type_traits>
#include <vector>

#include <tidemark/detail/block_ledger.hpp>
#include <tidemark/detail/resource_adaptor.hpp>
#include <tidemark/live_block.hpp>

namespace tidemark {

/// Finds leaks: records each live block with its site, and reports those that are left when it is destroyed.
///
/// Use it on a program that grows. It does not touch the blocks and adds none, so that addresses are as
/// without it; `test_resource` finds more and costs more.
///
/// ```cpp
/// tracking_resource tracked{&pool, "weights"};
/// void* block = tracked.allocate(64);            // the site is this line
/// tracked.print_leaks(stderr);                   // "… not given back: 64 bytes … from model.cpp:12"
/// ```
/// Through `std::pmr` the site is that of the thread's innermost `allocation_site`, or unknown.
///
/// What may not be given back so (twice, as another size or alignment, from inside a block, or not from here)
/// is reported as `violation_kind::bad_deallocate`; if the handler returns, nothing is done and the block is
/// as it was. At destruction blocks that are left are reported in one `violation_kind::leak`, and not freed:
/// someone may still use them.
///
/// Invariants: `leaks().size() == stats().used_blocks`, and their bytes sum up to `stats().used_bytes`,
/// unless the upstream takes memory back by itself, as an arena does that is rewound: nobody tells of such
/// blocks, which then look live and are reported as leaks. Track what is above such an upstream and gives
/// back what it takes.
///
/// Complexity: O(log live blocks) and an allocation by `operator new` for the record. Thread-safety: any
/// thread, if the upstream allows it; a mutex guards the records. The handler may look at the resource and
/// not allocate from it. Exceptions: the upstream's, or std::bad_alloc if there is no memory for the record;
/// nothing but `refused` has changed.
class tracking_resource final : public detail::resource_adaptor {
 public:
  /// @param upstream where memory comes from; must outlive this object
  /// @param name in messages and statistics; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null.
  explicit tracking_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                             char const* name = "tracking")
      : resource_adaptor{"tracking_resource", upstream, name} {}
  /// Reports the blocks that are left, if there are any.
  ~tracking_resource() override;

  /// Memory from the upstream, on record as asked for at `site`.
  /// @throws what the upstream throws, or std::bad_alloc, with nothing changed but `refused`.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t),
      std::source_location site = std::source_location::current()) {
    return allocate_at(bytes, align, site);
  }

  /// Gives a block back to the upstream, or reports why that may not be.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// The blocks that are not given back, the oldest first. O(n log n). @throws std::bad_alloc.
  [[nodiscard]] std::vector<live_block> leaks() const;

  /// Prints a sentence on each of them, one a line. @return how many. @throws std::bad_alloc.
  std::size_t print_leaks(std::FILE* out) const;

 private:
  void* allocate_at(std::size_t bytes, std::size_t align, std::optional<std::source_location> site);

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return allocate_at(bytes, align, std::nullopt);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }

  mutable std::recursive_mutex mutex_;  // recursive, because a violation handler may call leaks()
  detail::block_ledger ledger_;
  std::atomic<std::uint64_t> requests_{0};  // so far
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, tracking_resource>);
static_assert(!std::is_copy_constructible_v<tracking_resource>, "blocks know their resource by its address");

}  // namespace tidemark
