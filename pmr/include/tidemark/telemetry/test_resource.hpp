// SPDX-License-Identifier: Apache-2.0
/// @file
/// `test_resource`: a memory resource for tests. Owns freed blocks in its quarantine.
///
/// It reports every misuse to the violation handler, at every check level:
/// - a write before or after a block, or after its deallocation: `violation_kind::overrun` with the offset of
///   the first changed byte. Detected at deallocation, when the block leaves the quarantine, in
///   `check_guards()` and at destruction
/// - a double free, another size or alignment, an interior or foreign pointer:
///   `violation_kind::bad_deallocate`; nothing else happens then
/// - live blocks at destruction: one `violation_kind::leak`; they are then returned to the upstream
///
/// If the handler returns, the program continues, and each corrupted place is reported once.
/// `fail_each_allocation` uses the method of BDE's bslma_testallocator; the fill bytes are those of MSVC's
/// debug heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory_resource>
#include <optional>
#include <source_location>
#include <type_traits>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/telemetry/detail/resource_adaptor.hpp>

namespace tidemark {

class test_resource;

/// Runs `body` repeatedly: in the n-th run its n-th allocation from `resource` fails, until a run has no
/// failure. It verifies that `body` survives each failure and leaks nothing.
///
/// A std::bad_alloc from `body` in a run with a failure is ignored; every other exception passes through. If
/// more blocks are live after a run than before the first, one `violation_kind::leak` with the number of the
/// run is reported.
/// @param body copyable. It must do the same each time and be the only user of `resource` meanwhile. It must
/// not call `fail_allocation`, `fail_allocations_from`, `stop_failing` or this function.
/// @param max_runs maximum runs of `body`.
/// @return the number of runs with a failure, which equals the number of `body`'s allocations. No request is
/// set to fail afterwards.
/// @throws std::logic_error if run `max_runs` still had a failure, or if `body` has changed which request
/// fails.
/// O(n) runs for n allocations.
std::size_t fail_each_allocation(test_resource& resource, std::function<void()> const& body,
                                 std::uint64_t max_runs = 10'000);

/// Options of a `test_resource`. Sizes are in bytes.
struct test_resource_options {
  /// Guard bytes before and after each block, at most 4 KiB. The guard before a block is rounded up to the
  /// block's alignment, and is absent for alignments above 4 KiB.
  std::size_t guard_bytes = 16;
  /// Maximum bytes of freed blocks in quarantine, which exposes late writes. 0: no quarantine.
  std::size_t quarantine_bytes = 64 * KiB;
  /// Used in messages and statistics; must outlive the resource and its exceptions.
  char const* name = "test";
};

/// Reports misuse of memory to a test, and makes allocations fail.
///
/// Pass it to the code under test. It reports overruns, wrong deallocations and leaks to the violation
/// handler, at every check level. New memory holds 0xCD and freed memory 0xDD, so reads of unwritten memory
/// see no zeros. AddressSanitizer, MemorySanitizer and Valgrind know guards, fresh and freed blocks.
///
/// ```cpp
/// test_resource memory;
/// fail_each_allocation(memory, [&] {  // the 1st, 2nd, … allocation fails, until none does
///   parse("1 + 2", &memory);          // must neither crash nor leak
/// });
/// ```
/// Invariants:
/// - `leaks().size() == stats().used_blocks`, and their bytes sum to `stats().used_bytes`
/// - `quarantined_bytes() <= options.quarantine_bytes`
///
/// Complexity: O(log live blocks + bytes). Thread-safe if the upstream is, by one mutex; "the n-th
/// allocation" counts all threads. The handler is called without the mutex and may use the resource. Blocks
/// of other threads become leaks if it ends in a forked child.
class test_resource final : public detail::ledger_adaptor<test_resource> {
 public:
  static constexpr unsigned char guard_fill = 0xFD;  ///< content of guards
  static constexpr unsigned char fresh_fill = 0xCD;  ///< content of fresh blocks
  /// Maximum of `test_resource_options::guard_bytes`.
  static constexpr std::size_t max_guard_bytes = 4 * KiB;

  /// @param upstream source of the memory; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null or `guard_bytes` too large.
  test_resource(std::pmr::memory_resource* upstream, test_resource_options const& options);
  /// The same on the default resource.
  explicit test_resource(test_resource_options const& options)
      : test_resource{std::pmr::get_default_resource(), options} {}
  /// The default options with a name. @throws as above.
  explicit test_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                         char const* name = "test")
      : test_resource{upstream, test_resource_options{.name = name}} {}
  /// Checks everything, reports live blocks, and returns all memory to the upstream.
  ~test_resource() override;

  /// Allocates memory filled with `fresh_fill`. Records it at `site`, or at the innermost `allocation_site`
  /// for null.
  /// @param align a power of two.
  /// @throws out_of_memory if the request was set to fail, or if block and guards exceed `PTRDIFF_MAX`; the
  /// upstream's exception, after the quarantine was emptied for the request; std::bad_alloc without memory
  /// for the record; std::invalid_argument if `align` is not a power of two. Only `refused` has changed then.
  // Without gnu::alloc_size, because compilers would reject the deliberate writes of tests behind a block.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t),
      std::optional<std::source_location> site = std::source_location::current());

  /// Puts a block into the quarantine, or reports a wrong deallocation. Ignores null.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  // ---- failing on demand ----

  /// Makes only the n-th request from now fail; 1 is the next request. Replaces the previous setting.
  /// @throws std::invalid_argument if `n` is 0.
  void fail_allocation(std::uint64_t n);
  /// Makes the n-th request from now and all later ones fail. @throws std::invalid_argument if `n` is 0.
  void fail_allocations_from(std::uint64_t n);
  /// Makes no request fail any more.
  void stop_failing() noexcept;
  /// Requests that were made to fail so far.
  [[nodiscard]] std::uint64_t injected_failures() const noexcept;

  // ---- checks ----

  /// Checks the guards of all live blocks and the contents of the quarantine, and reports stray and late
  /// writes. @return the number of corrupted blocks.
  std::size_t check_guards() noexcept;
  /// Checks the quarantine and returns its blocks to the upstream.
  void empty_quarantine() noexcept;
  /// Bytes in quarantine, including guards.
  [[nodiscard]] std::size_t quarantined_bytes() const noexcept;
  /// The options.
  [[nodiscard]] test_resource_options const& options() const noexcept { return options_; }

 private:
  friend std::size_t fail_each_allocation(test_resource& resource, std::function<void()> const& body,
                                          std::uint64_t max_runs);

  // Bytes of the guard before a block.
  std::size_t front_bytes(std::size_t align) const noexcept;
  // Bytes of a block with its guards.
  std::size_t padded_bytes(std::size_t bytes, std::size_t align) const noexcept;
  void* allocate_from_upstream(std::size_t bytes, std::size_t align);
  void fail_requests(char const* operation, std::uint64_t n, std::uint64_t count);
  bool check_guards_of(live_block const& block) noexcept;
  bool check_freed(live_block const& block) noexcept;
  bool check_range(live_block const& block, std::uintptr_t first, std::size_t bytes, unsigned char fill,
                   char const* what) noexcept;
  void free_padded(live_block const& block);
  void shrink_quarantine(std::size_t max_bytes);

  test_resource_options options_;
  std::list<live_block> free_nodes_;  // one for each live block, because deallocation must not allocate
  std::list<live_block> quarantine_;  // freed blocks, oldest first
  std::size_t quarantined_bytes_ = 0;
  std::uint64_t requests_ = 0;           // total so far, including failed requests
  std::uint64_t first_failing_ = 1;      // number of the first request that is set to fail
  std::uint64_t last_failing_ = 0;       // number of the last such request; below the first: no request fails
  std::uint64_t injected_failures_ = 0;  // total so far
};

}  // namespace tidemark
