// SPDX-License-Identifier: Apache-2.0
#include "watching_resource.hpp"

#include <mutex>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/diagnose/detail/new_watch.hpp>
#include <tidemark/diagnose/expect_resource.hpp>

#include "missed_blocks.hpp"

namespace tidemark::detail {
namespace {

constexpr char const* watcher_name = "expect_resource";

struct watch_list {
  fork_safe<> mutex;
  watching_resource* newest = nullptr;
  std::size_t open_scopes = 0;

  static watch_list& instance() {
    static auto& list = *new until_unload<watch_list>;
    return list.value;
  }
  ~watch_list() {
    while (newest != nullptr) delete std::exchange(newest, newest->next());
  }
  [[nodiscard]] watching_resource* find(std::pmr::memory_resource const* resource) const noexcept {
    watching_resource* known = newest;
    while (known != nullptr && known != resource) known = known->next();
    return known;
  }
  [[nodiscard]] watching_resource* watcher_of(std::pmr::memory_resource* upstream) {
    for (watching_resource* known = newest; known != nullptr; known = known->next())
      if (known->upstream() == upstream) return known;
    return newest = new watching_resource{upstream, newest};
  }
  /// Another thread may set a default resource at any moment: what it sets is watched then.
  void watch() {
    std::pmr::memory_resource* current = std::pmr::get_default_resource();
    while (find(current) == nullptr) {
      std::pmr::memory_resource* const before = std::pmr::set_default_resource(watcher_of(current));
      if (before == current) return;
      current = before;
    }
  }
};

}  // namespace

void* watching_resource::do_allocate(std::size_t bytes, std::size_t align) {
  if (innermost_scope == nullptr) [[likely]]
    return allocate_from(*upstream_, watcher_name, bytes, align);
  void* block = nullptr;
  {
    const expect_resource::allowance passing_on;  // the upstream may call operator new
    block = allocate_from(*upstream_, watcher_name, bytes, align);
  }
  count_missed(bytes, upstream_, __builtin_return_address(0));
  return block;
}

void watching_resource::do_deallocate(void* block, std::size_t bytes, std::size_t align) {
  upstream_->deallocate(block, bytes, align);
}

bool watching_resource::do_is_equal(std::pmr::memory_resource const& other) const noexcept {
  return this == &other || *upstream_ == other;
}

void watch_default_resource() {
  watch_list& list = watch_list::instance();
  const std::scoped_lock lock{list.mutex};
  list.watch();
  ++list.open_scopes;
}

void unwatch_default_resource() noexcept {
  watch_list& list = watch_list::instance();
  const std::scoped_lock lock{list.mutex};
  if (--list.open_scopes != 0) return;
  watching_resource* const current = list.find(std::pmr::get_default_resource());
  if (current == nullptr) return;
  std::pmr::memory_resource* const before = std::pmr::set_default_resource(current->upstream());
  if (before != current) std::pmr::set_default_resource(before);  // another thread has set it just now
}

bool is_default_resource_watched() noexcept {
  watch_list& list = watch_list::instance();
  const std::scoped_lock lock{list.mutex};
  return list.find(std::pmr::get_default_resource()) != nullptr;
}

}  // namespace tidemark::detail
