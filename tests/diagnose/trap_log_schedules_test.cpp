// SPDX-License-Identifier: Apache-2.0
// Strategy: every schedule of a rewind that is recorded over an older record, and of a fault handler that
// searches for both records meanwhile.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>

#include "../../pmr/src/diagnose/trap_log.hpp"
#include "faulty_sync.hpp"
#include "schedules.hpp"

namespace tidemark::detail {
namespace {

using namespace test;

template <class Sync>
program finds_a_rewind_amid_another() {
  using place = std::array<std::uintptr_t, 1>;
  const auto records = std::make_shared<rewind_records<Sync, 1, place>>();
  records->add(10, 20, {1});
  const auto rewinds = [=] { records->add(20, 30, {2}); };
  const auto looks = [=] {
    place by{};
    if (records->find(15, by)) test::require(by[0] == 1, "the older rewind has its own place");
    if (records->find(25, by)) test::require(by[0] == 2, "the newer rewind has its own place");
  };
  return program{{rewinds, looks}};
}

TEST(trap_log_schedules, find_the_rewind_of_the_queried_address) {
  expect_every_schedule_passes(finds_a_rewind_amid_another<explored_sync>, 20);
}

TEST(trap_log_schedules, confuse_rewinds_without_memory_order) {
  expect_failure(finds_a_rewind_amid_another<faulty_sync<fault::no_release>>,
                 "the newer rewind has its own place");
  expect_failure(finds_a_rewind_amid_another<faulty_sync<fault::no_acquire>>,
                 "the newer rewind has its own place");
}

}  // namespace
}  // namespace tidemark::detail
