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

namespace tidemark {
namespace {

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

// S3.32
TEST(byte_cap, the_environment_sets_it) {
  const variable set{"1048576"};
  const byte_cap cap = byte_cap_from_environment(variable::name, 5);
  EXPECT_EQ(cap.bytes, 1 * MiB);
  EXPECT_EQ(cap.warning, "");
}

TEST(byte_cap, uses_the_fallback_without_warning_if_the_variable_is_unset_or_empty) {
  EXPECT_EQ(byte_cap_from_environment(variable::name, 5).bytes, 5u);
  EXPECT_EQ(byte_cap_from_environment(variable::name).warning, "");
  const variable set{""};
  EXPECT_EQ(byte_cap_from_environment(variable::name, 5).bytes, 5u);
  EXPECT_EQ(byte_cap_from_environment(variable::name, 5).warning, "");
}

// S3.32
TEST(byte_cap, is_unlimited_with_a_warning_if_the_variable_is_invalid) {
  for (char const* text : {"1MiB", "-1", " 1", "18446744073709551616"}) {
    const variable set{text};
    const byte_cap cap = byte_cap_from_environment(variable::name);
    EXPECT_EQ(cap.bytes, 0u);
    EXPECT_EQ(cap.warning,
              std::string{"TIDEMARK_TEST_BYTES_MAX is '"} + text +
                  "', which is not a number of bytes (digits only, below the maximum); no limit is set");
  }
}

TEST(byte_cap, the_environment_sets_it_in_mib) {
  {
    const variable set{"3"};
    EXPECT_EQ(mib_cap_from_environment(variable::name, 5).bytes, 3 * MiB);
    EXPECT_EQ(mib_cap_from_environment(variable::name, 5).warning, "");
  }
  const variable set{"3 MiB"};
  const byte_cap cap = mib_cap_from_environment(variable::name, 4096);
  EXPECT_EQ(cap.bytes, 4096u);
  EXPECT_EQ(cap.warning,
            "TIDEMARK_TEST_BYTES_MAX is '3 MiB', which is not a number of MiB (digits only); the limit stays "
            "4096 bytes");
}

}  // namespace
}  // namespace tidemark
