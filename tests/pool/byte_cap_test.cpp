// SPDX-License-Identifier: Apache-2.0
// Strategy: valid and almost valid numbers in the environment variable, which each test restores.
#include <tidemark/pool/byte_cap.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>

#include "warning_recorder.hpp"

namespace tidemark {
namespace {

using test::warning_recorder;

constexpr std::size_t max_size = std::numeric_limits<std::size_t>::max();

// S3.32
TEST(byte_cap, accepts_only_digits) {
  struct expected {
    std::string text;
    std::optional<std::size_t> bytes, mib;
  };
  for (auto const& [text, bytes, mib] : std::initializer_list<expected>{
           {"0", 0, 0},
           {"1", 1, 1 * MiB},
           {"007", 7, 7 * MiB},
           {"2048", 2048, 2 * GiB},
           {"17592186044415", 17592186044415u, 17592186044415u * MiB},  // 2^44 - 1
           {"17592186044416", 17592186044416u, max_size},
           {std::to_string(max_size), max_size, max_size},
           {"18446744073709551616", std::nullopt, max_size},  // 2^64
           {"99999999999999999999999", std::nullopt, max_size}}) {
    EXPECT_EQ(parse_byte_cap(text), bytes) << text;
    EXPECT_EQ(parse_mib_cap(text), mib) << text;
  }
  for (std::string_view const text : std::initializer_list<std::string_view>{"1MiB",
                                                                             "1 MiB",
                                                                             "1K",
                                                                             "-1",
                                                                             "-0",
                                                                             "+1",
                                                                             " 1",
                                                                             "1 ",
                                                                             "1\n",
                                                                             "\t1",
                                                                             "1.0",
                                                                             "1e6",
                                                                             "1_000",
                                                                             "0x10",
                                                                             "unlimited",
                                                                             "",
                                                                             " ",
                                                                             "99999999999999999999999x",
                                                                             {"1\0", 2}}) {
    EXPECT_EQ(parse_byte_cap(text), std::nullopt) << '\'' << text << '\'';
    EXPECT_EQ(parse_mib_cap(text), std::nullopt) << '\'' << text << '\'';
  }
}

/// A variable of the environment, as long as it lives.
class variable {
 public:
  static constexpr char const* name = "TIDEMARK_TEST_BYTES_MAX";
  explicit variable(char const* text) { setenv(name, text, 1); }
  variable(variable const&) = delete;
  variable& operator=(variable const&) = delete;
  ~variable() { unsetenv(name); }
};

/// The environment's limits and their warnings.
struct byte_cap_variable : ::testing::Test {
  warning_recorder warnings;
};

// S3.32
TEST_F(byte_cap_variable, sets_the_limit) {
  const variable set{"1048576"};
  EXPECT_EQ(byte_cap_from_environment(variable::name, 5), 1 * MiB);
  EXPECT_TRUE(warnings.reports().empty());
}

TEST_F(byte_cap_variable, keeps_the_fallback_without_warning_if_it_is_unset_or_empty) {
  EXPECT_EQ(byte_cap_from_environment(variable::name, 5), 5u);
  const variable set{""};
  EXPECT_EQ(byte_cap_from_environment(variable::name, 5), 5u);
  EXPECT_TRUE(warnings.reports().empty());
}

// S3.32
TEST_F(byte_cap_variable, leaves_no_limit_with_a_warning_if_it_is_invalid) {
  std::size_t n = 0;
  for (char const* text : {"1MiB", "-1", " 1", "18446744073709551616"}) {
    const variable set{text};
    EXPECT_EQ(byte_cap_from_environment(variable::name), 0u);
    ASSERT_EQ(warnings.reports().size(), ++n);
    EXPECT_EQ(warnings.reports().back().message,
              std::string{"TIDEMARK_TEST_BYTES_MAX is '"} + text +
                  "', which is not a number of bytes (digits only, below the maximum); no limit is set");
  }
}

TEST_F(byte_cap_variable, sets_the_limit_in_mib) {
  {
    const variable set{"3"};
    EXPECT_EQ(mib_cap_from_environment(variable::name, 5), 3 * MiB);
    EXPECT_TRUE(warnings.reports().empty());
  }
  const variable set{"3 MiB"};
  EXPECT_EQ(mib_cap_from_environment(variable::name, 4096), 4096u);
  ASSERT_EQ(warnings.reports().size(), 1u);
  EXPECT_EQ(warnings.reports().back().message,
            "TIDEMARK_TEST_BYTES_MAX is '3 MiB', which is not a number of MiB (digits only); the limit stays "
            "4096 bytes");
}

TEST(byte_cap, wrong_limit_is_printed_without_a_handler) {
  const variable set{"x"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(byte_cap_from_environment(variable::name), 0u);
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "tidemark: TIDEMARK_TEST_BYTES_MAX is 'x', which is not a number of bytes (digits only, below the "
      "maximum); no limit is set\n");
}

}  // namespace
}  // namespace tidemark
