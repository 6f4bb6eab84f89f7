// SPDX-License-Identifier: Apache-2.0
// The caches and pools of a device, and their upstreams, as subjects of the conformance suite and of the
// model tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>

#include "recording_supply.hpp"
#include "subject_traits.hpp"
#include "touchable_device.hpp"

namespace tidemark::test {

/// Common base of these subjects: a device that runs out of memory.
template <std::size_t CapacityBytes>
class subject_of_a_device_of
    : public subject_traits<CapacityBytes / 4, CapacityBytes, touchable_device_of<CapacityBytes>> {
 public:
  using supply_type = touchable_device_of<CapacityBytes>;
  static constexpr std::size_t failing_rounds =
      60;  // for each call that fails once, on a device that is slow

 protected:
  explicit subject_of_a_device_of(supply_type& supply)
      : device_{supply.device}, stream_{supply.stream}, other_{supply.other} {}

  fake_device& device_;
  gpu::stream_handle stream_;
  gpu::stream_handle other_;
};
using subject_of_a_device = subject_of_a_device_of<1 * MiB>;

/// The driver's stream-ordered allocator.
class async_resource_subject : public subject_of_a_device {
 public:
  static constexpr std::size_t max_reused_bytes = 0, max_reused_align = 0;  // nothing is kept
  explicit async_resource_subject(supply_type& supply) : subject_of_a_device{supply} {}

  gpu::async_resource& resource() { return blocks_; }
  void recycle() { device_.run(stream_); }
  [[nodiscard]] std::vector<std::size_t> state() const { return counts_of(blocks_.stats()); }

 private:
  gpu::memory_pool pool_{{}, device_};
  gpu::async_resource blocks_{pool_, stream_, device_};
};

/// The cache whose blocks only its own stream uses.
class device_cache_subject : public subject_of_a_device_of<4 * MiB> {
 public:
  static constexpr std::size_t max_reused_bytes = 40'000;
  static constexpr std::size_t max_reused_align = 256;
  explicit device_cache_subject(supply_type& supply,
                                device_cache_options const& limits = {.max_cached_bytes = 1 * GiB})
      : subject_of_a_device_of{supply}, cache_{with_stream(limits), device_} {}

  device_cache& resource() { return cache_; }
  void recycle() { device_.run(stream_); }
  void check() const { check_one_of(32, cache_); }
  [[nodiscard]] std::vector<std::size_t> state() const { return counts_of(cache_.stats()); }

 protected:
  [[nodiscard]] device_cache_options with_stream(device_cache_options options) const {
    options.stream = stream_;
    return options;
  }

  device_cache cache_;
};

/// The limit of kept bytes is low enough that blocks go to the driver all the time.
struct tight_device_cache_subject : device_cache_subject {
  static constexpr std::size_t max_reused_bytes = 0, max_reused_align = 0;
  explicit tight_device_cache_subject(supply_type& supply)
      : device_cache_subject{supply, {.max_blocks_per_size = 2, .max_cached_bytes = 8 * KiB}} {}
};

/// The pool that maps memory. Its classes take 64 KiB each at least.
class device_pool_subject : public subject_of_a_device_of<4 * MiB> {
 public:
  static constexpr std::size_t max_reused_bytes = 40'000;
  static constexpr std::size_t max_reused_align = 256;

  explicit device_pool_subject(supply_type& supply, device_pool_options options = {})
      : subject_of_a_device_of{supply}, pool_{with_stream(options), device_} {}

  device_pool& resource() { return pool_; }
  void check() const { check_one_of(32, pool_); }
  // Without idle memory, which a refused request may create or return.
  [[nodiscard]] std::vector<std::size_t> state() const {
    const pool_stats stats = pool_.stats();
    return {stats.allocations, stats.deallocations, stats.hits,
            stats.misses,      stats.used_bytes,    stats.requested_bytes};
  }

 protected:
  device_pool pool_;

 private:
  [[nodiscard]] device_pool_options with_stream(device_pool_options options) const {
    options.stream = stream_;
    return options;
  }
};

/// The pools of many streams: each block is deallocated while another stream uses it, whose work runs some
/// calls later.
class device_pools_subject : public subject_of_a_device_of<4 * MiB> {
 public:
  static constexpr std::size_t max_reused_bytes = 0;  // a round may begin while work of the last one goes on
  static constexpr std::size_t max_reused_align = 0;

  explicit device_pools_subject(supply_type& supply) : subject_of_a_device_of{supply}, pools_{{}, device_} {
    (void)pools_.on(stream_);  // a request does not fail because the stream is new
  }

  std::pmr::memory_resource& resource() { return users_; }
  void recycle() { device_.run_all(); }
  void check() {
    if (++checks_ % 32 == 0) pools_.check_invariants();
  }
  [[nodiscard]] std::vector<std::size_t> state() const {
    const device_pools_stats stats = pools_.stats();
    return {stats.allocations, stats.used_blocks, stats.requested_bytes};
  }

 private:
  class users_of_two_streams final : public detail::distinct_resource {
   public:
    explicit users_of_two_streams(device_pools_subject& all) : all_{all} {}

   private:
    void* do_allocate(std::size_t bytes, std::size_t align) override {
      return all_.pools_.allocate(bytes, align, all_.stream_);
    }
    void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
      all_.pools_.deallocate(block, bytes, align, all_.other_);
      if (++deallocations_ % 7 == 0) all_.device_.run(all_.other_);
    }

    device_pools_subject& all_;
    std::size_t deallocations_ = 0;
  };

  device_pools pools_;
  users_of_two_streams users_{*this};
  std::size_t checks_ = 0;
};

/// The limit of kept bytes is low enough that slabs are returned all the time. The rest is returned each time
/// that nothing is in use.
struct tight_device_pool_subject : device_pool_subject {
  static constexpr std::size_t max_reused_bytes = 0, max_reused_align = 0;
  explicit tight_device_pool_subject(supply_type& supply)
      : device_pool_subject{supply, {.max_cached_bytes = 12 * KiB}} {}
  void recycle() { pool_.clear(); }
};

/// The pool of graphs. It returns its memory each time that nothing is in use.
struct kept_device_pool_subject : device_pool_subject {
  static constexpr std::size_t max_reused_bytes = 0, max_reused_align = 0;
  explicit kept_device_pool_subject(supply_type& supply)
      : device_pool_subject{supply, {.keeps_addresses = true}} {}
  void recycle() { pool_.release(); }
};

/// The pool on memory of the host, which fails at chosen requests.
class hosted_device_pool_subject : public subject_traits<8 * MiB> {
 public:
  static constexpr std::size_t max_reused_bytes = 40'000;
  static constexpr std::size_t max_reused_align = 256;

  explicit hosted_device_pool_subject(supply_type& upstream) : pool_{{.upstream = &upstream}, device_} {}

  device_pool& resource() { return pool_; }
  void check() const { check_one_of(32, pool_); }
  [[nodiscard]] std::vector<std::size_t> state() const {
    const pool_stats stats = pool_.stats();
    return {stats.allocations, stats.deallocations, stats.used_bytes, stats.requested_bytes};
  }

 private:
  fake_device device_;
  device_pool pool_;
};

}  // namespace tidemark::test
