// SPDX-License-Identifier: Apache-2.0
// Strategy: the sentences are compared whole, because users read them.
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark {
namespace {

TEST(out_of_memory, reports_every_known_number_in_one_sentence) {
  constexpr std::size_t unknown = exhaustion_report::unknown_bytes;
  const std::pair<exhaustion_report, char const*> reports[] = {
      {{"step", 1000, 64, 10, 20, 30, 5},
       "10 used of 20 committed and 30 reserved; the largest that would fit is 5 bytes"},
      {{"step", 1000, 64, 0, 0, 0, 5, "it is suspended"},
       "0 used of 0 committed and 0 reserved; the largest that would fit is 5 bytes; it is suspended"},
      {{"step", 1000, 64, 0, 0, 0, unknown}, "0 used of 0 committed and 0 reserved"}};
  for (auto const& [report, text] : reports) {
    EXPECT_EQ(std::string{out_of_memory{report}.what()},
              std::string{"step: out of memory: 1000 bytes aligned to 64 requested, "} + text);
  }
}

TEST(out_of_memory, is_a_bad_alloc_that_copies_without_throwing) {
  static_assert(std::is_base_of_v<std::bad_alloc, out_of_memory>);
  static_assert(std::is_nothrow_copy_constructible_v<out_of_memory>);
  const out_of_memory error{{"copied", 1, 1, 0, 0, 0, 0}};
  const out_of_memory copy{error};
  EXPECT_STREQ(copy.what(), error.what());
  EXPECT_NE(copy.what(), error.what()) << "the text must be the copy's own";
}

TEST(out_of_memory, truncates_a_very_long_name) {
  const std::string name(1000, 'x');
  const out_of_memory error{{name.c_str(), 1, 1, 0, 0, 0, 0}};
  EXPECT_LT(std::string(error.what()).size(), 400u);
}

TEST(violation, the_handler_can_be_replaced_and_restored) {
  const violation_handler standard = get_violation_handler();
  {
    const test::violation_recorder recorder;
    EXPECT_NE(get_violation_handler(), standard);
    detail::report_violation(violation_kind::bad_deallocate, "r", "r: %d is not %s", 3, "four");
    ASSERT_EQ(recorder.reports().size(), 1u);
    EXPECT_EQ(recorder.reports()[0].message, "r: 3 is not four");
    EXPECT_EQ(recorder.reports()[0].kind, violation_kind::bad_deallocate);
  }
  EXPECT_EQ(get_violation_handler(), standard);
  set_violation_handler(nullptr);
  EXPECT_EQ(get_violation_handler(), standard);
}

TEST(violation_death, the_default_handler_prints_and_aborts) {
  EXPECT_DEATH(detail::report_violation(violation_kind::invariant, "r", "broken at %d", 7),
               "tidemark: broken at 7");
}

TEST(rejected_variable, is_printed_without_a_warning_handler_and_sent_to_a_handler) {
  ASSERT_EQ(get_warning_handler(), nullptr);
  ::testing::internal::CaptureStderr();
  detail::report_warning(warning_kind::refused_setting, "r", "dropped");
  detail::report_variable("TIDEMARK_X", "%s is '%s'", "TIDEMARK_X", "on");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "tidemark: TIDEMARK_X is 'on'\n");
  test::warning_recorder recorder;
  ::testing::internal::CaptureStderr();
  detail::report_variable("TIDEMARK_X", "%s is '%s'", "TIDEMARK_X", "on");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(recorder.reports().size(), 1u);
  EXPECT_EQ(recorder.reports()[0].kind, warning_kind::refused_setting);
  EXPECT_EQ(recorder.reports()[0].resource, "TIDEMARK_X");
  EXPECT_EQ(recorder.reports()[0].message, "TIDEMARK_X is 'on'");
}

void warn(char const* message) {
  const std::string text{message}, name{"space"};  // end before the report
  detail::report_warning(warning_kind::refused_return, name.c_str(), "%s", text.c_str());
}

TEST(late_reports, report_warnings_in_order_when_the_outermost_keeper_ends) {
  test::warning_recorder recorder;
  {
    detail::late_reports outer;
    warn("first");
    {
      detail::late_reports inner;
      warn("second");
    }
    EXPECT_TRUE(recorder.reports().empty());
    std::thread{[] { warn("of another thread"); }}.join();
    ASSERT_EQ(recorder.reports().size(), 1u) << "a keeper is its thread's";
    recorder.reports().clear();
  }
  ASSERT_EQ(recorder.reports().size(), 2u);
  EXPECT_EQ(recorder.reports()[0].kind, warning_kind::refused_return);
  EXPECT_EQ(recorder.reports()[0].resource, "space");
  EXPECT_EQ(recorder.reports()[0].message, "first");
  EXPECT_EQ(recorder.reports()[1].message, "second");
  warn("third");
  EXPECT_EQ(recorder.reports().size(), 3u) << "reported at once without a keeper";
}

TEST(late_reports, keep_violations_and_warnings_of_their_thread_until_the_lock_is_free) {
  test::warning_recorder warnings;
  test::violation_recorder violations;
  const std::string long_name(200, 'n');
  {
    detail::late_reports late;
    detail::report_violation(violation_kind::leak, long_name.c_str(), "first");
    warn("second");
    detail::report_violation(violation_kind::use_after_rewind, "r", "in a signal handler");
    ASSERT_EQ(violations.reports().size(), 1u) << "a signal handler may not allocate memory";
    EXPECT_TRUE(warnings.reports().empty());
  }
  ASSERT_EQ(violations.reports().size(), 2u);
  EXPECT_EQ(violations.reports()[1].kind, violation_kind::leak);
  EXPECT_EQ(violations.reports()[1].resource, long_name.substr(0, 63));
  EXPECT_EQ(violations.reports()[1].message, "first");
  EXPECT_EQ(warnings.reports().size(), 1u);
}

}  // namespace
}  // namespace tidemark
