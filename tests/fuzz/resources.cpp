// SPDX-License-Identifier: Apache-2.0
// Any resource, driven by a fuzzer's bytes and compared with the model of the model tests. The first choice
// is the resource, the next two select the calls of its supply that fail, and the others the allocations and
// deallocations. Requests that no memory can hold are included. In every case blocks are aligned, do not
// overlap and keep their contents, a refused request changes nothing, and the supply gets back exactly the
// blocks it returned.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "arena_subjects.hpp"
#include "choices.hpp"
#include "compat_subjects.hpp"
#include "device_arena_subjects.hpp"
#include "device_cache_subjects.hpp"
#include "epoch_subjects.hpp"
#include "fuzz_input.hpp"
#include "graph_subjects.hpp"
#include "planned_subjects.hpp"
#include "pool_subjects.hpp"
#include "program_log.hpp"
#include "resource_model.hpp"
#include "reuse_subjects.hpp"
#include "telemetry_subjects.hpp"
#include "trace_subjects.hpp"

namespace tidemark::test {
namespace {

/// A subject of the model that prints its calls.
template <class Subject>
class told_subject {
 public:
  explicit told_subject(Subject& subject) : subject_{subject}, told_{subject.resource()} {}
  std::pmr::memory_resource& resource() { return told_; }
  void recycle() {
    log_line("subject.recycle();");
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
  program_log::current().begin(std::string{name} + " subject{supply};  // memory is subject.resource()");
  typename Subject::supply_type supply{};
  Subject subject{supply};
  told_subject<Subject> told{subject};
  fail_some_calls(supply, next);
  resource_model<told_subject<Subject>> model{told, next};
  for (std::size_t i = 0; !next.are_at_an_end(); ++i) {
    if (i % 64 == 63) request_too_much(told, next);
    model.step();
    if (i % 16 == 0) model.check_contents();
    stop_if_failed();
  }
}

using runner = void (*)(choices);
#define RESOURCE(subject) [](choices next) { run<subject>(#subject, next); }
// New ones at the end: the first number of a corpus file is an index.
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
    RESOURCE(upstream_device_arena_subject),
    RESOURCE(registered_arena_subject),
    RESOURCE(shared_memory_arena_subject),
    RESOURCE(process_arena_subject),
    RESOURCE(placed_arena_subject),
    RESOURCE(fenced_reuse_subject),
    RESOURCE(capture_switch_subject),
    RESOURCE(frozen_switch_subject),
    RESOURCE(rehearsal_subject),
    RESOURCE(expect_no_upstream_subject),
    RESOURCE(watching_subject),
    RESOURCE(traced_arena_subject),
    RESOURCE(device_arena_subject),
    RESOURCE(chunked_device_arena_subject),
    RESOURCE(pinned_arena_subject),
    RESOURCE(managed_arena_subject),
    RESOURCE(nccl_arena_subject),
    RESOURCE(nccl_window_arena_subject),
    RESOURCE(device_resource_subject),
    RESOURCE(pinned_resource_subject),
    RESOURCE(managed_resource_subject),
    RESOURCE(async_resource_subject),
    RESOURCE(device_cache_subject),
    RESOURCE(tight_device_cache_subject),
    RESOURCE(device_pool_subject),
    RESOURCE(device_pools_subject),
    RESOURCE(tight_device_pool_subject),
    RESOURCE(hosted_device_pool_subject),
    RESOURCE(trapping_arena_subject),
    RESOURCE(sampling_arena_subject),
};

}  // namespace
}  // namespace tidemark::test

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::span<std::uint8_t const> rest{data, size};
  tidemark::test::choices next{rest};
  tidemark::test::stop_at_violations();
  tidemark::test::resources[next() % std::size(tidemark::test::resources)](next);
  tidemark::test::stop_if_failed();  // what its end found
  return 0;
}
