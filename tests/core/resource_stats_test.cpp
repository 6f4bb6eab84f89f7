// SPDX-License-Identifier: Apache-2.0
// Strategy: one script of events through every resource, with sizes that no resource rounds and in an order
// in which an arena also takes blocks back. After each event every statistic of a resource must agree with
// the script.
#include <tidemark/core/resource_stats.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include <tidemark/tidemark.hpp>

#include "recording_supply.hpp"

namespace tidemark {
namespace {

template <class Resource>
using stats_of = decltype(std::declval<Resource const&>().stats());

static_assert(std::same_as<stats_of<upstream_arena>, stats_of<arena>> &&
              std::same_as<stats_of<borrowed_arena>, stats_of<arena>>);
static_assert(std::same_as<stats_of<synchronized_pool>, stats_of<pool>>);
static_assert(std::same_as<stats_of<statistics_resource>, resource_stats> &&
                  std::same_as<stats_of<limit_resource>, resource_stats> &&
                  std::same_as<stats_of<expect_no_upstream>, resource_stats> &&
                  std::same_as<stats_of<tracking_resource>, resource_stats> &&
                  std::same_as<stats_of<test_resource>, resource_stats> &&
                  std::same_as<stats_of<trace_resource>, resource_stats>,
              "every adaptor has all words");

// ---- the statistics ----

std::optional<std::uint64_t> as_count(std::optional<std::uint64_t> const& count) { return count; }

/// Plays events to a resource and compares its statistics with its own count of them.
template <class Resource>
class script {
 public:
  explicit script(Resource& resource) : resource_{resource} { compare("at the start"); }

  void* allocate(std::size_t bytes) {
    void* const block = resource_.allocate(bytes);
    ++expected_.allocations;
    expected_.peak_blocks = std::max(expected_.peak_blocks, ++expected_.used_blocks);
    expected_.used_bytes += bytes;
    expected_.peak_bytes = std::max(expected_.peak_bytes, expected_.used_bytes);
    expected_.total_bytes += bytes;
    compare("after an allocation");
    return block;
  }
  void deallocate(void* block, std::size_t bytes) {
    resource_.deallocate(block, bytes);
    ++expected_.deallocations;
    --expected_.used_blocks;
    expected_.used_bytes -= bytes;
    compare("after a block was deallocated");
  }
  void is_refused(std::size_t bytes) {
    EXPECT_THROW((void)resource_.allocate(bytes), std::bad_alloc);
    ++expected_.refused;
    compare("after a refusal");
  }

 private:
  void compare(char const* when) const {
    const auto said = resource_.stats();
    const auto is = [&](char const* word, std::uint64_t value, std::uint64_t wanted) {
      EXPECT_EQ(value, wanted) << word << ' ' << when;
    };
    EXPECT_STREQ(said.name, "words");
    is("used_bytes", said.used_bytes, expected_.used_bytes);
    if constexpr (requires { said.allocations; }) {
      if (const auto count = as_count(said.allocations)) is("allocations", *count, expected_.allocations);
    }
    if constexpr (requires { said.deallocations; })
      is("deallocations", said.deallocations, expected_.deallocations);
    if constexpr (requires { said.refused; }) is("refused", said.refused, expected_.refused);
    if constexpr (requires { said.used_blocks; }) is("used_blocks", said.used_blocks, expected_.used_blocks);
    if constexpr (requires { said.peak_blocks; }) is("peak_blocks", said.peak_blocks, expected_.peak_blocks);
    if constexpr (requires { said.peak_bytes; }) is("peak_bytes", said.peak_bytes, expected_.peak_bytes);
    if constexpr (requires { said.total_bytes; }) is("total_bytes", said.total_bytes, expected_.total_bytes);
    if constexpr (requires { said.held_bytes; }) {
      EXPECT_GE(said.held_bytes, expected_.used_bytes) << when;
    }
  }

  Resource& resource_;
  resource_stats expected_;
};

template <class Resource>
void expect_words(Resource& resource, test::recording_resource& upstream) {
  script<Resource> events{resource};
  void* const a = events.allocate(64);
  void* const b = events.allocate(256);
  events.deallocate(b, 256);
  void* const c = events.allocate(128);
  upstream.fail_from = upstream.calls;
  upstream.fail_count = test::supply::never;
  events.is_refused(1 * MiB);  // more than any resource has available, so that the upstream is asked
  upstream.fail_from = test::supply::never;
  events.deallocate(c, 128);
  events.deallocate(a, 64);
  events.deallocate(events.allocate(1024), 1024);
}

// T.6
TEST(words, mean_the_same_in_every_resource) {
  test::recording_resource upstream;
  const auto try_out = [&](char const* which, auto&& resource) {
    SCOPED_TRACE(which);
    expect_words(resource, upstream);
  };
  try_out("arena", arena{{.reserve = 64 * KiB, .growable = false, .name = "words"}});
  try_out("upstream_arena", upstream_arena{upstream_memory{&upstream}, {.name = "words"}});
  try_out("pool", pool{{.upstream = &upstream, .name = "words"}});
  try_out("synchronized_pool", synchronized_pool{{.upstream = &upstream, .name = "words"}});
  try_out("statistics_resource", statistics_resource{&upstream, "words"});
  try_out("limit_resource", limit_resource{&upstream, 64 * KiB, "words"});
  try_out("expect_no_upstream", expect_no_upstream{&upstream, "words"});
  try_out("tracking_resource", tracking_resource{&upstream, "words"});
  try_out("test_resource", test_resource{&upstream, "words"});
  trace_log log{{.csv = "/dev/null"}};
  try_out("trace_resource", trace_resource{&upstream, log, "words"});
}

}  // namespace
}  // namespace tidemark
