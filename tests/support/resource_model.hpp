// SPDX-License-Identifier: Apache-2.0
// Random allocations and frees in any order on any resource, compared with a shadow that knows the live
// blocks and their contents. Takes the subjects of the conformance suite:
//   TEST(resource_model, agrees_with_the_pool) { run_resource_model<pool_subject>(); }
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <utility>
#include <vector>

#include "choices.hpp"
#include "seeds.hpp"
#include "shadow.hpp"

namespace tidemark::test {

template <class Subject>
class resource_model {
 public:
  resource_model(Subject& subject, choices random) : subject_{subject}, random_{std::move(random)} {}
  resource_model(resource_model const&) = delete;
  resource_model& operator=(resource_model const&) = delete;
  ~resource_model() { free_all(); }

  std::size_t allocated = 0, freed = 0, refused = 0, recycled = 0;

  void step() {
    // Growing and shrinking alternate, so that many blocks are live at some times and none at others.
    const bool growing = ++steps_ / 2000 % 2 == 0;
    if (random_() % 100 < (growing ? 60u : 40u)) {
      allocate();
    } else if (!held_.empty()) {
      free_one(random_() % held_.size());
    } else {
      subject_.recycle();
      ++recycled;
    }
    subject_.check();
  }

  void check_contents() const { blocks_.check_all(); }

 private:
  struct held_block {
    void* first;
    std::size_t bytes, align;
  };

  std::pmr::memory_resource& resource() { return subject_.resource(); }

  void allocate() {
    const std::size_t bytes = random_() % (random_() % 50 == 0 ? 20'000 : 400);
    const std::size_t align = std::size_t{1} << random_() % (random_() % 16 == 0 ? 13 : 7);
    const std::vector<std::size_t> before = subject_.state();
    try {
      void* first = resource().allocate(bytes, align);
      blocks_.add(first, bytes, align);
      held_.push_back({first, bytes, align});
      ++allocated;
    } catch (std::bad_alloc const&) {
      EXPECT_EQ(subject_.state(), before);
      ++refused;
      free_all();
      subject_.recycle();
    }
    if (held_.size() > 300) free_one(random_() % held_.size());
  }

  void free_one(std::size_t i) {
    const held_block chosen = remove_at(held_, i);
    blocks_.remove(chosen.first);
    resource().deallocate(chosen.first, chosen.bytes, chosen.align);
    ++freed;
  }

  void free_all() {
    while (!held_.empty()) free_one(held_.size() - 1);
  }

  Subject& subject_;
  choices random_;
  std::vector<held_block> held_;
  shadow blocks_;
  std::uint64_t steps_ = 0;
};

template <class Subject>
void run_resource_model(std::uint64_t steps = full_steps) {
  using model = resource_model<Subject>;
  run_for_seeds<model>(
      [](std::uint64_t seed, auto run) {
        typename Subject::supply_type supply{};
        Subject subject{supply};
        model of_resource{subject, seed};
        run(of_resource);
      },
      steps,
      {{"allocated", &model::allocated, 1000},
       {"freed", &model::freed, 1000},
       {"recycled", [](model const& one) { return one.recycled + one.refused; }, 0}});
}

}  // namespace tidemark::test
