// SPDX-License-Identifier: Apache-2.0
// Base of the tests of the reuse cache: events that a test completes, memory at addresses that must not be
// touched, and the cache as a subject of the conformance suite and of the model test.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <thread>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core.hpp>
#include <tidemark/pool/reuse_cache.hpp>

#include "recording_supply.hpp"
#include "subject_traits.hpp"

namespace tidemark::test {

/// A device's event that a test completes. Counts the cache's operations on its fences.
class event {
 public:
  event() = default;
  event(event const&) = delete;
  event& operator=(event const&) = delete;

  void complete() { done_.store(true, std::memory_order_release); }
  [[nodiscard]] bool completed() const { return done_.load(std::memory_order_acquire); }
  reuse_fence fence() {
    static constexpr reuse_fence::functions calls{
        .done = [](void* state) noexcept { return of(state).asked.fetch_add(1), of(state).completed(); },
        .wait =
            [](void* state) noexcept {
              ++of(state).waits;
              of(state).use_cache();
              if (of(state).wait_completes) of(state).complete();
              while (!of(state).completed()) std::this_thread::yield();
            },
        .destroy =
            [](void* state) noexcept {
              of(state).use_cache();
              ++of(state).destroyed;
            },
        .order = [](void* state) noexcept { return of(state).order; }};
    return {calls, this};
  }

  std::atomic<int> asked{0}, waits{0}, destroyed{0};
  /// The order that its fence belongs to; null: none.
  void const* order = nullptr;
  /// If true, a wait completes the event, because nothing else can complete it in a test of one thread.
  bool wait_completes = true;
  /// The cache that the fence's functions use, if a test requests this.
  reuse_cache* cache_to_use = nullptr;

 private:
  static event& of(void* state) { return *static_cast<event*>(state); }
  void use_cache() const {
    if (cache_to_use != nullptr) (void)cache_to_use->stats();
  }
  std::atomic<bool> done_{false};
};

/// 1 TiB of addresses that represent a device's: a touch crashes. Checks that it gets back exactly the blocks
/// it returned.
class made_up_device {
 public:
  recording_resource& memory() { return exact_; }

 private:
  borrowed_device_arena arena_{
      borrowed_device_memory{byte_range{.begin = 0x7000'0000'0000, .size = 1024 * GiB}}};
  recording_resource exact_{&arena_};
};

/// The cache, deallocated in without fences.
class reuse_subject : public subject_traits<8 * MiB> {
 public:
  explicit reuse_subject(supply_type& upstream) : reuse_subject{{.upstream = &upstream}} {}
  explicit reuse_subject(reuse_cache_options const& options) : cache_{options} {}

  reuse_cache& resource() { return cache_; }
  void check() const { check_one_of(32, cache_); }
  [[nodiscard]] std::vector<std::size_t> state() const { return counts_of(cache_.stats()); }

 protected:
  reuse_cache cache_;
};

/// The limit of kept bytes is low enough that blocks go to the upstream all the time.
struct tight_reuse_subject : reuse_subject {
  static constexpr std::size_t max_reused_bytes = 0, max_reused_align = 0;
  explicit tight_reuse_subject(supply_type& upstream)
      : reuse_subject{{.max_cached_bytes = 8 * KiB, .max_blocks_per_size = 2, .upstream = &upstream}} {}
};

/// Each block is deallocated behind a fence that is done some calls later.
class fenced_reuse_subject : public reuse_subject {
 public:
  using reuse_subject::reuse_subject;

  std::pmr::memory_resource& resource() { return fenced_; }
  void recycle() { now += lag; }

 private:
  static constexpr std::uintptr_t lag = 7;
  static inline std::uintptr_t now = 0;  // a state is a pointer only: the time at which it is done

  static constexpr reuse_fence::functions calls{
      .done = [](void* due) noexcept { return reinterpret_cast<std::uintptr_t>(due) <= now; },
      .wait = [](void*) noexcept { now += lag; },
      .destroy = nullptr,
      .order = nullptr};

  class fenced_resource final : public detail::distinct_resource {
   public:
    explicit fenced_resource(reuse_cache& cache) : cache_{cache} {}

   private:
    void* do_allocate(std::size_t bytes, std::size_t align) override {
      ++now;
      return cache_.allocate(bytes, align);
    }
    void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
      ++now;
      cache_.deallocate_after(block, bytes, align, {calls, reinterpret_cast<void*>(now + lag)});
    }

    reuse_cache& cache_;
  };

  fenced_resource fenced_{cache_};
};

/// A cache on addresses that must not be touched, and blocks of one size, all at once.
struct reuse_test : ::testing::Test {
  made_up_device device;
  recording_resource& upstream = device.memory();

  static std::vector<void*> allocate_blocks(reuse_cache& cache, std::size_t blocks, std::size_t bytes) {
    std::vector<void*> taken(blocks);
    for (void*& block : taken) block = cache.allocate(bytes, 256);
    return taken;
  }
  static void deallocate_blocks(reuse_cache& cache, std::vector<void*> const& blocks, std::size_t bytes) {
    for (void* block : blocks) cache.deallocate(block, bytes, 256);
    cache.check_invariants();
  }
  [[nodiscard]] std::size_t held_of(std::vector<void*> const& blocks) const {
    std::size_t held = 0;
    for (void* block : blocks) held += upstream.holds(block) ? 1 : 0;
    return held;
  }
};

}  // namespace tidemark::test
