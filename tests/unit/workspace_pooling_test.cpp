// SPDX-License-Identifier: Apache-2.0
// Strategy: workspaces that keep no memory, made so in each way there is, over an upstream that counts and
// wants everything back; who asks the switch of the process, and who does not; and what a workspace whose
// memory is not the host's says to who would write it. With the switches off at compile time there is
// tests/workspace.
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

#include <tidemark/dlpack.hpp>
#include <tidemark/with_workspace.hpp>
#include <tidemark/workspace.hpp>
#include <tidemark/workspace_options.hpp>
#include <tidemark/workspace_sweeps.hpp>

#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

// ---- no memory is kept ------------------------------------------------------------------------------------

template <int Checks, bool Compiled>
struct plain {
  using workspace_type = basic_workspace<workspace_policy{.checks = Checks, .pooling = !Compiled}>;
  static constexpr bool asked = Compiled;  // by options
};

template <class Plain>
class workspace_unpooled : public testing::Test {
 protected:
  using workspace_type = typename Plain::workspace_type;
  using scope = typename workspace_type::template scope<>;

  recording_resource upstream;
  workspace_type ws{workspace_options{.pooling = Plain::asked, .upstream = &upstream}};
};
using plain_ways = testing::Types<plain<0, true>, plain<1, true>, plain<0, false>, plain<1, false>>;
TYPED_TEST_SUITE(workspace_unpooled, plain_ways, );

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
  EXPECT_EQ(this->ws.stats().slots, 0u);
  this->ws.check_invariants();
}

TYPED_TEST(workspace_unpooled, nested_scopes_give_back_their_own) {
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

TYPED_TEST(workspace_unpooled, rewind_and_reset_give_back) {
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
  dl_tensor const* const tensor = scope.template acquire_tensor<float>(2, 3);
  EXPECT_EQ(tensor->shape[1], 3);
  EXPECT_EQ(this->upstream.calls, 1u);
  scope.end();
  EXPECT_EQ(this->upstream.outstanding, 0u);
  EXPECT_EQ(this->ws.stats().tensor_headers, 0u);
}

TYPED_TEST(workspace_unpooled, it_is_its_own_unpooled_workspace) {
  EXPECT_EQ(&this->ws.unpooled(), &this->ws);
}

// ---- the one beside a workspace ---------------------------------------------------------------------------

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

using pooling_checked_workspace = basic_workspace<workspace_policy{.checks = 1, .pooling = true}>;
using levels = testing::Types<unchecked_workspace, pooling_checked_workspace>;

struct pooling_off {
  pooling_off() { set_workspace_pooling(false); }
  pooling_off(pooling_off const&) = delete;
  pooling_off& operator=(pooling_off const&) = delete;
  ~pooling_off() { set_workspace_pooling(true); }
};

template <class Workspace>
class workspace_pooling : public testing::Test {
 protected:
  using scope = typename Workspace::template scope<>;

  recording_resource upstream;
  Workspace ws{&upstream};
};
TYPED_TEST_SUITE(workspace_pooling, levels, );

TYPED_TEST(workspace_pooling, an_unpooled_workspace_is_made_once_and_keeps_nothing) {
  TypeParam& plain = this->ws.unpooled();
  EXPECT_EQ(&this->ws.unpooled(), &plain);
  EXPECT_NE(&plain, &this->ws);
  EXPECT_TRUE(this->ws.pooling_enabled());
  EXPECT_FALSE(plain.pooling_enabled());
  {
    typename TestFixture::scope scope{plain};
    (void)scope.template acquire<double>(10);
    EXPECT_EQ(this->upstream.outstanding, 80u) << "it has the same upstream";
  }
  EXPECT_EQ(this->upstream.outstanding, 0u);
}

TYPED_TEST(workspace_pooling, an_unpooled_workspace_has_the_options_of_the_one_it_stands_for) {
  TypeParam ws{workspace_options{.alignment = 256,
                                 .held_bytes_max = 1000,
                                 .cache_ways = 7,
                                 .upstream = &this->upstream,
                                 .name = "mine"}};
  workspace_options const& plain = ws.unpooled().options();
  EXPECT_EQ(plain.alignment, 256u);
  EXPECT_EQ(plain.held_bytes_max, 1000u);
  EXPECT_EQ(plain.cache_ways, 7u);
  EXPECT_EQ(plain.upstream, &this->upstream);
  EXPECT_STREQ(plain.name, "mine");
}

TYPED_TEST(workspace_pooling, an_unpooled_workspace_of_a_device_hands_out_the_devices_memory) {
  device gpu;
  TypeParam ws{gpu.options()};
  {
    typename TestFixture::scope scope{ws.unpooled()};
    dl_tensor const* const tensor = scope.template acquire_tensor<float>(10, 10);
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

// ---- the switch of the process ----------------------------------------------------------------------------

TYPED_TEST(workspace_pooling, a_scope_that_may_pool_does_while_pooling_is_on) {
  EXPECT_TRUE(workspace_pooling_enabled());
  maybe_with_workspace(this->ws, [&](auto& scope) {
    EXPECT_EQ(&scope.workspace(), &this->ws);
    (void)scope.template acquire<double>(10);
  });
  EXPECT_EQ(this->upstream.outstanding, 80u);
}

TYPED_TEST(workspace_pooling, a_scope_that_may_pool_does_not_while_pooling_is_off) {
  const pooling_off here;
  EXPECT_FALSE(workspace_pooling_enabled());
  const double sum = maybe_with_workspace<double>(this->ws, [&](auto& scope) {
    EXPECT_EQ(&scope.workspace(), &this->ws.unpooled());
    EXPECT_FALSE(scope.workspace().pooling_enabled());
    const auto ones = scope.ones(10);
    (void)scope.workspace().template acquire<double>(5);
    EXPECT_EQ(this->upstream.outstanding, 120u);
    return std::accumulate(ones.begin(), ones.end(), 0.0);
  });
  EXPECT_EQ(sum, 10);
  EXPECT_EQ(this->upstream.outstanding, 0u);
  EXPECT_EQ(this->ws.stats().slots, 0u);
}

TYPED_TEST(workspace_pooling, nobody_else_asks_the_switch) {
  const pooling_off here;
  EXPECT_TRUE(this->ws.pooling_enabled());
  with_workspace(this->ws, [](auto& scope) { (void)scope.template acquire<double>(10); });
  {
    typename TestFixture::scope scope{this->ws};
    (void)scope.template acquire<float>(10);
  }
  this->ws.checkpoint();
  (void)this->ws.template acquire<int>(10);
  this->ws.rewind();
  EXPECT_EQ(this->upstream.outstanding, 80 + 40 + 40u);
}

TYPED_TEST(workspace_pooling, a_scope_that_is_open_stays_what_it_is) {
  maybe_with_workspace(this->ws, [&](auto& scope) {
    const pooling_off here;
    (void)scope.template acquire<double>(10);
    EXPECT_EQ(&scope.workspace(), &this->ws);
  });
  EXPECT_EQ(this->upstream.outstanding, 80u);
  EXPECT_TRUE(workspace_pooling_enabled());
}

// ---- the switch of sweeps ---------------------------------------------------------------------------------

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

template <int Checks>
void expect_no_hook_without_sweeps() {
  basic_workspace<workspace_policy{.checks = Checks, .pooling = true, .sweeps = false}> without;
  basic_workspace<workspace_policy{.checks = Checks, .pooling = true, .sweeps = true}> with;
  EXPECT_EQ(kept_after_ticks(without), 8'000'000u);
  EXPECT_LT(kept_after_ticks(with), 1'000u);
}
TEST(workspace_sweeps_switch, a_type_without_sweeps_is_never_swept) {
  expect_no_hook_without_sweeps<0>();
  expect_no_hook_without_sweeps<1>();
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

TYPED_TEST(workspace_pooling, memory_that_is_not_the_hosts_and_nobody_fills_is_not_handed_out_filled) {
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
  expect_refused("rand", [&] { (void)scope.rand(generator, 10); });
  expect_refused("randn", [&] { (void)scope.template randn<float>(generator, 10); });
  EXPECT_EQ(ws.stats().active_slots, 0u);
  EXPECT_EQ(gpu.upstream.calls, 0u);
  EXPECT_EQ(generator(), std::mt19937{1}()) << "a number was drawn";
}

TYPED_TEST(workspace_pooling, a_device_is_asked_to_fill) {
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

TYPED_TEST(workspace_pooling, where_the_device_fails_to_fill_nothing_is_handed_out) {
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
