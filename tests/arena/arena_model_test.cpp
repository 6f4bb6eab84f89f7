// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of all operations of an arena, compared with a model that is too simple to
// be wrong (arena_model.hpp). After each step the arena's invariants hold and agree with the model.
// resource_model.hpp has the operations of every resource.
#include <gtest/gtest.h>

#include "arena_model.hpp"
#include "arena_subjects.hpp"
#include "resource_model.hpp"

namespace tidemark::test {
namespace {

// 5 seeds of 100,000 steps for each of ten kinds: 5 * 10^6 steps in all.
TEST(arena_model, agrees_with_the_arena_on_virtual_memory) { run_arena_model<virtual_arena_subject>(); }
// S0.11
TEST(arena_model, agrees_with_the_arena_on_small_chunks) { run_arena_model<chunked_arena_subject>(); }
TEST(arena_model, agrees_with_an_observed_arena) { run_arena_model<observed_arena_subject>(); }
TEST(arena_model, agrees_with_an_arena_that_traps_every_scope) { run_arena_model<trapping_arena_subject>(); }
TEST(arena_model, agrees_with_an_arena_that_traps_some_scopes) { run_arena_model<sampling_arena_subject>(); }
TEST(arena_model, agrees_with_an_arena_that_traps_and_does_not_grow) {
  run_arena_model<bounded_sampling_arena_subject>();
}
TEST(arena_model, agrees_with_the_arena_on_an_upstream) {
  run_arena_model<buffered_upstream_arena_subject>();
}
TEST(arena_model, agrees_with_the_arena_on_a_borrowed_range) { run_arena_model<borrowed_arena_subject>(); }
TEST(arena_model, agrees_with_the_arena_on_registered_memory) { run_arena_model<registered_arena_subject>(); }
// H.1
TEST(arena_model, agrees_with_the_arena_on_shared_memory) { run_arena_model<shared_memory_arena_subject>(); }

TEST(resource_model, agrees_with_the_arena_on_an_upstream_of_a_device) {
  run_resource_model<upstream_device_arena_subject>();
}
TEST(resource_model, agrees_with_the_arena_on_small_chunks) { run_resource_model<chunked_arena_subject>(); }
TEST(resource_model, agrees_with_the_arena_on_a_borrowed_range) {
  run_resource_model<borrowed_arena_subject>();
}
TEST(resource_model, agrees_with_the_arena_on_registered_memory) {
  run_resource_model<registered_arena_subject>();
}
// H.7
TEST(resource_model, agrees_with_the_process_arena) { run_resource_model<process_arena_subject>(); }
// G.5
TEST(resource_model, agrees_with_the_shared_arena) { run_resource_model<shared_arena_subject>(); }
// G.5
TEST(resource_model, agrees_with_a_thread_of_a_shared_arena) { run_resource_model<local_arena_subject>(); }

}  // namespace
}  // namespace tidemark::test
