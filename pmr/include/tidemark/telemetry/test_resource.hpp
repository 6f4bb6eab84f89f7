// SPDX-License-Identifier: Apache-2.0
/// @file
/// `test_resource`: a memory resource for tests of code that takes one. Owns freed blocks in its quarantine.
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

/// Runs `body` with its 1st allocation from `resource` failing, then its 2nd, and so on, until a run in
/// which nothing failed: shows that `body` survives each failure and leaks nothing.
///
/// A std::bad_alloc that leaves `body` in a run with a failure is ignored; every other exception passes
/// through. More live blocks after a run than before the first are reported once as `violation_kind::leak`,
/// with the number of the run. If an exception passes through, that report comes first and has its text,
/// because a handler that aborts would hide it.
/// @param body copyable. It must do the same each time and be the only user of `resource` meanwhile. It must
/// not call `fail_allocation`, `fail_allocations_from`, `stop_failing` or this function.
/// @param max_runs most runs of `body`.
/// @return the number of runs with a failure, which is that of `body`'s allocations. No request fails any
/// more.
/// @throws std::logic_error if there was still a failure in run `max_runs`, or if `body` has changed which
/// request fails.
/// O(n) runs for n allocations.
std::size_t fail_each_allocation(test_resource& resource, std::function<void()> const& body,
                                 std::uint64_t max_runs = 10'000);

/// How a `test_resource` is made.
struct test_resource_options {
  /// Guard bytes before and behind each block, 4 KiB at most; before it as many as its alignment needs, and
  /// none if that is more than 4 KiB.
  std::size_t guard_bytes = 16;
  /// Most bytes of freed blocks in quarantine, which finds late writes. 0: there is no quarantine.
  std::size_t quarantine_bytes = 64 * KiB;
  /// In messages and statistics; must outlive the resource and its exceptions.
  char const* name = "test";
};

/// Reports misuse of memory to a test, and makes allocations fail.
///
/// Give it to the code under test. Every misuse is reported to the violation handler, at every check level:
/// - a write before or behind a block, or after its deallocation: `violation_kind::overrun`, with the
/// offset
///   of the first changed byte, when the block is deallocated, leaves the quarantine, in `check_guards()` and
///   at destruction
/// - a double free, another size or alignment, an interior or foreign pointer:
///   `violation_kind::bad_deallocate`; nothing else happens then
/// - live blocks at destruction: one `violation_kind::leak`; they are then returned to the upstream
///
/// New memory holds 0xCD and freed memory 0xDD, so that reads of unwritten memory see no zeros.
/// AddressSanitizer, MemorySanitizer and Valgrind know guards, fresh and freed blocks, and report at once.
///
/// ```cpp
/// test_resource memory;
/// fail_each_allocation(memory, [&] {  // the 1st, 2nd, … allocation fails, until none does
///   parse("1 + 2", &memory);          // must neither crash nor leak
/// });
/// ```
/// If the handler returns, the program goes on, and each corrupted place is reported once. The method of
/// `fail_each_allocation` is that of BDE's bslma_testallocator; the fill bytes are those of MSVC's debug
/// heap.
///
/// Invariants:
/// - `leaks().size() == stats().used_blocks`, and their bytes sum up to `stats().used_bytes`
/// - `quarantined_bytes() <= options.quarantine_bytes`
///
/// Complexity: O(log live blocks + bytes). Thread-safety: any thread, if the upstream allows it: one mutex
/// guards all; "the n-th allocation" counts those of all threads. The handler is called
/// without the mutex and may use the resource. A forked child may use it too; blocks of other threads are
/// leaks if they end there. Exceptions: see `allocate`.
class test_resource final : public detail::ledger_adaptor<test_resource> {
 public:
  static constexpr unsigned char guard_fill = 0xFD;  ///< content of guards
  static constexpr unsigned char fresh_fill = 0xCD;  ///< content of new blocks
  /// The most that `test_resource_options::guard_bytes` may be.
  static constexpr std::size_t max_guard_bytes = 4 * KiB;

  /// @param upstream where memory comes from; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null or `guard_bytes` too large.
  explicit test_resource(test_resource_options const& options,
                         std::pmr::memory_resource* upstream = std::pmr::get_default_resource());
  /// The default options with a name. @throws as above.
  explicit test_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                         char const* name = "test")
      : test_resource{test_resource_options{.name = name}, upstream} {}
  /// Checks everything, reports live blocks, and returns all memory to the upstream.
  ~test_resource() override;

  /// Memory filled with `fresh_fill`, recorded as allocated at `site`; null: at the innermost
  /// `allocation_site`.
  /// @param align a power of two.
  /// @throws out_of_memory if the request was configured to fail, or if block and guards exceed
  /// `PTRDIFF_MAX`; what the upstream throws, after the quarantine was emptied for it; std::bad_alloc if
  /// there is no memory for the record; std::invalid_argument if `align` is not a power of two. Only
  /// `refused` has changed then.
  // Without gnu::alloc_size: compilers would reject the writes behind a block that tests make on purpose.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t),
      std::optional<std::source_location> site = std::source_location::current());

  /// Puts a block into the quarantine, or reports a wrong deallocation. Null: nothing happens.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  // ---- failing on demand ----

  /// Only the n-th request from now fails; 1 is the next one. Replaces what was set before.
  /// @throws std::invalid_argument if `n` is 0.
  void fail_allocation(std::uint64_t n);
  /// The n-th request from now fails, and all after it. @throws std::invalid_argument if `n` is 0.
  void fail_allocations_from(std::uint64_t n);
  /// No request is configured to fail any more.
  void stop_failing() noexcept;
  /// Requests so far that failed by configuration.
  [[nodiscard]] std::uint64_t injected_failures() const noexcept;

  // ---- checks ----

  /// Checks the guards of all live blocks and the contents of the quarantine, and reports late and stray
  /// writes. @return the number of corrupted blocks.
  std::size_t check_guards() noexcept;
  /// Checks the quarantine and returns its blocks to the upstream.
  void empty_quarantine() noexcept;
  /// Bytes in quarantine, guards included.
  [[nodiscard]] std::size_t quarantined_bytes() const noexcept;
  /// Its options.
  [[nodiscard]] test_resource_options const& options() const noexcept { return options_; }

 private:
  friend std::size_t fail_each_allocation(test_resource& resource, std::function<void()> const& body,
                                          std::uint64_t max_runs);
  class failing_run;  // one run of it

  // A block with its guards, as the upstream allocated it.
  struct padded_block {
    std::uintptr_t first = 0;  // of the guard before it
    std::uintptr_t block = 0;  // of the user's bytes
    std::uintptr_t last = 0;   // behind the guard after it
    live_block entry{};
  };
  using padded_blocks = std::list<padded_block>;

  std::size_t front_bytes(std::size_t align) const noexcept;
  padded_block padded(std::uintptr_t block, live_block const& entry) const noexcept;
  void* allocate_from_upstream(detail::late_reports& late, std::size_t bytes, std::size_t align);
  void fail_requests(char const* operation, std::uint64_t n, std::uint64_t count);
  bool check_outside(detail::late_reports& late, padded_block const& whole) noexcept;
  bool check_freed(detail::late_reports& late, padded_block const& whole) noexcept;
  bool check_range(detail::late_reports& late, padded_block const& whole, std::uintptr_t first,
                   std::uintptr_t last, unsigned char fill, char const* what) noexcept;
  void free_padded(padded_block const& whole);
  void shrink_quarantine(detail::late_reports& late, std::size_t max_bytes);

  test_resource_options options_;
  padded_blocks spare_;       // one node for each live block, because deallocation must not allocate
  padded_blocks quarantine_;  // freed blocks, the oldest first
  std::size_t quarantined_bytes_ = 0;
  std::uint64_t requests_ = 0;           // so far, failed ones included
  std::uint64_t first_failing_ = 1;      // number of the first request that is configured to fail
  std::uint64_t last_failing_ = 0;       // number of the last one; less than the first: no request fails
  std::uint64_t injected_failures_ = 0;  // so far
};

}  // namespace tidemark
