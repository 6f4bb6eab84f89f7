// SPDX-License-Identifier: Apache-2.0
#include "memories.hpp"

#include <memory>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/pool/synchronized_pool.hpp>

namespace tidemark::bench {
namespace {

/// A memory without steps: blocks are deallocated one by one.
class plain_memory final : public step_memory {
 public:
  explicit plain_memory(std::shared_ptr<std::pmr::memory_resource> resource)
      : resource_{std::move(resource)} {}
  std::pmr::memory_resource* resource() override { return resource_.get(); }
  [[nodiscard]] bool is_malloc() const override { return resource_.get() == std::pmr::new_delete_resource(); }

 private:
  std::shared_ptr<std::pmr::memory_resource> resource_;
};

class monotonic_memory final : public step_memory {
 public:
  std::pmr::memory_resource* resource() override { return &resource_; }
  void end_step() override { resource_.release(); }
  [[nodiscard]] bool end_frees_all() const override { return true; }

 private:
  std::pmr::monotonic_buffer_resource resource_{std::pmr::new_delete_resource()};
};

class arena_memory final : public step_memory {
 public:
  std::pmr::memory_resource* resource() override { return &arena_; }
  void begin_step() override { scope_.emplace(arena_); }
  void end_step() override { scope_.reset(); }
  [[nodiscard]] bool end_frees_all() const override { return true; }

 private:
  arena arena_;
  std::optional<arena::scope> scope_;
};

class planned_memory final : public step_memory {
 public:
  std::pmr::memory_resource* resource() override { return &planned_; }
  void begin_step() override { step_.emplace(planned_); }
  void end_step() override { step_.reset(); }

 private:
  planned_arena planned_{{.fallback = std::pmr::new_delete_resource()}};
  std::optional<planned_arena::step> step_;
};

// Enough to reuse arrays of some megabytes too.
constexpr std::size_t max_cached_bytes = 1 * GiB;

std::shared_ptr<std::pmr::memory_resource> make_resource(std::string_view name) {
  if (name == "malloc") return {std::pmr::new_delete_resource(), [](auto*) {}};
  if (name == "std_pool") return std::make_shared<std::pmr::unsynchronized_pool_resource>();
  if (name == "std_synchronized_pool") return std::make_shared<std::pmr::synchronized_pool_resource>();
  if (name == "pool") return std::make_shared<pool>(pool_options{.max_cached_bytes = max_cached_bytes});
  if (name == "synchronized_pool") {
    return std::make_shared<synchronized_pool>(pool_options{.max_cached_bytes = max_cached_bytes});
  }
  return nullptr;
}

std::unique_ptr<step_memory> make_memory(std::string_view name) {
  if (name == "std_monotonic") return std::make_unique<monotonic_memory>();
  if (name == "arena") return std::make_unique<arena_memory>();
  if (name == "planned_arena") return std::make_unique<planned_memory>();
  if (auto resource = make_resource(name)) return std::make_unique<plain_memory>(std::move(resource));
  return nullptr;
}

bool is_for_any_thread(std::string_view name) {
  return name == "malloc" || name == "std_synchronized_pool" || name == "synchronized_pool";
}

}  // namespace

std::vector<std::string_view> const& memory_names() {
  static const std::vector<std::string_view> names{
      "malloc", "std_monotonic", "std_pool",          "std_synchronized_pool",
      "arena",  "pool",          "synchronized_pool", "planned_arena"};
  return names;
}

std::vector<std::unique_ptr<step_memory>> make_memories(std::string_view name, unsigned threads) {
  const auto common = is_for_any_thread(name) ? make_resource(name) : nullptr;
  std::vector<std::unique_ptr<step_memory>> memories;
  for (unsigned thread = 0; thread < threads; ++thread) {
    auto made = common ? std::make_unique<plain_memory>(common) : make_memory(name);
    if (!made) return {};
    memories.push_back(std::move(made));
  }
  return memories;
}

}  // namespace tidemark::bench
