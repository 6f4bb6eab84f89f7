// SPDX-License-Identifier: Apache-2.0
// Requests that no resource can serve, and null arguments: sizes near 2^64 through every resource with an
// upstream, null buffers, null names. The upstream rejects requests above 64 MiB and counts requests above
// PTRDIFF_MAX bytes.
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>

#include <tidemark/compat.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/plan.hpp>
#include <tidemark/telemetry.hpp>
#include <tidemark/tidemark.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "violation_recorder.hpp"

namespace {

using namespace tidemark;

constexpr std::size_t max_bytes = std::numeric_limits<std::ptrdiff_t>::max();

class watchful_upstream final : public detail::distinct_resource {
 public:
  std::size_t calls_above = 0;  // for more than PTRDIFF_MAX bytes
  std::size_t calls = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    ++calls;
    if (bytes > max_bytes) ++calls_above;
    if (bytes > 64 * MiB) throw std::bad_alloc{};
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
  }
};

class requests : public ::testing::Test {
 protected:
  // Requests sizes through `resource`, and through std::pmr, that each wrap when a header or an alignment is
  // added.
  template <class Resource>
  void reject_all(Resource& resource) {
    for (const std::size_t bytes : {max_bytes + 1, max_bytes + 4096, 0 - std::size_t{64 * KiB},
                                    0 - std::size_t{4096}, 0 - std::size_t{64}, 0 - std::size_t{1}}) {
      for (const std::size_t align : {1UL, 16UL, 64UL, 256UL, 4096UL, 1UL << 21}) {
        EXPECT_THROW((void)resource.allocate(bytes, align), std::bad_alloc) << bytes << " / " << align;
        std::pmr::memory_resource& erased = resource;
        EXPECT_THROW((void)erased.allocate(bytes, align), std::bad_alloc) << bytes << " / " << align;
      }
    }
    EXPECT_EQ(upstream.calls_above, 0u);
    resource.deallocate(resource.allocate(64), 64);  // it goes on
  }
  // The same of a resource that is made for it.
  template <class Resource, class... Arguments>
  void reject_all_by(Arguments&&... arguments) {
    Resource resource{std::forward<Arguments>(arguments)...};
    reject_all(resource);
  }
  watchful_upstream upstream;
};

TEST_F(requests, above_ptrdiff_max_are_rejected_by_unique_block) {
  for (const std::size_t bytes : {max_bytes + 1, 0 - std::size_t{1}})
    EXPECT_THROW((void)(unique_block{&upstream, bytes}), out_of_memory);
  EXPECT_EQ(upstream.calls, 0u);
}

TEST_F(requests, above_ptrdiff_max_are_rejected_by_the_watched_default_resource) {
  std::pmr::memory_resource* const before = std::pmr::set_default_resource(&upstream);
  arena step;
  {
    const expect_resource expected{&step};
    const expect_resource::allowance refused;
    for (const std::size_t bytes : {max_bytes + 1, 0 - std::size_t{1}})
      EXPECT_THROW((void)std::pmr::get_default_resource()->allocate(bytes, 64), std::bad_alloc);
  }
  std::pmr::set_default_resource(before);
  EXPECT_EQ(upstream.calls_above, 0u);
}

TEST_F(requests, above_ptrdiff_max_are_rejected_by_resources_on_an_upstream) {
  trace_log log{{.csv = ::testing::TempDir() + "/request_test.csv"}};
  reject_all_by<statistics_resource>(&upstream);
  reject_all_by<tracking_resource>(&upstream);
  reject_all_by<limit_resource>(&upstream, std::numeric_limits<std::size_t>::max());
  reject_all_by<expect_no_upstream>(&upstream);
  reject_all_by<trace_resource>(&upstream, log);
  reject_all_by<test_resource>(&upstream);
  reject_all_by<pool>(&upstream);
  reject_all_by<synchronized_pool>(&upstream);
  reject_all_by<reuse_cache>(&upstream);
  reject_all_by<capture_switch>(&upstream);
  reject_all_by<upstream_arena>(&upstream);
  reject_all_by<upstream_device_arena>(&upstream);
}

TEST_F(requests, with_the_largest_alignment_are_rejected_by_pools) {
  std::size_t const volatile align = std::bit_floor(std::numeric_limits<std::size_t>::max());
  pool alone{&upstream};
  synchronized_pool shared{&upstream};
  for (std::pmr::memory_resource* const each :
       std::initializer_list<std::pmr::memory_resource*>{&alone, &shared})
    EXPECT_THROW((void)each->allocate(64, align), std::bad_alloc);
  EXPECT_EQ(upstream.calls_above, 0u);
}

TEST_F(requests, above_ptrdiff_max_are_rejected_by_epochs) {
  epoch_resource resource{&upstream};
  reject_all(resource);
  const epoch open{resource};
  reject_all(resource);
  EXPECT_THROW((void)(buffer<double>{resource, max_bytes / sizeof(double) + 1}), std::bad_alloc);
  EXPECT_THROW((void)(buffer<double>{resource, std::numeric_limits<std::size_t>::max()}), std::bad_alloc);
  EXPECT_EQ(upstream.calls_above, 0u);
}

TEST_F(requests, above_ptrdiff_max_are_rejected_by_planned_arenas) {
  planned_arena resource{&upstream};
  reject_all(resource);
  for (int i = 0; i < 4; ++i) {
    const planned_arena::step step{resource};
    reject_all(resource);
  }
}

TEST_F(requests, above_ptrdiff_max_of_an_arena_are_not_passed_on) {
  upstream_arena host{&upstream};
  EXPECT_THROW((void)host.push_array<double>(max_bytes / sizeof(double) + 1), std::bad_alloc);
  upstream_device_arena device{{.reserve = std::numeric_limits<std::size_t>::max()}, &upstream};
  try {
    (void)device.allocate(64);
  } catch (std::bad_alloc const&) {
  }
  EXPECT_EQ(upstream.calls_above, 0u);
}

TEST_F(requests, report_the_largest_size_when_rejected) {
  statistics_resource adaptor{&upstream, "counted"};
  const out_of_memory refused = test::caught<out_of_memory>([&] { (void)adaptor.allocate(max_bytes + 1); });
  EXPECT_EQ(refused.report().largest_bytes, max_bytes);
  EXPECT_STREQ(refused.report().resource, "counted");
  EXPECT_PRED2(test::contains, refused.what(), "no object is larger than PTRDIFF_MAX bytes");
}

// ---- null buffers ----

TEST_F(requests, treat_a_null_buffer_as_no_buffer) {
  {
    compat::monotonic_buffer_resource resource{nullptr, 512, &upstream};
    void* const block = resource.allocate(8);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(upstream.calls, 1u);
    *static_cast<char*>(block) = 1;
  }
  {
    upstream_arena resource{nullptr, 512, &upstream};
    *resource.push<int>() = 1;
    resource.release();
    *resource.push<int>() = 1;
    EXPECT_EQ(upstream.calls, 3u);
  }
  {
    upstream_arena resource{nullptr, 64 * KiB, &upstream};
    (void)resource.allocate(1);
    EXPECT_GE(resource.stats().committed_bytes, 64 * KiB) << "the size is that of the first chunk, as in std";
  }
  EXPECT_THROW((borrowed_arena{nullptr, 512}), out_of_memory);
  EXPECT_THROW((borrowed_arena{borrowed_memory{byte_range{0, 512}}}), out_of_memory);
  EXPECT_THROW((borrowed_device_arena{borrowed_device_memory{nullptr, 512}}), out_of_memory);
}

// ---- null names ----

TEST_F(requests, accept_null_names) {
  const auto is_named = [](auto const& resource) {
    return resource.name() != nullptr && *resource.name() != '\0';
  };
  EXPECT_TRUE(is_named(arena{{.name = nullptr}}));
  EXPECT_TRUE(is_named(shared_arena{{.name = nullptr}}));
  EXPECT_TRUE(is_named(pool{{.name = nullptr}}));
  EXPECT_TRUE(is_named(synchronized_pool{{.name = nullptr}}));
  EXPECT_TRUE(is_named(workspace{{.name = nullptr}}));
  EXPECT_TRUE(is_named(reuse_cache{{.name = nullptr}}));
  EXPECT_TRUE(is_named(planned_arena{{.name = nullptr}}));
  EXPECT_TRUE(is_named(capture_switch{{.name = nullptr}}));
  EXPECT_TRUE(is_named(graph_arena{byte_range{0x1'0000'0000, 1 * MiB}, {.name = nullptr}}));
  EXPECT_TRUE(is_named(statistics_resource{&upstream, nullptr}));
  EXPECT_TRUE(is_named(tracking_resource{&upstream, nullptr}));
  EXPECT_TRUE(is_named(limit_resource{&upstream, 64, nullptr}));
  EXPECT_TRUE(is_named(expect_no_upstream{&upstream, nullptr}));
  EXPECT_TRUE(is_named(test_resource{&upstream, nullptr}));
  EXPECT_TRUE(is_named(test_resource{&upstream, {.name = nullptr}}));
  EXPECT_STREQ((test_resource{&upstream, {.name = nullptr}}.options().name), "test");
  EXPECT_TRUE(is_named(process_arena{{.reserve = 1 * MiB, .name = nullptr}}));
  EXPECT_THROW((pool{{.size_classes = {3}, .name = nullptr}}), std::invalid_argument);
  EXPECT_THROW((test_resource{&upstream, {.guard_bytes = 1 * MiB, .name = nullptr}}), std::invalid_argument);
  EXPECT_THROW((statistics_resource{nullptr, nullptr}), std::invalid_argument);
  EXPECT_THROW((void)(expect_resource{nullptr, nullptr}), std::invalid_argument);
}

TEST_F(requests, accept_null_names_of_scopes_and_places) {
  epoch_resource memory{{.name = nullptr}, &upstream};
  EXPECT_STREQ(memory.name(), "epochs");
  {
    epoch step{memory, nullptr};
    EXPECT_STREQ(step.name(), "epoch");
  }
  (void)with_epoch(memory, nullptr, [] { return 1; });
  EXPECT_STREQ((buffer_group{memory, nullptr}.name()), "buffer_group");
  const allocation_site here{nullptr};
  tracking_resource tracked{&upstream, nullptr};
  void* const block = tracked.allocate(8);
  EXPECT_STREQ(tracked.leaks().at(0).label, "");
  tracked.deallocate(block, 8);
  trace_log log{{.csv = ::testing::TempDir() + "/request_names.csv",
                 .chrome = ::testing::TempDir() + "/request_names.json"}};
  EXPECT_STREQ((trace_resource{&upstream, log, nullptr}.name()), "trace_resource");
  const trace_slice slice{log, nullptr};
  EXPECT_EQ(byte_cap_from_environment(nullptr, 7), 7u);
  EXPECT_EQ(mib_cap_from_environment(nullptr, 7), 7u);
  EXPECT_NE((std::string{out_of_memory{{.resource = nullptr, .because = nullptr}}.what()}), "");
  workspace_options const before = default_workspace_options();
  set_default_workspace_options({.name = nullptr});
  EXPECT_STREQ(workspace{}.name(), "workspace");
  set_default_workspace_options(before);
}

}  // namespace
