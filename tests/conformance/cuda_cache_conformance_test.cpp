// SPDX-License-Identifier: Apache-2.0
// Strategy: the caches and pools of a device pass the suite of every resource, on a fake device with memory
// on the host: with high and low limits of kept memory, and with blocks that another stream still uses. Each
// driver call also fails once.
#include "conformance.hpp"
#include "device_cache_subjects.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(async_resource, conformance, async_resource_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(device_cache, conformance, device_cache_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(tight_device_cache, conformance, tight_device_cache_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(device_pool, conformance, device_pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(device_pools, conformance, device_pools_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(tight_device_pool, conformance, tight_device_pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(kept_device_pool, conformance, kept_device_pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(hosted_device_pool, conformance, hosted_device_pool_subject);

}  // namespace tidemark::test
