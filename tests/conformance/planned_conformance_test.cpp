// SPDX-License-Identifier: Apache-2.0
// Strategy: planned arenas pass the conformance suite without an open step, in a recorded step, and in steps
// by plans. These steps follow their plans if the suite repeats itself, and leave them otherwise.
#include "conformance.hpp"
#include "planned_subjects.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(planned_outside, conformance, planned_outside_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(planned_record, conformance, planned_record_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(planned_steps, conformance, planned_steps_subject);

namespace {

TEST(planned_steps, follow_plans_in_repeated_runs) {
  recording_resource supply;
  planned_steps_subject subject{supply};
  EXPECT_TRUE(run_mixture(subject, 400));
  const std::uint64_t recorded = subject.resource().stats().fallback_allocations;
  EXPECT_TRUE(run_mixture(subject, 400));
  EXPECT_EQ(subject.resource().stats().fallback_allocations, recorded);
  EXPECT_EQ(subject.resource().stats().planned_allocations, recorded);
}

}  // namespace
}  // namespace tidemark::test
