// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bases of all adaptors: `resource_adaptor` has an upstream, a name and counters; `observing_adaptor` is an
/// observer, too; `ledger_adaptor` records each live block. They own no memory except the records.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include <tidemark/core/allocation_observer.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/observed.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/resource_stats.hpp>

namespace tidemark::detail {

[[noreturn]] TIDEMARK_COLD void throw_null_upstream(char const* kind, char const* name);

/// Base of the resources that forward requests to an upstream.
///
/// Upstream and name must outlive it. Thread-safe if the upstream is.
/// @tparam Adaptor the derived class, which has `allocate` and `deallocate`
template <class Adaptor>
class resource_adaptor : public forwarding_resource<Adaptor> {
 public:
  /// The upstream, never null.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }
  /// The name in messages and statistics.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// A snapshot of all counters since construction. O(1).
  [[nodiscard]] resource_stats stats() const noexcept { return counter_.stats(name_); }

 protected:
  /// @param kind the class's name, used in messages and as the default name
  /// @throws std::invalid_argument if `upstream` is null.
  resource_adaptor(char const* kind, std::pmr::memory_resource* upstream, char const* name)
      : kind_{kind}, name_{name_or(name, kind)}, upstream_{upstream} {
    if (upstream == nullptr) throw_null_upstream(kind, name_);
  }
  ~resource_adaptor() override = default;

  /// Allocates a block from the upstream and tells an observer. @throws the exception of the upstream or of
  /// the observer; out_of_memory for more than PTRDIFF_MAX bytes.
  template <class Observer>
  [[nodiscard, gnu::always_inline]] void* allocate_for(Observer& observer, std::size_t bytes,
                                                       std::size_t align) {
    return allocate_observed(
        observer, bytes, align, [&] { return allocate_from(*upstream_, name_, bytes, align); },
        [&](void* block) { upstream_->deallocate(block, bytes, align); });
  }

  usage_counter counter_;
  char const* kind_;
  char const* name_;

 private:
  std::pmr::memory_resource* upstream_;
};

/// A resource adaptor that observes its own blocks as it observes those of an arena: the derived class
/// overrides functions of `allocation_observer`.
template <class Adaptor>
class observing_adaptor : public resource_adaptor<Adaptor>, public allocation_observer {
 public:
  /// Allocates memory from the upstream. @throws the exception of `before_allocate`, of the upstream or of
  /// `allocated`; out_of_memory for more than PTRDIFF_MAX bytes. Only `refused` has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    return this->allocate_for(static_cast<Adaptor&>(*this), bytes, align);
  }
  /// Returns a block to the upstream. Ignores null.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (block == nullptr) return;
    static_cast<Adaptor*>(this)->released(block, bytes);
    this->upstream_resource()->deallocate(block, bytes, align);
  }

  void allocated(void*, std::size_t bytes, std::size_t) override { this->counter_.on_allocate(bytes); }
  void failed(std::size_t) noexcept override { this->counter_.refused(); }
  void released(void*, std::size_t bytes) noexcept override { this->counter_.on_deallocate(bytes); }

 protected:
  using resource_adaptor<Adaptor>::resource_adaptor;
  ~observing_adaptor() override = default;
};

/// A resource adaptor whose derived class records each block and its site.
/// @tparam Adaptor the derived class. Its `allocate` takes a site; `std::pmr` calls pass no site.
template <class Adaptor>
class ledger_adaptor : public resource_adaptor<Adaptor> {
 public:
  /// Live blocks, oldest first. O(n log n). @throws std::bad_alloc.
  [[nodiscard]] std::vector<live_block> leaks() const {
    const std::scoped_lock lock{mutex_};
    return live_blocks(ledger_);
  }

 protected:
  using resource_adaptor<Adaptor>::resource_adaptor;
  ~ledger_adaptor() override = default;

  mutable fork_safe<> mutex_;
  block_ledger ledger_;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) final {
    return static_cast<Adaptor*>(this)->allocate(bytes, align, std::nullopt);
  }
};

}  // namespace tidemark::detail
