// SPDX-License-Identifier: Apache-2.0
// Strategy: the reuse cache passes the conformance suite: with blocks that are ready at once, with blocks
// behind fences, and with limits that make it return memory all the time.
#include "conformance.hpp"
#include "reuse_subjects.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(reuse_cache, conformance, reuse_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(fenced_reuse_cache, conformance, fenced_reuse_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(tight_reuse_cache, conformance, tight_reuse_subject);

}  // namespace tidemark::test
