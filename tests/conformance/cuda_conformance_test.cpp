// SPDX-License-Identifier: Apache-2.0
// Strategy: every arena and resource of the device part passes the suite of every resource, on a fake device
// with memory on the host. Each driver call also fails once.
#include "conformance.hpp"
#include "device_arena_subjects.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(device_arena, conformance, device_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(chunked_device_arena, conformance, chunked_device_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(device_block_arena, conformance, device_block_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(pinned_arena, conformance, pinned_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(managed_arena, conformance, managed_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(nccl_arena, conformance, nccl_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(nccl_window_arena, conformance, nccl_window_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(device_resource, conformance, device_resource_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(pinned_resource, conformance, pinned_resource_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(managed_resource, conformance, managed_resource_subject);

}  // namespace tidemark::test
