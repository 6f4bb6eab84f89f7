// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences on every adaptor of telemetry, compared with the shadow of
// resource_model.hpp. The consistency of the adaptor's own counts is checked after each step.
#include <gtest/gtest.h>

#include "resource_model.hpp"
#include "telemetry_subjects.hpp"

namespace tidemark::test {
namespace {

// T.1
TEST(resource_model, agrees_with_statistics_resource) { run_resource_model<statistics_subject>(); }
// T.3
TEST(resource_model, agrees_with_limit_resource) { run_resource_model<limit_subject>(); }
TEST(resource_model, agrees_with_a_limit_that_is_reached) { run_resource_model<reached_limit_subject>(); }
// T.4
TEST(resource_model, agrees_with_expect_no_upstream) { run_resource_model<expect_no_upstream_subject>(); }
TEST(resource_model, agrees_with_the_watched_default_resource) { run_resource_model<watching_subject>(); }
// T.2
TEST(resource_model, agrees_with_tracking_resource) { run_resource_model<tracking_subject>(); }
TEST(resource_model, agrees_with_test_resource) { run_resource_model<test_subject>(); }

}  // namespace
}  // namespace tidemark::test
