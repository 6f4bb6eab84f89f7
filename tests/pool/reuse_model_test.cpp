// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of requests, of blocks deallocated with and without fences, of fences that
// complete in any order, and of collections. A model knows each block that the cache keeps and whether it may
// be reused. A block behind a fence keeps its contents until its reuse is allowed, as a device requires.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "resource_model.hpp"
#include "reuse_model.hpp"
#include "reuse_subjects.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

void run_model(reuse_cache_options const& limits) {
  std::size_t hits_behind_fences = 0, misses_beside_pending = 0, collected = 0;
  run_for_seeds([&](std::uint64_t seed, auto run) {
    recording_resource upstream;
    reuse_cache_options options = limits;
    options.upstream = &upstream;
    reuse_model model{options, upstream, seed};
    run(model);
    hits_behind_fences += model.hits_behind_fences;
    misses_beside_pending += model.misses_beside_pending;
    collected += model.collected;
  });
  // A sequence that never did these things would show nothing about them.
  EXPECT_GT(hits_behind_fences, 1000u);
  EXPECT_GT(misses_beside_pending, 100u);
  EXPECT_GT(collected, 100u);
}

// S3.30
TEST(reuse_model, agrees_with_the_cache) { run_model({}); }
// S3.31
TEST(reuse_model, agrees_with_the_cache_that_has_limits) {
  run_model({.max_cached_bytes = 2 * KiB, .max_blocks_per_size = 3});
}

TEST(resource_model, agrees_with_the_reuse_cache) { run_resource_model<reuse_subject>(); }
TEST(resource_model, agrees_with_the_reuse_cache_that_may_keep_little) {
  run_resource_model<tight_reuse_subject>();
}
TEST(resource_model, agrees_with_the_reuse_cache_behind_fences) {
  run_resource_model<fenced_reuse_subject>();
}

}  // namespace
}  // namespace tidemark::test
