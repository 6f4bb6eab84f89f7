// SPDX-License-Identifier: Apache-2.0
/// @file
/// `expect_no_upstream`: shows that nothing is asked of a resource for a while. The memory stays the
/// upstream's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>

#include <tidemark/detail/resource_adaptor.hpp>
#include <tidemark/macros.hpp>

namespace tidemark {

/// Passes everything on, and reports each allocation while that is declared wrong: the proof of "nothing
/// after warm-up".
///
/// Put it between a pool, an arena or a cache and what that takes its memory from.
///
/// ```cpp
/// expect_no_upstream below{std::pmr::new_delete_resource(), "below the pool"};
/// std::pmr::unsynchronized_pool_resource pool{&below};
/// step(pool);                                    // warms up
/// auto quiet = below.expect_none();              // until the brace
/// for (int i = 0; i < 1000; ++i) step(pool);     // reports upstream_use if the pool asks for more
/// ```
/// An allocation while any `quiet_period` is open, on whatever thread, is reported as
/// `violation_kind::upstream_use`. If the handler returns, it is served and counted in `unexpected()` all the
/// same: the program goes on as it would have. `deallocate` is never wrong, because giving memory back can
/// neither fail nor wait for memory; who wants none of it either compares `stats().deallocations`.
///
/// Invariant: `unexpected() <= stats().allocations + stats().refused`.
///
/// Complexity: O(1) above the upstream's. Thread-safety: any thread, if the upstream allows it. Exceptions:
/// the upstream's pass through; nothing but `refused`, and `unexpected()` in a quiet period, has changed
/// then.
class expect_no_upstream final : public detail::resource_adaptor {
 public:
  /// @param upstream where memory comes from; must outlive this object
  /// @param name in messages and statistics; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null.
  explicit expect_no_upstream(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                              char const* name = "expect_no_upstream")
      : resource_adaptor{"expect_no_upstream", upstream, name} {}

  /// As long as one lives, allocations are wrong. Periods may overlap in any order and on any threads.
  class [[nodiscard]] quiet_period {
   public:
    quiet_period(quiet_period const&) = delete;
    quiet_period& operator=(quiet_period const&) = delete;
    ~quiet_period() { below_->quiet_periods_.fetch_sub(1, std::memory_order_relaxed); }

    /// Allocations since this period began. 0 is what was expected.
    [[nodiscard]] std::uint64_t unexpected() const noexcept { return below_->unexpected() - before_; }

   private:
    friend expect_no_upstream;
    explicit quiet_period(expect_no_upstream& below) noexcept : below_{&below}, before_{below.unexpected()} {
      below_->quiet_periods_.fetch_add(1, std::memory_order_relaxed);
    }

    expect_no_upstream* below_;
    std::uint64_t before_;  // unexpected() at the beginning
  };

  /// Begins a period in which nothing may be asked of the upstream. It must end before this object.
  [[nodiscard]] quiet_period expect_none() noexcept { return quiet_period{*this}; }

  /// Allocations in quiet periods so far, refused ones included.
  [[nodiscard]] std::uint64_t unexpected() const noexcept {
    return unexpected_.load(std::memory_order_relaxed);
  }

  /// Memory from the upstream; a report first, if that is wrong now.
  /// @throws what the upstream throws, with nothing changed but `refused` and `unexpected()`.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (quiet_periods_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      report(bytes, align);
    void* block = take(bytes, align);
    counter_.handed_out(bytes);
    return block;
  }

  /// Gives a block back to the upstream, which is right at any time.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    counter_.given_back(bytes);
    upstream_resource()->deallocate(block, bytes, align);
  }

 private:
  TIDEMARK_COLD void report(std::size_t bytes, std::size_t align) noexcept;

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }

  std::atomic<std::size_t> quiet_periods_{0};  // open now
  std::atomic<std::uint64_t> unexpected_{0};   // allocations in any of them so far
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, expect_no_upstream>);
static_assert(!std::is_move_constructible_v<expect_no_upstream::quiet_period>,
              "a period is one block of code");

}  // namespace tidemark
