// SPDX-License-Identifier: Apache-2.0
// Sources of the blocks of a tree for threads. Blocks live until the end of a step.
#pragma once

#include <omp.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <utility>
#include <vector>

#include <tidemark/team/shared_arena.hpp>

namespace nbody {

/// The memory of a step: `begin_step`, then parallel regions whose threads call `on_this_thread`, then
/// `end_step`.
class tree_memory {
 public:
  tree_memory() = default;
  tree_memory(tree_memory const&) = delete;
  tree_memory& operator=(tree_memory const&) = delete;
  virtual ~tree_memory() = default;

  virtual void begin_step() {}
  /// Calls `work` with the resource of the calling thread of a parallel region.
  virtual void on_this_thread(std::function<void(std::pmr::memory_resource&)> const& work) = 0;
  /// Returns true if each block must be deallocated before the step ends. Otherwise the end frees all blocks.
  [[nodiscard]] virtual bool frees_each_block() const { return false; }
  virtual void end_step() {}
};

/// One resource for all threads, such as malloc or a pool. It has no notion of steps.
class common_memory final : public tree_memory {
 public:
  explicit common_memory(std::shared_ptr<std::pmr::memory_resource> resource)
      : resource_{std::move(resource)} {}
  void on_this_thread(std::function<void(std::pmr::memory_resource&)> const& work) override {
    work(*resource_);
  }
  [[nodiscard]] bool frees_each_block() const override { return true; }

 private:
  std::shared_ptr<std::pmr::memory_resource> resource_;
};

/// A std::pmr::monotonic_buffer_resource for each thread.
class monotonic_memory final : public tree_memory {
 public:
  explicit monotonic_memory(std::size_t threads) {
    while (each_.size() < threads) {
      each_.push_back(std::make_unique<std::pmr::monotonic_buffer_resource>(std::pmr::new_delete_resource()));
    }
  }
  void on_this_thread(std::function<void(std::pmr::memory_resource&)> const& work) override {
    work(*each_.at(static_cast<std::size_t>(omp_get_thread_num())));
  }
  void end_step() override {
    for (auto const& one : each_) one->release();
  }

 private:
  std::vector<std::unique_ptr<std::pmr::monotonic_buffer_resource>> each_;
};

/// A tidemark::shared_arena: a handle for each thread, and a scope of the team for the step.
class team_memory final : public tree_memory {
 public:
  explicit team_memory(tidemark::shared_arena& team) : team_{team} {}
  void begin_step() override { step_.emplace(team_); }
  void on_this_thread(std::function<void(std::pmr::memory_resource&)> const& work) override {
    tidemark::local_arena& local = team_.local();
    work(local);
  }
  void end_step() override { step_.reset(); }

 private:
  tidemark::shared_arena& team_;
  std::optional<tidemark::shared_arena::scope> step_;
};

}  // namespace nbody
