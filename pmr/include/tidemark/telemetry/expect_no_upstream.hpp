// SPDX-License-Identifier: Apache-2.0
/// @file
/// `expect_no_upstream`: reports allocations in quiet periods. The upstream owns the memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>

#include <tidemark/core/macros.hpp>
#include <tidemark/telemetry/detail/resource_adaptor.hpp>

namespace tidemark {

/// Forwards every request, and reports each allocation in a quiet period. It verifies that a program
/// allocates nothing after its warm-up. Put it between a pool, an arena or a cache and its upstream.
///
/// ```cpp
/// expect_no_upstream below{std::pmr::new_delete_resource(), "below the pool"};
/// std::pmr::unsynchronized_pool_resource pool{&below};
/// step(pool);                                    // warms up
/// auto quiet = below.expect_none();              // until the end of the scope
/// for (int i = 0; i < 1000; ++i) step(pool);     // reports upstream_use if the pool allocates
/// ```
/// An allocation on any thread while a `quiet_period` is open is reported as `violation_kind::upstream_use`.
/// If the handler returns, the allocation is served and counted in `unexpected()`. `deallocate` is always
/// allowed, because it neither fails nor waits for memory. Compare `stats().deallocations` to forbid it too.
///
/// Invariant: `unexpected() <= stats().allocations + stats().refused`.
///
/// Complexity: O(1) plus the upstream's. Thread-safe if the upstream is. Exceptions: the upstream's; only
/// `refused`, and in a quiet period `unexpected()`, have changed then.
class expect_no_upstream final : public detail::observing_adaptor<expect_no_upstream> {
 public:
  /// @param upstream source of the memory; must outlive this object
  /// @param name used in messages and statistics; must outlive this object
  /// @throws std::invalid_argument if `upstream` is null.
  explicit expect_no_upstream(std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                              char const* name = "expect_no_upstream")
      : observing_adaptor{"expect_no_upstream", upstream, name} {}

  /// Allocations during its lifetime are reported. Periods may overlap in any order and on any threads.
  class [[nodiscard(TIDEMARK_NAME_SCOPE)]] quiet_period {
   public:
    quiet_period(quiet_period const&) = delete;
    quiet_period& operator=(quiet_period const&) = delete;
    ~quiet_period() { below_->quiet_periods_.fetch_sub(1, std::memory_order_relaxed); }

    /// Allocations since this period began; 0 is expected.
    [[nodiscard]] std::uint64_t unexpected() const noexcept { return below_->unexpected() - before_; }

   private:
    friend expect_no_upstream;
    [[nodiscard]] explicit quiet_period(expect_no_upstream& below) noexcept
        : below_{&below}, before_{below.unexpected()} {
      below_->quiet_periods_.fetch_add(1, std::memory_order_relaxed);
    }

    expect_no_upstream* below_;
    std::uint64_t before_;  // `unexpected()` at the beginning
  };

  /// Begins a period without allocations. It must end before this object.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] quiet_period expect_none() noexcept { return quiet_period{*this}; }

  /// Allocations in quiet periods so far, including failed ones.
  [[nodiscard]] std::uint64_t unexpected() const noexcept {
    return unexpected_.load(std::memory_order_relaxed);
  }

  /// Reports the allocation in a quiet period.
  void before_allocate(std::size_t bytes, std::size_t align) override {
    if (quiet_periods_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      report(bytes, align);
  }

 private:
  TIDEMARK_COLD void report(std::size_t bytes, std::size_t align) noexcept;

  std::atomic<std::size_t> quiet_periods_{0};  // currently open
  std::atomic<std::uint64_t> unexpected_{0};   // allocations in quiet periods so far
};

static_assert(!std::is_move_constructible_v<expect_no_upstream::quiet_period>,
              "a quiet period lasts for one scope");

}  // namespace tidemark
