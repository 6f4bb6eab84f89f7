// SPDX-License-Identifier: Apache-2.0
// The conformance suite: the requirements for every std::pmr::memory_resource of tidemark.
//
// A resource plugs in as a *subject*, a class with
//   using supply_type = ...;  source of its memory: recording_os, recording_resource, memory of fixed size
//   explicit subject(supply_type&);  builds the resource on the supply, growable
//   std::pmr::memory_resource& resource();
//   void recycle();  makes the memory of deallocated blocks available again
//   std::vector<std::size_t> state() const;  the visible state, equal before and after a failed call
//   void check() const;  checks its invariants
//   static constexpr std::size_t largest;  the largest block that the suite requests
//   static constexpr std::size_t capacity;  bytes after which it is exhausted; 0: grows with its supply
//   static constexpr std::size_t max_reused_bytes, max_reused_align;  if larger requests pass through to the
//                                                                     supply
//   returns_all_memory;  if it may return all its memory when its blocks are freed
//   static constexpr std::size_t failing_rounds;  if calls of the supply are expensive, so that fewer rounds
//                                                 must suffice to make each call fail
// and joins the suite with
//   INSTANTIATE_TYPED_TEST_SUITE_P(name_of_subject, conformance, subject);
// The model test of tests/support/resource_model.hpp takes the same subjects.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>
#include <random>
#include <vector>

#include "recording_supply.hpp"
#include "run_length.hpp"
#include "shadow.hpp"

namespace tidemark::test {

template <class Subject>
class conformance : public ::testing::Test {
 protected:
  typename Subject::supply_type supply_{};
};

TYPED_TEST_SUITE_P(conformance);

/// A block that was allocated and must be deallocated.
struct held_block {
  void* first;
  std::size_t bytes, align;
};

inline constexpr std::size_t small_sizes[] = {0,  1,  2,  7,  8,   15,  16,  17,  31,  32,
                                              33, 63, 64, 65, 100, 128, 255, 256, 257, 1000};

/// Returns the resource as users of std::pmr see it: through the virtual functions, even if the class has
/// functions with the same names.
template <class Subject>
std::pmr::memory_resource& resource_of(Subject& subject) {
  return subject.resource();
}

/// A fixed mixture of sizes and alignments, allocated and freed in an order that no kind of resource favours.
/// Returns false if any allocation failed; checks the state around each one that did.
template <class Subject>
bool run_mixture(Subject& subject, std::size_t rounds, std::size_t max_bytes = 40'000,
                 std::size_t max_align = 256) {
  std::minstd_rand random{12345};
  std::vector<held_block> held;
  shadow blocks;
  bool all_served = true;
  const auto free_one = [&](std::size_t i) {
    blocks.remove(held[i].first);
    resource_of(subject).deallocate(held[i].first, held[i].bytes, held[i].align);
    held[i] = held.back();
    held.pop_back();
  };
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::size_t bytes =
        i % 17 == 0 ? random() % std::min<std::size_t>(Subject::largest, max_bytes) : random() % 600;
    const std::size_t align = std::min(max_align, std::size_t{1} << random() % 9);
    const std::vector<std::size_t> before = subject.state();
    try {
      void* first = resource_of(subject).allocate(bytes, align);
      blocks.add(first, bytes, align);
      held.push_back({first, bytes, align});
    } catch (std::bad_alloc const&) {
      all_served = false;
      EXPECT_EQ(subject.state(), before) << "a failed allocation must change nothing";
    }
    subject.check();
    if (held.size() > 40 || (i % 3 == 0 && !held.empty())) free_one(random() % held.size());
  }
  blocks.check_all();
  while (!held.empty()) free_one(held.size() - 1);
  subject.recycle();
  subject.check();
  return all_served;
}

TYPED_TEST_P(conformance, serves_every_size_from_zero_to_huge) {
  TypeParam subject{this->supply_};
  for (std::size_t bytes = 0; bytes <= TypeParam::largest;
       bytes = bytes < 40 ? bytes + 1 : bytes * 3 / 2 + 1) {
    void* first = resource_of(subject).allocate(bytes);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % alignof(std::max_align_t), 0u);
    std::memset(first, 0xA5, bytes);
    resource_of(subject).deallocate(first, bytes);
    subject.recycle();
    subject.check();
  }
}

// S0.17 S2.21
TYPED_TEST_P(conformance, serves_every_pair_of_size_and_alignment) {
  TypeParam subject{this->supply_};
  for (std::size_t align = 1; align <= 4096; align *= 2) {
    shadow blocks;
    std::vector<held_block> held;
    for (std::size_t bytes : small_sizes) {
      void* first = resource_of(subject).allocate(bytes, align);
      blocks.add(first, bytes, align);
      held.push_back({first, bytes, align});
    }
    blocks.check_all();
    for (held_block const& block : held)
      resource_of(subject).deallocate(block.first, block.bytes, block.align);
    subject.recycle();
    subject.check();
  }
}

TYPED_TEST_P(conformance, blocks_never_overlap_and_keep_their_content) {
  TypeParam subject{this->supply_};
  EXPECT_TRUE(run_mixture(subject, 3000));
}

// S2.20
TYPED_TEST_P(conformance, blocks_of_zero_bytes_are_distinct) {
  TypeParam subject{this->supply_};
  shadow blocks;
  for (int i = 0; i < 50; ++i) blocks.add(resource_of(subject).allocate(0, 1), 0, 1);
  EXPECT_EQ(blocks.live().size(), 50u);
  for (auto const& [first, block] : blocks.live()) {
    resource_of(subject).deallocate(reinterpret_cast<void*>(first), 0, 1);
  }
  subject.recycle();
}

TYPED_TEST_P(conformance, reuses_memory) {
  // Blocks that a resource does not keep go straight to the supply each time.
  std::size_t max_bytes = 40'000, max_align = 256;
  if constexpr (requires { TypeParam::max_reused_bytes; }) {
    max_bytes = TypeParam::max_reused_bytes;
    max_align = TypeParam::max_reused_align;
  }
  if (max_bytes == 0) GTEST_SKIP() << "it may keep less memory than a round of this test uses";
  TypeParam subject{this->supply_};
  const auto round = [&] { EXPECT_TRUE(run_mixture(subject, 400, max_bytes, max_align)); };
  round();
  round();
  const std::size_t calls = this->supply_.calls;
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(this->supply_.calls, calls) << "rounds that repeat must ask for no more memory";
}

TYPED_TEST_P(conformance, exhaustion_throws_and_the_resource_stays_usable) {
  TypeParam subject{this->supply_};
  this->supply_.fail_count = supply::never;
  std::vector<held_block> held;
  for (int round = 0; round < 3; ++round) {
    // It may have a little, once if it keeps that.
    constexpr bool returns_all_memory = requires { TypeParam::returns_all_memory; };
    if (TypeParam::capacity == 0 && (round == 0 || returns_all_memory))
      this->supply_.fail_from = this->supply_.calls + 3;
    bool exhausted = false;
    for (std::size_t i = 0; i < 10'000'000 && !exhausted; ++i) {
      const std::size_t bytes = 1 + i * 37 % 1000;
      const std::vector<std::size_t> before = subject.state();
      try {
        held.push_back({resource_of(subject).allocate(bytes, 8), bytes, 8});
        std::memset(held.back().first, 0x11, bytes);
      } catch (std::bad_alloc const&) {
        exhausted = true;
        EXPECT_EQ(subject.state(), before);
        subject.check();
      }
    }
    EXPECT_TRUE(exhausted);
    ASSERT_FALSE(held.empty());
    for (; !held.empty(); held.pop_back()) {
      resource_of(subject).deallocate(held.back().first, held.back().bytes, held.back().align);
    }
    subject.recycle();
    subject.check();
  }
}

// G.5 S0.5 S1.7
TYPED_TEST_P(conformance, sizes_near_size_max_are_refused) {
  TypeParam subject{this->supply_};
  resource_of(subject).deallocate(resource_of(subject).allocate(100, 8), 100, 8);
  subject.recycle();
  const std::vector<std::size_t> before = subject.state();
  constexpr std::size_t max_size = std::numeric_limits<std::size_t>::max();
  for (std::size_t align = 1; align <= 4096; align *= 4) {
    for (std::size_t less :
         {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{4096}, max_size / 4, max_size / 2}) {
      EXPECT_THROW((void)resource_of(subject).allocate(max_size - less, align), std::bad_alloc)
          << less << ' ' << align;
    }
  }
  EXPECT_EQ(subject.state(), before);
  subject.check();
}

TYPED_TEST_P(conformance, is_equal_only_to_itself) {
  typename TypeParam::supply_type other_supply{};
  TypeParam one{this->supply_};
  TypeParam other{other_supply};
  EXPECT_TRUE(resource_of(one) == resource_of(one));
  EXPECT_FALSE(resource_of(one) == resource_of(other));
  EXPECT_FALSE(resource_of(one) == *std::pmr::new_delete_resource());
}

// H.7 S0.36 S2.26
TYPED_TEST_P(conformance, serves_containers) {
  TypeParam subject{this->supply_};
  {
    std::pmr::vector<std::pmr::vector<int>> rows{&resource_of(subject)};
    for (std::size_t i = 0; i < 60; ++i) rows.emplace_back(i, static_cast<int>(i));
    for (std::size_t i = 0; i < 60; i += 2) rows[i].clear(), rows[i].shrink_to_fit();
    for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(rows[i].size(), i % 2 == 0 ? 0 : i);
    EXPECT_EQ(rows[59][58], 59);
  }
  subject.recycle();
}

// S2.13
TYPED_TEST_P(conformance, returns_all_memory_to_its_supply) {
  {
    TypeParam subject{this->supply_};
    EXPECT_TRUE(run_mixture(subject, 1000));
  }
  EXPECT_EQ(this->supply_.outstanding, 0u);  // the supply itself compares each piece
}

// H.16
TYPED_TEST_P(conformance, recovers_from_every_failed_supply_call_without_a_leak) {
  std::size_t rounds = 500;
  if constexpr (requires { TypeParam::failing_rounds; }) rounds = TypeParam::failing_rounds;
  // Each call fails in turn, so that the time grows with the square of the rounds.
  if (number_from_environment("TIDEMARK_STEPS", full_steps) < full_steps) rounds = rounds * 2 / 5;
  typename TypeParam::supply_type probe{};
  const std::size_t constructor_calls = [&] {
    TypeParam subject{probe};
    return probe.calls;
  }();
  for (std::size_t n = 0;; ++n) {
    SCOPED_TRACE(::testing::Message() << "call " << n << " to the supply fails");
    ASSERT_LT(n, 10'000u);
    typename TypeParam::supply_type failing{};
    failing.fail_from = n;
    bool all_served = false;
    try {
      TypeParam subject{failing};
      all_served = run_mixture(subject, rounds);
      failing.fail_from = supply::never;
      EXPECT_TRUE(run_mixture(subject, std::min<std::size_t>(rounds, 100)))
          << "usable once the supply works again";
    } catch (std::bad_alloc const&) {
      EXPECT_LT(n, constructor_calls) << "only the constructor may pass the failure on from here";
    }
    EXPECT_EQ(failing.outstanding, 0u);
    if (failing.calls <= n) {
      EXPECT_TRUE(all_served);
      break;
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(conformance, serves_every_size_from_zero_to_huge,
                            serves_every_pair_of_size_and_alignment,
                            blocks_never_overlap_and_keep_their_content, blocks_of_zero_bytes_are_distinct,
                            reuses_memory, exhaustion_throws_and_the_resource_stays_usable,
                            sizes_near_size_max_are_refused, is_equal_only_to_itself, serves_containers,
                            returns_all_memory_to_its_supply,
                            recovers_from_every_failed_supply_call_without_a_leak);

}  // namespace tidemark::test
