// SPDX-License-Identifier: Apache-2.0
// Strategy: `epoch_resource` through the conformance suite, with no epoch open, with one open, and over a
// pool.
#include "conformance.hpp"
#include "epoch_subjects.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(epoch_resource, conformance, epoch_resource_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(open_epoch, conformance, open_epoch_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(epoch_on_pool, conformance, epoch_on_pool_subject);

}  // namespace tidemark::test
