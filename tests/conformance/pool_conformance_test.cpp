// SPDX-License-Identifier: Apache-2.0
// Strategy: both pools pass the conformance suite, also with a limit that makes them return memory all the
// time.
#include "conformance.hpp"
#include "pool_subjects.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(pool, conformance, pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(tight_pool, conformance, tight_pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(odd_pool, conformance, odd_pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(synchronized_pool, conformance, synchronized_pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(tight_synchronized_pool, conformance, tight_synchronized_pool_subject);

}  // namespace tidemark::test
