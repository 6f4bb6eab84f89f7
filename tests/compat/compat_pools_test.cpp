// SPDX-License-Identifier: Apache-2.0
// Strategy: each rule of [mem.res.pool] is a test that runs over the standard library's two classes and over
// ours. A rule that std's classes also pass is a rule of the standard and not of ours. Rules that std's need
// not follow, or that GNU's do not follow, are in the suite of ours alone. The conformance suite has the rules of all resources.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <memory_resource>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <tidemark/compat.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/pool/synchronized_pool.hpp>

#include "logged_upstream.hpp"
#include "thread_storm.hpp"

namespace tidemark::test {
namespace {

template <class Resource>
class standard_pool : public ::testing::Test {
 protected:
  logged_upstream upstream_;
};
using ours = ::testing::Types<compat::unsynchronized_pool_resource, compat::synchronized_pool_resource>;
using all = ::testing::Types<std::pmr::unsynchronized_pool_resource, std::pmr::synchronized_pool_resource,
                             compat::unsynchronized_pool_resource, compat::synchronized_pool_resource>;
TYPED_TEST_SUITE(standard_pool, all, );

template <class Resource>
class compat_pool : public standard_pool<Resource> {};
TYPED_TEST_SUITE(compat_pool, ours, );

// An initializer list in place of an argument is a conversion: it takes a constructor that is not explicit.
template <class T>
void accept(T const&) {}

template <class T>
constexpr bool has_the_interface_of_pools =
    std::derived_from<T, std::pmr::memory_resource> && !std::is_final_v<T> &&
    std::has_virtual_destructor_v<T> && !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
    !std::is_move_constructible_v<T> && std::default_initializable<T> &&
    std::constructible_from<T, std::pmr::memory_resource*> &&
    std::constructible_from<T, std::pmr::pool_options> &&
    !std::convertible_to<std::pmr::memory_resource*, T> && !std::convertible_to<std::pmr::pool_options, T> &&
    requires(std::pmr::pool_options const& options, std::size_t n, std::pmr::memory_resource* upstream, T& t,
             T const& constant) {
      accept<T>({});
      accept<T>({options, upstream});
      accept<T>({{n, n}, upstream});
      T{{n, n}};
      T{{.largest_required_pool_block = n}, upstream};
      { t.release() } -> std::same_as<void>;
      { constant.upstream_resource() } -> std::same_as<std::pmr::memory_resource*>;
      { constant.options() } -> std::same_as<std::pmr::pool_options>;
    };
static_assert(has_the_interface_of_pools<std::pmr::unsynchronized_pool_resource>);
static_assert(has_the_interface_of_pools<std::pmr::synchronized_pool_resource>);
static_assert(has_the_interface_of_pools<compat::unsynchronized_pool_resource>);
static_assert(has_the_interface_of_pools<compat::synchronized_pool_resource>);

[[nodiscard]] bool same(std::pmr::pool_options const& a, std::pmr::pool_options const& b) {
  return a.max_blocks_per_chunk == b.max_blocks_per_chunk &&
         a.largest_required_pool_block == b.largest_required_pool_block;
}

TYPED_TEST(standard_pool, replaces_a_limit_of_0_by_the_default) {
  EXPECT_TRUE(same((TypeParam{std::pmr::pool_options{0, 0}}.options()), TypeParam{}.options()));
}

TYPED_TEST(standard_pool, uses_the_named_upstream_or_the_default_at_construction) {
  const TypeParam before;
  std::pmr::memory_resource* const default_before = std::pmr::get_default_resource();
  {
    const default_resource_scope changed{&this->upstream_};
    EXPECT_EQ(before.upstream_resource(), default_before);
    EXPECT_EQ(TypeParam{}.upstream_resource(), &this->upstream_);
    EXPECT_EQ(TypeParam{std::pmr::pool_options{}}.upstream_resource(), &this->upstream_);
  }
  EXPECT_EQ(TypeParam{&this->upstream_}.upstream_resource(), &this->upstream_);
  EXPECT_EQ((TypeParam{std::pmr::pool_options{}, &this->upstream_}.upstream_resource()), &this->upstream_);
}

// D.4
TYPED_TEST(standard_pool, takes_blocks_of_one_size_from_one_chunk) {
  TypeParam resource{&this->upstream_};
  (void)resource.allocate(16);
  const std::size_t asked = this->upstream_.asked.size();
  (void)resource.allocate(16);
  EXPECT_EQ(this->upstream_.asked.size(), asked);
}

// D.4
TYPED_TEST(standard_pool, reuses_a_freed_block_before_it_calls_the_upstream) {
  TypeParam resource{std::pmr::pool_options{1, 256}, &this->upstream_};
  void* const block = resource.allocate(8, 8);
  const std::size_t asked = this->upstream_.asked.size();
  resource.deallocate(block, 8, 8);
  EXPECT_EQ(resource.allocate(8, 8), block);
  EXPECT_EQ(this->upstream_.asked.size(), asked);
}

TYPED_TEST(standard_pool, passes_blocks_beyond_the_largest_straight_to_the_upstream) {
  TypeParam resource{std::pmr::pool_options{0, 64}, &this->upstream_};
  const std::size_t bytes = 3 * resource.options().largest_required_pool_block;
  void* const first = resource.allocate(bytes, 512);
  const std::size_t held = this->upstream_.held.size();
  void* const second = resource.allocate(bytes, 512);
  EXPECT_EQ(this->upstream_.held.size(), held + 1);
  EXPECT_GE(this->upstream_.asked.back().bytes, bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second) % 512, 0u);
  resource.deallocate(first, bytes, 512);
  EXPECT_EQ(this->upstream_.held.size(), held);
  resource.deallocate(second, bytes, 512);
  EXPECT_EQ(this->upstream_.held.size(), held - 1);
}

TYPED_TEST(standard_pool, limits_blocks_per_chunk_to_the_option) {
  TypeParam resource{std::pmr::pool_options{4, 64}, &this->upstream_};
  (void)resource.allocate(64, 1);
  const std::size_t asked = this->upstream_.asked.size();
  for (int i = 0; i < 64; ++i) (void)resource.allocate(64, 1);
  EXPECT_GE(this->upstream_.asked.size(), asked + 16);
}

// D.4
TYPED_TEST(standard_pool, release_returns_all_memory_including_live_blocks) {
  TypeParam resource{std::pmr::pool_options{0, 256}, &this->upstream_};
  resource.release();
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 300; ++i) (void)resource.allocate(i * 3, 8);
    EXPECT_FALSE(this->upstream_.held.empty());
    resource.release();
    EXPECT_TRUE(this->upstream_.held.empty());
  }
}

TYPED_TEST(standard_pool, upstream_exception_passes_through_and_changes_nothing) {
  TypeParam resource{std::pmr::pool_options{2, 64}, &this->upstream_};
  std::vector<void*> blocks{resource.allocate(64, 1)};
  this->upstream_.refuses = true;
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) blocks.push_back(resource.allocate(64, 1));
      },
      upstream_refused);
  EXPECT_THROW((void)resource.allocate(10'000'000), upstream_refused);
  void* const last = blocks.back();
  resource.deallocate(last, 64, 1);
  EXPECT_EQ(resource.allocate(64, 1), last);
  this->upstream_.refuses = false;
  EXPECT_NE(resource.allocate(64, 1), nullptr);
}

TYPED_TEST(standard_pool, throws_the_upstream_exception_for_impossible_sizes) {
  TypeParam resource{&this->upstream_};
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t less : {std::size_t{0}, std::size_t{1}, std::size_t{20}, most / 2 - 1}) {
    for (const std::size_t align : {1u, 8u, 64u, 4096u}) {
      EXPECT_THROW((void)resource.allocate(most - less, align), upstream_refused) << less << ' ' << align;
    }
  }
}

// ---- rules that GNU's break or the standard leaves open ----

// Not through `deallocate`, whose parameter libstdc++ declares as never null.
TYPED_TEST(compat_pool, ignores_null) {
  struct opened : TypeParam {
    using TypeParam::do_deallocate;
    using TypeParam::TypeParam;
  };
  opened resource{&this->upstream_};
  for (const std::size_t bytes : {0u, 8u, 4096u, 1'000'000u}) resource.do_deallocate(nullptr, bytes, 8);
  void* const block = resource.allocate(8, 8);
  EXPECT_NE(block, nullptr);
  resource.deallocate(block, 8, 8);
}

TYPED_TEST(compat_pool, construction_allocates_nothing) {
  const TypeParam resource{std::pmr::pool_options{1024, 2048}, &this->upstream_};
  EXPECT_TRUE(this->upstream_.asked.empty());
}

TYPED_TEST(compat_pool, rounds_limits_up_to_its_classes) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_TRUE(same(TypeParam{}.options(), {1 << 16, 16 * KiB}));
  EXPECT_TRUE(same((TypeParam{std::pmr::pool_options{most, most}}.options()), {1 << 16, 1 * MiB}));
  const std::pmr::pool_options told{1 << 12, 1 << 18};
  EXPECT_TRUE(same(TypeParam{told}.options(), told));
  EXPECT_EQ((TypeParam{std::pmr::pool_options{1, 71}}.options().largest_required_pool_block), 80u);
  EXPECT_EQ((TypeParam{std::pmr::pool_options{1, 1}}.options().largest_required_pool_block), 16u);
}

TYPED_TEST(compat_pool, returns_a_block_beyond_the_largest_at_once) {
  TypeParam resource{std::pmr::pool_options{0, 256}, &this->upstream_};
  resource.deallocate(resource.allocate(256), 256);
  const std::size_t held = this->upstream_.held.size();
  resource.deallocate(resource.allocate(256), 256);
  EXPECT_EQ(this->upstream_.held.size(), held);
  void* const large = resource.allocate(257);
  EXPECT_EQ(this->upstream_.held.size(), held + 1);
  resource.deallocate(large, 257);
  EXPECT_EQ(this->upstream_.held.size(), held);
}

TYPED_TEST(compat_pool, grows_each_chunk_by_half) {
  TypeParam resource{&this->upstream_};
  while (this->upstream_.asked.size() < 16) (void)resource.allocate(16, 16);
  EXPECT_EQ(this->upstream_.asked[1].bytes, 1024u) << "behind the records of 16 chunks";
  for (std::size_t i = 2; i < 16; ++i) {
    EXPECT_GE(this->upstream_.asked[i].bytes * 100, this->upstream_.asked[i - 1].bytes * 145) << i;
    EXPECT_LE(this->upstream_.asked[i].bytes * 100, this->upstream_.asked[i - 1].bytes * 155) << i;
  }
}

TYPED_TEST(compat_pool, grows_chunks_to_the_configured_maximum_blocks) {
  TypeParam resource{std::pmr::pool_options{std::numeric_limits<std::size_t>::max(), 16}, &this->upstream_};
  const std::size_t most = 8 * resource.options().max_blocks_per_chunk;
  std::size_t held = 0;
  while (this->upstream_.asked.empty() || this->upstream_.asked.back().bytes < most) {
    (void)resource.allocate(8, 1);
    ASSERT_LT(++held, 18 * MiB / 8);
  }
}

TYPED_TEST(compat_pool, works_on_one_thread_after_another) {
  TypeParam resource{&this->upstream_};
  void* block = nullptr;
  std::thread{[&] { block = resource.allocate(8, 8); }}.join();
  resource.deallocate(block, 8, 8);
  std::thread{[&] { resource.release(); }}.join();
  EXPECT_TRUE(this->upstream_.held.empty());
}

TEST(compat_synchronized_pool, serves_threads_that_free_each_others_blocks) {
  constexpr std::size_t threads = storm_threads, rounds = 50, blocks_each = 16;
  logged_upstream upstream;
  compat::synchronized_pool_resource resource{{.largest_required_pool_block = 256}, &upstream};
  std::vector<std::array<std::byte*, blocks_each>> passed(threads);
  const auto bytes_of = [](std::size_t i) { return 8 + i * 16; };
  for (std::size_t round = 0; round < rounds; ++round) {
    on_threads([&](std::size_t t) {
      for (std::size_t i = 0; i < blocks_each; ++i) {
        auto* const block = static_cast<std::byte*>(resource.allocate(bytes_of(i), 8));
        std::memset(block, static_cast<int>(t), bytes_of(i));
        passed[t][i] = block;
      }
    });
    on_threads([&](std::size_t t) {
      auto const& theirs = passed[(t + 1) % threads];
      for (std::size_t i = 0; i < blocks_each; ++i) {
        const auto written = static_cast<std::byte>((t + 1) % threads);
        EXPECT_TRUE(std::all_of(theirs[i], theirs[i] + bytes_of(i), [=](auto b) { return b == written; }));
        resource.deallocate(theirs[i], bytes_of(i), 8);
      }
    });
  }
  EXPECT_LT(upstream.asked.size(), 40u);
}

// ---- a program that changes over by a `using` ----

template <class Unsynchronized, class Synchronized, class Monotonic>
int run_program() {
  std::array<std::byte, 512> buffer;
  Monotonic lines = {buffer.data(), buffer.size()};
  Unsynchronized nodes{{0, 64}, &lines};
  Synchronized shared = {{.max_blocks_per_chunk = 8, .largest_required_pool_block = 128}, &nodes};
  const std::pmr::pool_options options = shared.options();
  std::pmr::map<int, std::pmr::string> table{&shared};
  for (int i = 0; i < 100; ++i) table.emplace(i, "a string that is too long to be kept in itself");
  for (int i = 0; i < 100; i += 2) table.erase(i);
  return static_cast<int>(table.size()) + (options.max_blocks_per_chunk <= 8 ? 1 : 0);
}

// D.5
TEST(compat, runs_a_program_written_for_the_standard_resources) {
  const int of_std = run_program<std::pmr::unsynchronized_pool_resource, std::pmr::synchronized_pool_resource,
                                 std::pmr::monotonic_buffer_resource>();
  const int of_ours = run_program<compat::unsynchronized_pool_resource, compat::synchronized_pool_resource,
                                  compat::monotonic_buffer_resource>();
  EXPECT_EQ(of_std, 51);
  EXPECT_EQ(of_ours, of_std);
}

}  // namespace
}  // namespace tidemark::test
