// SPDX-License-Identifier: Apache-2.0
// Strategy: the resources with the standard's interface through the conformance suite.
#include "compat_subjects.hpp"
#include "conformance.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(compat_unsynchronized_pool, conformance, compat_unsynchronized_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(compat_synchronized_pool, conformance, compat_synchronized_subject);

}  // namespace tidemark::test
