// SPDX-License-Identifier: Apache-2.0
// Strategy: workspaces that keep no memory by their options, over an upstream that counts and requires each
// block back; and the errors of a workspace whose memory is not the host's where the host would have to
// write. With pooling off at compile time there is tests/workspace/pooling.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/extras/random.hpp>
#include <tidemark/workspace/extras/workspace_sweeps.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

// ---- no memory is kept ------------------------------------------------------------------------------------

template <class Workspace>
class workspace_unpooled : public testing::Test {
 protected:
  using scope = typename Workspace::template scope<>;

  recording_resource upstream;
  Workspace ws{workspace_options{.pooling = false, .upstream = &upstream}};
};
TYPED_TEST_SUITE(workspace_unpooled, both_levels, );

TYPED_TEST(workspace_unpooled, each_acquisition_is_one_allocation_that_ends_with_its_scope) {
  EXPECT_FALSE(this->ws.pooling_enabled());
  for (std::size_t i = 1; i <= 10; ++i) {
    typename TestFixture::scope scope{this->ws};
    (void)scope.template acquire<double>(100);
    (void)scope.template acquire<double>(50);
    (void)scope.falses(1000);
    EXPECT_EQ(this->upstream.calls, 3 * i);
    EXPECT_EQ(this->upstream.outstanding, 100 * 8 + 50 * 8 + 128u);
    scope.end();
    EXPECT_EQ(this->upstream.outstanding, 0u);
  }
  EXPECT_EQ(this->ws.stats().slot_count, 0u);
  this->ws.check_invariants();
}

TYPED_TEST(workspace_unpooled, nested_scopes_free_their_own) {
  typename TestFixture::scope outer{this->ws};
  const auto kept = outer.ones(10);
  {
    typename TestFixture::scope inner{this->ws};
    (void)inner.template acquire<double>(1000);
    EXPECT_EQ(this->upstream.outstanding, 8080u);
  }
  EXPECT_EQ(this->upstream.outstanding, 80u);
  EXPECT_EQ(std::accumulate(kept.begin(), kept.end(), 0.0), 10);
}

TYPED_TEST(workspace_unpooled, rewind_and_reset_free_memory) {
  (void)this->ws.template acquire<double>(10);
  this->ws.checkpoint();
  (void)this->ws.template acquire<double>(10);
  this->ws.rewind();
  EXPECT_EQ(this->upstream.outstanding, 80u);
  this->ws.reset();
  EXPECT_EQ(this->upstream.outstanding, 0u);
}

TYPED_TEST(workspace_unpooled, tensors_work_and_their_headers_go_with_the_memory) {
  typename TestFixture::scope scope{this->ws};
  dl_tensor const* const tensor = acquire_tensor<float>(scope, 2, 3);
  EXPECT_EQ(tensor->shape[1], 3);
  EXPECT_EQ(this->upstream.calls, 1u);
  scope.end();
  EXPECT_EQ(this->upstream.outstanding, 0u);
  EXPECT_EQ(this->ws.stats().tensor_headers, 0u);
}

TYPED_TEST(workspace_unpooled, only_itself_keeps_nothing) {
  TypeParam pooled{&this->upstream};
  EXPECT_TRUE(pooled.pooling_enabled());
  with_workspace(pooled, [](auto& scope) { (void)scope.template acquire<double>(10); });
  with_workspace(this->ws, [](auto& scope) { (void)scope.template acquire<double>(10); });
  EXPECT_EQ(this->upstream.outstanding, 80u);
}

TYPED_TEST(workspace_unpooled, a_program_says_at_run_time_whether_memory_is_kept) {
  for (const bool pooling : {false, true}) {
    TypeParam ws{workspace_options{.pooling = pooling, .upstream = &this->upstream}};
    EXPECT_EQ(ws.pooling_enabled(), pooling);
    with_workspace(ws, [](auto& scope) { (void)scope.template acquire<double>(10); });
    EXPECT_EQ(this->upstream.outstanding, pooling ? 80u : 0u);
  }
}

// ---- a device ---------------------------------------------------------------------------------------------

/// A device: its memory cannot be touched here, so that what was asked of it is remembered.
struct device {
  struct request {
    void* first;
    std::size_t n;
    std::vector<unsigned char> element;
  };
  static void fill(void* context, void* first, std::size_t n, void const* element,
                   std::size_t element_bytes) {
    auto* const bytes = static_cast<unsigned char const*>(element);
    static_cast<device*>(context)->requests.push_back({first, n, {bytes, bytes + element_bytes}});
  }
  static void fail(void*, void*, std::size_t, void const*, std::size_t) {
    throw std::runtime_error{"the device is lost"};
  }
  [[nodiscard]] workspace_options options() {
    return {.host_memory = false,
            .fill = {&fill, this},
            .device_type = 2,
            .device_id = 3,
            .upstream = &upstream,
            .name = "device"};
  }

  made_up_memory memory;
  recording_resource upstream{&memory};
  std::vector<request> requests;
};

template <class T>
std::vector<unsigned char> bytes_of(T value) {
  std::vector<unsigned char> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <class Workspace>
class workspace_pooling : public testing::Test {
 protected:
  using scope = typename Workspace::template scope<>;

  recording_resource upstream;
  Workspace ws{&upstream};
};
TYPED_TEST_SUITE(workspace_pooling, both_levels, );

TYPED_TEST(workspace_pooling, an_unpooled_workspace_of_a_device_returns_the_devices_memory) {
  device gpu;
  workspace_options options = gpu.options();
  options.pooling = false;
  TypeParam ws{options};
  {
    typename TestFixture::scope scope{ws};
    dl_tensor const* const tensor = acquire_tensor<float>(scope, 10, 10);
    EXPECT_TRUE(made_up_memory::is_made_up(tensor->data));
    EXPECT_EQ(static_cast<int>(tensor->device.device_type), 2);
    EXPECT_EQ(tensor->device.device_id, 3);
    (void)scope.ones(50);
    ASSERT_EQ(gpu.requests.size(), 1u);
    EXPECT_TRUE(made_up_memory::is_made_up(gpu.requests[0].first));
    EXPECT_EQ(gpu.requests[0].n, 50u);
    EXPECT_EQ(gpu.requests[0].element, bytes_of(1.0));
  }
  EXPECT_EQ(gpu.upstream.outstanding, 0u);
}

// ---- sweeps -----------------------------------------------------------------------------------------------

template <class Workspace>
std::size_t kept_after_ticks(Workspace& ws) {
  const auto use = [&](std::size_t n) {
    const typename Workspace::template scope<> scope{ws};
    (void)ws.template acquire<double>(n);
  };
  use(1'000'000);
  for (int i = 0; i < 4; ++i) {
    use(10);
    tick_workspace_sweeps();
  }
  use(10);
  return ws.stats().held_bytes;
}

TYPED_TEST(workspace_pooling, a_workspace_with_sweeps_is_swept) {
  TypeParam ws{&this->upstream};
  EXPECT_LT(kept_after_ticks(ws), 1'000u);
}

TYPED_TEST(workspace_pooling, a_workspace_without_sweeps_by_its_options_is_never_swept) {
  TypeParam ws{workspace_options{.sweeps = false, .upstream = &this->upstream}};
  EXPECT_EQ(kept_after_ticks(ws), 8'000'000u);
}

// ---- memory that is not the host's ------------------------------------------------------------------------

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (std::logic_error const& refused) {
    return refused.what();
  }
  return "it was not refused";
}

TYPED_TEST(workspace_pooling, memory_that_is_not_the_hosts_is_not_filled_without_a_function_for_it) {
  device gpu;
  workspace_options options = gpu.options();
  options.fill = {};
  TypeParam ws{options};
  typename TestFixture::scope scope{ws};
  const auto expect_refused = [&](char const* name, auto call) {
    EXPECT_EQ(refusal(call), std::string{"workspace 'device': "} + name +
                                 " needs workspace_options::fill, because its memory is not the host's");
  };
  expect_refused("zeros", [&] { (void)scope.zeros(10); });
  expect_refused("zeros", [&] { (void)scope.zeros(std::array<std::size_t, 2>{2, 5}); });
  expect_refused("ones", [&] { (void)scope.template ones<float>(10); });
  expect_refused("fill", [&] { (void)scope.fill(7, 10); });
  expect_refused("trues", [&] { (void)scope.trues(10); });
  expect_refused("falses", [&] { (void)scope.falses(10); });
  EXPECT_EQ(ws.stats().active_slots, 0u);
  EXPECT_EQ(gpu.upstream.calls, 0u);
}

TYPED_TEST(workspace_pooling, random_numbers_are_drawn_on_the_host_only) {
  device gpu;
  TypeParam ws{gpu.options()};
  typename TestFixture::scope scope{ws};
  std::mt19937 generator{1};
  const auto expect_refused = [&](char const* name, auto call) {
    EXPECT_EQ(refusal(call), std::string{"workspace 'device': "} + name +
                                 " writes element by element, and its memory is not the host's");
  };
  expect_refused("acquire_uniform", [&] { (void)acquire_uniform(scope, generator, 10); });
  expect_refused("acquire_normal", [&] { (void)acquire_normal<float>(scope, generator, 10); });
  EXPECT_EQ(ws.stats().active_slots, 0u);
  EXPECT_EQ(gpu.upstream.calls, 0u);
  EXPECT_EQ(generator(), std::mt19937{1}()) << "a number was drawn";
}

TYPED_TEST(workspace_pooling, fills_memory_of_a_device_by_the_device) {
  device gpu;
  TypeParam ws{gpu.options()};
  typename TestFixture::scope scope{ws};
  std::vector<void*> handed_out{scope.template zeros<float>(10).data(), scope.ones(2, 3).data(),
                                scope.fill(std::int16_t{-2}, 7).data(), scope.trues(65).words().data()};
  ASSERT_EQ(gpu.requests.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(gpu.requests[i].first, handed_out[i]);
  EXPECT_EQ(gpu.requests[0].n, 10u);
  EXPECT_EQ(gpu.requests[0].element, bytes_of(0.0F));
  EXPECT_EQ(gpu.requests[1].n, 6u);
  EXPECT_EQ(gpu.requests[1].element, bytes_of(1.0));
  EXPECT_EQ(gpu.requests[2].n, 7u);
  EXPECT_EQ(gpu.requests[2].element, bytes_of(std::int16_t{-2}));
  EXPECT_EQ(gpu.requests[3].n, 2u) << "words";
  EXPECT_EQ(gpu.requests[3].element, bytes_of(~std::uint64_t{0}));
}

TYPED_TEST(workspace_pooling, where_the_device_fails_to_fill_nothing_is_acquired) {
  device gpu;
  workspace_options options = gpu.options();
  options.fill.call = &device::fail;
  TypeParam ws{options};
  typename TestFixture::scope scope{ws};
  EXPECT_THROW((void)scope.zeros(10), std::runtime_error);
  EXPECT_THROW((void)scope.trues(10), std::runtime_error);
  EXPECT_EQ(ws.stats().active_slots, 0u);
  (void)scope.template acquire<double>(10);
  EXPECT_EQ(gpu.upstream.calls, 2u) << "the slot that was taken back is there";
  ws.check_invariants();
}

}  // namespace
}  // namespace tidemark::test
