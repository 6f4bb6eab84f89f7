// SPDX-License-Identifier: Apache-2.0
// Strategy: the arenas and resources of the device part, compared with the models of arenas and of resources,
// on a fake device with memory on the host, which enforces the driver's rules on every call.
#include <gtest/gtest.h>

#include <cstdint>

#include "arena_model.hpp"
#include "device_arena_subjects.hpp"
#include "resource_model.hpp"

namespace tidemark::test {
namespace {

TEST(cuda_model, agrees_with_the_device_arena) { run_arena_model<device_arena_subject>(); }
TEST(cuda_model, agrees_with_the_device_arena_on_small_chunks) {
  run_arena_model<chunked_device_arena_subject>();
}
TEST(cuda_model, agrees_with_the_pinned_arena) { run_arena_model<pinned_arena_subject>(); }
TEST(cuda_model, agrees_with_the_managed_arena) { run_arena_model<managed_arena_subject>(); }
// R.10
TEST(cuda_model, agrees_with_the_arena_on_memory_of_nccl) { run_arena_model<nccl_arena_subject>(); }

TEST(cuda_resource_model, agrees_with_the_device_arena_on_small_chunks) {
  run_resource_model<chunked_device_arena_subject>();
}
// Each block is a mapping of the host.
constexpr std::uint64_t dear_steps = 20'000;
TEST(cuda_resource_model, agrees_with_blocks_of_a_device) {
  run_resource_model<device_resource_subject>(dear_steps);
}
TEST(cuda_resource_model, agrees_with_pinned_blocks) {
  run_resource_model<pinned_resource_subject>(dear_steps);
}
TEST(cuda_resource_model, agrees_with_managed_blocks) {
  run_resource_model<managed_resource_subject>(dear_steps);
}

}  // namespace
}  // namespace tidemark::test
