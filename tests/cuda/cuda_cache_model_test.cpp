// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences on a fake device with memory on the host. Blocks are deallocated while work
// of other streams still uses them. When such work runs, it must find the old contents in its block. The
// cache must therefore not allocate the block again earlier, also when it waits for memory or releases
// blocks. cuda_random_program has pools, whose stream waits for such work.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include <tidemark/core/units.hpp>

#include "device_cache_model.hpp"
#include "device_cache_subjects.hpp"
#include "resource_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

// S1.36
TEST(device_cache_model, reuses_a_block_only_after_its_work_has_run) {
  std::size_t hits = 0, refused = 0, trims = 0, works_run = 0;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        small_device supply;
        device_cache_model model{{.max_blocks_per_size = 4, .max_cached_bytes = 40 * KiB}, supply, seed};
        run(model);
        model.count_up();
        hits += model.hits;
        refused += model.refused;
        trims += model.trims;
        works_run += model.works_run;
      },
      20'000);
  // A sequence that never did these things would show nothing about them.
  EXPECT_GT(hits, 1000u);
  EXPECT_GT(refused, 10u);
  EXPECT_GT(trims, refused) << "the ladder helps sometimes";
  EXPECT_GT(works_run, 1000u);
}

TEST(resource_model, agrees_with_the_drivers_stream_ordered_allocator) {
  run_resource_model<async_resource_subject>(10'000);
}
TEST(resource_model, agrees_with_the_device_cache) { run_resource_model<device_cache_subject>(20'000); }
TEST(resource_model, agrees_with_a_device_cache_with_a_small_limit) {
  run_resource_model<tight_device_cache_subject>(10'000);
}
TEST(resource_model, agrees_with_the_device_pool) { run_resource_model<device_pool_subject>(20'000); }
TEST(resource_model, agrees_with_the_pools_of_many_streams) {
  run_resource_model<device_pools_subject>(10'000);
}
TEST(resource_model, agrees_with_a_device_pool_with_a_small_limit) {
  run_resource_model<tight_device_pool_subject>(20'000);
}
TEST(resource_model, agrees_with_a_device_pool_of_graphs) {
  run_resource_model<kept_device_pool_subject>(20'000);
}
TEST(resource_model, agrees_with_the_device_pool_on_memory_of_the_host) {
  run_resource_model<hosted_device_pool_subject>(20'000);
}

}  // namespace
}  // namespace tidemark::test
