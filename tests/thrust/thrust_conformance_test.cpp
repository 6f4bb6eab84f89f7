// SPDX-License-Identifier: Apache-2.0
// Strategy: both bridges pass the conformance suite at once: a resource of tidemark as a resource of Thrust,
// and this as a resource of std::pmr again. The required behaviour of every resource must pass through both.
#include <cstddef>
#include <memory_resource>

#include <tidemark/thrust.hpp>

#include "arena_subjects.hpp"
#include "conformance.hpp"
#include "pool_subjects.hpp"

namespace tidemark::test {

/// A subject of the suite behind both bridges.
template <class Subject, class R>
class bridged_subject : public Subject {
 public:
  explicit bridged_subject(typename Subject::supply_type& supply) : Subject{supply} {}

  std::pmr::memory_resource& resource() { return back_; }

 private:
  thrust_resource<R, void*> there_{&Subject::resource()};
  foreign_resource<thrust_resource<R, void*>> back_{there_};
};

using bridged_arena = bridged_subject<virtual_arena_subject, arena>;
using bridged_erased_arena = bridged_subject<upstream_arena_subject, std::pmr::memory_resource>;
INSTANTIATE_TYPED_TEST_SUITE_P(bridged_arena, conformance, bridged_arena);
INSTANTIATE_TYPED_TEST_SUITE_P(bridged_erased_arena, conformance, bridged_erased_arena);

using bridged_pool = bridged_subject<pool_subject, pool>;
using bridged_synchronized_pool = bridged_subject<synchronized_pool_subject, synchronized_pool>;
INSTANTIATE_TYPED_TEST_SUITE_P(bridged_pool, conformance, bridged_pool);
INSTANTIATE_TYPED_TEST_SUITE_P(bridged_synchronized_pool, conformance, bridged_synchronized_pool);

}  // namespace tidemark::test
