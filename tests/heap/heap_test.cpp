// SPDX-License-Identifier: Apache-2.0
// Strategy: operator new is replaced by one that counts, so that "allocates nothing" is counted and not assumed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include <tidemark/tidemark.hpp>

namespace {
thread_local std::size_t news = 0;
}

void* operator new(std::size_t bytes) {
  ++news;
  if (void* block = std::malloc(bytes)) return block;
  throw std::bad_alloc{};
}
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  ++news;
  return std::malloc(bytes);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::nothrow_t const&) noexcept { std::free(block); }

namespace tidemark {
namespace {

TEST(heap, an_arena_within_its_first_chunk_never_allocates) {
  const std::size_t before = news;
  {
    arena step;
    for (int i = 0; i < 1000; ++i) {
      arena_scope scope{step};
      (void)scope.push_array<double>(1000);
      (void)scope.push<int>();
    }
    step.reset();
  }
  EXPECT_EQ(news, before);
}

TEST(heap, a_batch_that_crosses_chunks_allocates_nothing_once_warm) {
  arena step{{.reserve = 64 * KiB}};
  const auto batch = [&] {
    const arena_scope scope{step};
    for (int i = 0; i < 20; ++i) (void)step.allocate(20 * KiB);
  };
  batch();
  const std::size_t before = news;
  for (int i = 0; i < 100; ++i) batch();
  EXPECT_EQ(news, before);
}

TEST(heap, scratch_allocates_nothing_once_warm) {
  arena out;
  (void)scratch(out);
  const std::size_t before = news;
  for (int i = 0; i < 100; ++i) (void)scratch(out).push_array<int>(100);
  EXPECT_EQ(news, before);
}

TEST(heap, marking_may_allocate_and_rewinding_never_does) {
  // Each level leaves a record of a rewind that ended a mark, so that the records outgrow any room they began with.
  arena step;
  for (int level = 0; level < 1000; ++level) {
    (void)step.allocate(16);
    const arena_mark live = step.mark();
    (void)step.allocate(16);
    (void)step.mark();
    (void)step.allocate(16);
    const std::size_t before = news;
    step.rewind(live);
    ASSERT_EQ(news, before) << "at level " << level;
    (void)step.allocate(64);
  }
  EXPECT_GT(news, 0u);
}

}  // namespace
}  // namespace tidemark
