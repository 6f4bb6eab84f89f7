// SPDX-License-Identifier: Apache-2.0
// Strategy: the model test of tests/support/resource_model.hpp on the resources with the standard's
// interface.
#include "compat_subjects.hpp"
#include "resource_model.hpp"

namespace tidemark::test {
namespace {

TEST(resource_model, agrees_with_the_standards_pool) {
  run_resource_model<compat_unsynchronized_subject>(20'000);
}
TEST(resource_model, agrees_with_the_standards_synchronized_pool) {
  run_resource_model<compat_synchronized_subject>(20'000);
}

}  // namespace
}  // namespace tidemark::test
