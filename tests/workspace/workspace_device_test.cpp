// SPDX-License-Identifier: Apache-2.0
// Strategy: a device with inaccessible addresses: a workspace that reads or writes one byte of its memory
// crashes. Writes that the workspace requests of the device are recorded. Pending work of the device is a
// flag, which a wait clears.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory_resource>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/extras/random.hpp>
#include <tidemark/workspace/extras/this_thread_workspace.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

#include "calling_upstream.hpp"
#include "caught.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

using device_checked_workspace = checked_workspace;

/// Work on a stream that is pending until a wait, or until the test marks it as done.
struct work {
  bool is_done = false;
  int waits = 0, fences = 0, destroyed = 0;

  reuse_fence fence();
  ~work() { EXPECT_EQ(destroyed, fences); }
};
work& work_of(void* state) noexcept { return *static_cast<work*>(state); }
constexpr reuse_fence::functions work_functions{
    .done = [](void* state) noexcept { return work_of(state).is_done; },
    .wait =
        [](void* state) noexcept {
          ++work_of(state).waits;
          work_of(state).is_done = true;
        },
    .destroy = [](void* state) noexcept { ++work_of(state).destroyed; }};
reuse_fence work::fence() {
  ++fences;
  return {work_functions, this};
}

/// A write requested from a device.
struct written {
  void const* first;
  std::size_t n;
  std::vector<std::byte> element;
  bool operator==(written const&) const = default;
};
template <class T>
written copies_of(T value, void const* first, std::size_t n) {
  written w{first, n, std::vector<std::byte>(sizeof value)};
  std::memcpy(w.element.data(), &value, sizeof value);
  return w;
}

class device {
 public:
  explicit device(unsigned char number) : number_{number}, memory_{number} {
    gate_.on_deallocate = [this] {
      for (work const* one : work_on_memory) EXPECT_TRUE(one->is_done) << "memory went back too early";
    };
  }

  recording_resource upstream{&gate_};
  std::vector<written> fills;
  bool fill_fails = false;
  std::vector<work const*> work_on_memory;  ///< no memory may go back before it is done

  workspace_options options(std::pmr::memory_resource* bookkeeping = nullptr) {
    return {.host_memory = false,
            .fill = {.call = &write, .context = this},
            .device_type = 2,  // CUDA
            .device_id = number_,
            .bookkeeping = bookkeeping,
            .upstream = &upstream,
            .name = "device"};
  }

 private:
  static void write(void* context, void* first, std::size_t n, void const* element,
                    std::size_t element_bytes) {
    auto& self = *static_cast<device*>(context);
    if (self.fill_fails) throw std::runtime_error{"the device is lost"};
    auto const* const bytes = static_cast<std::byte const*>(element);
    self.fills.push_back({first, n, {bytes, bytes + element_bytes}});
  }

  int number_;
  made_up_memory memory_;
  calling_upstream gate_{&memory_};
};

template <class Workspace>
class device_workspace : public testing::Test {
 protected:
  using scope = typename Workspace::template scope<>;

  /// The addresses of `arrays` arrays of 100 doubles, in one scope.
  std::vector<double*> use(std::size_t arrays) {
    scope all{ws};
    std::vector<double*> first;
    for (std::size_t i = 0; i < arrays; ++i) first.push_back(all.template acquire<double>(100).data());
    return first;
  }
  /// Work that begins with the memory of a scope, and goes on after its end.
  work& launch_on(std::size_t arrays) {
    scope all{ws};
    for (std::size_t i = 0; i < arrays; ++i) (void)all.template acquire<double>(100);
    work& launched = works.emplace_back();
    gpu.work_on_memory.push_back(&launched);
    all.end_after(launched.fence());
    return launched;
  }

  device gpu{3};
  recording_resource bookkeeping;
  std::deque<work> works;
  Workspace ws{gpu.options(&bookkeeping)};
};

using levels = testing::Types<unchecked_workspace, device_checked_workspace>;
TYPED_TEST_SUITE(device_workspace, levels, );

// One for each device.

// S4.61
TEST(workspaces_of_devices, follow_the_binding) {
  device first{1}, second{2};
  workspace of_first{first.options()}, of_second{second.options()};
  const auto device_of_a_tensor = [] {
    workspace::scope scope{this_thread_workspace()};
    return acquire_tensor<float>(scope, 8)->device.device_id;
  };
  workspace_binding outer{of_first};
  EXPECT_EQ(device_of_a_tensor(), 1);
  {
    workspace_binding inner{of_second};
    EXPECT_EQ(device_of_a_tensor(), 2);
  }
  EXPECT_EQ(device_of_a_tensor(), 1);
  EXPECT_EQ(first.upstream.calls, 1u);
  EXPECT_EQ(second.upstream.calls, 1u);
}

// Warm.

// S4.62
TYPED_TEST(device_workspace, requests_no_memory_once_it_is_warm) {
  const std::vector<double*> first = this->use(5);
  const std::size_t warm = this->gpu.upstream.calls, records = this->bookkeeping.calls;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(this->use(5), first);
  EXPECT_EQ(this->gpu.upstream.calls, warm);
  EXPECT_EQ(this->bookkeeping.calls, records);
}

// Writing.

// S4.23 S4.44
TYPED_TEST(device_workspace, fills_zeros_ones_and_values_on_the_device) {
  typename TestFixture::scope scope{this->ws};
  auto zeros = scope.zeros(10, 20);
  auto ones = scope.template ones<float>(7);
  auto many = scope.fill(std::complex<double>{1, -2}, 3);
  auto yes = scope.trues(100);
  auto no = scope.falses(64);
  auto empty = scope.zeros(0);
  const std::vector<written> expected{copies_of(0.0, zeros.data(), 200), copies_of(1.0F, ones.data(), 7),
                                      copies_of(std::complex<double>{1, -2}, many.data(), 3),
                                      copies_of(~std::uint64_t{0}, yes.words().data(), 2),
                                      copies_of(std::uint64_t{0}, no.words().data(), 1)};
  EXPECT_EQ(this->gpu.fills, expected);
  EXPECT_EQ(empty.size(), 0u);
}

// S4.69
TYPED_TEST(device_workspace, returns_no_array_that_the_device_could_not_fill) {
  typename TestFixture::scope scope{this->ws};
  (void)scope.template acquire<double>(1);
  this->gpu.fill_fails = true;
  EXPECT_THROW((void)scope.zeros(10), std::runtime_error);
  EXPECT_THROW((void)scope.trues(10), std::runtime_error);
  EXPECT_EQ(this->ws.stats().active_slots, 1u);
  this->gpu.fill_fails = false;
  auto next = scope.zeros(10);
  EXPECT_EQ(this->ws.stats().active_slots, 2u);
  EXPECT_EQ(this->gpu.fills.back(), copies_of(0.0, next.data(), 10));
  this->ws.check_invariants();
}

// S4.44
TYPED_TEST(device_workspace, rejects_fills_without_a_device_fill_function) {
  workspace_options options = this->gpu.options();
  options.fill = {};
  TypeParam cannot_fill{options};
  std::minstd_rand generator;
  const auto text = [](auto call) { return message_of<std::logic_error>(call); };
  const auto expect_unfilled = [&](char const* name, auto call) {
    EXPECT_EQ(text(call), std::string{"workspace 'device': "} + name +
                              " needs workspace_options::fill, because its memory is not host memory");
  };
  expect_unfilled("zeros", [&] { (void)cannot_fill.zeros(3); });
  expect_unfilled("zeros", [&] { (void)cannot_fill.zeros(2, 5); });
  expect_unfilled("ones", [&] { (void)cannot_fill.template ones<float>(3); });
  expect_unfilled("fill", [&] { (void)cannot_fill.fill(7, 3); });
  expect_unfilled("trues", [&] { (void)cannot_fill.trues(3); });
  expect_unfilled("falses", [&] { (void)cannot_fill.falses(3); });
  EXPECT_EQ(text([&] { (void)acquire_uniform(this->ws, generator, 3); }),
            "workspace 'device': acquire_uniform writes single elements, but the memory is not host memory");
  EXPECT_EQ(text([&] { (void)acquire_normal(this->ws, generator, 3); }),
            "workspace 'device': acquire_normal writes single elements, but the memory is not host memory");
  EXPECT_EQ(cannot_fill.stats().slot_count + this->ws.stats().slot_count, 0u);
  EXPECT_EQ(generator, std::minstd_rand{});
}

// S4.61
TYPED_TEST(device_workspace, records_the_device_in_tensor_headers) {
  typename TestFixture::scope scope{this->ws};
  auto const* const tensor = acquire_tensor<float>(scope, 4, 5);
  EXPECT_EQ(static_cast<int>(tensor->device.device_type), 2);
  EXPECT_EQ(tensor->device.device_id, 3);
  EXPECT_TRUE(this->gpu.upstream.holds(tensor->data));
  EXPECT_EQ(tensor->ndim, 2);
  EXPECT_EQ(tensor->shape[0] * 100 + tensor->shape[1], 405);
  EXPECT_EQ(tensor->strides[0] * 100 + tensor->strides[1], 501);
}

// S4.63
TEST(device_poison, is_written_by_the_device_at_the_end_of_a_scope) {
  struct pair {
    std::int32_t a;
    float b;
  };
  device gpu{0};
  checked_workspace ws{gpu.options()};
  std::vector<written> expected;
  {
    checked_workspace::scope scope{ws};
    const auto acquire = [&]<class T>(T poison, std::size_t n) {
      expected.push_back(copies_of(poison, scope.acquire<T>(n).data(), n));
    };
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    const auto nan_f = std::numeric_limits<float>::quiet_NaN();
    acquire(nan, 100);
    acquire(nan, 30);
    acquire(nan_f, 7);
    acquire(std::numeric_limits<std::int64_t>::max(), 3);
    acquire(std::numeric_limits<std::int32_t>::max(), 4);
    acquire(std::complex<double>{nan, nan}, 5);
    acquire(std::complex<float>{nan_f, nan_f}, 6);
    acquire(true, 9);
    expected.push_back(copies_of(~std::uint64_t{0}, scope.bits(65).words().data(), 2));
    // A type with unknown values is filled bytewise.
    expected.push_back(copies_of(std::byte{0xDD}, scope.acquire<pair>(11).data(), 11 * sizeof(pair)));
    (void)scope.acquire<double>(0);
    EXPECT_TRUE(gpu.fills.empty());
  }
  EXPECT_EQ(gpu.fills.size(), expected.size());
  for (written const& one : expected) {
    EXPECT_EQ(std::ranges::count(gpu.fills, one), 1)
        << one.n << " elements of " << one.element.size() << " bytes";
  }
  const std::size_t held = gpu.upstream.outstanding;
  EXPECT_GT(held, 0u);
  EXPECT_EQ(ws.trim().bytes, held);
  EXPECT_EQ(gpu.upstream.outstanding, 0u);
}

// S4.46 S4.63
TEST(device_poison, is_skipped_if_the_device_cannot_write_it) {
  device gpu{0};
  checked_workspace ws{gpu.options()};
  const auto use = [](checked_workspace& on) {
    checked_workspace::scope scope{on};
    return scope.acquire<double>(100).data();
  };
  double* const memory = use(ws);
  gpu.fill_fails = true;
  EXPECT_EQ(use(ws), memory);
  EXPECT_EQ(ws.stats().active_slots, 0u);
  workspace_options options = gpu.options();
  options.fill = {};
  checked_workspace cannot_fill{options};
  EXPECT_EQ(use(cannot_fill), use(cannot_fill));
}

// Work that continues after the end of a scope.

// S4.64
TYPED_TEST(device_workspace, waits_for_work_on_a_slot_only_when_the_slot_is_reused) {
  const std::vector<double*> first = this->use(2);
  work& launched = this->launch_on(1);
  EXPECT_EQ(launched.waits, 0);
  typename TestFixture::scope scope{this->ws};
  (void)scope.template acquire<float>(100);  // of another type
  this->ws.check_invariants();
  EXPECT_EQ(launched.waits, 0);
  EXPECT_EQ(scope.template acquire<double>(100).data(), first[0]);
  EXPECT_EQ(launched.waits, 1);
  EXPECT_EQ(launched.destroyed, 1);
  EXPECT_EQ(scope.template acquire<double>(100).data(), first[1]);
  EXPECT_EQ(launched.waits, 1);
}

// S4.64
TYPED_TEST(device_workspace, waits_separately_for_the_work_on_each_slot) {
  work& on_first = this->works.emplace_back();
  work& on_second = this->works.emplace_back();
  {
    typename TestFixture::scope outer{this->ws};
    (void)outer.template acquire<double>(100);
    typename TestFixture::scope inner{this->ws};
    (void)inner.template acquire<double>(100);
    inner.end_after(on_second.fence());
    outer.end_after(on_first.fence());
  }
  typename TestFixture::scope scope{this->ws};
  (void)scope.template acquire<double>(1);
  EXPECT_EQ(on_first.waits, 1);
  EXPECT_EQ(on_second.waits, 0);
  (void)scope.template acquire<double>(1);
  EXPECT_EQ(on_second.waits, 1);
}

TYPED_TEST(device_workspace, keeps_no_fence_of_finished_work) {
  (void)this->use(1);
  const std::size_t records = this->bookkeeping.calls;
  work& launched = this->works.emplace_back();
  launched.is_done = true;
  {
    typename TestFixture::scope scope{this->ws};
    (void)scope.template acquire<double>(100);
    scope.end_after(launched.fence());
    EXPECT_FALSE(scope);
  }
  EXPECT_EQ(launched.destroyed, 1);
  (void)this->use(1);
  EXPECT_EQ(launched.waits, 0);
  EXPECT_EQ(this->bookkeeping.calls, records);
}

TYPED_TEST(device_workspace, waits_immediately_if_the_fence_cannot_be_stored) {
  (void)this->use(1);
  this->bookkeeping.fail_from = this->bookkeeping.calls;
  work& launched = this->launch_on(1);
  EXPECT_EQ(this->bookkeeping.calls, this->bookkeeping.fail_from + 1) << "the request was made and refused";
  EXPECT_EQ(launched.waits, 1);
  EXPECT_EQ(launched.destroyed, 1);
}

// S4.64
TYPED_TEST(device_workspace, waits_before_it_returns_memory) {
  const auto waits_in = [&](char const* name, auto call) {
    work& launched = this->launch_on(2);
    EXPECT_EQ(launched.waits, 0) << name;
    call();  // the device checks whether its work is done when memory is returned
    EXPECT_EQ(launched.waits, 1) << name;
    this->ws.release();
  };
  waits_in("trim", [&] { EXPECT_EQ(this->ws.trim().slot_count, 2u); });
  waits_in("trim of a type", [&] { EXPECT_EQ(this->ws.template trim<double>().slot_count, 2u); });
  waits_in("release", [&] { this->ws.release(); });
  waits_in("growth", [&] { (void)this->ws.template acquire<double>(1000); });
}

// S4.43
TYPED_TEST(device_workspace, waits_at_the_end_of_the_scope_if_pooling_is_off) {
  workspace_options options = this->gpu.options();
  options.pooling = false;
  work launched;
  TypeParam unpooled{options};
  typename TestFixture::scope scope{unpooled};
  EXPECT_TRUE(made_up_memory::is_made_up(scope.template acquire<double>(100).data()));
  this->gpu.work_on_memory = {&launched};
  scope.end_after(launched.fence());
  EXPECT_EQ(launched.waits, 1);
  EXPECT_EQ(this->gpu.upstream.outstanding, 0u);
}

TYPED_TEST(device_workspace, applies_the_fence_to_slots_of_inner_scopes) {
  work& launched = this->works.emplace_back();
  typename TestFixture::scope outer{this->ws};
  this->ws.checkpoint();  // not rewound: it ends with the scope
  (void)this->ws.template acquire<double>(100);
  outer.end_after(launched.fence());
  (void)this->use(1);
  EXPECT_EQ(launched.waits, 1);
}

TYPED_TEST(device_workspace, waits_immediately_for_a_scope_that_its_outer_scope_ended) {
  std::optional<typename TestFixture::scope> outer, inner, next;
  outer.emplace(this->ws);
  inner.emplace(this->ws);
  (void)inner->template acquire<double>(100);
  outer.reset();  // ends both
  work& launched = this->works.emplace_back();
  inner->end_after(launched.fence());
  EXPECT_EQ(launched.waits, 1);

  work& another = this->works.emplace_back();
  outer.emplace(this->ws);
  inner.emplace(this->ws);
  outer.reset();
  next.emplace(this->ws);  // where the other was
  (void)next->template acquire<double>(100);
  inner->end_after(another.fence());
  EXPECT_EQ(another.waits, 1);
  next.reset();
  this->ws.check_invariants();
}

TEST(device_poison, is_not_written_over_memory_in_use) {
  device gpu{0};
  work launched;
  checked_workspace ws{gpu.options()};
  checked_workspace::scope first{ws};
  auto x = first.acquire<double>(100);
  double* const memory = x.data();
  first.end_after(launched.fence());
  EXPECT_TRUE(gpu.fills.empty());
  EXPECT_THROW((void)x.data(), stale_view) << "the view ends all the same";
  {
    checked_workspace::scope second{ws};
    (void)second.acquire<double>(100);
    EXPECT_EQ(launched.waits, 1);
  }
  EXPECT_EQ(gpu.fills,
            std::vector<written>{copies_of(std::numeric_limits<double>::quiet_NaN(), memory, 100)});
}

// Beside the host's.

// S4.65
TYPED_TEST(device_workspace, nests_independently_of_the_host_workspace) {
  recording_resource memory;
  TypeParam host{&memory};
  typename TestFixture::scope on_device{this->ws};
  (void)on_device.template acquire<double>(10);
  {
    typename TestFixture::scope on_host{host};
    auto x = on_host.ones(10);
    {
      typename TestFixture::scope inner{this->ws};
      (void)inner.template acquire<double>(10);
      (void)on_host.template acquire<double>(
          10);  // of the host's innermost, which is not the innermost of all
      EXPECT_EQ(this->ws.stats().active_slots, 2u);
    }
    EXPECT_EQ(this->ws.stats().active_slots, 1u);
    EXPECT_EQ(host.stats().active_slots, 2u);
    EXPECT_EQ(x(9), 1);
  }
  EXPECT_EQ(this->ws.stats().active_slots, 1u);
  EXPECT_EQ(host.stats().active_slots, 0u);
  EXPECT_EQ(this->ws.depth(), 1u);
}

// S4.65
TYPED_TEST(device_workspace, one_tick_sweeps_host_and_device_workspaces) {
  enable_workspace_sweeps({.interval = std::chrono::hours{1}, .trim_every = 1});
  recording_resource memory;
  TypeParam host{&memory};
  {
    typename TestFixture::scope on_host{host};
    (void)on_host.template acquire<double>(10);
  }
  (void)this->use(1);
  for (int i = 0; i < 2; ++i) {
    tick_workspace_sweeps();
    EXPECT_EQ(host.stats().slot_count + this->ws.stats().slot_count, 2u);
    typename TestFixture::scope on_host{host};
    typename TestFixture::scope on_device{this->ws};
  }
  EXPECT_EQ(host.stats().slot_count, 0u);
  EXPECT_EQ(this->ws.stats().slot_count, 0u);
  EXPECT_EQ(this->gpu.upstream.outstanding, 0u);
  disable_workspace_sweeps();
}

}  // namespace
}  // namespace tidemark::test
