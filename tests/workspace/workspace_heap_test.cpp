// SPDX-License-Identifier: Apache-2.0
// Strategy: each use of a workspace runs once, and then repeatedly while calls of operator new, malloc, the
// upstream and the resource for records are counted. No call is allowed. Each test runs at both check levels.
// The first tests confirm that the four counters work.
#include <gtest/gtest.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/extras/random.hpp>
#include <tidemark/workspace/extras/this_thread_workspace.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

#include "counting_new.hpp"
#include "recording_supply.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

/// Calls so far, and bytes that the upstream and the bookkeeping hold.
struct counts {
  std::size_t news, mallocs, upstream, bookkeeping, held;
  friend bool operator==(counts const&, counts const&) = default;
  friend std::ostream& operator<<(std::ostream& out, counts const& c) {
    return out << "operator new " << c.news << ", malloc " << c.mallocs << ", upstream " << c.upstream
               << ", bookkeeping " << c.bookkeeping << ", bytes " << c.held;
  }
};

template <class Workspace>
class workspace_heap : public testing::Test {
 protected:
  using scope = typename Workspace::template scope<>;

  [[nodiscard]] counts now() const {
    return {test::news, test::mallocs, upstream.calls, bookkeeping.calls,
            upstream.outstanding + bookkeeping.outstanding};
  }
  /// `step` is done once, which calls the upstream, and then `times` times, which calls nothing.
  template <class Step>
  void expect_nothing_once_warm(Step step, int times = 100) {
    step();
    const counts warm = now();
    for (int i = 0; i < times; ++i) step();
    EXPECT_EQ(now(), warm);
    EXPECT_GT(warm.upstream, 0u) << "nothing was acquired";
    ws.check_invariants();
    EXPECT_EQ(ws.depth(), 0u);
    EXPECT_EQ(ws.stats().active_slots, 0u);
  }
  [[nodiscard]] workspace_options options(unsigned cache_ways = 4) {
    return {.cache_ways = cache_ways, .bookkeeping = &bookkeeping, .upstream = &upstream};
  }

  test::recording_resource upstream, bookkeeping;
  Workspace ws{options()};
};
TYPED_TEST_SUITE(workspace_heap, both_levels, );

// ---- the counters count -----------------------------------------------------------------------------------

/// The compiler must not leave the allocation away.
template <class T>
T* used(T* block) {
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}

TYPED_TEST(workspace_heap, every_form_of_operator_new_is_counted) {
  const counts before = this->now();
  delete used(new int);
  delete[] used(new int[10]);
  operator delete(used(operator new(8, std::nothrow)), std::nothrow);
  operator delete[](used(operator new[](8, std::nothrow)), std::nothrow);
  operator delete(used(operator new(64, std::align_val_t{64})), std::align_val_t{64});
  operator delete[](used(operator new[](64, std::align_val_t{64})), std::align_val_t{64});
  operator delete(used(operator new(64, std::align_val_t{64}, std::nothrow)), std::align_val_t{64});
  operator delete[](used(operator new[](64, std::align_val_t{64}, std::nothrow)), std::align_val_t{64});
  EXPECT_EQ(this->now().news, before.news + 8);
}

// S4.1
TYPED_TEST(workspace_heap, every_form_of_malloc_is_counted) {
  if (!test::counts_malloc) GTEST_SKIP() << "this program's malloc is a sanitizer's, and not counted";
  const counts before = this->now();
  std::free(used(std::malloc(100)));
  std::free(used(std::calloc(10, 10)));
  std::free(used(std::realloc(nullptr, 10)));
  std::free(used(std::aligned_alloc(64, 64)));
  void* block = nullptr;
  ASSERT_EQ(posix_memalign(&block, 64, 64), 0);
  std::free(used(block));
  EXPECT_EQ(this->now().mallocs, before.mallocs + 5);
  EXPECT_EQ(this->now().news, before.news);
}

TYPED_TEST(workspace_heap, every_counter_counts_the_first_acquisition) {
  const counts before = this->now();
  typename TestFixture::scope scope{this->ws};
  (void)scope.template acquire<double>(100);
  EXPECT_EQ(this->now().upstream, before.upstream + 1);
  EXPECT_GT(this->now().bookkeeping, before.bookkeeping);
  EXPECT_GE(this->now().news, before.news + 2);
  if (test::counts_malloc) EXPECT_GE(this->now().mallocs, before.mallocs + 2);
}

// ---- views ------------------------------------------------------------------------------------------------

struct particle {
  std::array<double, 3> position;
  int kind;
};

// S4.1 S4.54
TYPED_TEST(workspace_heap, repeated_scope_allocates_nothing) {
  std::mt19937 generator{1};
  this->expect_nothing_once_warm([&] {
    typename TestFixture::scope scope{this->ws};
    (void)scope.template acquire<double>(1000);
    (void)scope.template zeros<float>(10, 20);
    (void)scope.template ones<std::int64_t>(7);
    (void)scope.template fill<std::int32_t>(3, 4, 5, 6);
    (void)scope.template acquire<std::complex<float>>(9);
    (void)scope.template acquire<std::complex<double>>();
    (void)scope.template acquire<bool>(100);
    (void)scope.template acquire<particle>(50);
    (void)scope.trues(1000).count();
    (void)scope.bits(3, 4, 5);
    (void)acquire_normal(scope, generator, 10);
  });
}

// S4.17
TYPED_TEST(workspace_heap, views_of_any_shape_allocate_nothing) {
  // The first turn requests the most; each later turn has other shapes, of which a view keeps no record.
  std::size_t turn = 0;
  this->expect_nothing_once_warm([&] {
    const std::size_t n = 200 - turn++;
    typename TestFixture::scope scope{this->ws};
    const auto a = scope.template acquire<double>(n);
    const auto b = scope.template acquire<double, column_major>(n, n);
    const auto c = scope.template acquire<double>(n, 2, n / 2);
    (void)b.reshape(n * n);
    const std::span<double> elements = a;
    (void)scope.acquire_like(c);
    (void)scope.acquire_like(elements);
    (void)tidemark::reshape(elements, n, 1);
  });
}

// S4.1
TYPED_TEST(workspace_heap, scopes_that_nest_five_deep_allocate_nothing_once_warm) {
  const auto nest = [](auto& self, TypeParam& ws, int depth) -> void {
    typename TypeParam::template scope<> scope{ws};
    (void)scope.template acquire<double>(100);
    (void)scope.template acquire<particle>(10);
    if (depth > 1) self(self, ws, depth - 1);
    (void)scope.template acquire<float>(10);
  };
  this->expect_nothing_once_warm([&] { nest(nest, this->ws, 5); });
}

TYPED_TEST(workspace_heap, checkpoints_named_types_and_resets_allocate_nothing_once_warm) {
  this->expect_nothing_once_warm([&] {
    this->ws.checkpoint();
    (void)this->ws.template acquire<double>(100);
    this->ws.template checkpoint<double, float>();
    (void)this->ws.template acquire<double>(100);
    (void)this->ws.falses(100);
    this->ws.rewind();
    this->ws.rewind();
    with_workspace<double, particle, packed_bits>(this->ws, [](auto& scope) {
      (void)scope.template acquire<double>(100);
      (void)scope.template acquire<particle>(10);
      (void)scope.template acquire<float>(100);
    });
    for (std::size_t i = 0; i < 20; ++i) (void)this->ws.template acquire<double>(100);
    this->ws.reset();
  });
}

template <std::size_t Number>
struct numbered {
  float value;
};

template <class Workspace, std::size_t... Numbers>
void acquire_each(Workspace& ws, std::index_sequence<Numbers...>) {
  typename Workspace::template scope<> scope{ws};
  ((void)scope.template acquire<numbered<Numbers>>(10 + Numbers), ...);
  (void)scope.template acquire<double>(10);
  (void)scope.falses(10);
}

// S4.68
TYPED_TEST(workspace_heap, workspace_does_not_grow_with_100_types_in_500_turns) {
  const auto step = [&] { acquire_each(this->ws, std::make_index_sequence<100>{}); };
  step();
  const workspace_stats first = this->ws.stats();
  this->expect_nothing_once_warm(step, 500);
  EXPECT_EQ(this->ws.stats().types, 102u);
  EXPECT_EQ(this->ws.stats().slot_count, first.slot_count);
  EXPECT_EQ(this->ws.stats().held_bytes, first.held_bytes);
  EXPECT_EQ(this->ws.stats().saved_counts, 0u);
}

// The benchmark has the loop with 100 x 100; as often as here that takes minutes without optimisation.
// ---- tensors ----------------------------------------------------------------------------------------------

// S4.19 S4.18
TYPED_TEST(workspace_heap, shapes_beyond_the_cache_ways_allocate_nothing) {
  for (const std::size_t shapes : {3u, 4u, 5u, 10u, 20u}) {
    this->expect_nothing_once_warm([&] {
      for (std::size_t i = 1; i <= shapes; ++i) {
        typename TestFixture::scope scope{this->ws};
        (void)acquire_tensor<double>(scope, i, 20);
      }
    });
  }
  EXPECT_EQ(this->ws.stats().tensor_headers, 4u);
}

// S4.19
TYPED_TEST(workspace_heap, unlimited_cache_keeps_every_header_and_allocates_nothing) {
  for (const std::size_t shapes : {5u, 10u, 20u, 100u}) {
    TypeParam ws{this->options(unlimited_cache_ways)};
    std::set<dl_tensor*> first_turn;
    const auto turn = [&](auto&& see) {
      for (std::size_t i = 1; i <= shapes; ++i) {
        typename TestFixture::scope scope{ws};
        see(acquire_tensor<double>(scope, i, 20));
      }
    };
    turn([&](dl_tensor* tensor) { first_turn.insert(tensor); });
    const counts warm = this->now();
    std::size_t others = 0;
    for (int i = 0; i < 100; ++i) turn([&](dl_tensor* tensor) { others += first_turn.count(tensor) ^ 1; });
    EXPECT_EQ(this->now(), warm);
    EXPECT_EQ(others, 0u);
    EXPECT_EQ(first_turn.size(), shapes);
    EXPECT_EQ(ws.stats().tensor_headers, shapes);
  }
}

// S4.19
TYPED_TEST(workspace_heap, tensors_of_several_ranks_in_several_slots_allocate_nothing) {
  this->expect_nothing_once_warm([&] {
    for (std::size_t i = 1; i <= 5; ++i) {
      typename TestFixture::scope scope{this->ws};
      (void)acquire_tensor<double>(scope, 64 * i);
      (void)acquire_tensor<double>(scope, 8, 8 * i);
      (void)acquire_tensor<double, column_major>(scope, 4 * i, 4, 4);
      (void)acquire_tensor<double>(scope, std::array<std::size_t, 0>{});
      (void)acquire_tensor<float>(scope, 2, 2, 2, 2 * i);
      (void)acquire_tensor<std::int32_t>(scope, 1, 1, 1, 1, 1, 1, 1, i);
    }
  });
}

// ---- results of scopes ------------------------------------------------------------------------------------

// S4.54
TYPED_TEST(workspace_heap, escape_check_allocates_nothing) {
  std::array<double, 4> kept{};
  const std::vector<std::vector<double>> nested(3, std::vector<double>(5));
  this->expect_nothing_once_warm([&] {
    typename TestFixture::scope outer{this->ws};
    const auto a = outer.template acquire<double>(100);
    {
      typename TestFixture::scope inner{this->ws};
      (void)inner.template acquire<double>(100);
      (void)inner.returning(a);
      (void)inner.returning(std::tuple{1, a, std::optional{std::span<double>{a}}, kept.data()});
      (void)inner.returning(nested);
    }
  });
}

}  // namespace
}  // namespace tidemark::test
