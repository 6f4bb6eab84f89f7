// SPDX-License-Identifier: Apache-2.0
// Strategy: random raw blocks in nested epochs, kept, deallocated early, late and after they were kept. A
// model knows the epoch of each block. Contents and statistics are checked after each step.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "epoch_slabs_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

// S3.1
TEST(epoch_slabs_model, agrees_with_epochs_of_raw_blocks) {
  std::size_t reclaimed = 0, promoted = 0, late = 0, freed_when_kept = 0;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        epoch_slabs_model model{seed};
        run(model);
        reclaimed += model.reclaimed;
        promoted += model.promoted;
        late += model.late;
        freed_when_kept += model.freed_when_kept;
      },
      20'000);
  // A sequence that never did these things would show nothing about them.
  EXPECT_GT(reclaimed, in_this_length(1000, 20'000));
  EXPECT_GT(promoted, in_this_length(1000, 20'000));
  EXPECT_GT(late, in_this_length(100, 20'000));
  EXPECT_GT(freed_when_kept, in_this_length(1000, 20'000));
}

}  // namespace
}  // namespace tidemark::test
