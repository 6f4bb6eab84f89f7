// SPDX-License-Identifier: Apache-2.0
// Strategy: communicators of a fake NCCL, which checks registrations and the order in which memory is freed:
// registrars by themselves, then below arenas on both kinds of device memory, alone and on two ranks; each
// call fails once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "fake_failures.hpp"
#include "fake_nccl.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::nccl_communicator;
using gpu::nccl_memory;
using gpu::nccl_registrar;
using gpu::nccl_status;
using gpu::nccl_window_position;
using gpu::nccl_window_registrar;

template <class Registrar>
using registered_arena = basic_arena<registered_memory<nccl_memory, Registrar>>;

template <class Registrar>
constexpr bool is_of_windows = std::is_same_v<Registrar, nccl_window_registrar>;

// A rank of a machine with one device.
template <class Registrar>
class nccl_registrar_of : public testing::Test {
 protected:
  static constexpr char const* registering =
      is_of_windows<Registrar> ? "ncclCommWindowRegister" : "ncclCommRegister";
  static constexpr char const* deregistering =
      is_of_windows<Registrar> ? "ncclCommWindowDeregister" : "ncclCommDeregister";

  fake_device device_{{.capacity_bytes = 256 * MiB}};
  gpu::stream stream_{device_};
  fake_nccl nccl_{device_};
  nccl_communicator communicator_ = nccl_.communicator(stream_);

  nccl_memory memory() { return nccl_memory{{.stream = stream_}, nccl_, device_}; }
  Registrar registrar() { return Registrar{communicator_, stream_, nccl_, device_}; }
  registered_arena<Registrar> arena(std::size_t reserve = 1 * MiB) {
    return registered_arena<Registrar>{{.reserve = reserve, .name = "step"}, memory(), registrar()};
  }
  bool has(void const* block, std::size_t bytes) const { return nccl_.has(communicator_, block, bytes); }
};

// A registrar and a range of memory.
template <class Registrar>
class nccl_range_of : public nccl_registrar_of<Registrar> {
 protected:
  nccl_memory memory_ = this->memory();
  Registrar registrar_ = this->registrar();
  byte_range range_ = memory_.reserve(1, 1 * MiB);
};

using registrars = testing::Types<nccl_registrar, nccl_window_registrar>;
TYPED_TEST_SUITE(nccl_registrar_of, registrars);
TYPED_TEST_SUITE(nccl_range_of, registrars);

// ---- by itself

// R.12
TYPED_TEST(nccl_range_of, registers_a_range_and_deregisters_it) {
  EXPECT_EQ(this->registrar_.communicator(), this->communicator_);
  const byte_range first = this->range_, second = this->memory_.reserve(1, 1 * MiB);
  EXPECT_TRUE(this->registrar_.on_commit(first));
  EXPECT_TRUE(this->registrar_.on_commit(second));
  EXPECT_TRUE(this->has(first.data(), first.size));
  EXPECT_EQ(this->nccl_.registrations(this->communicator_), 2u);
  EXPECT_TRUE(this->registrar_.on_decommit(first));
  EXPECT_FALSE(this->has(first.data(), 1));
  EXPECT_TRUE(this->has(second.data(), second.size));
  EXPECT_FALSE(this->registrar_.on_decommit(first));
  EXPECT_STREQ(this->registrar_.refusal(), "it is not registered");
  TypeParam moved{std::move(this->registrar_)};
  EXPECT_TRUE(moved.on_decommit(second));
}

TYPED_TEST(nccl_range_of, refused_registration_changes_nothing_and_states_the_reason) {
  this->nccl_.fail_next(this->registering, nccl_status::invalid_usage);
  EXPECT_FALSE(this->registrar_.on_commit(this->range_));
  EXPECT_STREQ(this->registrar_.refusal(), "ncclInvalidUsage");
  EXPECT_TRUE(this->registrar_.on_commit(this->range_));
  EXPECT_STREQ(this->registrar_.refusal(), "");
  this->nccl_.fail_next(this->deregistering, nccl_status::remote_error);
  EXPECT_FALSE(this->registrar_.on_decommit(this->range_));
  EXPECT_STREQ(this->registrar_.refusal(), "ncclRemoteError");
  EXPECT_TRUE(this->has(this->range_.data(), this->range_.size));
  EXPECT_TRUE(this->registrar_.on_decommit(this->range_));
}

// R.12
TYPED_TEST(nccl_range_of, waits_for_the_stream_before_deregistering_a_range) {
  ASSERT_TRUE(this->registrar_.on_commit(this->range_));
  const test::noting_work collective{this->device_, this->stream_, this->range_};
  this->device_.fail_next("cuStreamSynchronize", gpu::status::unknown);
  EXPECT_FALSE(this->registrar_.on_decommit(this->range_));
  EXPECT_STREQ(this->registrar_.refusal(), "CUDA_ERROR_UNKNOWN");
  EXPECT_TRUE(this->registrar_.on_decommit(this->range_));
  EXPECT_TRUE(collective.has_run);
}

TYPED_TEST(nccl_range_of, makes_no_nccl_call_during_a_capture) {
  const byte_range first = this->range_, second = this->memory_.reserve(1, 1 * MiB);
  ASSERT_TRUE(this->registrar_.on_commit(first));
  {
    const test::empty_capture graph{this->device_, this->stream_};
    EXPECT_FALSE(this->registrar_.on_commit(second));
    EXPECT_STREQ(this->registrar_.refusal(), "a stream is capturing");
    EXPECT_FALSE(this->registrar_.on_decommit(first));
    EXPECT_STREQ(this->registrar_.refusal(), "a stream is capturing");
  }
  EXPECT_EQ(this->nccl_.count(this->registering), 1u);
  EXPECT_TRUE(this->registrar_.on_decommit(first));
}

TYPED_TEST(nccl_range_of, waits_for_a_nonblocking_communicator_to_finish_the_call) {
  this->nccl_.polls = 3;
  EXPECT_TRUE(this->registrar_.on_commit(this->range_));
  EXPECT_EQ(this->nccl_.count("ncclCommGetAsyncError"), 3u);
  EXPECT_TRUE(this->has(this->range_.data(), this->range_.size));
  EXPECT_TRUE(this->registrar_.on_decommit(this->range_));
}

TYPED_TEST(nccl_range_of, abandons_a_call_in_progress_if_its_communicator_fails) {
  this->nccl_.polls = 3;
  this->nccl_.end_of_call = nccl_status::remote_error;
  EXPECT_FALSE(this->registrar_.on_commit(this->range_));
  EXPECT_EQ(this->nccl_.count("ncclCommGetAsyncError"), 3u);
  EXPECT_STREQ(this->registrar_.refusal(), "ncclRemoteError");
}

TYPED_TEST(nccl_registrar_of, rejects_a_null_communicator_and_the_per_thread_stream) {
  EXPECT_THROW((TypeParam{nullptr, this->stream_, this->nccl_, this->device_}), nccl_error);
  EXPECT_THROW((TypeParam{this->communicator_, gpu::per_thread_stream, this->nccl_, this->device_}),
               std::invalid_argument);
}

TYPED_TEST(nccl_range_of, skips_deregistration_after_driver_shutdown) {
  ASSERT_TRUE(this->registrar_.on_commit(this->range_));
  this->device_.fail_next("cuCtxGetDevice", gpu::status::deinitialized);
  EXPECT_TRUE(this->registrar_.on_decommit(this->range_));
  EXPECT_EQ(this->nccl_.count(this->deregistering), 0u);
  this->nccl_.drop_registrations();
}

/// A registrar of buffers, whose NCCL a test may change.
struct fake_nccl_of_a_stream : testing::Test {
  fake_device device;
  gpu::stream stream{device};
  fake_nccl nccl{device};
  nccl_communicator communicator = nccl.communicator(stream);
  nccl_memory memory{{.stream = stream}, nccl, device};
  nccl_registrar registrar{communicator, stream, nccl, device};
  byte_range range = memory.reserve(1, 1 * MiB);
};

TEST_F(fake_nccl_of_a_stream, deregisters_nothing_if_the_environment_disables_registration) {
  nccl.registers_buffers = false;
  EXPECT_TRUE(registrar.on_commit(range));
  EXPECT_TRUE(registrar.on_decommit(range));
  EXPECT_EQ(nccl.count("ncclCommDeregister"), 0u);
}

TEST_F(fake_nccl_of_a_stream, returns_no_window_for_some_memory) {
  nccl.has_windows = false;
  nccl_window_registrar windows{communicator, stream, nccl, device};
  EXPECT_FALSE(windows.on_commit(range));
  EXPECT_STREQ(
      windows.refusal(),
      "NCCL cannot create a window: this machine supports no windows, NCCL_WIN_ENABLE is 0, or a group "
      "call is open");
  EXPECT_EQ(windows.window_of(range.data()), nccl_window_position{});
}

TEST_F(fake_nccl_of_a_stream, receives_the_window_flags) {
  using gpu::nccl_window_flags;
  constexpr auto both = nccl_window_flags::symmetric_strict_ordering;
  nccl_window_registrar symmetric{communicator, stream, nccl, device};
  nccl_window_registrar ordered{communicator, stream, both, nccl, device};
  for (auto const& [windows, flags] :
       {std::pair{&symmetric, nccl_window_flags::symmetric}, {&ordered, both}}) {
    ASSERT_TRUE(windows->on_commit(range));
    EXPECT_EQ(nccl.last_flags(), flags);
    ASSERT_TRUE(windows->on_decommit(range));
  }
}

// ---- arenas

// R.10
TYPED_TEST(nccl_registrar_of, makes_no_call_in_a_repeated_step) {
  auto step = this->arena();
  EXPECT_EQ(this->nccl_.count(this->registering), 1u) << "the first range comes with the arena";
  std::size_t registered = 0;
  for (int i = 0; i < 10; ++i) {
    const auto calls = test::calls_of(this->device_, [&] {
      typename decltype(step)::scope scope{step};
      for (std::size_t bytes = 16; bytes <= 4 * MiB; bytes *= 2)
        EXPECT_TRUE(this->has(step.allocate(bytes), bytes));
    });
    if (i == 0) registered = this->nccl_.count(this->registering);
    else EXPECT_EQ(calls, test::call_names{});
  }
  EXPECT_EQ(this->nccl_.count(this->registering), registered);
  EXPECT_EQ(this->nccl_.count(this->deregistering), 0u);
  step.release();
  EXPECT_EQ(this->nccl_.count(this->deregistering), registered);
  EXPECT_EQ(this->nccl_.outstanding, 0u);
}

TYPED_TEST(nccl_registrar_of, refused_registration_leaves_an_arena_unchanged_and_is_explained) {
  auto step = this->arena();
  void* const before = step.allocate(1000);
  const arena_stats stats = step.stats();
  this->nccl_.fail_next(this->registering, nccl_status::system_error);
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)step.allocate(8 * MiB); });
  EXPECT_NE(std::string{error.what()}.find("; ncclSystemError"), std::string::npos) << error.what();
  EXPECT_EQ(step.stats().used_bytes, stats.used_bytes);
  EXPECT_EQ(step.stats().reserved_bytes, stats.reserved_bytes);
  EXPECT_EQ(this->device_.budget(0).held_bytes(), stats.reserved_bytes);
  EXPECT_TRUE(this->has(before, 1000));
  EXPECT_TRUE(this->has(step.allocate(8 * MiB), 8 * MiB));
}

TYPED_TEST(nccl_registrar_of, keeps_memory_that_nccl_does_not_deregister) {
  const test::warning_recorder warnings;
  void* block = nullptr;
  {
    auto step = this->arena();
    block = step.allocate(1000);
    this->nccl_.fail_next(this->deregistering, nccl_status::remote_error);
  }
  ASSERT_EQ(warnings.reports().size(), 1u);
  EXPECT_NE(warnings.reports()[0].message.find("1048576 bytes are lost until the process ends, because they "
                                               "cannot be deregistered: ncclRemoteError"),
            std::string::npos)
      << warnings.reports()[0].message;
  EXPECT_TRUE(this->has(block, 1000));
  EXPECT_TRUE(this->device_.accessible(block, 1 * MiB));
  EXPECT_EQ(this->device_.budget(0).held_bytes(), 1 * MiB);
  this->nccl_.drop_registrations();
  EXPECT_EQ(this->nccl_.free(reinterpret_cast<std::uintptr_t>(block)), nccl_status::success);
}

// R.12
TYPED_TEST(nccl_registrar_of, covers_every_block_by_one_registration_under_any_failure) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    auto step = this->arena(64 * KiB);
    std::mt19937_64 random{seed};
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (int i = 0; i < 400; ++i) {
      if (random() % 8 == 0) this->nccl_.fail_from = this->nccl_.calls + random() % 3;
      if (random() % 8 == 0) this->device_.fail_from = this->device_.calls + random() % 12;
      if (random() % 40 == 0) {
        this->device_.fail_from = fake_device::never;  // memory that is lost is another test's
        step.release();
        blocks.clear();
        continue;
      }
      const std::size_t bytes = std::size_t{1} << random() % 21;
      const arena_stats before = step.stats();
      void* block = nullptr;
      try {
        block = step.try_allocate(bytes);
      } catch (cuda_error const&) {  // a call of the driver beside NCCL's
      }
      if (block != nullptr) blocks.emplace_back(block, bytes);
      else EXPECT_EQ(step.stats().reserved_bytes, before.reserved_bytes);
      step.check_invariants();
      for (auto const& [first, size] : blocks) ASSERT_TRUE(this->has(first, size)) << "seed " << seed;
      ASSERT_GE(this->device_.budget(0).held_bytes(), step.stats().reserved_bytes);
    }
    this->nccl_.fail_from = fake_nccl::never;
    this->device_.fail_from = fake_device::never;
    (void)step.allocate(16 * MiB);  // frees memory that could not be freed when a call failed
    EXPECT_EQ(this->device_.budget(0).held_bytes(), step.stats().reserved_bytes);
  }
}

TYPED_TEST(nccl_registrar_of, registers_a_whole_plan_once) {
  using planned = basic_planned_arena<registered_memory<nccl_memory, TypeParam>>;
  device_pool fallback{{.stream = this->stream_}, this->device_};
  planned memory{{.fallback = &fallback, .name = "step"}, this->memory(), this->registrar()};
  for (int i = 0; i < 5; ++i) {
    const typename planned::step step{memory};
    std::vector<void*> blocks;
    for (int n = 0; n < 4; ++n) blocks.push_back(memory.allocate(300 * KiB));
    for (void* const block : blocks) {
      if (i > 0) EXPECT_TRUE(this->has(block, 300 * KiB));
      memory.deallocate(block, 300 * KiB);
    }
  }
  EXPECT_EQ(this->nccl_.count(this->registering), 1u);
  EXPECT_EQ(memory.space().registrations(), 1u);
}

TYPED_TEST(nccl_registrar_of, registers_virtual_memory) {
  using memory = registered_memory<gpu::virtual_memory, TypeParam>;
  basic_arena<memory> step{memory{gpu::virtual_memory{this->stream_, this->device_}, this->registrar()},
                           arena_options{.reserve = 4 * MiB, .name = "step"}};
  for (int i = 0; i < 3; ++i) {
    typename decltype(step)::scope scope{step};
    EXPECT_TRUE(this->has(step.allocate(1 * MiB), 1 * MiB));
    EXPECT_TRUE(this->has(step.allocate(8 * MiB), 8 * MiB));
  }
  EXPECT_EQ(this->nccl_.count(this->registering), 2u);
  const test::noting_work work{this->device_, this->stream_};
  step.release();
  EXPECT_TRUE(work.has_run) << "deregistered while work was on the stream";
}

// ---- ranks

class nccl_ranks : public testing::Test {
 protected:
  using arena = registered_arena<nccl_window_registrar>;

  fake_device device_{{.capacity_bytes = 256 * MiB}};
  gpu::stream streams_[2]{gpu::stream{device_}, gpu::stream{device_}};
  fake_nccl nccl_{device_};
  std::vector<nccl_communicator> ranks_ = nccl_.clique({streams_[0], streams_[1]});

  arena of_rank(std::size_t rank, std::size_t reserve) {
    return arena{registered_memory<nccl_memory, nccl_window_registrar>{
                     nccl_memory{{.stream = streams_[rank]}, nccl_, device_},
                     nccl_window_registrar{ranks_[rank], streams_[rank], nccl_, device_}},
                 arena_options{.reserve = reserve, .name = "step"}};
  }
};

// R.13
TEST_F(nccl_ranks, have_every_block_at_the_same_offset_of_the_same_window) {
  arena ranks[2]{of_rank(0, 1 * MiB), of_rank(1, 1 * MiB)};
  std::vector<std::vector<nccl_window_position>> places(2);
  std::vector<std::vector<std::size_t>> numbers(2);  // of windows, in the order of their first block
  for (std::size_t rank = 0; rank < 2; ++rank) {
    std::mt19937 random{7};
    std::vector<gpu::nccl_window> windows;
    for (int i = 0; i < 200; ++i) {
      if (i % 50 == 49) ranks[rank].reset();
      void const* const block = ranks[rank].allocate(random() % 100'000, std::size_t{1} << random() % 13);
      const nccl_window_position place = ranks[rank].space().registrar().window_of(block);
      ASSERT_NE(place.window, nullptr);
      places[rank].push_back(place);
      const auto known = std::find(windows.begin(), windows.end(), place.window);
      numbers[rank].push_back(static_cast<std::size_t>(known - windows.begin()));
      if (known == windows.end()) windows.push_back(place.window);
    }
  }
  EXPECT_EQ(numbers[0], numbers[1]);
  for (std::size_t i = 0; i < places[0].size(); ++i) EXPECT_EQ(places[0][i].offset, places[1][i].offset) << i;
  EXPECT_GT(*std::ranges::max_element(numbers[0]), 0u) << "the test needs several windows";
}

// R.13
TEST_F(nccl_ranks, find_no_window_for_other_memory) {
  arena step = of_rank(0, 1 * MiB), other = of_rank(1, 1 * MiB);
  auto const* const block = static_cast<std::byte const*>(step.allocate(1000));
  EXPECT_EQ(step.space().registrar().window_of(block + 999).offset -
                step.space().registrar().window_of(block).offset,
            999u);
  EXPECT_EQ(other.space().registrar().window_of(block), nccl_window_position{});
  EXPECT_EQ(step.space().registrar().window_of(nullptr), nccl_window_position{});
  step.release();
  EXPECT_EQ(step.space().registrar().window_of(block), nccl_window_position{});
}

// R.13
TEST_F(nccl_ranks, fail_the_test_if_their_windows_differ) {
  const std::string failures = test::failures_of([&] {
    arena step = of_rank(0, 1 * MiB), other = of_rank(1, 2 * MiB);
    nccl_.expect_the_same_on_all_ranks();
  });
  EXPECT_NE(failures.find("a window of another size than on another rank"), std::string::npos) << failures;
  EXPECT_NE(failures.find("ranks register other windows"), std::string::npos) << failures;
  nccl_.drop_windows();
}

// ---- the fake itself

TEST_F(fake_nccl_of_a_stream, finds_each_wrong_registration_and_deregistration) {
  const byte_range inside{range.begin + 4096, 4096};
  ASSERT_TRUE(registrar.on_commit(range));
  void* handle = nullptr;
  const auto deregister = [&] { (void)nccl.deregister_buffer(communicator, handle); };
  const auto lent = memory.reserve(1, 1 * MiB);
  ASSERT_EQ(nccl.register_buffer(communicator, lent, handle), nccl_status::success);
  const test::noting_work work{device, stream, lent};
  for (auto const& [words, call] : std::vector<std::pair<char const*, std::function<void()>>>{
           {"deregistered while work may use it", deregister},
           {"deregistered what is not registered", deregister},
           {"registered twice",
            [&] { (void)(registrar.on_commit(inside) && registrar.on_decommit(inside)); }},
           {"registers memory that is not there", [&] { (void)registrar.on_commit({4096, 4096}); }},
           {"freed while it is registered", [&] { memory.release(range); }},
           {"its memory went before it was deregistered", [&] { (void)registrar.on_decommit(range); }}})
    EXPECT_NE(test::failures_of(call).find(words), std::string::npos) << words;
  memory.release(lent);
}

}  // namespace
}  // namespace tidemark::test
