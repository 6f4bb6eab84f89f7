// SPDX-License-Identifier: Apache-2.0
// Strategy: a traced resource through the suite that every resource passes.
#include "conformance.hpp"
#include "trace_subjects.hpp"

namespace tidemark::test {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(traced_arena, conformance, traced_arena_subject);

}  // namespace
}  // namespace tidemark::test
