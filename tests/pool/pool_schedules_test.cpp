// SPDX-License-Identifier: Apache-2.0
// Strategy: every schedule of the lock-free interactions of a pool's threads, with the production classes:
// trims that others request, chains that go through the depot, counts that others read. A moment is a number
// that increases with each request and each trim, in their real order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/depot.hpp>

#include "faulty_sync.hpp"
#include "schedules.hpp"

namespace tidemark::detail {
namespace {

using namespace test;

// ---- trims that other threads request ---------------------------------------------------------------------

/// Records requested and executed trims with their order.
class trim_record {
 public:
  void request(std::size_t target) { requests_.push_back({target, next()}); }
  void trim(std::size_t target) { trims_.push_back({target, next()}); }
  /// A request for which there was no trim to its target or less after it.
  std::string lost() const {
    for (event const& request : requests_) {
      const bool is_served = std::ranges::any_of(trims_, [&](event const& trim) {
        return trim.target <= request.target && trim.moment > request.moment;
      });
      if (!is_served) return "a trim is lost";
    }
    return "";
  }

 private:
  struct event {
    std::size_t target;
    unsigned moment;
  };
  unsigned next() { return now_.fetch_add(1U, std::memory_order_relaxed); }

  std::vector<event> requests_, trims_;
  explored_sync::atomic<unsigned> now_;
};

constexpr std::size_t max_align = 16;

/// A cache to which two threads post trims while its owner works, and the operations of its last call.
template <class Sync>
struct trimmed_cache {
  basic_pending_work<Sync> work{max_align};
  trim_record record;

  void post_trim(std::size_t target) {
    record.request(target);
    work.post_trim(target);
  }
  // As the slow path.
  void call() {
    if (work.serves(8)) return;
    if (!work.consume(max_align)) return;
    trim();
  }
  void trim() {
    if (const std::size_t target = work.consume_trim(); target != pending_work::no_trim) record.trim(target);
  }
};

template <class Sync>
program posts_trims() {
  const auto cache = std::make_shared<trimmed_cache<Sync>>();
  const auto owner = [=] {
    for (int i = 0; i < 2; ++i) cache->call();
  };
  return program{{owner, [=] { cache->post_trim(5); }, [=] { cache->post_trim(3); }}, [=] {
                   cache->call();
                   return cache->record.lost();
                 }};
}

// E.8
TEST(pool_schedules, lose_no_trim_that_others_post) {
  expect_every_schedule_passes(posts_trims<explored_sync>, 100);
}

TEST(pool_schedules, lose_a_trim_if_an_exchange_takes_two_steps) {
  expect_failure(posts_trims<faulty_sync<fault::split_updates>>, "a trim is lost");
}

TEST(pool_schedules, lose_a_trim_if_a_stale_target_is_read) {
  expect_failure(posts_trims<faulty_sync<fault::no_acquire>>, "a trim is lost");
}

TEST(pool_schedules, lose_a_trim_that_is_cleared_before_the_work) {
  const auto make = [] {
    const auto cache = std::make_shared<trimmed_cache<explored_sync>>();
    const auto owner = [=] {
      cache->trim();
      (void)cache->work.consume(max_align);
    };
    return program{{owner, [=] { cache->post_trim(5); }}, [=] {
                     cache->call();
                     return cache->record.lost();
                   }};
  };
  expect_failure(make, "a trim is lost");
}

// A thread without a cache trims the depot, while others request trims.
template <class Sync>
program requests_trims_of_the_depot() {
  struct depot_trims {
    basic_pending_work<Sync> work{max_align};
    trim_record record;
    void request(std::size_t target) {
      record.request(target);
      work.post_trim(target);
    }
    void trim(std::size_t target) {
      work.remove_served_trim(target);
      record.trim(target);
    }
  };
  const auto depot = std::make_shared<depot_trims>();
  const auto trims = [=] {
    depot->request(5);
    depot->trim(5);
  };
  const auto requests = [=] {
    depot->request(0);
    depot->request(5);
  };
  return program{{trims, requests}, [=] {
                   // The next thread that comes performs the rest.
                   if (const std::size_t left = depot->work.consume_trim(); left != pending_work::no_trim)
                     depot->record.trim(left);
                   return depot->record.lost();
                 }};
}

TEST(pool_schedules, lose_no_trim_posted_during_a_depot_trim) {
  expect_every_schedule_passes(requests_trims_of_the_depot<explored_sync>, 100);
}

// This fault existed: a thread compared the least target with its own, and wrote `none` over a newer target.
TEST(pool_schedules, lose_a_trim_that_another_trim_overwrites) {
  expect_failure(requests_trims_of_the_depot<faulty_sync<fault::split_updates>>, "a trim is lost");
}

// ---- chains that go through the depot ---------------------------------------------------------------------

struct alignas(chain_stack::min_block_bytes) block {
  std::byte bytes[chain_stack::min_block_bytes];
};
std::array<block, 5> blocks;  // addresses that are the same in each run

block_chain chain_of(std::size_t first, std::size_t n) {
  block_chain chain;
  for (std::size_t i = first; i < first + n; ++i) {
    auto* const freed = reinterpret_cast<free_block*>(&blocks[i]);
    link(freed, chain.first);
    chain = {freed, chain.blocks + 1};
  }
  return chain;
}

/// A bin, and how often each block was taken out.
template <class Sync>
struct watched_bin {
  basic_depot_bin<Sync> bin;
  std::array<int, blocks.size()> taken{};

  void record_popped(block_chain chain) {
    std::size_t n = 0;
    for (free_block* each = chain.first; each != nullptr; each = next_of(each), ++n)
      ++taken[static_cast<std::size_t>(reinterpret_cast<block*>(each) - blocks.data())];
    test::require(n == chain.blocks, "a chain is as long as it says");
  }
  std::string lost() {
    while (bin.blocks() > 0) record_popped(bin.pop_chain());
    return std::ranges::all_of(taken, [](int times) { return times == 1; })
               ? ""
               : "a block is lost, or was taken twice";
  }
};

template <class Sync>
program passes_chains() {
  const auto watched = std::make_shared<watched_bin<Sync>>();
  watched->bin.push_chain(chain_of(0, 2));
  const auto pushes_and_pops = [=] {
    watched->bin.push_chain(chain_of(2, 1));
    watched->record_popped(watched->bin.pop_chain());
  };
  const auto leaves = [=] { watched->bin.push_chain(chain_of(3, 2)); };
  const auto pops_two = [=] {
    for (int i = 0; i < 2; ++i) watched->record_popped(watched->bin.pop_chain());
  };
  return program{{pushes_and_pops, leaves, pops_two}, [=] { return watched->lost(); }};
}

// E.8
TEST(pool_schedules, pass_each_block_through_the_depot_once) {
  expect_every_schedule_passes(passes_chains<explored_sync>, 15);
}

TEST(pool_schedules, lose_depot_blocks_without_the_lock) {
  expect_failure(passes_chains<faulty_sync<fault::no_locks>>, "a block is lost, or was taken twice");
}

// ---- counts that others read ------------------------------------------------------------------------------

enum class reading { deallocations_first, allocations_first };
/// One thread allocates and gives the block to another, which deallocates it; a third reads their counts.
template <class Sync>
program counts_blocks(reading order) {
  struct counts {
    single_writer<std::uint64_t, Sync> allocations, deallocations;
    explored_sync::atomic<int> block{0};
  };
  const auto of = std::make_shared<counts>();
  const auto allocates = [=] {
    for (int i = 1; i <= 2; ++i) {
      of->allocations.add(1);
      of->block.store(i, std::memory_order_release);
    }
  };
  const auto deallocates = [=] {
    for (int done = of->block.load(std::memory_order_acquire); done > 0; --done) of->deallocations.add(1);
  };
  const auto reads = [=] {
    const bool is_early = order == reading::allocations_first;
    const std::uint64_t early = is_early ? of->allocations.value() : 0;
    const std::uint64_t gone = of->deallocations.value();
    const std::uint64_t all = is_early ? early : of->allocations.value();
    test::require(gone <= all, "no difference is negative");
  };
  return program{{allocates, deallocates, reads}};
}

TEST(pool_schedules, read_no_more_deallocations_than_allocations) {
  expect_every_schedule_passes([] { return counts_blocks<explored_sync>(reading::deallocations_first); }, 10);
}

TEST(pool_schedules, read_too_many_deallocations_in_the_wrong_order) {
  constexpr char const* failure = "no difference is negative";
  expect_failure([] { return counts_blocks<explored_sync>(reading::allocations_first); }, failure);
  expect_failure([] { return counts_blocks<faulty_sync<fault::no_release>>(reading::deallocations_first); },
                 failure);
  expect_failure([] { return counts_blocks<faulty_sync<fault::no_acquire>>(reading::deallocations_first); },
                 failure);
}

}  // namespace
}  // namespace tidemark::detail
