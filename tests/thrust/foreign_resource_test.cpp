// SPDX-License-Identifier: Apache-2.0
// Strategy: sources that record every call, one of each generation of CCCL's names and one of Thrust's, and
// real sources of Thrust and CCCL, below arenas and pools whose memory is written to. Sources without the
// parts that `std::pmr` requests, like RMM's.
#include <tidemark/thrust/foreign_resource.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <thrust/device_ptr.h>
#include <thrust/mr/new.h>
#include <thrust/mr/pool.h>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>

#include "caught.hpp"
#include "cuda_mr.hpp"
#include "fake_device.hpp"
#include "made_up_memory.hpp"
#include "stream_turns.hpp"

namespace tidemark::test {
namespace {

// ---- sources ----------------------------------------------------------------------------------------------

/// A call that a source got.
struct source_call {
  std::string name;
  std::size_t bytes = 0, align = 0;
  gpu::stream_handle stream = nullptr;
  friend bool operator==(source_call const&, source_call const&) = default;
};

/// Common base of these sources: real memory, and a log of all calls.
struct logged_memory {
  std::vector<source_call> calls;
  std::size_t live_blocks = 0;
  bool refuses = false;

  struct refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  void* allocate(source_call call) {
    if (refuses) throw refusal{"by the source"};
    const std::size_t bytes = call.bytes, align = call.align;
    calls.push_back(std::move(call));
    ++live_blocks;
    return ::operator new(bytes, std::align_val_t{align});
  }
  void deallocate(void* block, source_call call) {
    --live_blocks;
    ::operator delete(block, call.bytes, std::align_val_t{call.align});
    calls.push_back(std::move(call));
  }
};

/// By the names before CCCL 3.1.
class older_source {
 public:
  logged_memory notes;

  void* allocate(std::size_t bytes, std::size_t align) { return notes.allocate({"allocate", bytes, align}); }
  void deallocate(void* block, std::size_t bytes, std::size_t align) {
    notes.deallocate(block, {"deallocate", bytes, align});
  }
  void* allocate_async(std::size_t bytes, std::size_t align, ::cuda::stream_ref stream) {
    return notes.allocate({"allocate_async", bytes, align, stream.get()});
  }
  void deallocate_async(void* block, std::size_t bytes, std::size_t align, ::cuda::stream_ref stream) {
    notes.deallocate(block, {"deallocate_async", bytes, align, stream.get()});
  }
};

/// By the names since, and of RMM. Copies are equal.
class newer_source {
 public:
  logged_memory* notes;

  void* allocate_sync(std::size_t bytes, std::size_t align) {
    return notes->allocate({"allocate_sync", bytes, align});
  }
  void deallocate_sync(void* block, std::size_t bytes, std::size_t align) noexcept {
    notes->deallocate(block, {"deallocate_sync", bytes, align});
  }
  void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t align) {
    return notes->allocate({"allocate", bytes, align, stream.get()});
  }
  void deallocate(::cuda::stream_ref stream, void* block, std::size_t bytes, std::size_t align) noexcept {
    notes->deallocate(block, {"deallocate", bytes, align, stream.get()});
  }
  friend bool operator==(newer_source const& a, newer_source const& b) noexcept { return a.notes == b.notes; }
};

/// Thrust's.
class thrust_source final : public ::thrust::mr::memory_resource<void*> {
 public:
  logged_memory notes;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return notes.allocate({"allocate", bytes, align});
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    notes.deallocate(block, {"deallocate", bytes, align});
  }
};

using thrust_pool = ::thrust::mr::unsynchronized_pool_resource<::thrust::mr::new_delete_resource>;

static_assert(raw_memory_source<older_source> && raw_memory_source<newer_source> &&
              raw_memory_source<thrust_source> && raw_memory_source<::thrust::mr::new_delete_resource> &&
              raw_memory_source<thrust_pool>);
static_assert(raw_memory_source<cuda_resource<pool>> &&
              raw_memory_source<synchronous_ref<::cuda::mr::host_accessible>> &&
              raw_memory_source<std::pmr::memory_resource>);
static_assert(!raw_memory_source<::thrust::mr::memory_resource<::thrust::device_ptr<void>>>,
              "a device's pointers are no memory of std::pmr");
static_assert(!raw_memory_source<std::pmr::polymorphic_allocator<int>> && !raw_memory_source<int>);
static_assert(stream_ordered_source<older_source> && stream_ordered_source<newer_source> &&
              stream_ordered_source<cuda_resource<pool>> &&
              stream_ordered_source<stream_ordered_ref<::cuda::mr::host_accessible>>);
static_assert(
    !stream_ordered_source<thrust_source> &&
        !stream_ordered_source<synchronous_ref<::cuda::mr::host_accessible>> &&
        !std::is_constructible_v<foreign_resource<thrust_source>, thrust_source&, gpu::stream_handle>,
    "these know of no streams");
static_assert(
    !std::is_base_of_v<std::pmr::memory_resource, ::thrust::mr::memory_resource<void*>>,
    "Thrust has fixed what foreign_resource works around: say so in its comment, and in docs/thrust.md");

// ---- requests ---------------------------------------------------------------------------------------------

using calls = std::vector<source_call>;

/// The calls that a source gets for one block, with a stream if one is given.
calls calls_for_a_block(logged_memory const& notes, auto&... source_and_stream) {
  foreign_resource memory{source_and_stream...};
  memory.deallocate(memory.allocate(100, 64), 100, 64);
  return notes.calls;
}

// A.6
TEST(foreign_resource_calls, use_the_function_names_of_each_source) {
  auto* stream = reinterpret_cast<gpu::stream_handle>(std::uintptr_t{0x1000});
  older_source older, older_with_stream;
  thrust_source of_thrust;
  logged_memory notes, notes_with_stream;
  newer_source newer{&notes}, newer_with_stream{&notes_with_stream};
  EXPECT_EQ(calls_for_a_block(older.notes, older), (calls{{"allocate", 100, 64}, {"deallocate", 100, 64}}));
  EXPECT_EQ(calls_for_a_block(of_thrust.notes, of_thrust),
            (calls{{"allocate", 100, 64}, {"deallocate", 100, 64}}));
  EXPECT_EQ(calls_for_a_block(notes, newer),
            (calls{{"allocate_sync", 100, 64}, {"deallocate_sync", 100, 64}}));
  EXPECT_EQ(calls_for_a_block(older_with_stream.notes, older_with_stream, stream),
            (calls{{"allocate_async", 100, 64, stream}, {"deallocate_async", 100, 64, stream}}));
  EXPECT_EQ(calls_for_a_block(notes_with_stream, newer_with_stream, stream),
            (calls{{"allocate", 100, 64, stream}, {"deallocate", 100, 64, stream}}));
}

TEST(foreign_resource_calls, request_of_0_bytes_allocates_1_byte) {
  older_source source;
  foreign_resource memory{source};
  void* const one = memory.allocate(0, 8);
  void* const other = memory.allocate(0, 8);
  EXPECT_NE(one, other);
  memory.deallocate(one, 0, 8);
  memory.deallocate(other, 0, 8);
  EXPECT_EQ(source.notes.calls,
            (calls{{"allocate", 1, 8}, {"allocate", 1, 8}, {"deallocate", 1, 8}, {"deallocate", 1, 8}}));
}

// ---- missing parts ----------------------------------------------------------------------------------------

/// A resource as RMM's pools are: 0 bytes are null, and nothing is aligned to more than 256.
class careless_source {
 public:
  void* allocate_sync(std::size_t bytes, std::size_t) {
    if (bytes == 0 || returns_null) return nullptr;
    ++live_blocks;
    return reinterpret_cast<void*>(std::uintptr_t{0x10100});
  }
  void deallocate_sync(void*, std::size_t, std::size_t) noexcept { --live_blocks; }

  int live_blocks = 0;
  bool returns_null = false;
};

TEST(foreign_resource_gaps, more_than_ptrdiff_max_bytes_are_rejected) {
  thrust::mr::new_delete_resource system;  // which rounds such sizes up to small ones
  foreign_resource memory{system};
  std::pmr::memory_resource& as_asked = memory;
  EXPECT_THROW((void)as_asked.allocate(std::numeric_limits<std::size_t>::max() - 8, 256), out_of_memory);
}

TEST(foreign_resource_gaps, misaligned_block_is_freed_and_rejected) {
  careless_source source;
  foreign_resource memory{source};
  EXPECT_EQ(memory.allocate(100, 256), reinterpret_cast<void*>(std::uintptr_t{0x10100}));
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)memory.allocate(100, 512); });
  EXPECT_EQ(error.report().alignment, 512u);
  EXPECT_EQ(error.report().requested_bytes, 100u);
  EXPECT_NE(std::string{error.what()}.find("support that alignment"), std::string::npos) << error.what();
  EXPECT_EQ(source.live_blocks, 1);
}

TEST(foreign_resource_gaps, null_result_throws_out_of_memory) {
  careless_source source;
  source.returns_null = true;
  foreign_resource memory{source};
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)memory.allocate(100, 256); });
  EXPECT_NE(std::string{error.what()}.find("null"), std::string::npos) << error.what();
  EXPECT_EQ(source.live_blocks, 0);
}

// ---- below resources of tidemark --------------------------------------------------------------------------

/// Writes into blocks of many sizes and alignments, and compares their contents at the end.
void expect_usable(std::pmr::memory_resource& memory) {
  struct block {
    void* first;
    std::size_t bytes, align;
  };
  std::vector<block> blocks;
  for (std::size_t align = 1; align <= 4096; align *= 4) {
    for (std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{40'000}}) {
      void* const first = memory.allocate(bytes, align);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(first) % align, 0u);
      std::memset(first, static_cast<int>(blocks.size() + 1), bytes);
      blocks.push_back({first, bytes, align});
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    auto const* const first = static_cast<unsigned char const*>(blocks[i].first);
    ASSERT_TRUE(
        std::all_of(first, first + blocks[i].bytes, [&](unsigned char byte) { return byte == i + 1; }));
    memory.deallocate(blocks[i].first, blocks[i].bytes, blocks[i].align);
  }
}

// A.6
TEST(foreign_resource_upstream, pool_works_on_a_pool_of_thrust) {
  ::thrust::mr::new_delete_resource memory;
  thrust_pool source{&memory};
  foreign_resource upstream{source};
  pool blocks{{.upstream = &upstream}};
  expect_usable(blocks);
  EXPECT_GT(blocks.stats().held_bytes, 0u);
}

// A.6
TEST(foreign_resource_upstream, exceptions_of_a_source_pass_through_and_the_arena_stays_usable) {
  older_source source;
  foreign_resource upstream{source};
  upstream_arena step{&upstream};
  source.notes.refuses = true;
  EXPECT_THROW((void)step.allocate(1 * MiB), logged_memory::refusal);
  EXPECT_EQ(source.notes.live_blocks, 0u);
  source.notes.refuses = false;
  expect_usable(step);
}

TEST(foreign_resource_upstream, pool_allocates_slabs_in_the_order_of_its_stream) {
  fake_device device;
  stream_turns turns{device};
  const gpu::stream lending{device}, borrowing{device};
  made_up_memory memory;
  device_pool lender{{.stream = lending, .upstream = &memory}, device};
  cuda_resource handle{lender, device};
  foreign_resource upstream{handle, borrowing};
  device_pool borrower{{.stream = borrowing, .upstream = &upstream}, device};
  turns.put_on(lending, "uses the memory before");
  void* const block = borrower.allocate(512);
  turns.put_on(borrowing, "uses it");
  borrower.deallocate(block, 512);
  borrower.release();
  EXPECT_EQ(lender.stats().used_blocks, 0u);
  turns.put_on(lending, "uses it afterwards");
  EXPECT_TRUE(turns.taken().empty()) << "no thread waited";
  device.run(lending);
  EXPECT_EQ(turns.taken(),
            (std::vector<std::string>{"uses the memory before", "uses it", "uses it afterwards"}));
}

// ---- equality ---------------------------------------------------------------------------------------------

TEST(foreign_resource_equality, follows_the_equality_of_the_sources_if_defined) {
  logged_memory one, two;
  newer_source a{&one}, same{&one}, other{&two};
  EXPECT_TRUE(foreign_resource{a} == foreign_resource{same});
  EXPECT_FALSE(foreign_resource{a} == foreign_resource{other});
}

TEST(foreign_resource_equality, ignores_the_equality_of_thrust_resources) {
  thrust_source a, b;
  ASSERT_TRUE(a == b) << "Thrust has fixed this: its == says that all are equal in 3.0 and 3.5";
  EXPECT_FALSE(foreign_resource{a} == foreign_resource{b});
  EXPECT_TRUE(foreign_resource{a} == foreign_resource{a});
}

TEST(foreign_resource_equality, requires_equal_streams) {
  older_source source;
  auto* const stream = reinterpret_cast<gpu::stream_handle>(std::uintptr_t{0x1000});
  const foreign_resource for_any{source};
  const foreign_resource for_stream{source, stream};
  EXPECT_FALSE(for_any == for_stream);
  EXPECT_FALSE((for_any == foreign_resource{source, nullptr}));
  EXPECT_TRUE((for_stream == foreign_resource{source, stream}));
}

}  // namespace
}  // namespace tidemark::test
