// SPDX-License-Identifier: Apache-2.0
#include <tidemark/diagnose/expect_resource.hpp>

#include <exception>
#include <forward_list>
#include <mutex>
#include <stdexcept>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/new_watch.hpp>

#include "missed_blocks.hpp"

namespace tidemark {

using detail::innermost_scope;

namespace {

// Stands in the place of the default resource while a scope is open: passes every request on to what was the default
// resource, and counts in the scopes of the calling thread. Thread-safety: as the upstream.
struct watching_resource final : std::pmr::memory_resource {
  explicit watching_resource(std::pmr::memory_resource* watched) noexcept : upstream{watched} {}

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    constexpr char const* watcher_name = "expect_resource";
    if (innermost_scope == nullptr) [[likely]]
      return detail::allocate_from(*upstream, watcher_name, bytes, align);
    void* block = nullptr;
    {
      const expect_resource::allowance passing_on;  // the upstream may call operator new
      block = detail::allocate_from(*upstream, watcher_name, bytes, align);
    }
    detail::count_missed(bytes, upstream, __builtin_return_address(0));
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    upstream->deallocate(block, bytes, align);
  }
  // Also the upstream, whose blocks it may deallocate and the other way round.
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other || *upstream == other;
  }

  std::pmr::memory_resource* upstream;
};

struct watch_list {
  detail::fork_safe<> mutex;
  // One for each resource that was ever the default. None is destroyed: containers keep its address beyond the scope, so
  // it may have no state that ends with a scope.
  std::forward_list<watching_resource> watchers;
  std::size_t open_scopes = 0;

  static watch_list& instance() {
    static auto& list = *new detail::until_unload<watch_list>;
    return list.value;
  }
  [[nodiscard]] watching_resource* find(std::pmr::memory_resource const* resource) noexcept {
    for (watching_resource& known : watchers)
      if (&known == resource) return &known;
    return nullptr;
  }
  [[nodiscard]] watching_resource* watcher_of(std::pmr::memory_resource* upstream) {
    for (watching_resource& known : watchers)
      if (known.upstream == upstream) return &known;
    return &watchers.emplace_front(upstream);
  }

  // One more scope is open. Another thread may set a default resource at any moment: what it sets is watched then.
  // Throws std::bad_alloc, with nothing changed.
  void watch() {
    const std::scoped_lock lock{mutex};
    std::pmr::memory_resource* current = std::pmr::get_default_resource();
    while (find(current) == nullptr) {
      std::pmr::memory_resource* const before = std::pmr::set_default_resource(watcher_of(current));
      if (before == current) break;
      current = before;
    }
    ++open_scopes;
  }
  // One scope less. After the last the default resource is what it was, unless the program has set another.
  void unwatch() noexcept {
    const std::scoped_lock lock{mutex};
    if (--open_scopes != 0) return;
    watching_resource* const current = find(std::pmr::get_default_resource());
    if (current == nullptr) return;
    std::pmr::memory_resource* const before = std::pmr::set_default_resource(current->upstream);
    if (before != current) std::pmr::set_default_resource(before);  // another thread has set it just now
  }
  [[nodiscard]] bool is_watching() noexcept {
    const std::scoped_lock lock{mutex};
    return find(std::pmr::get_default_resource()) != nullptr;
  }
};

}  // namespace

expect_resource::expect_resource(std::pmr::memory_resource const* expected, char const* name) {
  name = detail::name_or(name, "expect_resource");
  const allowance own_records;
  if (expected == nullptr)
    throw std::invalid_argument(std::string{"expect_resource '"} + name + "': the expected resource is null");
  missed_ = std::make_unique<detail::missed_blocks>(expected, name);
  watch_list::instance().watch();
  missed_->exceptions_at_begin = std::uncaught_exceptions();
  missed_->outer = std::exchange(innermost_scope, missed_.get());
  missed_->operator_new_is_watched = detail::is_operator_new_watched();
}

// Usually the innermost; those on the heap may end in another order.
expect_resource::~expect_resource() {
  const allowance own_records;
  watch_list::instance().unwatch();
  detail::missed_blocks** link = &innermost_scope;
  while (*link != nullptr && *link != missed_.get()) link = &(*link)->outer;
  if (*link == nullptr) {
    // Its thread may be writing to the records.
    detail::missed_blocks const* const left = missed_.release();
    detail::report_violation(violation_kind::wrong_thread, left->name(),
                             "expect_resource '%s': the scope is ended by another thread than began it",
                             left->name());
    return;
  }
  *link = missed_->outer;
  if (missed_->unseen_blocks() != 0 && std::uncaught_exceptions() <= missed_->exceptions_at_begin)
    missed_->report_violation();
}

std::uint64_t expect_resource::missed_blocks() const noexcept {
  missed_->mark_seen();
  return missed_->blocks();
}

std::uint64_t expect_resource::missed_bytes() const noexcept {
  missed_->mark_seen();
  return missed_->bytes();
}

std::string expect_resource::report() const {
  const allowance own_text;
  missed_->mark_seen();
  return missed_->report(watch_list::instance().is_watching());
}

}  // namespace tidemark
