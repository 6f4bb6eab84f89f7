// SPDX-License-Identifier: Apache-2.0
// Strategy: random sequences on a traced resource, compared with the shadow. Its invariants are checked after
// every step.
#include "resource_model.hpp"
#include "trace_subjects.hpp"

namespace tidemark::test {
namespace {

// T.5
TEST(resource_model, agrees_with_the_traced_arena) { run_resource_model<traced_arena_subject>(); }

}  // namespace
}  // namespace tidemark::test
