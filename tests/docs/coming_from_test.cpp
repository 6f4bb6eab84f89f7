// SPDX-License-Identifier: Apache-2.0
// Strategy: a test for each row of the tables in docs/guides/coming_from.md, below a comment with the left cell
// of the row; rows_of_page.py compares them. A test runs the left side of its row and the right side, and
// expects what both do, and the differences. std::pmr is always run; Boost.Pool and protobuf where they are
// installed. RMM and PyTorch need a device: the tests expect their documented behaviour of the right side.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <list>
#include <memory>
#include <memory_resource>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/compat.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>

#if __has_include(<boost/pool/object_pool.hpp>)
#include <boost/pool/object_pool.hpp>
#include <boost/pool/pool_alloc.hpp>
#define TIDEMARK_ROWS_OF_BOOST 1
#endif
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
#include <google/protobuf/arena.h>
#include <google/protobuf/repeated_field.h>
#endif

#include "fake_device.hpp"
#include "logged_upstream.hpp"

namespace tidemark::test {
namespace {

/// Fills a vector of 100 elements that grows, and returns their sum.
template <class Allocator>
int sum_in_vector(Allocator const& from) {
  std::vector<int, Allocator> x(from);
  for (int i = 0; i < 100; ++i) x.push_back(i);
  int sum = 0;
  for (const int value : x) sum += value;
  return sum;
}
int sum_on(std::pmr::memory_resource& memory) {
  return sum_in_vector(std::pmr::polymorphic_allocator<int>{&memory});
}
constexpr int sum = 4950;

/// Allocates and frees a block, and returns true if the next request gets it again.
bool reuses_a_block(std::pmr::memory_resource& memory, std::size_t bytes) {
  void* const block = memory.allocate(bytes, 16);
  memory.deallocate(block, bytes, 16);
  void* const next = memory.allocate(bytes, 16);
  memory.deallocate(next, bytes, 16);
  return next == block;
}

std::string text_of(std::string const& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Appends its number to a list at its end.
struct noted {
  std::vector<int>* ends;
  int number;
  ~noted() { ends->push_back(number); }
};

// ---- std::pmr

// | `monotonic_buffer_resource m;` |
TEST(coming_from_std, arena_places_blocks_in_a_row_and_can_be_rewound) {
  std::pmr::monotonic_buffer_resource left;
  arena m;
  const arena_mark before = m.mark();
  for (std::pmr::memory_resource* each : std::initializer_list<std::pmr::memory_resource*>{&left, &m}) {
    auto* const first = static_cast<std::byte*>(each->allocate(16, 16));
    EXPECT_EQ(each->allocate(16, 16), first + 16);
    each->deallocate(first, 16, 16);
    EXPECT_EQ(each->allocate(16, 16), first + 32) << "a free block below others stays";
    EXPECT_EQ(sum_on(*each), sum);
  }
  m.rewind(before);
  EXPECT_EQ(m.position(), 0u);
}

// | `m.release()` |
// | `monotonic_buffer_resource m{&upstream};` |
TEST(coming_from_std, upstream_arena_keeps_chunks_at_reset_and_returns_them_at_release_and_its_end) {
  statistics_resource upstream;
  const auto used = [&] { return upstream.stats().used_bytes; };
  const auto use = [&](auto& m, auto... resets) {
    EXPECT_EQ(sum_on(m), sum);
    (resets(), ...);
    EXPECT_GT(used(), 0u) << "kept for the next step";
    m.release();
    EXPECT_EQ(used(), 0u);
    EXPECT_EQ(sum_on(m), sum);
  };
  {
    std::pmr::monotonic_buffer_resource left{&upstream};
    use(left);
  }
  EXPECT_EQ(used(), 0u);
  {
    upstream_arena m{&upstream};
    use(m, [&] { m.reset(); });
  }
  EXPECT_EQ(used(), 0u);
}

// | `monotonic_buffer_resource m{buffer, bytes};` |
TEST(coming_from_std, upstream_arena_continues_on_the_heap_and_borrowed_arena_throws) {
  constexpr std::size_t bytes = 256;
  alignas(64) std::byte buffer[bytes];
  std::pmr::monotonic_buffer_resource left{buffer, bytes};
  EXPECT_EQ(left.allocate(64, 64), buffer);
  EXPECT_NE(left.allocate(256, 64), nullptr) << "continues on the heap";
  {
    upstream_arena m{buffer, bytes};
    EXPECT_EQ(m.allocate(64, 64), buffer);
    EXPECT_NE(m.allocate(256, 64), nullptr) << "continues on the heap";
  }
  borrowed_arena m{buffer, bytes};
  EXPECT_EQ(m.allocate(64, 64), buffer);
  EXPECT_THROW((void)m.allocate(256, 64), out_of_memory);
}

// | `monotonic_buffer_resource m{buffer, bytes, &upstream};` |
TEST(coming_from_std, upstream_arena_continues_on_its_upstream) {
  constexpr std::size_t bytes = 256;
  alignas(64) std::byte buffer[bytes];
  statistics_resource upstream;
  {
    std::pmr::monotonic_buffer_resource m{buffer, bytes, &upstream};
    EXPECT_EQ(m.allocate(64, 64), buffer);
    EXPECT_NE(m.allocate(256, 64), nullptr);
    EXPECT_GT(upstream.stats().used_bytes, 0u);
  }
  upstream_arena m{buffer, bytes, &upstream};
  EXPECT_EQ(m.allocate(64, 64), buffer);
  EXPECT_EQ(upstream.stats().used_bytes, 0u);
  EXPECT_NE(m.allocate(256, 64), nullptr);
  EXPECT_GT(upstream.stats().used_bytes, 0u);
}

// | `unsynchronized_pool_resource p;` |
TEST(coming_from_std, pool_reuses_blocks_and_keeps_larger_ones_up_to_a_limit) {
  std::pmr::unsynchronized_pool_resource left;
  pool p;
  EXPECT_TRUE(reuses_a_block(left, 48));
  EXPECT_TRUE(reuses_a_block(p, 48));
  EXPECT_TRUE(reuses_a_block(p, 8 * MiB));
  EXPECT_GE(p.stats().cached_bytes, 8 * MiB);
  pool limited{{.max_cached_bytes = 1 * MiB}};
  EXPECT_TRUE(reuses_a_block(limited, 48));
  limited.deallocate(limited.allocate(8 * MiB), 8 * MiB);
  EXPECT_LE(limited.stats().cached_bytes, 1 * MiB);
}

// | `synchronized_pool_resource p;` |
TEST(coming_from_std, synchronized_pool_has_a_cache_for_each_thread) {
  std::pmr::synchronized_pool_resource left;
  synchronized_pool p;
  for (std::pmr::memory_resource* each : std::initializer_list<std::pmr::memory_resource*>{&left, &p}) {
    void* const block = each->allocate(48, 16);
    std::thread([&] {
      EXPECT_EQ(sum_on(*each), sum);
      each->deallocate(block, 48, 16);
      EXPECT_EQ(p.thread_count(), each == &p ? 2u : 0u);
    }).join();
  }
}

// | `p.release()` |
TEST(coming_from_std, release_frees_live_blocks_and_clear_keeps_them) {
  statistics_resource upstream;
  std::pmr::unsynchronized_pool_resource left{&upstream};
  (void)left.allocate(48);
  left.release();
  EXPECT_EQ(upstream.stats().used_bytes, 0u);

  pool p{&upstream};
  auto* const live = static_cast<int*>(p.allocate(48));
  *live = 3;
  p.deallocate(p.allocate(8 * MiB), 8 * MiB);
  p.clear();
  EXPECT_EQ(p.stats().cached_bytes, 0u);
  EXPECT_EQ(*live, 3);
  p.release();
  EXPECT_EQ(upstream.stats().used_bytes, 0u);
}

// | `new_delete_resource()` |
TEST(coming_from_std, global_pool_serves_the_process) {
  for (std::pmr::memory_resource* each :
       {std::pmr::new_delete_resource(), static_cast<std::pmr::memory_resource*>(&global_pool())}) {
    const default_resource_scope scope{each};
    EXPECT_EQ(sum_in_vector(std::pmr::polymorphic_allocator<int>{}), sum);
    void* const block = each->allocate(48);
    std::thread([&] { each->deallocate(block, 48); }).join();
  }
}

// | the standard's names and rules |
TEST(coming_from_std, compat_has_the_names_and_rules_of_the_standard) {
  const auto sum_of_all = [](auto&& lines, auto&& blocks, auto&& shared) {
    EXPECT_TRUE(reuses_a_block(blocks, 48));
    EXPECT_TRUE(reuses_a_block(shared, 48));
    EXPECT_FALSE(reuses_a_block(lines, 48));
    return sum_on(lines) + sum_on(blocks) + sum_on(shared);
  };
  EXPECT_EQ(sum_of_all(std::pmr::monotonic_buffer_resource{}, std::pmr::unsynchronized_pool_resource{},
                       std::pmr::synchronized_pool_resource{}),
            sum_of_all(compat::monotonic_buffer_resource{}, compat::unsynchronized_pool_resource{},
                       compat::synchronized_pool_resource{}));
}

// ---- Boost.Pool

#if defined(TIDEMARK_ROWS_OF_BOOST)
struct coming_from_boost : ::testing::Test {
  boost::pool<> left{48};
};
#else
struct coming_from_boost : ::testing::Test {};
#endif

// | `boost::pool<> p{48};` |
TEST_F(coming_from_boost, pool_has_a_class_of_this_size_or_serves_all_sizes) {
#if defined(TIDEMARK_ROWS_OF_BOOST)
  EXPECT_EQ(left.get_requested_size(), 48u);
#endif
  {
    pool p{{.size_classes = {48}}};
    EXPECT_TRUE(reuses_a_block(p, 48));
    p.deallocate(p.allocate(40), 40);
    EXPECT_EQ(p.stats().cached_bytes % 48, 0u) << "its blocks have 48 bytes";
  }
  pool p;
  EXPECT_TRUE(reuses_a_block(p, 48) && reuses_a_block(p, 640));
}

// | `p.malloc()` |
// | `p.free(x)` |
// | `p.ordered_malloc(n)`, `p.ordered_free(x, n)` |
TEST_F(coming_from_boost, blocks_are_reused_and_missing_memory_throws) {
  constexpr std::size_t n = 5;
#if defined(TIDEMARK_ROWS_OF_BOOST)
  EXPECT_NE(left.malloc(), left.malloc());
  void* const one = left.malloc();
  left.free(one);
  EXPECT_EQ(left.malloc(), one);
  void* const several = left.ordered_malloc(n);
  left.ordered_free(several, n);
  EXPECT_EQ(left.ordered_malloc(n), several);
#endif
  pool p;
  void* x = p.allocate(48);
  void* const other = p.allocate(48);
  EXPECT_NE(x, other);
  p.deallocate(x, 48);
  EXPECT_EQ(p.allocate(48), x);
  p.deallocate(x, 48);
  p.deallocate(other, 48);
  x = p.allocate(n * 48);
  p.deallocate(x, n * 48);
  EXPECT_TRUE(reuses_a_block(p, n * 48));
  EXPECT_THROW((void)pool{std::pmr::null_memory_resource()}.allocate(48), std::bad_alloc);
}

// | `p.release_memory()` |
// | `p.purge_memory()` |
TEST_F(coming_from_boost, trim_returns_unused_memory_and_release_live_blocks_too) {
#if defined(TIDEMARK_ROWS_OF_BOOST)
  left.ordered_free(left.malloc());
  EXPECT_TRUE(left.release_memory());
  (void)left.malloc();
  EXPECT_TRUE(left.purge_memory());
#endif
  statistics_resource upstream;
  pool p{&upstream};
  p.deallocate(p.allocate(48), 48);
  EXPECT_GT(p.trim(0), 0u);
  EXPECT_EQ(p.stats().held_bytes, 0u);
  (void)p.allocate(48);
  p.release();
  EXPECT_EQ(upstream.stats().used_blocks, 0u);
}

// | `boost::object_pool<T> o;`, which destroys its objects |
TEST_F(coming_from_boost, make_destroys_objects_at_the_end_in_reverse_order) {
  using T = noted;
  std::vector<int> left_ends, right_ends;
#if defined(TIDEMARK_ROWS_OF_BOOST)
  {
    boost::object_pool<T> o;
    (void)o.construct(&left_ends, 1);
    (void)o.construct(&left_ends, 2);
  }
  EXPECT_EQ(left_ends.size(), 2u) << "in the order of addresses";
#endif
  {
    arena a;
    (void)a.make<T>(&right_ends, 1);
    (void)a.make<T>(&right_ends, 2);
  }
  EXPECT_EQ(right_ends, (std::vector<int>{2, 1}));
}

// | `o.construct(…)`, `o.destroy(x)` |
TEST_F(coming_from_boost, new_object_constructs_and_delete_object_destroys) {
  using T = noted;
  std::vector<int> ends;
#if defined(TIDEMARK_ROWS_OF_BOOST)
  boost::object_pool<T> o;
  o.destroy(o.construct(&ends, 1));
  EXPECT_EQ(ends, std::vector<int>{1});
  ends.clear();
#endif
  pool p;
  T* const x = std::pmr::polymorphic_allocator<>{&p}.new_object<T>(&ends, 1);
  std::pmr::polymorphic_allocator<>{&p}.delete_object(x);
  EXPECT_EQ(ends, std::vector<int>{1});
  EXPECT_EQ(p.stats().used_blocks, 0u);
}

// | `boost::pool_allocator<T>`, `fast_pool_allocator<T>` |
TEST_F(coming_from_boost, containers_allocate_from_a_pool) {
  using T = int;
#if defined(TIDEMARK_ROWS_OF_BOOST)
  EXPECT_EQ(sum_in_vector(boost::pool_allocator<T>{}), sum);
  EXPECT_EQ((std::list<T, boost::fast_pool_allocator<T>>{1, 2}.back()), 2);
#endif
  pool p;
  EXPECT_EQ(sum_in_vector(std::pmr::polymorphic_allocator<T>{&p}), sum);
  EXPECT_GT(p.stats().allocations, 0u);
}

// | `singleton_pool` |
TEST_F(coming_from_boost, global_pool_is_the_same_everywhere) {
#if defined(TIDEMARK_ROWS_OF_BOOST)
  using of_48_bytes = boost::singleton_pool<noted, 48>;
  void* const freed = of_48_bytes::malloc();
  of_48_bytes::free(freed);
  EXPECT_EQ(of_48_bytes::malloc(), freed);
#endif
  EXPECT_EQ(&global_pool(), &global_pool());
  EXPECT_TRUE(reuses_a_block(global_pool(), 48));
}

// ---- RMM and PyTorch: the right side, on a device of the tests

struct coming_from_a_device_library : ::testing::Test {
  ~coming_from_a_device_library() override { gpu::set_default_driver(before_); }

  /// Allocates and frees a block, and returns the calls of the driver that the second time made.
  std::size_t driver_calls_of_a_repeated_block(std::pmr::memory_resource& memory, std::size_t bytes) {
    memory.deallocate(memory.allocate(bytes, 256), bytes, 256);
    const std::size_t before = taken();
    memory.deallocate(memory.allocate(bytes, 256), bytes, 256);
    return taken() - before;
  }
  std::size_t taken() { return device_.count("cuMemAlloc") + device_.count("cuMemCreate"); }

  fake_device device_{{.touchable = true}};
  gpu::driver* before_ = gpu::set_default_driver(&device_);
  gpu::stream stream;
};
using coming_from_rmm = coming_from_a_device_library;
using coming_from_pytorch = coming_from_a_device_library;

// | `cuda_memory_resource` |
// | `pool_memory_resource` |
// | `binning_memory_resource` |
TEST_F(coming_from_rmm, device_pool_reuses_blocks_without_the_driver_and_fits_large_ones) {
  gpu::device_resource each_time;
  EXPECT_EQ(driver_calls_of_a_repeated_block(each_time, 1000), 1u);
  device_pool memory{{.stream = stream}};
  EXPECT_EQ(driver_calls_of_a_repeated_block(memory, 1000), 0u);
  EXPECT_EQ(driver_calls_of_a_repeated_block(memory, 8 * MiB), 0u);
  void* const large = memory.allocate(8 * MiB, 256);
  memory.deallocate(large, 8 * MiB, 256);
  EXPECT_EQ(memory.allocate(5 * MiB, 256), large) << "the best fit";
  memory.deallocate(large, 5 * MiB, 256);
}

// | `limiting_resource_adaptor` |
// | `statistics_resource_adaptor` with `push_counters`, `pop_counters` |
// | `tracking_resource_adaptor` |
// | `logging_resource_adaptor` |
// | `device_buffer` |
TEST_F(coming_from_rmm, adaptors_work_on_a_device) {
  gpu::device_resource memory;
  const std::string file = "rows.csv";  // `tidemark-report rows.csv` and `--memory-viz` read it
  {
    trace_log log{{.csv = file}};
    trace_resource traced{&memory, log, "device"};
    tracking_resource tracked{&traced};
    limit_resource limited{&tracked, 1 * MiB};
    statistics_resource counted{&limited};
    counted.push_counters();
    {
      unique_block block{&counted, 1 * MiB, 256};
      const unique_block moved = std::move(block);
      EXPECT_EQ(tracked.leaks().size(), 1u);
      EXPECT_THROW((void)counted.allocate(1, 256), out_of_memory);
    }
    EXPECT_TRUE(tracked.leaks().empty());
    EXPECT_EQ(counted.pop_counters().peak_bytes, 1 * MiB);
  }
  const std::string text = text_of(file);
  EXPECT_NE(text.find("\na,0,1048576,0\nf,0,"), std::string::npos) << text;
  std::remove(file.c_str());
  gpu::device_budget& all = device_.budget(0);
  all.set_limit(all.held_bytes());
  EXPECT_THROW((void)memory.allocate(1, 256), out_of_memory);
  all.set_limit(gpu::device_budget::unlimited);
}

// | nothing |
TEST_F(coming_from_rmm, lifetimes_end_together) {
  device_arena step{{.reserve = 1 * GiB}, stream};
  {
    device_arena::scope scope{step};
    (void)step.allocate(1000);
  }
  EXPECT_EQ(step.position(), 0u);
  pool blocks;
  epoch_resource memory{&blocks};
  {
    epoch phase{memory, "phase"};
    (void)memory.allocate(4096);
    EXPECT_EQ(phase.end().reclaimed, 1u);
  }
  planned_arena planned{{.fallback = &blocks}};
  for (int i = 0; i < 3; ++i) {
    planned_arena::step in_step{planned};
    EXPECT_EQ(sum_on(planned), sum);
  }
  graph_arena baked{graph_layout{.bytes = 1000, .alignment = 256}, &blocks};
  (void)baked.allocate(500, 256);
}

// | `arena_memory_resource` |
// | the caching allocator |
// | `torch.cuda.empty_cache()` |
// | `tensor.record_stream(s)` |
TEST_F(coming_from_pytorch, device_pools_serve_many_streams_and_return_idle_memory) {
  device_pool of_one_stream{{.stream = stream}};
  EXPECT_EQ(driver_calls_of_a_repeated_block(of_one_stream, 8 * MiB), 0u);
  of_one_stream.trim();
  gpu::stream s;
  device_pools memory;
  const std::size_t bytes = 8 * MiB, align = 256;
  void* const x = memory.allocate(bytes, align, stream);
  void* const other = memory.allocate(bytes, align, s);
  EXPECT_NE(x, other);
  ASSERT_EQ(gpu::put_behind(device_, s, stream), gpu::status::success);
  device_.write(s, x, bytes);
  memory.deallocate(x, bytes, align, s);
  memory.deallocate(other, bytes, align, s);
  EXPECT_GE(memory.stats().pending_bytes, bytes) << "while work on `s` uses it";
  device_.run_all();
  void* const next = memory.allocate(bytes, align, stream);
  EXPECT_EQ(next, x);
  memory.deallocate(next, bytes, align, stream);
  memory.trim();
  EXPECT_EQ(device_.budget(0).held_bytes(), 0u);
  memory.deallocate(memory.allocate(bytes, align, stream), bytes, align, stream);
  gpu::default_driver().budget(0).relieve();
  memory.deallocate(memory.allocate(1000, align, stream), 1000, align, stream);
  EXPECT_LT(device_.budget(0).held_bytes(), bytes);
}

// | `memory_allocated()`, `max_memory_allocated()` |
// | `memory_reserved()` |
// | `set_per_process_memory_fraction` |
// | `memory._record_memory_history`, `_dump_snapshot` |
TEST_F(coming_from_pytorch, statistics_and_budget_have_the_bytes_of_the_device) {
  gpu::device_budget& budget = device_.budget(0);
  device_pool memory{{.stream = stream}};
  const std::string file = "history.csv";  // `tidemark-report --memory-viz` turns it into the viewer's
  {
    trace_log log{{.csv = file}};
    trace_resource traced{&memory, log, "tensors"};
    statistics_resource above{&traced};
    void* const block = above.allocate(8 * MiB, 256);
    above.deallocate(above.allocate(500, 256), 500, 256);
    EXPECT_EQ(above.stats().used_bytes, 8 * MiB);
    EXPECT_EQ(above.stats().peak_bytes, 8 * MiB + 500);
    above.deallocate(block, 8 * MiB, 256);
  }
  EXPECT_GE(budget.held_bytes(), 8 * MiB) << "also cached memory";
  const std::string text = text_of(file);
  EXPECT_NE(text.find("\na,0,8388608,0\n"), std::string::npos) << text;
  std::remove(file.c_str());
  budget.set_limit(12 * MiB);
  EXPECT_THROW((void)memory.allocate(64 * MiB), out_of_memory);
  budget.set_limit(gpu::device_budget::unlimited);
}

// | `torch.cuda.graph(g, pool=…)` |
TEST_F(coming_from_pytorch, graph_arena_holds_the_memory_of_the_rehearsal) {
  device_pool memory{{.stream = stream}};
  const auto body = [&](std::pmr::memory_resource& of_step, auto&...) {
    void* const x = of_step.allocate(1000, 256);
    device_.write(stream, x, 1000);
    of_step.deallocate(x, 1000, 256);
  };
  const graph_layout layout = rehearse(body, &memory);
  auto graph = capture(stream, std::make_unique<graph_arena>(layout, &memory), 1, 2, body);
  graph.launch();
  EXPECT_EQ(layout.bytes, 1024u);
}

// ---- Protobuf arenas

struct coming_from_protobuf : ::testing::Test {
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
  google::protobuf::Arena left;
#endif
  arena a;
  std::vector<int> left_ends, ends;
};

// | `Arena a;` |
// | nothing |
TEST_F(coming_from_protobuf, arena_allocates_until_its_end_and_scopes_and_marks_free_a_part) {
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
  EXPECT_NE(google::protobuf::Arena::CreateArray<char>(&left, 100), nullptr);
#endif
  arena a;
  (void)a.allocate(100);
  const std::size_t outside = a.position();
  {
    arena::scope scope{a};
    (void)a.allocate(100);
  }
  EXPECT_EQ(a.position(), outside);
  const arena_mark before = a.mark();
  (void)a.allocate(100);
  a.rewind(before);
  EXPECT_EQ(a.position(), outside);
  shared_arena of_several_threads;
  std::thread([&] { EXPECT_NE(of_several_threads.allocate(100), nullptr); }).join();
}

// | `Arena::Create<T>(&a, …)` |
// | `a.Own(x)` |
TEST_F(coming_from_protobuf, make_creates_or_owns_an_object_that_the_arena_destroys) {
  using T = noted;
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
  (void)google::protobuf::Arena::Create<T>(&left, &left_ends, 1);
  left.Own(new T{&left_ends, 2});
  left.Reset();
  EXPECT_EQ(left_ends.size(), 2u);
#endif
  (void)a.make<T>(&ends, 1);
  T* const x = new T{&ends, 2};
  (void)a.make<std::unique_ptr<T>>(x);
  a.reset();
  EXPECT_EQ(ends, (std::vector{2, 1}));
  EXPECT_EQ(*a.push<int>(3), 3);  // push<T>, for types without a destructor
}

// | `Arena::CreateArray<T>(&a, n)` |
TEST_F(coming_from_protobuf, push_array_creates_elements) {
  using T = int;
  constexpr std::size_t n = 100;
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
  google::protobuf::Arena::CreateArray<T>(&left, n)[n - 1] = 1;
#endif
  EXPECT_EQ(a.push_array<T>(n)[n - 1], 0);
  EXPECT_EQ(a.push_array<T>(n, uninitialized).size(), n);
}

// | `a.Reset()` |
// | `a.SpaceUsed()`, `a.SpaceAllocated()` |
TEST_F(coming_from_protobuf, reset_frees_everything_and_keeps_the_memory) {
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
  (void)google::protobuf::Arena::CreateArray<char>(&left, 10000);
  EXPECT_GE(left.SpaceUsed(), 10000u);
  EXPECT_GE(left.SpaceAllocated(), left.SpaceUsed());
  EXPECT_GE(left.Reset(), 10000u);
  EXPECT_EQ(left.SpaceUsed(), 0u);
#endif
  (void)a.allocate(10000);
  EXPECT_GE(a.position(), 10000u);
  a.reset();
  EXPECT_EQ(a.position(), 0u);
  EXPECT_GE(a.stats().committed_bytes, 10000u);
}

// | `ArenaOptions::initial_block` |
TEST_F(coming_from_protobuf, upstream_arena_begins_in_memory_of_the_caller) {
  alignas(64) std::byte block[1024];
  const auto is_inside = [&](void* x) { return x >= block && x < block + sizeof block; };
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
  {
    google::protobuf::ArenaOptions options;
    options.initial_block = reinterpret_cast<char*>(block);
    options.initial_block_size = sizeof block;
    google::protobuf::Arena on_block{options};
    EXPECT_TRUE(is_inside(google::protobuf::Arena::CreateArray<char>(&on_block, 100)));
  }
#endif
  upstream_arena a{block, sizeof block};
  EXPECT_TRUE(is_inside(a.allocate(100)));
}

// | `ArenaOptions::block_alloc` |
TEST_F(coming_from_protobuf, upstream_arena_takes_blocks_from_a_resource) {
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
  static int blocks = 0;
  google::protobuf::ArenaOptions options;
  options.block_alloc = [](std::size_t bytes) { return ++blocks, ::operator new(bytes); };
  options.block_dealloc = [](void* block, std::size_t) { --blocks, ::operator delete(block); };
  {
    google::protobuf::Arena on_functions{options};
    (void)google::protobuf::Arena::CreateArray<char>(&on_functions, 100);
    EXPECT_GT(blocks, 0);
  }
  EXPECT_EQ(blocks, 0);
#endif
  statistics_resource upstream;
  {
    upstream_arena b{&upstream};
    (void)b.allocate(100);
    EXPECT_GT(upstream.stats().used_blocks, 0u);
  }
  EXPECT_EQ(upstream.stats().used_blocks, 0u);
}

// | `RepeatedField<T>`, `std::string` fields |
TEST_F(coming_from_protobuf, containers_and_strings_grow_on_the_arena) {
  using T = int;
#if defined(TIDEMARK_ROWS_OF_PROTOBUF)
  auto* const field = google::protobuf::Arena::CreateMessage<google::protobuf::RepeatedField<T>>(&left);
  for (T i = 0; i < 100; ++i) field->Add(i);
  EXPECT_GE(left.SpaceUsed(), 100 * sizeof(T));
#endif
  auto numbers = std::pmr::vector<T>{&a};
  numbers.resize(100);
  auto text = std::pmr::string{&a};
  text.assign(100, 'x');
  EXPECT_TRUE(a.owns(numbers.data()) && a.owns(text.data()));
}

}  // namespace
}  // namespace tidemark::test
