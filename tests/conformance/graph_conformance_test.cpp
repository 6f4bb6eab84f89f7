// SPDX-License-Identifier: Apache-2.0
// Strategy: graph arenas, switches in and outside of captures, and rehearsals pass the conformance suite.
// Resources that do not reuse memory by themselves do so when the suite recycles.
#include "conformance.hpp"
#include "graph_subjects.hpp"

namespace tidemark::test {

INSTANTIATE_TYPED_TEST_SUITE_P(graph_arena, conformance, graph_arena_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(capture_switch, conformance, capture_switch_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(frozen_capture_switch, conformance, frozen_switch_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(baking_capture_switch, conformance, baking_switch_subject);
INSTANTIATE_TYPED_TEST_SUITE_P(rehearsal, conformance, rehearsal_subject);

}  // namespace tidemark::test
