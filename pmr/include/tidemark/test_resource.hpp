// SPDX-License-Identifier: Apache-2.0
/// @file
/// `test_resource`: a memory resource for tests of code that takes one. It owns freed blocks for a while, no
/// others.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <list>
#include <memory_resource>
#include <mutex>
#include <new>
#include <optional>
#include <source_location>
#include <type_traits>
#include <vector>

#include <tidemark/detail/block_ledger.hpp>
#include <tidemark/detail/resource_adaptor.hpp>
#include <tidemark/live_block.hpp>
#include <tidemark/units.hpp>
#include <tidemark/violation.hpp>

namespace tidemark {

class test_resource;

/// Runs `body` with its 1st allocation from `resource` failing, then its 2nd, and so on, until a run in which
/// nothing failed: shows that each failure is survived and leaks nothing.
///
/// A std::bad_alloc that leaves `body` in a run with a failure is what that failure became, and is swallowed;
/// every other exception passes through, with failing switched off. More live blocks after a run than before
/// the first are reported as `violation_kind::leak`, with the number of the run, once; where such an exception
/// ends the run, before it goes on, and with its text, because a handler that aborts would hide it.
/// @param body must do the same each time, be the only user of `resource` meanwhile, and leave to this loop
/// which request fails: no `fail_allocation`, `fail_allocations_from`, `stop_failing`, or loop inside it.
/// @param runs_max bounds the loop; `body` is run at most so often.
/// @return the number of runs with a failure: of `body`'s allocations. Failing is switched off.
/// @throws std::logic_error if there was still a failure in run `runs_max`, or if `body` has changed which
/// request fails, so that the run shows nothing.
/// O(n) runs for n allocations.
template <std::invocable Body>
std::size_t fail_each_allocation(test_resource& resource, Body&& body, std::uint64_t runs_max = 10'000);

/// How a `test_resource` is made.
struct test_resource_options {
  /// Bytes watched before and behind each block, 4 KiB at most; before it more where its alignment needs
  /// that. 0: none.
  std::size_t guard_bytes = 16;
  /// Most memory that waits, filled, for late writes before it goes back to the upstream. 0: none waits.
  std::size_t quarantine_bytes = 64 * KiB;
  /// In messages and statistics; must outlive the resource and its exceptions.
  char const* name = "test";
};

/// Tells a test what code does wrong with memory, and makes its allocations fail.
///
/// Give it to the code under test. Every misuse is reported to the violation handler, at every check level:
/// - bytes written before or behind a block, or after it was given back: `violation_kind::overrun`, with the
///   offset of the first one, when the block is given back, leaves the quarantine, in `check_guards()` and at
///   destruction
/// - a block given back twice, as another size or alignment, from inside, or not from here:
///   `violation_kind::bad_deallocate`; the call then does nothing
/// - blocks not given back at destruction: one `violation_kind::leak`; they then go to the upstream, so that
///   it is whole
///
/// New memory holds 0xCD and freed memory 0xDD, so that who reads what nobody wrote sees no zeros.
/// AddressSanitizer, MemorySanitizer and Valgrind know guards, fresh and freed blocks, and report on the
/// spot.
///
/// ```cpp
/// test_resource memory;
/// fail_each_allocation(memory, [&] {  // the 1st, 2nd, … allocation fails, until none does
///   parse("1 + 2", &memory);          // must neither crash nor leak
/// });
/// ```
/// After a report, if the handler returns, everything goes on and each corrupted place is reported once. The
/// method of `fail_each_allocation` is that of BDE's bslma_testallocator; patterns are those of MSVC's debug
/// heap.
///
/// Invariants:
/// - `leaks().size() == stats().used_blocks`, and their bytes sum up to `stats().used_bytes`
/// - `quarantined_bytes() <= options.quarantine_bytes`
///
/// Complexity: O(log live blocks + bytes). Thread-safety: any thread, if the upstream allows it: one mutex
/// guards all; "the n-th allocation" counts those of all threads. The handler may look at the resource and
/// not change it. Exceptions: see `allocate`.
class test_resource final : public detail::resource_adaptor {
 public:
  static constexpr unsigned char guard_fill = 0xFD;  ///< what guard bytes hold
  static constexpr unsigned char fresh_fill = 0xCD;  ///< what new blocks hold
  static constexpr std::size_t guard_bytes_max = 4 * KiB;

  /// @param upstream where memory comes from; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null or `guard_bytes` too large.
  explicit test_resource(test_resource_options const& options,
                         std::pmr::memory_resource* upstream = std::pmr::get_default_resource());
  /// The default options, but for the name. @throws as above.
  explicit test_resource(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                         char const* name = "test")
      : test_resource{test_resource_options{.name = name}, upstream} {}
  /// Checks everything, reports the blocks that are left, and gives all memory back.
  ~test_resource() override;

  /// Memory that holds `fresh_fill`, on record as asked for at `site`.
  /// @param align a power of two.
  /// @throws out_of_memory where it was told to fail, or if block and guards exceed `PTRDIFF_MAX`; what the
  /// upstream throws, after the quarantine was emptied for it; std::bad_alloc if there is no memory for the
  /// record; std::invalid_argument if `align` is no power of two. No block is handed out then and nothing is
  /// counted but `refused`.
  // Without gnu::alloc_size: compilers would say at once what tests write behind a block to see it reported.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t),
      std::source_location site = std::source_location::current()) {
    return allocate_at(bytes, align, site);
  }

  /// Takes a block back into the quarantine, or reports why that may not be.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  // ---- failing on demand ----

  /// The n-th request from now fails, and no other: 1 is the next. Replaces what was set before.
  /// @throws std::invalid_argument if `n` is 0.
  void fail_allocation(std::uint64_t n);
  /// The n-th request from now fails, and all after it. @throws std::invalid_argument if `n` is 0.
  void fail_allocations_from(std::uint64_t n);
  /// No request fails any more because it was told to.
  void stop_failing() noexcept;
  /// Requests that failed because they were told to, so far.
  [[nodiscard]] std::uint64_t injected_failures() const noexcept;

  // ---- looking ----

  /// Checks the guards of all live blocks and the contents of the quarantine, and reports what was written.
  /// @return the number of corrupted blocks.
  std::size_t check_guards() noexcept;
  /// Checks the quarantine and gives it to the upstream.
  void empty_quarantine() noexcept;
  /// Bytes that wait there, guards included.
  [[nodiscard]] std::size_t quarantined_bytes() const noexcept;
  /// The blocks that are not given back, the oldest first. O(n log n). @throws std::bad_alloc.
  [[nodiscard]] std::vector<live_block> leaks() const;
  /// Prints a sentence on each of them, one a line. @return how many. @throws std::bad_alloc.
  std::size_t print_leaks(std::FILE* out) const;
  /// How it was made.
  [[nodiscard]] test_resource_options const& options() const noexcept { return options_; }

 private:
  template <std::invocable Body>
  friend std::size_t fail_each_allocation(test_resource& resource, Body&& body, std::uint64_t runs_max);

  // One run of fail_each_allocation: the n-th request fails until this ends, however it ends.
  class failing_run {
   public:
    failing_run(test_resource& resource, std::uint64_t n);
    failing_run(failing_run const&) = delete;
    failing_run& operator=(failing_run const&) = delete;
    ~failing_run() { resource_.stop_failing(); }

    [[nodiscard]] bool failed() const noexcept { return resource_.injected_failures() != failures_before_; }
    // Reports a leak where more than `blocks_max` blocks are live. @return what is normal for the next run.
    // @param thrown text of the exception that ended the run and goes on; null: there is none.
    std::size_t report_leak(std::size_t blocks_max, char const* thrown = nullptr) const noexcept;
    // @throws std::logic_error if it is no longer the n-th request that fails.
    void check_order() const;

   private:
    test_resource& resource_;
    std::uint64_t n_, failures_before_, requests_before_;
  };

  // A block with its guards, as the upstream gave it.
  struct padded_block {
    std::uintptr_t first = 0;  // of the guard before it
    std::uintptr_t block = 0;  // of the user's bytes
    std::uintptr_t last = 0;   // behind the guard after it
    detail::ledger_entry entry{};
  };
  using padded_blocks = std::list<padded_block>;

  std::size_t front_bytes(std::size_t align) const noexcept;
  padded_block padded(std::uintptr_t block, detail::ledger_entry const& entry) const noexcept;
  void* allocate_at(std::size_t bytes, std::size_t align, std::optional<std::source_location> site);
  void before_allocate(std::size_t bytes, std::size_t align, std::uint64_t number);
  void* take_padded(std::size_t bytes, std::size_t align);
  [[noreturn]] void refuse(std::size_t bytes, std::size_t align, std::uint64_t told_to_fail);
  void fail_requests(char const* operation, std::uint64_t n, std::uint64_t count);
  bool check_outside(padded_block const& whole) noexcept;
  bool check_inside(padded_block const& whole) noexcept;
  bool check_range(padded_block const& whole, std::uintptr_t first, std::uintptr_t last, unsigned char fill,
                   char const* what) noexcept;
  void give_to_upstream(padded_block const& whole);
  void shrink_quarantine(std::size_t bytes_max);
  [[noreturn]] static void throw_too_many_runs(test_resource const& resource, std::uint64_t runs_max);

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return allocate_at(bytes, align, std::nullopt);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }

  test_resource_options options_;
  mutable std::recursive_mutex mutex_;  // recursive, because a violation handler may call leaks()
  detail::block_ledger ledger_;
  padded_blocks spare_;       // an empty one for each live block, because giving back may not allocate
  padded_blocks quarantine_;  // given back, the oldest first
  std::size_t quarantined_bytes_ = 0;
  std::uint64_t requests_ = 0;           // so far, refused ones included
  std::uint64_t first_failing_ = 0;      // number of the first request that is told to fail
  std::uint64_t last_failing_ = 0;       // number of the last one; less than the first: none
  std::uint64_t injected_failures_ = 0;  // so far
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, test_resource>);
static_assert(!std::is_copy_constructible_v<test_resource>, "blocks know their resource by its address");

template <std::invocable Body>
std::size_t fail_each_allocation(test_resource& resource, Body&& body, std::uint64_t runs_max) {
  std::size_t blocks_max = resource.stats().used_blocks;
  for (std::uint64_t n = 1; n <= runs_max; ++n) {
    const test_resource::failing_run run{resource, n};
    try {
      body();
    } catch (std::bad_alloc const& thrown) {
      if (!run.failed()) {
        run.report_leak(blocks_max, thrown.what());
        throw;
      }
    } catch (std::exception const& thrown) {
      run.report_leak(blocks_max, thrown.what());
      throw;
    } catch (...) {
      run.report_leak(blocks_max, "of a type without text");
      throw;
    }
    blocks_max = run.report_leak(blocks_max);
    run.check_order();
    if (!run.failed()) return static_cast<std::size_t>(n - 1);
  }
  test_resource::throw_too_many_runs(resource, runs_max);
}

}  // namespace tidemark
