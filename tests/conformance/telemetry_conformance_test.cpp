// SPDX-License-Identifier: Apache-2.0
// Strategy: every adaptor of telemetry through the suite that every resource passes.
#include "conformance.hpp"
#include "telemetry_subjects.hpp"

namespace tidemark::test {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(statistics_resource, conformance, statistics_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(limit_resource, conformance, limit_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(reached_limit_resource, conformance, reached_limit_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(expect_no_upstream, conformance, expect_no_upstream_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(watching_resource, conformance, watching_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(tracking_resource, conformance, tracking_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(test_resource, conformance, test_subject);

}  // namespace
}  // namespace tidemark::test
