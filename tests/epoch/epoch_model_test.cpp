// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of all operations of epochs, buffers and owners on one thread, compared
// with a model. In the model each buffer has one holder, an epoch by its depth, a buffer group by its number,
// or none. After each step the live buffers and the counts equal the model's; the invariants are checked now
// and then.
#include <gtest/gtest.h>

#include <cstdint>

#include <tidemark/epoch/epoch_resource.hpp>

#include "epoch_model.hpp"
#include "epoch_subjects.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "resource_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

// S3.5
TEST(epoch_model, agrees_with_epochs) {
  using model = epoch_model;
  run_for_seeds<model>(
      [&](std::uint64_t seed, auto run) {
        made_up_memory device;
        recording_resource upstream{&device};
        epoch_resource memory{{.host_memory = false}, &upstream};
        {
          model of_epochs{memory, upstream, seed};
          run(of_epochs);
        }
        memory.check_invariants();
      },
      full_steps,
      {{"reclaimed", &model::reclaimed, in_this_length(1000)},
       {"promoted", &model::promoted, in_this_length(1000)},
       {"adopted", &model::adopted, in_this_length(1000)}});
}

TEST(resource_model, agrees_with_the_epoch_resource) { run_resource_model<epoch_resource_subject>(); }
TEST(resource_model, agrees_with_an_open_epoch) { run_resource_model<open_epoch_subject>(); }
TEST(resource_model, agrees_with_an_open_epoch_on_a_pool) { run_resource_model<epoch_on_pool_subject>(); }

}  // namespace
}  // namespace tidemark::test
