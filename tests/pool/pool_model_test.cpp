// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of all operations of a pool, compared with a model: the live blocks and the
// counts. After each step the statistics equal the model's; the pool's invariants are checked now and then.
#include <gtest/gtest.h>

#include <cstdint>

#include "pool_model.hpp"
#include "pool_subjects.hpp"
#include "resource_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

template <class Subject>
void run_model(bool hits_large_blocks = true) {
  using model = pool_model<Subject>;
  std::vector<sequence_count<model>> wanted{
      {"hits", &model::hits, 1000},
      {"stranded", &model::stranded, in_this_length(500)},
      {"trims that gave back", &model::trims_that_returned_memory, 100}};
  if (hits_large_blocks) wanted.push_back({"large hits", &model::large_hits, 100});
  run_for_seeds<model>(
      [](std::uint64_t seed, auto run) {
        recording_resource upstream;
        Subject subject{upstream};
        model one{subject, seed};
        run(one);
      },
      full_steps, wanted);
}

// S2.8
TEST(pool_model, agrees_with_the_pool) { run_model<pool_subject>(); }
TEST(pool_model, agrees_with_the_pool_of_odd_sizes) { run_model<odd_pool_subject>(false); }
// S2.8
TEST(pool_model, agrees_with_the_synchronized_pool_on_one_thread) { run_model<synchronized_pool_subject>(); }
// S2.9
TEST(pool_model, agrees_with_the_synchronized_pool_that_may_cache_little) {
  run_model<tight_synchronized_pool_subject>(false);
}

TEST(resource_model, agrees_with_the_pool) { run_resource_model<pool_subject>(); }
TEST(resource_model, agrees_with_the_pool_that_may_cache_little) { run_resource_model<tight_pool_subject>(); }
TEST(resource_model, agrees_with_the_synchronized_pool) { run_resource_model<synchronized_pool_subject>(); }

}  // namespace
}  // namespace tidemark::test
