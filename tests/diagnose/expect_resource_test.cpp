// SPDX-License-Identifier: Apache-2.0
// Strategy: code that forgets its resource, in functions whose names the reports must contain, and code that
// does not forget it, on every kind of resource. operator new is not replaced here; diagnose/watched_new
// does that. The tests are outside of namespace tidemark, because code inside it is not counted.
#include <tidemark/diagnose/expect_resource.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "logged_upstream.hpp"
#include "recording_supply.hpp"
#include "resource_users.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"

namespace {

using namespace tidemark;
using test::contains;
using test::default_resource_scope;
using test::recording_resource;
using test::violation_recorder;

using floats = std::pmr::vector<float>;

[[gnu::noinline]] void forget_the_argument(std::size_t n) {
  floats forgotten(n);
  test::keep(forgotten.data());
}
[[gnu::noinline]] void forget_elsewhere() {
  floats forgotten(10);
  test::keep(forgotten.data());
}

std::size_t occurrences(std::string const& text, std::string const& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

struct missed : ::testing::Test {
  arena step;
  violation_recorder recorder;
};

// ---- counted allocations ----

// T.20
TEST_F(missed, counts_blocks_from_other_resources_in_the_scope) {
  forget_the_argument(10);
  {
    const floats weights(100, &step);
    const expect_resource expected{&step};
    (void)step.push_array<int>(100);
    EXPECT_EQ(expected.missed_blocks(), 0u);
    forget_the_argument(100);
    forget_the_argument(25);
    EXPECT_EQ(expected.missed_blocks(), 2u);
    EXPECT_EQ(expected.missed_bytes(), 500u);
    const auto copied_out_of_the_arena = weights;
    EXPECT_EQ(expected.missed_bytes(), 900u);
  }
  forget_the_argument(10);
  const expect_resource expected{&step};
  EXPECT_EQ(expected.missed_blocks(), 0u);
  EXPECT_EQ(expected.missed_bytes(), 0u);
}

TEST_F(missed, counts_nothing_that_an_allowance_allows) {
  const expect_resource expected{&step};
  {
    const expect_resource::allowance outer;
    {
      const expect_resource::allowance inner;
      forget_the_argument(10);
    }
    forget_the_argument(10);
  }
  EXPECT_EQ(expected.missed_blocks(), 0u);
  forget_the_argument(10);
  EXPECT_EQ(expected.missed_blocks(), 1u);
}

TEST_F(missed, counts_no_block_that_was_refused) {
  recording_resource upstream;
  const default_resource_scope set{&upstream};
  const expect_resource expected{&step};
  upstream.fail_from = upstream.calls;
  EXPECT_THROW(forget_the_argument(10), std::bad_alloc);
  EXPECT_EQ(expected.missed_blocks(), 0u);
}

TEST_F(missed, counts_nothing_if_the_default_resource_is_expected) {
  const default_resource_scope set{&step};
  const expect_resource expected{&step};
  forget_the_argument(10);
  EXPECT_EQ(expected.missed_blocks(), 0u);
  EXPECT_GE(step.stats().peak_bytes, 40u);
}

TEST_F(missed, refuses_a_null_resource_with_a_sentence) {
  std::pmr::memory_resource* const before = std::pmr::get_default_resource();
  EXPECT_STREQ(
      test::caught<std::invalid_argument>([&] { const expect_resource expected{nullptr, "step"}; }).what(),
      "expect_resource 'step': the expected resource is null");
  EXPECT_EQ(std::pmr::get_default_resource(), before);
}

// ---- allocations of resources from their upstreams ----

// T.20
TEST_F(missed, counts_nothing_that_resources_take_from_the_default_resource) {
  test::for_each_user_of_an_upstream([&](char const* name, auto use) {
    const expect_resource expected{&step};
    use(nullptr);
    EXPECT_EQ(expected.missed_blocks(), 0u) << name << '\n' << expected.report();
  });
}

TEST_F(missed, counts_blocks_taken_by_other_resources_of_the_program) {
  test::users_own_resource own;
  for (const bool is_expected : {true, false}) {
    const expect_resource expected{is_expected ? static_cast<std::pmr::memory_resource*>(&own) : &step};
    const floats with_argument(100, &own);
    EXPECT_EQ(expected.missed_blocks(), is_expected ? 0u : 1u);
    EXPECT_EQ(contains(expected.report(), "users_own_resource"), !is_expected) << expected.report();
  }
  EXPECT_EQ(own.allocations, 2);
}

TEST_F(missed, counts_blocks_taken_by_callbacks_that_the_library_runs) {
  pool blocks;
  epoch_resource epochs{&blocks};
  const expect_resource expected{&step};
  with_epoch(epochs, "step", [] { forget_the_argument(10); });
  EXPECT_EQ(expected.missed_blocks(), 1u);
  step.make<floats>(10u, std::pmr::get_default_resource());
  EXPECT_EQ(expected.missed_blocks(), 2u) << expected.report();
}

// ---- scopes ----

TEST_F(missed, counts_in_every_open_scope_of_the_thread) {
  arena other;
  const expect_resource outer{&step, "outer"};
  forget_the_argument(10);
  {
    const expect_resource inner{&other, "inner"};
    forget_the_argument(10);
    EXPECT_EQ(inner.missed_blocks(), 1u);
  }
  EXPECT_EQ(outer.missed_blocks(), 2u);
}

TEST_F(missed, last_scope_restores_the_default_resource_in_any_order) {
  recording_resource upstream;
  const default_resource_scope set{&upstream};
  auto first = std::make_unique<expect_resource>(&step);
  auto second = std::make_unique<expect_resource>(&step);
  first.reset();
  EXPECT_NE(std::pmr::get_default_resource(), &upstream);
  forget_the_argument(10);
  EXPECT_EQ(second->missed_blocks(), 1u);
  second.reset();
  EXPECT_EQ(std::pmr::get_default_resource(), &upstream);
}

TEST_F(missed, each_thread_counts_its_own_misses_while_scopes_open_and_close) {
  std::pmr::memory_resource* const before = std::pmr::get_default_resource();
  std::array<std::uint64_t, test::storm_threads> counted{};
  test::on_threads([&](std::size_t thread) {
    arena of_thread;
    for (std::size_t round = 0; round < 100; ++round) {
      const expect_resource expected{&of_thread};
      for (std::size_t i = 0; i <= thread; ++i) forget_the_argument(10);
      counted[thread] += expected.missed_blocks();
    }
  });
  for (std::size_t thread = 0; thread < counted.size(); ++thread)
    EXPECT_EQ(counted[thread], 100 * (thread + 1));
  EXPECT_EQ(std::pmr::get_default_resource(), before);
}

TEST_F(missed, a_scope_that_another_thread_ends_is_reported_and_its_records_stay) {
  {
    auto left = std::make_unique<expect_resource>(&step, "left");
    std::thread{[&] { left.reset(); }}.join();
    EXPECT_EQ(recorder.only(violation_kind::wrong_thread),
              "expect_resource 'left': the scope must end on the thread that began it");
  }
  EXPECT_EQ(std::pmr::get_default_resource(), std::pmr::new_delete_resource());
  forget_the_argument(10);  // is counted in records that nothing refers to
  const expect_resource expected{&step};
  forget_the_argument(10);
  EXPECT_EQ(expected.missed_blocks(), 1u);
}

// ---- the default resource ----

TEST_F(missed, block_is_returned_to_its_own_resource_after_the_scope) {
  recording_resource upstream, other;  // compares returned blocks with allocated ones
  const default_resource_scope set{&upstream};
  auto expected = std::make_unique<expect_resource>(&step);
  auto v = std::make_unique<floats>(100);
  EXPECT_EQ(expected->missed_blocks(), 1u);
  expected.reset();
  const default_resource_scope set_another{&other};
  expected = std::make_unique<expect_resource>(&step);
  auto w = std::make_unique<floats>(100);
  EXPECT_EQ(expected->missed_blocks(), 1u);
  EXPECT_EQ(upstream.outstanding, 400u);
  EXPECT_EQ(other.outstanding, 400u);
  v->resize(200);  // of the resource of the first scope
  EXPECT_EQ(upstream.outstanding, 800u);
  v.reset();
  EXPECT_EQ(upstream.outstanding, 0u);
  expected.reset();
  w.reset();
  EXPECT_EQ(other.outstanding, 0u);
}

TEST_F(missed, a_resource_made_inside_outlives_the_scope) {
  recording_resource upstream;
  const default_resource_scope set{&upstream};
  std::unique_ptr<pool> blocks;
  {
    const expect_resource expected{&step};
    blocks = std::make_unique<pool>();
  }
  blocks->deallocate(blocks->allocate(100), 100);
  EXPECT_GE(upstream.outstanding, 100u);
  blocks.reset();
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(missed, reports_a_default_resource_set_inside_as_unwatched) {
  recording_resource upstream;
  std::pmr::memory_resource* before = nullptr;
  {
    const expect_resource expected{&step};
    EXPECT_FALSE(contains(expected.report(), "no longer watched"));
    before = std::pmr::set_default_resource(&upstream);
    forget_the_argument(10);
    EXPECT_EQ(expected.missed_blocks(), 0u);
    EXPECT_PRED2(test::contains, expected.report(),
                 "  the default resource is no longer watched: the program has set another in this "
                 "scope\n");
  }
  EXPECT_EQ(std::pmr::get_default_resource(), &upstream);
  // The program restores the previous resource, which is the watching one. It still works, and the next scope
  // removes it.
  std::pmr::set_default_resource(before);
  forget_the_argument(10);
  {
    const expect_resource expected{&step};
    forget_the_argument(10);
    EXPECT_EQ(expected.missed_blocks(), 1u);
  }
  EXPECT_EQ(std::pmr::get_default_resource(), std::pmr::new_delete_resource());
}

TEST_F(missed, watching_resource_equals_the_watched_default_resource) {
  recording_resource upstream;
  const default_resource_scope set{&upstream};
  const expect_resource expected{&step};
  EXPECT_EQ(*std::pmr::get_default_resource(), upstream);
  EXPECT_EQ(*std::pmr::get_default_resource(), *std::pmr::get_default_resource());
  EXPECT_NE(*std::pmr::get_default_resource(), *std::pmr::new_delete_resource());
}

// ---- the report ----

// T.20
TEST_F(missed, the_report_names_source_function_module_and_offset) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").filename();
  const expect_resource expected{&step, "step"};
  forget_the_argument(100);
  const std::string report = expected.report();
  EXPECT_PRED2(test::begins_with, report,
               "expect_resource 'step': 1 block of 400 bytes came from elsewhere\n"
               "  1 block of 400 bytes from the default resource\n"
               "    (anonymous namespace)::forget_the_argument(unsigned long) at " +
                   program + "(+0x");
  EXPECT_PRED2(test::contains, report, "TestBody() at " + program);
  const std::size_t offset = std::stoul(report.substr(report.find("(+0x") + 4), nullptr, 16);
  Dl_info module{};
  ASSERT_NE(::dladdr(reinterpret_cast<void const*>(&forget_the_argument), &module), 0);
  const auto function = reinterpret_cast<std::uintptr_t>(&forget_the_argument);
  const auto begin =
      reinterpret_cast<std::uintptr_t>(module.dli_fbase);  // of a program that can lie anywhere
  EXPECT_GT(begin + offset, function);
  EXPECT_LT(begin + offset, function + 4096) << report;
}

TEST_F(missed, report_without_misses_states_that_new_is_unwatched) {
  const expect_resource expected{&step, "step"};
  EXPECT_EQ(expected.report(),
            "expect_resource 'step': no block came from elsewhere\n"
            "  operator new was not watched: include <tidemark/diagnose/watched_new.hpp> in one source\n");
}

TEST_F(missed, the_report_names_the_innermost_allocation_site) {
  const expect_resource expected{&step, "step"};
  {
    const allocation_site here{"loading weights"};
    forget_the_argument(10);
  }
  forget_the_argument(10);
  const std::string report = expected.report();
  EXPECT_PRED2(test::contains, report, "from the default resource, at ");
  EXPECT_PRED2(test::contains, report, "expect_resource_test.cpp:");
  EXPECT_EQ(occurrences(report, " (loading weights)\n"), 1u) << report;
}

TEST_F(missed, report_groups_blocks_by_place_with_the_most_bytes_first) {
  const expect_resource expected{&step, "step"};
  for (int i = 0; i < 3; ++i) {
    forget_elsewhere();
    test::keep(&i);  // or a compiler unrolls the loop, which makes three places of it
  }
  forget_the_argument(100);
  const std::string report = expected.report();
  EXPECT_EQ(occurrences(report, "from the default resource"), 2u) << report;
  EXPECT_PRED2(test::contains, report, "\n  3 blocks of 120 bytes from the default resource\n");
  EXPECT_LT(report.find("1 block of 400 bytes"), report.find("3 blocks of 120 bytes")) << report;
}

TEST_F(missed, the_report_counts_places_beyond_its_bound_together) {
  const expect_resource expected{&step, "step"};
  std::array<char, expect_resource::max_places + 20> labels{};  // of each place another address
  for (char const& label : labels) {
    const allocation_site here{&label, {}};
    forget_elsewhere();
  }
  EXPECT_EQ(expected.missed_blocks(), labels.size());
  EXPECT_EQ(occurrences(expected.report(), "1 block of 40 bytes from the default"),
            expect_resource::max_places);
  EXPECT_PRED2(test::contains, expected.report(), "  20 blocks of 800 bytes from further places\n");
}

// ---- the end of a scope ----

TEST_F(missed, reports_misses_after_the_last_query_at_the_end) {
  {
    const expect_resource expected{&step, "step"};
    forget_the_argument(100);
    (void)expected.missed_blocks();
    forget_elsewhere();
  }
  const std::string message = recorder.only(violation_kind::missed_resource);
  EXPECT_PRED2(test::begins_with, message,
               "expect_resource 'step': 2 blocks of 440 bytes came from elsewhere, 400 of these "
               "bytes from the default resource in (anonymous namespace)::forget_the_argument(");
}

TEST_F(missed, does_not_report_queried_misses_again_at_the_end) {
  for (int look = 0; look < 3; ++look) {
    const expect_resource expected{&step};
    forget_the_argument(10);
    if (look == 0) (void)expected.missed_blocks();
    if (look == 1) (void)expected.missed_bytes();
    if (look == 2) (void)expected.report();
  }
  EXPECT_TRUE(recorder.reports().empty());
}

TEST_F(missed, a_scope_that_an_exception_ends_reports_nothing) {
  try {
    const expect_resource expected{&step};
    forget_the_argument(10);
    throw std::runtime_error{"another matter"};
  } catch (std::runtime_error const&) {
  }
  EXPECT_TRUE(recorder.reports().empty());
}

}  // namespace
