// SPDX-License-Identifier: Apache-2.0
// Strategy: every schedule of the lock-free interactions of an epoch_resource's threads, with the production
// classes: the filter of addresses, the table that finds their records, and the records themselves.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string_view>

#include <tidemark/epoch/detail/address_table.hpp>
#include <tidemark/epoch/detail/tracked_block.hpp>

#include "faulty_sync.hpp"
#include "schedules.hpp"

namespace tidemark::detail {
namespace {

using namespace test;

// ---- the filter -------------------------------------------------------------------------------------------

/// Two addresses of one hash: one thread inserts and erases the first, another inserts the second and passes
/// it on to a third.
template <class Sync>
program filter_addresses(unsigned before) {
  struct state {
    basic_counting_filter<Sync, 1> filter;
    explored_sync::atomic<bool> passed_on{false};
  };
  constexpr std::uintptr_t address = 4096;  // twice, as two of one hash
  const auto one = std::make_shared<state>();
  for (unsigned i = 0; i < before; ++i) one->filter.insert(address);
  const auto inserts_and_erases = [=] {
    one->filter.insert(address);
    one->filter.erase(address);
  };
  const auto stays = [=] {
    one->filter.insert(address);
    one->passed_on.store(true, std::memory_order_release);
  };
  const auto deallocates = [=] {
    if (!one->passed_on.load(std::memory_order_acquire)) return;
    test::require(!one->filter.is_empty(), "an address is in a filter that seems empty");
    test::require(one->filter.count(address) != 0, "an address that is in the filter is not found");
  };
  return program{{inserts_and_erases, stays, deallocates}, [=] {
                   const bool is_found = !one->filter.is_empty() && one->filter.count(address) != 0;
                   return is_found ? "" : "an address is lost";
                 }};
}

TEST(epoch_schedules, find_an_address_while_others_change_its_hash_bucket) {
  expect_every_schedule_passes([] { return filter_addresses<explored_sync>(0); }, 20);
}

TEST(epoch_schedules, find_an_address_whose_hash_count_is_saturated) {
  expect_every_schedule_passes([] { return filter_addresses<explored_sync>(254); }, 20);
}

TEST(epoch_schedules, are_found_to_lose_an_address_by_a_non_atomic_count) {
  expect_failure([] { return filter_addresses<faulty_sync<fault::split_updates>>(0); }, "an address");
}

// ---- the table --------------------------------------------------------------------------------------------

struct record {
  explicit record(std::uintptr_t where) : address{where}, content{where} {}
  std::uintptr_t const address;
  explored_sync::shared<std::uintptr_t> content;
};

/// A table that grows by one more address. Two threads add addresses, one of them the same, and one thread
/// looks up an earlier address.
template <class Sync>
program add_addresses(std::uintptr_t before) {
  struct state {
    address_table<record, 4, Sync> table{std::pmr::new_delete_resource()};
    record* added[2] = {};
  };
  const auto one = std::make_shared<state>();
  for (std::uintptr_t i = 1; i <= before; ++i) (void)one->table.find_or_add(16 * i);
  constexpr std::uintptr_t first_new = 16 * 100;
  const auto add = [=](std::size_t i) {
    return [=] {
      one->added[i] = &one->table.find_or_add(first_new);
      test::require(one->added[i]->content == first_new, "a record is that of its address");
    };
  };
  const auto find = [=] {
    record const* const old = one->table.find(16);
    test::require(before == 0 || old != nullptr, "an address from before is found");
    record const* const found = one->table.find(first_new);
    test::require(found == nullptr || found->content == first_new, "a record is that of its address");
  };
  return program{{add(0), add(1), find},
                 [=] { return one->added[0] == one->added[1] ? "" : "an address has two records"; }};
}

TEST(epoch_schedules, find_complete_records_while_others_add_the_first) {
  expect_every_schedule_passes([] { return add_addresses<explored_sync>(0); }, 10);
}

TEST(epoch_schedules, find_complete_records_while_the_table_grows) {
  expect_every_schedule_passes([] { return add_addresses<explored_sync>(32); }, 20);
}

TEST(epoch_schedules, are_found_to_read_half_a_record_without_memory_order) {
  expect_failure([] { return add_addresses<faulty_sync<fault::no_release>>(32); }, "race on shared");
  expect_failure([] { return add_addresses<faulty_sync<fault::no_acquire>>(32); }, "race on shared");
}

TEST(epoch_schedules, are_found_to_add_an_address_twice_without_the_lock) {
  expect_failure([] { return add_addresses<faulty_sync<fault::no_locks>>(2); }, "an address has two records");
}

// ---- records of blocks ------------------------------------------------------------------------------------

/// A synthetic group: tests compare groups and never access them.
block_group* group(std::uintptr_t number) { return reinterpret_cast<block_group*>(64 * number); }
constexpr char const* first_epoch = "first";
constexpr char const* second_epoch = "second";

/// A block that an epoch has reclaimed. Its address is allocated again and reclaimed by another epoch, while
/// a handle on the first block asks for the reclaiming epoch.
template <class Sync>
program query_reclaimer() {
  const auto block = std::make_shared<basic_tracked_block<Sync>>(4096);
  block->set_owner(group(1), 7, 64, block_state{1, 16, block_status::tracked});
  block->reclaim({first_epoch, 3}, block->load());
  const auto allocates_again = [=] {
    const block_state before = block->load();
    block->store(before.ended_as(block_status::untracked));
    block->set_owner(group(1), 9, 64, block_state{before.generation() + 2, 16, block_status::tracked});
    block->move_to(8);
    block->reclaim({second_epoch, 5}, block->load());
  };
  const auto asks = [=] {
    const std::optional<ending> how = block->how_reclaimed(1);
    test::require(!how || (how->name == std::string_view{first_epoch} && how->depth == 3),
                  "another epoch is said to have reclaimed it");
  };
  return program{{allocates_again, asks}};
}

TEST(epoch_schedules, name_the_reclaiming_epoch_or_no_epoch) {
  expect_every_schedule_passes(query_reclaimer<explored_sync>, 10);
}

// They did: the name and the depth were relaxed, so that a later one could be read between two equal states.
TEST(epoch_schedules, are_found_to_name_a_wrong_epoch_without_memory_order) {
  constexpr char const* failure = "another epoch is said to have reclaimed it";
  expect_failure(query_reclaimer<faulty_sync<fault::no_release>>, failure);
  expect_failure(query_reclaimer<faulty_sync<fault::no_acquire>>, failure);
}

enum class checking { with_the_lock, before_the_lock };
/// A block whose epoch ends while two threads deallocate it. Two of these three events are late.
template <class Sync>
program end_a_block(checking when) {
  struct state {
    basic_tracked_block<Sync> block{4096};
    typename Sync::mutex mutex;  // the group's
    explored_sync::atomic<int> returned{0};
    explored_sync::shared<int> log{0};  // the group's, too
  };
  const auto one = std::make_shared<state>();
  one->block.set_owner(group(1), 7, 64, block_state{1, 16, block_status::tracked});
  const auto ends_epoch = [=] {
    const std::scoped_lock lock{one->mutex};
    const block_state now = one->block.load();
    one->log = one->log + 1;
    if (!now.is_held()) return;
    one->block.reclaim({first_epoch, 1}, now);
    one->returned.fetch_add(1);
  };
  const auto deallocates = [=] {
    const block_state before = one->block.load();
    if (!before.is_held()) return;
    const bool was_held = one->block.is_held_as(group(1), before);
    const std::scoped_lock lock{one->mutex};
    one->log = one->log + 1;
    if (when == checking::with_the_lock ? !one->block.is_held_as(group(1), before) : !was_held) return;
    one->block.store(before.ended_as(block_status::untracked));
    one->returned.fetch_add(1);
  };
  return program{{ends_epoch, deallocates, deallocates},
                 [=] { return one->returned.load() == 1 ? "" : "a block is returned twice, or not at all"; }};
}

// E.9
TEST(epoch_schedules, return_a_block_once_if_deallocation_races_with_the_epochs_end) {
  expect_every_schedule_passes([] { return end_a_block<explored_sync>(checking::with_the_lock); }, 10);
}

TEST(epoch_schedules, are_found_to_return_a_block_twice_if_checked_before_the_lock) {
  expect_failure([] { return end_a_block<explored_sync>(checking::before_the_lock); },
                 "a block is returned twice, or not at all");
}

TEST(epoch_schedules, are_found_to_race_in_a_group_without_a_lock) {
  expect_failure([] { return end_a_block<faulty_sync<fault::no_locks>>(checking::with_the_lock); },
                 "race on shared");
}

}  // namespace
}  // namespace tidemark::detail
