// SPDX-License-Identifier: Apache-2.0
// Strategy: all ranks run each test, with watched calls of MPI (mpi_calls.hpp). One rank writes, and another
// reads in place. Each call may fail, on all ranks at once.
#include <tidemark/mpi.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/registered_memory.hpp>
#include <tidemark/graph/rehearse.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "caught.hpp"
#include "mpi_calls.hpp"
#include "warning_recorder.hpp"

namespace tidemark::mpi {
namespace {

using test::mpi_calls;
using window_memory = registered_memory<virtual_memory, window_registrar>;
using window_arena = basic_arena<window_memory>;

int rank_of(MPI_Comm comm = MPI_COMM_WORLD) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}
int ranks_of(MPI_Comm comm = MPI_COMM_WORLD) {
  int ranks = 0;
  MPI_Comm_size(comm, &ranks);
  return ranks;
}

/// Expects that everything made in a test is gone at its end.
class mpi_test : public testing::Test {
 protected:
  mpi_test() { calls_.reset(); }
  ~mpi_test() override {
    calls_.reset();
    EXPECT_EQ(calls_.windows, windows_);
    EXPECT_EQ(calls_.blocks, blocks_);
    EXPECT_EQ(calls_.attached, attached_);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  mpi_calls& calls_ = mpi_calls::instance();
  int rank_ = rank_of(), ranks_ = ranks_of();
  int right_ = (rank_ + 1) % ranks_, left_ = (rank_ + ranks_ - 1) % ranks_;
  long windows_ = calls_.windows, blocks_ = calls_.blocks, attached_ = calls_.attached;
};

using mpi_errors = mpi_test;
using mpi_blocks = mpi_test;
using mpi_window = mpi_test;
using mpi_shared_window = mpi_test;
using mpi_layout = mpi_test;
using mpi_allreduce = mpi_test;

// ---- errors

// R.8
TEST_F(mpi_errors, carries_the_text_and_the_class_of_mpi) {
  const mpi_error error{"MPI_Alloc_mem", MPI_ERR_NO_MEM};
  EXPECT_EQ(std::string{error.what()}.find("MPI_Alloc_mem: "), 0u) << error.what();
  EXPECT_GT(std::string{error.what()}.size(), std::string{"MPI_Alloc_mem: "}.size() + 5);
  EXPECT_EQ(error.code(), MPI_ERR_NO_MEM);
  EXPECT_EQ(error.error_class(), MPI_ERR_NO_MEM);
}

// The default handler ends the program.
TEST_F(mpi_errors, fatal_communicator_throws_and_keeps_its_handler) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
  std::array<int, 2> elements{};
  EXPECT_THROW((persistent_allreduce<std::int32_t>{comm, elements, MPI_OP_NULL}), mpi_error);
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(comm, &handler);
  EXPECT_EQ(handler, MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&comm);
}

// A split gives it to ranks that are in no part.
TEST_F(mpi_errors, is_thrown_for_the_null_communicator) {
  std::array<std::int32_t, 2> elements{};
  EXPECT_THROW((void)same_layout(MPI_COMM_NULL, graph_layout{}), std::invalid_argument);
  EXPECT_THROW(dynamic_window{MPI_COMM_NULL}, std::invalid_argument);
  EXPECT_THROW((shared_window_memory{MPI_COMM_NULL, 1}), std::invalid_argument);
  EXPECT_THROW((persistent_allreduce<std::int32_t>{MPI_COMM_NULL, elements}), std::invalid_argument);
}

TEST_F(mpi_errors, concurrent_calls_restore_the_error_handlers_of_the_process) {
  const auto many = [] {
    for (int i = 0; i < 10'000; ++i) const detail::returned_errors_of_process returned;
  };
  std::thread other{many};
  many();
  other.join();
  for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(comm, &handler);
    EXPECT_EQ(handler, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
  }
}

// ---- MPI_Alloc_mem

// R.4
TEST_F(mpi_blocks, serve_an_arena_and_are_returned_to_mpi) {
  {
    basic_arena<mpi_memory> buffers{{.reserve = 64 * KiB, .name = "halo"}, mpi_memory{}};
    for (int step = 0; step < 3; ++step) {
      basic_arena<mpi_memory>::scope scope{buffers};
      auto const mine = buffers.push_array<int>(1000), theirs = buffers.push_array<int>(1000);
      std::iota(mine.begin(), mine.end(), rank_);
      MPI_Sendrecv(mine.data(), 1000, MPI_INT, right_, 0, theirs.data(), 1000, MPI_INT, left_, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      EXPECT_EQ(theirs[0], left_);
      EXPECT_EQ(theirs[999], left_ + 999);
      (void)buffers.allocate(100 * KiB);
    }
    EXPECT_EQ(calls_.count["MPI_Alloc_mem"], 2u);
    EXPECT_EQ(calls_.count["MPI_Free_mem"], 0u);
  }
  EXPECT_EQ(calls_.count["MPI_Free_mem"], 2u);
}

TEST_F(mpi_blocks, halves_refused_requests_down_to_the_minimum) {
  calls_.fail_from = 0;
  calls_.fail_count = 6;
  basic_arena<mpi_memory> buffers{{.reserve = 64 * KiB}, mpi_memory{}};
  EXPECT_NE(buffers.allocate(1000), nullptr);
  EXPECT_LT(buffers.stats().reserved_bytes, 2000u);
}

TEST_F(mpi_blocks, out_of_memory_message_states_that_mpi_is_not_running) {
  basic_arena<mpi_memory> buffers{{.name = "halo"}, mpi_memory{}};
  calls_.is_finalized = true;
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)buffers.allocate(1); });
  EXPECT_NE(std::string{error.what()}.find("MPI is not running"), std::string::npos) << error.what();
  calls_.is_finalized = false;
}

TEST_F(mpi_blocks, warns_about_memory_that_it_cannot_return) {
  test::warning_recorder warnings;
  mpi_memory memory;
  const byte_range chunk = memory.reserve(1000, 1000);
  calls_.is_finalized = true;
  memory.release(chunk);
  calls_.is_finalized = false;
  calls_.fail_from = calls_.calls;
  memory.release(chunk);
  ASSERT_EQ(warnings.reports().size(), 2u);
  for (auto const& report : warnings.reports()) EXPECT_EQ(report.kind, warning_kind::refused_return);
  EXPECT_EQ(warnings.reports()[0].message,
            "mpi_memory: 1000 bytes are lost until the process ends: MPI is not running");
  EXPECT_EQ(warnings.reports()[1].message.find(
                "mpi_memory: 1000 bytes are lost until the process ends: MPI refused it: "),
            0u)
      << warnings.reports()[1].message;
  memory.release(chunk);
}

// ---- dynamic windows

TEST_F(mpi_window, follows_its_documented_example) {
  namespace mpi = tidemark::mpi;
  // clang-format off: as in docs/distributed.md
  mpi::dynamic_window window{MPI_COMM_WORLD};
  // with `import tidemark.mpi;` too: #include <mpi.h>, since a module exports no macros
  basic_arena<registered_memory<virtual_memory, mpi::window_registrar>> step{
      {.reserve = 64 * MiB, .name = "halo"}, virtual_memory{}, mpi::window_registrar{window}};
  // clang-format on
  EXPECT_EQ(step.push_array<double>(8)[7], 0.0);
}

// R.5
TEST_F(mpi_window, peers_put_and_get_at_the_same_arena_addresses_in_each_step) {
  dynamic_window window{MPI_COMM_WORLD};
  window_arena step{window_memory{window_registrar{window}}, {.reserve = 1 * MiB, .name = "halo"}};
  std::vector<MPI_Aint> addresses;
  for (int i = 0; i < 5; ++i) {
    window_arena::scope scope{step};
    auto const inbox = step.push_array<int>(100);
    auto const outbox = step.push_array<int>(100);
    auto const fetched = step.push_array<int>(100);
    std::fill(outbox.begin(), outbox.end(), 1000 * i + rank_);
    const MPI_Aint mine = displacement(inbox.data());
    if (i == 0) {
      addresses.resize(static_cast<std::size_t>(ranks_));
      MPI_Allgather(&mine, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD);
    }
    EXPECT_EQ(addresses[static_cast<std::size_t>(rank_)], mine)
        << "the address is not that of the first step";
    const MPI_Aint of_right = addresses[static_cast<std::size_t>(right_)];
    MPI_Win_fence(0, window.get());
    ASSERT_EQ(MPI_Put(outbox.data(), 100, MPI_INT, right_, of_right, 100, MPI_INT, window.get()),
              MPI_SUCCESS);
    MPI_Win_fence(0, window.get());
    EXPECT_EQ(inbox[0], 1000 * i + left_);
    EXPECT_EQ(inbox[99], 1000 * i + left_);
    ASSERT_EQ(MPI_Get(fetched.data(), 100, MPI_INT, right_, of_right, 100, MPI_INT, window.get()),
              MPI_SUCCESS);
    MPI_Win_fence(0, window.get());
    EXPECT_EQ(fetched[99], 1000 * i + rank_);
  }
  EXPECT_EQ(calls_.count["MPI_Win_attach"], 1u);
  EXPECT_EQ(calls_.count["MPI_Win_detach"], 0u);
  MPI_Barrier(MPI_COMM_WORLD);
}

// R.5
TEST_F(mpi_window, leaves_an_arena_unchanged_if_mpi_refuses_to_attach) {
  dynamic_window window{MPI_COMM_WORLD};
  window_arena step{window_memory{window_registrar{window}}, {.reserve = 64 * KiB, .name = "halo"}};
  (void)step.allocate(1000);
  const arena_stats before = step.stats();
  calls_.fails = "MPI_Win_attach";
  calls_.fail_from = calls_.calls;
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)step.allocate(1 * MiB); });
  EXPECT_NE(std::string{error.what()}.find("; MPI refused it: "), std::string::npos) << error.what();
  EXPECT_EQ(step.stats().used_bytes, before.used_bytes);
  EXPECT_EQ(step.stats().reserved_bytes, before.reserved_bytes);
  EXPECT_EQ(calls_.attached, attached_ + 1);
  EXPECT_NE(step.allocate(1 * MiB), nullptr);
}

// R.5
TEST_F(mpi_window, keeps_memory_that_mpi_does_not_detach_and_warns) {
  test::warning_recorder warnings;
  dynamic_window window{MPI_COMM_WORLD};
  byte_range range;
  {
    window_memory memory{window_registrar{window}};
    range = memory.reserve(64 * KiB, 64 * KiB);
    calls_.fails = "MPI_Win_detach";
    calls_.fail_from = calls_.calls;
    memory.release(range);
  }
  ASSERT_EQ(warnings.reports().size(), 1u);
  EXPECT_EQ(warnings.reports()[0].kind, warning_kind::refused_return);
  EXPECT_NE(warnings.reports()[0].message.find("because they cannot be deregistered: MPI refused it: "),
            std::string::npos);
  *static_cast<char volatile*>(range.data()) = 1;  // a peer may still write there
  EXPECT_EQ(MPI_Win_detach(window.get(), range.data()), MPI_SUCCESS);
  virtual_memory{}.release(range);
}

TEST_F(mpi_window, moves_and_is_freed_once) {
  std::optional<dynamic_window> kept;
  {
    dynamic_window first{MPI_COMM_WORLD};
    const MPI_Win window = first.get();
    kept.emplace(std::move(first));
    EXPECT_EQ(kept->get(), window);
  }
  EXPECT_EQ(calls_.windows, windows_ + 1);
  dynamic_window second{MPI_COMM_WORLD};
  *kept = std::move(second);
  kept.reset();
}

TEST_F(mpi_window, throws_the_error_of_mpi) {
  calls_.fails = "MPI_Win_create_dynamic";
  calls_.fail_from = calls_.calls;
  EXPECT_THROW(dynamic_window{MPI_COMM_WORLD}, mpi_error);
}

// ---- shared windows

// R.4
TEST_F(mpi_shared_window, is_read_in_place_by_the_other_ranks_of_the_machine) {
  shared_window_memory shared{MPI_COMM_WORLD, 1 * MiB};
  const MPI_Win window = shared.get();
  const byte_range of_left = shared.part_of(left_), mine = shared.part_of(rank_);
  EXPECT_EQ(of_left.size, 1 * MiB);
  basic_arena<shared_window_memory> halo{std::move(shared), {.name = "halo"}};
  for (int step = 0; step < 3; ++step) {
    basic_arena<shared_window_memory>::scope scope{halo};
    auto const values = halo.push_array<int>(1000);
    EXPECT_TRUE(mine.contains(reinterpret_cast<std::uintptr_t>(values.data())));
    std::iota(values.begin(), values.end(), 10 * step + rank_);
    const auto offset = reinterpret_cast<std::uintptr_t>(values.data()) - mine.begin;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window);
    auto const* const theirs = reinterpret_cast<int const*>(of_left.begin + offset);
    EXPECT_EQ(theirs[0], 10 * step + left_);
    EXPECT_EQ(theirs[999], 10 * step + left_ + 999);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
  }
  EXPECT_THROW((void)halo.allocate(2 * MiB), out_of_memory);
  halo.release();
  EXPECT_NE(halo.allocate(1 * MiB - 64), nullptr);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_F(mpi_shared_window, supports_parts_of_any_size) {
  shared_window_memory shared{MPI_COMM_WORLD, static_cast<std::size_t>(rank_ + 1) * 64 * KiB};
  for (int rank = 0; rank < ranks_; ++rank)
    EXPECT_EQ(shared.part_of(rank).size, static_cast<std::size_t>(rank + 1) * 64 * KiB);
  EXPECT_THROW((void)shared.part_of(ranks_), mpi_error);
}

// R.4
TEST_F(mpi_shared_window, refuses_impossible_sizes_on_all_ranks) {
  const std::size_t bytes = rank_ == 0 ? std::size_t(-1) : 64 * KiB;
  EXPECT_THROW((shared_window_memory{MPI_COMM_WORLD, bytes}), std::invalid_argument);
}

// R.8
TEST_F(mpi_shared_window, throws_the_error_of_each_mpi_call) {
  for (char const* function : {"MPI_Comm_split_type", "MPI_Allreduce", "MPI_Win_allocate_shared"}) {
    calls_.reset();
    calls_.fails = function;
    calls_.fail_from = 0;
    EXPECT_TRUE(test::message_of<mpi_error>([] {
                  shared_window_memory{MPI_COMM_WORLD, 64 * KiB};
                }).starts_with(function));
    EXPECT_EQ(calls_.windows, windows_);
  }
}

TEST_F(mpi_shared_window, moves_and_is_freed_once) {
  shared_window_memory first{MPI_COMM_WORLD, 64 * KiB};
  const byte_range part = first.part_of(rank_);
  shared_window_memory second{std::move(first)};
  EXPECT_EQ(first.get(), MPI_WIN_NULL);
  EXPECT_THROW((void)first.part_of(0), std::logic_error);
  EXPECT_EQ(second.part_of(rank_), part);
  EXPECT_EQ(second.reserve(1, 1), part);
  EXPECT_TRUE(second.reserve(1, 1).empty());
  shared_window_memory third{MPI_COMM_WORLD, 64 * KiB};
  third = std::move(second);
}

// ---- layouts

step_plan recorded_plan(std::size_t blocks, std::size_t bytes_of_last) {
  planned_arena memory;
  {
    planned_arena::step step{memory};
    std::vector<std::pair<void*, std::size_t>> live;
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::size_t bytes = i + 1 == blocks ? bytes_of_last : 1000;
      live.emplace_back(memory.allocate(bytes), bytes);
    }
    for (auto const& [block, bytes] : live) memory.deallocate(block, bytes);
  }
  return memory.plans().at(0);
}

// R.6
TEST_F(mpi_layout, is_equal_on_ranks_with_equal_allocations) {
  const layout_comparison found = same_layout(MPI_COMM_WORLD, recorded_plan(20, 1000));
  EXPECT_TRUE(found);
  EXPECT_EQ(found.rank, -1);
  EXPECT_EQ(found.difference, "");
  EXPECT_EQ(calls_.count["MPI_Allreduce"], 1u) << "more than one reduction for plans that are the same";
  EXPECT_EQ(calls_.count["MPI_Bcast"], 0u);
}

// R.6
TEST_F(mpi_layout, names_the_rank_and_the_block_that_differ_on_all_ranks) {
  const layout_comparison found =
      same_layout(MPI_COMM_WORLD, recorded_plan(20, rank_ == ranks_ - 1 ? 3000u : 1000u));
  EXPECT_FALSE(found);
  EXPECT_EQ(found.rank, ranks_ - 1);
  EXPECT_EQ(found.difference,
            "rank " + std::to_string(ranks_ - 1) + " has 3000 as the size of block 19, and rank 0 has 1000");
}

TEST_F(mpi_layout, names_the_first_offset_that_differs_or_is_missing_on_a_rank) {
  const auto offsets = [](std::size_t n, std::size_t changed = 0, std::size_t value = 0) {
    std::vector<std::size_t> those(n);
    std::iota(those.begin(), those.end(), 0u);
    those[changed] = value;
    return those;
  };
  constexpr std::size_t many = 3'000'000;  // more than one message holds
  const std::tuple<std::vector<std::size_t>, std::vector<std::size_t>, char const*> cases[] = {
      {offsets(100), offsets(100, 17, 4096), "rank 1 has 4096 as offset 17, and rank 0 has 17"},
      {offsets(3), offsets(2), "rank 1 has nothing as offset 2, and rank 0 has 2"},
      {offsets(2), offsets(3), "rank 1 has 2 as offset 2, and rank 0 has nothing"},
      {offsets(many), offsets(many, 2'500'000, 1), "rank 1 has 1 as offset 2500000, and rank 0 has 2500000"}};
  for (auto const& [of_others, of_rank_1, difference] : cases) {
    const layout_comparison found = same_layout(MPI_COMM_WORLD, rank_ == 1 ? of_rank_1 : of_others);
    EXPECT_EQ(found.rank, 1);
    EXPECT_EQ(found.difference, difference);
  }
}

// R.6
TEST_F(mpi_layout, compares_rehearsals) {
  const auto body = [&](std::pmr::memory_resource& memory) {
    for (int i = 0; i < 3 + (rank_ == 1); ++i) {
      void* const block = memory.allocate(1000);
      memory.deallocate(block, 1000);
    }
  };
  EXPECT_EQ(same_layout(MPI_COMM_WORLD, rehearse(body)).difference,
            "rank 1 has 4 as the number of blocks, and rank 0 has 3");
  const auto same = [](std::pmr::memory_resource& memory) { memory.deallocate(memory.allocate(1000), 1000); };
  EXPECT_TRUE(same_layout(MPI_COMM_WORLD, rehearse(same)));
}

TEST_F(mpi_layout, throws_the_error_of_each_mpi_call) {
  const std::vector<std::size_t> offsets{static_cast<std::size_t>(rank_)};
  constexpr std::size_t calls = 5;
  for (std::size_t call = 0; call < calls; ++call) {
    calls_.reset();
    calls_.fail_from = call;
    EXPECT_THROW((void)same_layout(MPI_COMM_WORLD, offsets), mpi_error) << call;
  }
  calls_.reset();
  EXPECT_FALSE(same_layout(MPI_COMM_WORLD, offsets));
  EXPECT_EQ(calls_.calls, calls);
}

// ---- persistent collectives

// R.7
TEST_F(mpi_allreduce, sums_the_same_memory_in_each_step) {
  planned_arena memory;
  std::optional<persistent_allreduce<double>> sum;
  for (int i = 0; i < 4; ++i) {
    planned_arena::step step{memory};
    auto* const first = static_cast<double*>(memory.allocate(100 * sizeof(double)));
    const std::span<double> gradients{first, 100};
    std::fill(gradients.begin(), gradients.end(), rank_ + i);
    if (i == 1) sum.emplace(MPI_COMM_WORLD, gradients);  // the first step by its plan
    if (sum) {
      sum->start(gradients);
      sum->wait();
      const double expected = ranks_ * (ranks_ - 1) / 2.0 + ranks_ * i;
      EXPECT_EQ(gradients[0], expected);
      EXPECT_EQ(gradients[99], expected);
    }
    memory.deallocate(first, 100 * sizeof(double));
  }
  EXPECT_EQ(calls_.count["MPI_Allreduce_init"], 1u);
  EXPECT_EQ(calls_.count["MPI_Start"], 3u);
}

// R.7
TEST_F(mpi_allreduce, rejects_memory_at_other_addresses_and_starts_nothing) {
  std::array<float, 8> elements{}, others{};
  persistent_allreduce<float> sum{MPI_COMM_WORLD, elements};
  const std::logic_error error = test::caught<std::logic_error>([&] { sum.start(others); });
  EXPECT_EQ(std::string{error.what()}.find(
                "persistent_allreduce: start: the elements have moved: it was set up for 8 elements at "),
            0u)
      << error.what();
  EXPECT_THROW(sum.start(std::span{elements}.first(7)), std::logic_error);
  EXPECT_EQ(calls_.count["MPI_Start"], 0u);
  elements.fill(1);
  sum.start(elements);
  EXPECT_THROW(sum.start(elements), std::logic_error);
  sum.wait();
  sum.wait();
  EXPECT_EQ(elements[7], static_cast<float>(ranks_));
}

TEST_F(mpi_allreduce, reduces_each_type_by_any_operation) {
  const auto largest = [&](auto value) {
    std::array elements{value};
    persistent_allreduce<decltype(value)> found{MPI_COMM_WORLD, elements, MPI_MAX};
    found.start(elements);
    found.wait();
    return elements[0];
  };
  EXPECT_EQ(largest(static_cast<float>(rank_)), static_cast<float>(ranks_ - 1));
  EXPECT_EQ(largest(static_cast<double>(rank_)), ranks_ - 1);
  EXPECT_EQ(largest(static_cast<std::int32_t>(rank_)), ranks_ - 1);
  EXPECT_EQ(largest(static_cast<std::int64_t>(rank_)), ranks_ - 1);
}

// R.7
TEST_F(mpi_allreduce, destructor_waits_and_move_transfers_the_request) {
  std::array<float, 8> elements;
  elements.fill(1);
  {
    persistent_allreduce<float> first{MPI_COMM_WORLD, elements};
    persistent_allreduce<float> sum{std::move(first)};
    EXPECT_THROW(first.start({}), std::logic_error);
    sum.start(elements);
  }
  EXPECT_EQ(elements[0], static_cast<float>(ranks_));
}

TEST_F(mpi_allreduce, throws_the_error_of_each_mpi_call) {
  std::array<float, 8> elements{};
  calls_.fail_from = 0;
  EXPECT_THROW((persistent_allreduce<float>{MPI_COMM_WORLD, elements}), mpi_error);
  persistent_allreduce<float> sum{MPI_COMM_WORLD, elements};
  calls_.fail_from = calls_.calls;
  EXPECT_THROW(sum.start(elements), mpi_error);
  sum.start(elements);
  sum.wait();
  sum.start(elements);
  calls_.fails = "MPI_Wait";
  calls_.fail_from = calls_.calls;
  EXPECT_THROW(sum.wait(), mpi_error);
}

}  // namespace
}  // namespace tidemark::mpi

// All ranks wait in a reduction on an arena's memory for the last one, which is killed or throws.
void wait_for_lost_rank(bool throws) {
  using namespace tidemark::mpi;
  dynamic_window window{MPI_COMM_WORLD};
  window_arena step{window_memory{window_registrar{window}},
                    {.reserve = 1 * tidemark::MiB, .name = "gradients"}};
  auto const gradients = step.push_array<double>(1000);
  persistent_allreduce<double> sum{MPI_COMM_WORLD, gradients};
  if (rank_of() == ranks_of() - 1) {
    std::puts("ready to be lost");
    std::fflush(stdout);
    if (throws) throw std::runtime_error{"lost"};
    std::raise(SIGKILL);
  }
  sum.start(gradients);
  sum.wait();
  std::puts("went on");
}

// All ranks run the tests in one order. The first rank prints; the others print only their failures.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) {  // by one rank, without MPI
    for (char const* variable : {"PMI_RANK", "OMPI_COMM_WORLD_RANK"})
      if (char const* const rank = std::getenv(variable); rank != nullptr && std::string_view{rank} != "0")
        return 0;
    return RUN_ALL_TESTS();
  }
  MPI_Init(&argc, &argv);
  if (argc > 1) {  // --lose-last-rank=killed or thrown
    try {
      wait_for_lost_rank(std::string_view{argv[1]}.ends_with("=thrown"));
    } catch (std::runtime_error const&) {
      return 1;  // without MPI_Finalize, which would wait for the others
    }
    MPI_Finalize();
    return 0;
  }
  if (tidemark::mpi::rank_of() != 0) GTEST_FLAG_SET(brief, true);
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
