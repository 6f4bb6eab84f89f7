// SPDX-License-Identifier: Apache-2.0
// Strategy: every kind of arena through the suite that every resource passes.
#include "arena_subjects.hpp"
#include "conformance.hpp"

namespace tidemark::test {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(arena, conformance, virtual_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(chunked_arena, conformance, chunked_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(observed_arena, conformance, observed_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(trapping_arena, conformance, trapping_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(sampling_arena, conformance, sampling_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(bounded_sampling_arena, conformance, bounded_sampling_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(upstream_arena, conformance, upstream_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(upstream_device_arena, conformance, upstream_device_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(buffered_upstream_arena, conformance, buffered_upstream_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(borrowed_arena, conformance, borrowed_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(shared_memory_arena, conformance, shared_memory_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(process_arena, conformance, process_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(shared_arena, conformance, shared_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(local_arena, conformance, local_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(placed_arena, conformance, placed_arena_subject);

}  // namespace
}  // namespace tidemark::test
