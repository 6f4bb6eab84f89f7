// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of requests, of blocks deallocated with and without fences, of fences that
// complete in any order, and of collections. A model knows each block that the cache keeps and whether it may
// be reused. A block behind a fence keeps its contents until its reuse is allowed, as a device requires.
#include <gtest/gtest.h>

#include <cstdint>

#include "resource_model.hpp"
#include "reuse_model.hpp"
#include "reuse_subjects.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

void run_model(reuse_cache_options const& limits) {
  using model = reuse_model;
  run_for_seeds_to_reach<model>({{"hits behind fences", &model::hits_behind_fences, 1000},
                                 {"misses beside pending", &model::misses_beside_pending, 100},
                                 {"collected", &model::collected, 100}},
                                [&](std::uint64_t seed, auto run) {
                                  recording_resource upstream;
                                  reuse_cache_options options = limits;
                                  options.upstream = &upstream;
                                  model one{options, upstream, seed};
                                  run(one);
                                });
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
