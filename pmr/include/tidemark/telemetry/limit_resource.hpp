// SPDX-License-Identifier: Apache-2.0
/// @file
/// `limit_resource`: limits the bytes in use of another resource. The upstream owns the memory.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <memory_resource>
#include <type_traits>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/telemetry/detail/resource_adaptor.hpp>

namespace tidemark {

/// Rejects requests that would exceed a limit of bytes in use: a budget for a part of a program.
///
/// Use it if one user of memory must not starve the others, or to test code with little memory.
///
/// ```cpp
/// limit_resource budget{&pool, 64 * MiB, "cache"};
/// std::pmr::vector<float> cached{&budget};
/// cached.resize(32 * MiB);                       // throws out_of_memory: 128 MiB; `cached` is unchanged
/// ```
/// Invariants: `used_bytes <= claimed <= limit`. If `set_limit` sets a limit below `claimed`, `claimed` only
/// falls until `claimed <= limit` holds again. `claimed` counts the requested bytes that the upstream has
/// allocated or is about to allocate, without rounding. A wrong size in `deallocate` makes the budget wrong;
/// `tracking_resource` detects it. Blocks that an upstream such as a rewound arena reclaims itself stay
/// counted.
///
/// Complexity: O(1) plus the upstream's. Thread-safe if the upstream is; the limit is exact among threads.
class limit_resource final : public detail::observing_adaptor<limit_resource> {
 public:
  /// @param upstream source of the memory; must outlive this object
  /// @param limit_bytes maximum bytes in use
  /// @param name used in messages and statistics; must outlive this object and its exceptions
  /// @throws std::invalid_argument if `upstream` is null.
  limit_resource(std::pmr::memory_resource* upstream, std::size_t limit_bytes, char const* name = "limit")
      : observing_adaptor{"limit_resource", upstream, name}, limit_bytes_{limit_bytes} {}

  /// The same on the default resource.
  explicit limit_resource(std::size_t limit_bytes, char const* name = "limit")
      : limit_resource{std::pmr::get_default_resource(), limit_bytes, name} {}

  /// Rejects a wrong form at compile time; the message names the right form.
  template <std::convertible_to<std::pmr::memory_resource*> Upstream, class... Rest>
    requires(!std::integral<Upstream> && !std::same_as<Upstream, std::nullptr_t>)
  limit_resource(std::size_t, Upstream, Rest...) : limit_resource{std::size_t{0}} {
    static_assert(
        detail::right_form<Upstream>,
        "a limit_resource takes the upstream first: write limit_resource budget{&upstream, 64 * MiB}");
  }

  /// Claims the bytes. @throws out_of_memory if more than `limit_bytes()` would be in use; only `refused` has
  /// changed then.
  void before_allocate(std::size_t bytes, std::size_t align) override {
    const auto claim = [&](auto steps) { return steps.add_within(claimed_bytes_, bytes, limit_bytes()); };
    if (!detail::with_steps(claim)) [[unlikely]]
      throw_over_limit(bytes, align);
  }
  /// Returns the bytes of a failed allocation to the budget.
  void failed(std::size_t bytes) noexcept override {
    counter_.refused();
    unclaim(bytes);
  }
  /// Returns the bytes to the budget.
  void released(void*, std::size_t bytes) noexcept override {
    counter_.on_deallocate(bytes);
    unclaim(bytes);
  }

  /// Returns a block to the upstream. Ignores null.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (block == nullptr) return;
    if (!detail::std_atomics::is_single_threaded()) return deallocate_shared(block, bytes, align);
    observing_adaptor::deallocate(block, bytes, align);
  }

  /// Maximum bytes in use.
  [[nodiscard]] std::size_t limit_bytes() const noexcept {
    return limit_bytes_.load(std::memory_order_relaxed);
  }

  /// Sets the limit. If more is in use, blocks stay, and requests are rejected until enough is deallocated.
  void set_limit(std::size_t bytes) noexcept { limit_bytes_.store(bytes, std::memory_order_relaxed); }

 private:
  void unclaim(std::size_t bytes) noexcept {
    detail::with_steps([&](auto steps) { steps.add(claimed_bytes_, std::size_t{0} - bytes); });
  }
  // In a function of its own, so that the path of one thread saves no registers.
  [[gnu::noinline]] void deallocate_shared(void* block, std::size_t bytes, std::size_t align) {
    counter_.on_deallocate(bytes);
    upstream_resource()->deallocate(block, bytes, align);
    unclaim(bytes);  // last: another thread may claim the bytes only after the upstream has the block
  }
  [[noreturn]] TIDEMARK_COLD void throw_over_limit(std::size_t bytes, std::size_t align);

  std::atomic<std::size_t> limit_bytes_;
  // Not `used_bytes`, which rises only after the upstream has allocated. Failed requests thus leave peaks
  // unchanged.
  std::atomic<std::size_t> claimed_bytes_{0};
};

}  // namespace tidemark
