// SPDX-License-Identifier: Apache-2.0
// Any resource, driven by a fuzzer's bytes beside the model of the model tests: the first choice is the resource, the next
// two which calls of its supply fail, the others what is allocated and freed. Besides, requests that no memory has room
// for. Whatever happens, blocks are aligned, apart and keep their contents, what a refused request finds is left as it
// was, and the supply gets back exactly what it gave.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arena_subjects.hpp"
#include "choices.hpp"
#include "compat_subjects.hpp"
#include "epoch_subjects.hpp"
#include "graph_subjects.hpp"
#include "planned_subjects.hpp"
#include "pool_subjects.hpp"
#include "resource_model.hpp"
#include "reuse_subjects.hpp"
#include "telemetry_subjects.hpp"

namespace tidemark::fuzz {
namespace {

/// A subject of the model whose calls are told.
template <class Subject>
class told_subject {
 public:
  explicit told_subject(Subject& subject) : subject_{subject}, told_{subject.resource()} {}
  std::pmr::memory_resource& resource() { return told_; }
  void recycle() {
    told_program::current().add("subject.recycle();");
    subject_.recycle();
  }
  void check() const { subject_.check(); }
  [[nodiscard]] std::vector<std::size_t> state() const { return subject_.state(); }

 private:
  Subject& subject_;
  told_resource told_;
};

template <class Subject>
void request_too_much(told_subject<Subject>& subject, choices& next) {
  const std::size_t bytes = std::numeric_limits<std::size_t>::max() - next();
  const std::size_t align = std::size_t{1} << next() % 13;
  const std::vector<std::size_t> before = subject.state();
  try {
    (void)subject.resource().allocate(bytes, align);
    ADD_FAILURE() << bytes << " bytes were allocated";
  } catch (std::bad_alloc const&) {
    EXPECT_EQ(subject.state(), before);
  }
}

template <class Subject>
void run(char const* name, choices next) {
  told_program::current().begin(std::string{name} + " subject{supply};  // memory is subject.resource()");
  typename Subject::supply_type supply{};
  Subject subject{supply};
  told_subject<Subject> told{subject};
  if constexpr (requires { supply.fail_from = 1; }) {
    supply.fail_from = next() % 256;
    supply.fail_count = next() % 8;
    told_program::current().add("supply.fail_from = " + std::to_string(supply.fail_from) +
                                "; supply.fail_count = " + std::to_string(supply.fail_count) + ";");
    supply.fail_from += supply.calls;
  }
  test::resource_model<told_subject<Subject>, choices> model{told, next};
  for (std::size_t i = 0; !next.are_at_an_end(); ++i) {
    if (i % 64 == 63) request_too_much(told, next);
    model.step();
    if (i % 16 == 0) model.check_contents();
    stop_if_failed();
  }
}

using runner = void (*)(choices);
#define RESOURCE(subject) [](choices next) { run<test::subject>(#subject, next); }
constexpr runner resources[] = {
    RESOURCE(virtual_arena_subject),
    RESOURCE(chunked_arena_subject),
    RESOURCE(upstream_arena_subject),
    RESOURCE(buffered_upstream_arena_subject),
    RESOURCE(shared_arena_subject),
    RESOURCE(local_arena_subject),
    RESOURCE(pool_subject),
    RESOURCE(tight_pool_subject),
    RESOURCE(odd_pool_subject),
    RESOURCE(synchronized_pool_subject),
    RESOURCE(tight_synchronized_pool_subject),
    RESOURCE(reuse_subject),
    RESOURCE(tight_reuse_subject),
    RESOURCE(epoch_resource_subject),
    RESOURCE(open_epoch_subject),
    RESOURCE(epoch_on_pool_subject),
    RESOURCE(graph_arena_subject),
    RESOURCE(planned_record_subject),
    RESOURCE(planned_steps_subject),
    RESOURCE(compat_monotonic_subject),
    RESOURCE(compat_unsynchronized_subject),
    RESOURCE(compat_synchronized_subject),
    RESOURCE(statistics_subject),
    RESOURCE(limit_subject),
    RESOURCE(tracking_subject),
    RESOURCE(test_subject),
};

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::span<std::uint8_t const> rest{data, size};
  tidemark::fuzz::choices next{rest};
  tidemark::fuzz::resources[next() % std::size(tidemark::fuzz::resources)](next);
  tidemark::fuzz::stop_if_failed();  // what its end found
  return 0;
}
