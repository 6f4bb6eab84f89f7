// SPDX-License-Identifier: Apache-2.0
// Strategy: every schedule of an object that is destroyed while threads with parts of it end, with the
// production anchor. The object's members are plain variables, so a late call is a race.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>

#include <tidemark/core/detail/thread_parts.hpp>

#include "faulty_sync.hpp"
#include "schedules.hpp"

namespace tidemark::detail {
namespace {

using test::explored_sync;
using test::fault;
using test::faulty_sync;
using test::program;

/// An object with parts in two threads.
template <class Sync>
struct owner {
  void end(int part) noexcept {
    test::require(is_there, "a part is ended only while the object is there");
    ended = ended + part;
  }

  explored_sync::shared<bool> is_there{true};
  explored_sync::shared<int> ended{0};  // the sum of parts
  basic_owner_anchor<Sync> anchor{this, [](void* object, void* part) noexcept {
                                    static_cast<owner*>(object)->end(*static_cast<int*>(part));
                                  }};
};

enum class leaving { first, last };
template <class Sync>
program is_destroyed_while_threads_end(leaving when) {
  const auto object = std::make_shared<owner<Sync>>();
  const auto parts = std::make_shared<std::array<int, 2>>(std::array{1, 2});
  const auto destroy = [=] {
    if (when == leaving::first) object->anchor.deregister();
    object->is_there = false;
    if (when == leaving::last) object->anchor.deregister();
  };
  const auto end_thread = [=](std::size_t i) {
    return [=] {
      // Like a thread that adds a part: it drops its parts of destroyed objects.
      if (!object->anchor.is_abandoned()) object->anchor.end(&parts->at(i));
    };
  };
  return program{{destroy, end_thread(0), end_thread(1)}};
}

TEST(thread_parts_schedules, end_no_part_of_a_destroyed_object) {
  test::expect_every_schedule_passes(
      [] { return is_destroyed_while_threads_end<explored_sync>(leaving::first); }, 10);
}

TEST(thread_parts_schedules, call_an_object_in_destruction_if_it_unregisters_late) {
  test::expect_failure([] { return is_destroyed_while_threads_end<explored_sync>(leaving::last); },
                       "race on shared");
}

TEST(thread_parts_schedules, call_a_destroyed_object_without_the_lock) {
  using no_locks = faulty_sync<fault::no_locks>;
  test::expect_failure([] { return is_destroyed_while_threads_end<no_locks>(leaving::first); },
                       "race on shared");
}

// E.8
TEST(thread_parts_schedules, end_each_part_once_if_the_object_outlives_its_threads) {
  const auto make = [] {
    const auto object = std::make_shared<owner<explored_sync>>();
    const auto parts = std::make_shared<std::array<int, 3>>(std::array{1, 2, 4});
    const auto end_thread = [=](std::size_t i) { return [=] { object->anchor.end(&parts->at(i)); }; };
    return program{{end_thread(0), end_thread(1), end_thread(2)},
                   [=] { return object->ended == 7 ? "" : "a part is not ended, or twice"; }};
  };
  test::expect_every_schedule_passes(make, 6);
}

}  // namespace
}  // namespace tidemark::detail
