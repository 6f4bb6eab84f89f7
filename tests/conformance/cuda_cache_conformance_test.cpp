// SPDX-License-Identifier: Apache-2.0
// Strategy: the caches and pools of a device through the suite that every resource passes, on a fake device
// whose memory is there on the host: with much that may be kept and with little, and with blocks that another
// stream uses on. Each call to the driver fails once there, too.
#include "conformance.hpp"
#include "device_cache_subjects.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(async_resource, conformance, async_resource_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(device_cache, conformance, device_cache_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(tight_device_cache, conformance, tight_device_cache_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(shared_device_cache, conformance, shared_device_cache_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(device_pool, conformance, device_pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(device_pools, conformance, device_pools_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(tight_device_pool, conformance, tight_device_pool_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(hosted_device_pool, conformance, hosted_device_pool_subject);

}  // namespace tidemark::test
