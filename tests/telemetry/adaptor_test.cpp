// SPDX-License-Identifier: Apache-2.0
// Strategy: the facts that all adaptors share, once for each of them.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/telemetry/expect_no_upstream.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/telemetry/test_resource.hpp>
#include <tidemark/telemetry/trace_resource.hpp>
#include <tidemark/telemetry/tracking_resource.hpp>

#include "caught.hpp"
#include "recording_supply.hpp"
#include "telemetry_subjects.hpp"
#include "violation_recorder.hpp"

namespace tidemark {
namespace {

using upstream_ptr = std::pmr::memory_resource*;
using counts = std::vector<std::size_t>;

template <class Adaptor>
constexpr char const* kind_of = nullptr;
template <>
constexpr char const* kind_of<statistics_resource> = "statistics_resource";
template <>
constexpr char const* kind_of<expect_no_upstream> = "expect_no_upstream";
template <>
constexpr char const* kind_of<tracking_resource> = "tracking_resource";

// The adaptors are final, so that a subject owns one.
template <class Adaptor>
struct named_subject {
  static constexpr char const* kind = kind_of<Adaptor>;
  explicit named_subject(upstream_ptr upstream) : adaptor{upstream, "a"} {}
  Adaptor adaptor;
};
struct limit_named {
  static constexpr char const* kind = "limit_resource";
  explicit limit_named(upstream_ptr upstream) : adaptor{upstream, 1000, "a"} {}
  limit_resource adaptor;
};
struct test_named {
  static constexpr char const* kind = "test_resource";
  explicit test_named(upstream_ptr upstream)
      : adaptor{upstream, {.guard_bytes = 0, .quarantine_bytes = 0, .name = "a"}} {}
  test_resource adaptor;
};
struct trace_named {
  static constexpr char const* kind = "trace_resource";
  explicit trace_named(upstream_ptr upstream) : adaptor{upstream, log, "a"} {}
  trace_log log{{.csv = "/dev/null"}};
  trace_resource adaptor;
};

template <class Subject>
struct adaptor : ::testing::Test {
  test::violation_recorder recorder;
  test::recording_resource upstream;  // compares returned blocks with allocated ones
  Subject subject{&upstream};
};
using subjects = ::testing::Types<named_subject<statistics_resource>, named_subject<expect_no_upstream>,
                                  named_subject<tracking_resource>, limit_named, test_named, trace_named>;
TYPED_TEST_SUITE(adaptor, subjects);

// T.5
TYPED_TEST(adaptor, passes_size_and_alignment_on) {
  auto& resource = this->subject.adaptor;
  void* const block = resource.allocate(64, 256);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0u);
  EXPECT_EQ(this->upstream.largest, 64u);
  EXPECT_EQ(this->upstream.outstanding, 64u);
  resource.deallocate(block, 64, 256);
  EXPECT_EQ(this->upstream.outstanding, 0u);
  EXPECT_EQ(this->upstream.calls, 1u);
}

// T.1
TYPED_TEST(adaptor, counts_direct_calls_and_those_through_std_pmr) {
  auto& resource = this->subject.adaptor;
  std::pmr::memory_resource& as_pmr = resource;
  void* const a = resource.allocate(100);
  void* const b = as_pmr.allocate(28);
  as_pmr.deallocate(a, 100);
  EXPECT_EQ(test::visible(resource.stats()), (counts{2, 1, 1, 2, 28, 128, 128}));
  EXPECT_EQ(resource.stats().refused, 0u);
  resource.deallocate(b, 28);
  EXPECT_EQ(test::visible(resource.stats()), (counts{2, 2, 0, 2, 0, 128, 128}));
}

TYPED_TEST(adaptor, counts_a_failed_allocation_as_refused_only) {
  auto& resource = this->subject.adaptor;
  void* const block = resource.allocate(64);
  const counts before = test::visible(resource.stats());
  this->upstream.fail_from = this->upstream.calls;
  EXPECT_THROW((void)resource.allocate(100), std::bad_alloc);
  EXPECT_EQ(resource.stats().refused, 1u);
  EXPECT_EQ(test::visible(resource.stats()), before);
  resource.deallocate(block, 64);
}

TYPED_TEST(adaptor, does_nothing_when_null_is_deallocated) {
  auto& resource = this->subject.adaptor;
  resource.deallocate(nullptr, 64);
  EXPECT_EQ(test::visible(resource.stats()), counts(7, 0));
  EXPECT_TRUE(this->recorder.reports().empty());
}

TYPED_TEST(adaptor, returns_its_upstream_and_name) {
  EXPECT_EQ(this->subject.adaptor.upstream_resource(), &this->upstream);
  EXPECT_STREQ(this->subject.adaptor.name(), "a");
  EXPECT_STREQ(this->subject.adaptor.stats().name, "a");
}

TYPED_TEST(adaptor, rejects_a_null_upstream) {
  EXPECT_EQ(test::caught<std::invalid_argument>([&] { TypeParam{nullptr}; }).what(),
            std::string{TypeParam::kind} + " 'a': the upstream resource is null");
}

}  // namespace
}  // namespace tidemark
