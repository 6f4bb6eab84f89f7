// SPDX-License-Identifier: Apache-2.0
/// @file
/// `limit_resource`: hands out at most so many bytes of another resource. The memory stays the upstream's.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory_resource>
#include <type_traits>

#include <tidemark/detail/resource_adaptor.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/out_of_memory.hpp>

namespace tidemark {

/// Refuses what would take more than a set number of bytes from its upstream: a budget for a part of a
/// program.
///
/// Use it where one user of memory must not starve the others, or to see in a test how code does with little.
///
/// ```cpp
/// limit_resource budget{64 * MiB, &pool, "cache"};
/// std::pmr::vector<float> cached{&budget};
/// cached.resize(32 * MiB);                       // throws out_of_memory: 128 MiB; `cached` is as it was
/// ```
/// Invariants: `used_bytes <= claimed`, and `claimed <= limit` since the last `set_limit`, or it only falls
/// until it is. `claimed` are the bytes asked for that the upstream holds or is just asked for, so that the
/// upstream never holds more than the limit, not for a moment. Upstreams may round up; that is not seen here.
/// It counts what it is told: a wrong size in `deallocate`, which `tracking_resource` finds, makes the budget
/// wrong, and blocks that an upstream takes back by itself, as an arena does that is rewound, stay counted.
///
/// Complexity: O(1) above the upstream's. Thread-safety: any thread, if the upstream allows it; the limit is
/// exact among threads. Exceptions: out_of_memory, or the upstream's; nothing but `refused` has changed then.
class limit_resource final : public detail::resource_adaptor {
 public:
  /// @param limit_bytes most that may be handed out at once
  /// @param upstream where memory comes from; must outlive this object
  /// @param name in messages and statistics; must outlive this object and its exceptions
  /// @throws std::invalid_argument if `upstream` is null.
  explicit limit_resource(std::size_t limit_bytes,
                          std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                          char const* name = "limit")
      : resource_adaptor{"limit_resource", upstream, name}, limit_bytes_{limit_bytes} {}

  /// Memory from the upstream.
  /// @throws out_of_memory if more than `limit_bytes()` would then be in use; what the upstream throws.
  /// Nothing has changed then but `refused`.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (!detail::add_shared_within(claimed_bytes_, bytes, limit_bytes())) [[unlikely]]
      refuse(bytes, align);
    try {
      void* block = upstream_resource()->allocate(bytes, align);
      counter_.handed_out(bytes);
      return block;
    } catch (...) {
      unclaim(bytes);
      counter_.refused();
      throw;
    }
  }

  /// Gives a block back to the upstream.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    counter_.given_back(bytes);
    if (detail::is_single_threaded()) {
      unclaim(bytes);
      upstream_resource()->deallocate(block, bytes, align);
    } else {
      upstream_resource()->deallocate(block, bytes, align);
      unclaim(bytes);  // last, so that the upstream has the block before another thread's may take its place
    }
  }

  /// Most that may be handed out at once.
  [[nodiscard]] std::size_t limit_bytes() const noexcept {
    return limit_bytes_.load(std::memory_order_relaxed);
  }

  /// Sets the limit. Below what is in use it takes nothing away; requests are refused until enough was given
  /// back.
  void set_limit(std::size_t bytes) noexcept { limit_bytes_.store(bytes, std::memory_order_relaxed); }

 private:
  void unclaim(std::size_t bytes) noexcept { detail::add_shared(claimed_bytes_, std::size_t{0} - bytes); }
  [[noreturn]] TIDEMARK_COLD void refuse(std::size_t bytes, std::size_t align);

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }

  std::atomic<std::size_t> limit_bytes_;
  // Not `used_bytes`, which rises only when the upstream has given a block, so that a failure leaves no trace
  // in peaks.
  std::atomic<std::size_t> claimed_bytes_{0};
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, limit_resource>);
static_assert(!std::is_copy_constructible_v<limit_resource>, "blocks know their resource by its address");

}  // namespace tidemark
