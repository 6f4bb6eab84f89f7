// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture_switch`: the resource that programs allocate through that capture graphs. The memory stays the
/// upstream's, or the graph arena's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory_resource>
#include <mutex>
#include <type_traits>
#include <vector>

#include <tidemark/baked_blocks.hpp>
#include <tidemark/capture_switch_options.hpp>
#include <tidemark/capture_switch_stats.hpp>
#include <tidemark/detail/usage_counter.hpp>
#include <tidemark/macros.hpp>

namespace tidemark {

class graph_arena;

namespace detail {

/// A capture of a thread that has frozen a switch, or has an arena installed in it.
struct capture_record {
  unsigned long long thread = 0;
  bool frozen = false;
  graph_arena* arena = nullptr;      // installed
  switched_blocks deferred;          // of the upstream, from before, and given back while frozen
  switched_blocks* baked = nullptr;  // of the upstream, handed out while frozen; null: none yet
};

/// An arena that is installed in a switch, or was, and lives.
struct known_arena {
  graph_arena* arena = nullptr;
  std::size_t blocks = 0, bytes = 0;  // handed out of it by the switch, and not given back
};

}  // namespace detail

/// Forwards to its upstream, and during a capture to a graph arena: so that a program that allocates through
/// it can be captured without a change.
///
/// A capture is a matter of one thread: from `freeze()` to `unfreeze()` what that thread allocates comes from
/// the arena it has installed; other threads go on as ever. Most use it through `capture`, which freezes and
/// unfreezes it whatever happens between.
///
/// ```cpp
/// capture_switch memory{&device_pool};
/// std::pmr::vector<float> w{weights, &memory};     // of the pool
/// auto graph = capture(stream, memory, std::move(arena), std::move(x), std::move(y), body);
/// // what body allocated through `memory` lies in the arena, which the graph owns
/// ```
/// What becomes of blocks that cross the borders of a capture:
/// - one from before that its thread gives back inside goes to the upstream at the end: a device's memory
///   cannot be freed while a stream captures
/// - one of an arena that is given back after the capture is recognised by its address, for as long as the
///   arena lives, and goes to no free list; those that are in use when the arena ends are gone with it, and
///   must not be given back any more. An arena ends with its graph, or because the body threw: so what grows
///   in a body is declared there, or is of its inputs and outputs, which end before the arena
/// - one of the upstream that was handed out during a capture, because no arena was installed, is in the
///   graph, too: see `baked_blocks`
///
/// Invariants, checked by `check_invariants()`: a thread has one record at most, and it is frozen or has an
/// arena; no address that is deferred or baked lies in an arena known; no address is deferred and baked; an
/// arena known has at least as many blocks in use as the switch has handed out of it.
///
/// Complexity: O(1) above the upstream's while no capture goes on and no captured arena lives; else
/// O(captures + arenas), and under a lock that the upstream is not called under. Thread-safety: any thread;
/// an arena is used through the switch only, from its installation to its end.
class capture_switch final : public std::pmr::memory_resource {
 public:
  /// @param upstream where memory comes from outside captures; null: the default resource.
  explicit capture_switch(std::pmr::memory_resource* upstream = nullptr)
      : capture_switch{capture_switch_options{.upstream = upstream}} {}
  /// As `options` say.
  explicit capture_switch(capture_switch_options const& options);
  capture_switch(capture_switch const&) = delete;
  capture_switch& operator=(capture_switch const&) = delete;
  /// Gives the upstream what was kept from it. Reports a violation if a thread has frozen it still, or if a
  /// `baked_blocks` holds on to blocks of it.
  ~capture_switch() override;

  /// Memory of the upstream, or of the calling thread's arena if that thread has frozen the switch.
  /// @throws what these throw; allocator_frozen where it may not ask the upstream; std::bad_alloc if there is
  /// no memory for a record. Nothing but `refused` has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (special_.load(std::memory_order_acquire) != 0) [[unlikely]]
      return allocate_specially(bytes, align);
    return take(bytes, align);
  }

  /// Gives a block back: to whom it is of, and at a time when that can be. Null is no block. A block that
  /// must wait, and for which there is no memory to note that it does, is reported as a violation
  /// (`violation_kind::exhausted`) and lost to its upstream. One that waits already, or that an arena
  /// refuses, was given back before: that is reported (`violation_kind::bad_deallocate`; by the arena as its
  /// options say), and not counted.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (block == nullptr) [[unlikely]]
      return;
    if (special_.load(std::memory_order_acquire) != 0) [[unlikely]] {
      deallocate_specially(block, bytes, align);
      return;
    }
    counter_.given_back(bytes);
    options_.upstream->deallocate(block, bytes, align);
  }

  /// From here on the calling thread's requests are served by its arena. @throws std::logic_error if the
  /// thread has frozen the switch already; std::bad_alloc. Nothing has changed then.
  void freeze();
  /// From here on the calling thread's requests are the upstream's again, and the arena, if one is installed,
  /// is known until it ends; it stays installed. What the thread gave back meanwhile goes to the upstream.
  /// Does nothing if the thread has not frozen the switch. @return what the graph must hold on to.
  baked_blocks unfreeze() noexcept;
  /// Whether the calling thread has frozen it.
  [[nodiscard]] bool is_frozen() const noexcept;

  /// `arena` serves the calling thread from the next `freeze` on, or from now on if it is frozen. It must end
  /// before the switch does, or the switch first with no block of it in use any more.
  /// @throws std::logic_error if the thread has one installed, or if `arena` is known to another switch or
  /// installed by another thread; std::bad_alloc. Nothing has changed then.
  void install_arena(graph_arena& arena);
  /// The calling thread has no arena installed any more. Blocks of it are recognised all the same, as long as
  /// it lives. @return what was installed; null, with nothing done, if nothing was.
  graph_arena* clear_arena() noexcept;
  /// Whether the calling thread has one installed.
  [[nodiscard]] bool has_arena() const noexcept;

  /// Counts and peaks start anew. @throws allocator_busy if blocks are in use, with nothing changed. Whether
  /// it is frozen stays as it is. @pre no other thread is using it.
  void reset();

  /// A snapshot in numbers.
  [[nodiscard]] capture_switch_stats stats() const noexcept;
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }
  /// Where memory comes from outside captures.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }

  /// Reports a violation for every invariant of the class comment that does not hold. O(all that is kept).
  void check_invariants() const noexcept;

 private:
  friend graph_arena;
  friend baked_blocks;
  // From the upstream, counted.
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align);
  [[nodiscard]] TIDEMARK_COLD void* allocate_specially(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* take_baked(detail::capture_record& record, std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void deallocate_specially(void* block, std::size_t bytes, std::size_t align);
  // What becomes of a block that is given back.
  enum class fate {
    upstreams,  // goes to the upstream now
    kept,       // waits, or was an arena's
    refused,    // was given back before
  };
  [[nodiscard]] fate keep(void* block, std::size_t bytes, std::size_t align) noexcept;
  // Level 2: reports that the upstream hands out what is kept from it.
  void look_at_new(void const* block) const noexcept;
  // The arena has ended.
  void forget(graph_arena& arena) noexcept;
  // The graph that has the addresses has ended.
  void release(detail::switched_blocks& baked) noexcept;

  // With mutex_ held:
  [[nodiscard]] detail::capture_record* record_of_this_thread() noexcept;
  [[nodiscard]] detail::capture_record const* record_of_this_thread() const noexcept;
  [[nodiscard]] detail::capture_record& begin_record();
  void end_record_if_idle(detail::capture_record& record) noexcept;
  [[nodiscard]] detail::known_arena* known(graph_arena const& arena) noexcept;
  [[nodiscard]] detail::known_arena* arena_of(void const* block) noexcept;
  [[nodiscard]] bool lies_in_an_arena(std::uintptr_t address) const noexcept;
  [[nodiscard]] bool is_baked(std::uintptr_t address) const noexcept;
  void count_special() noexcept;
  [[nodiscard]] char const* broken_invariant() const noexcept;

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  capture_switch_options options_;
  detail::usage_counter counter_;
  std::atomic<std::size_t> special_{0};  // records, baked sets and arenas known; 0: nothing to look for
  // For what follows, and for the arenas known. Recursive, because an arena may call the violation handler,
  // which may look at the switch.
  mutable std::recursive_mutex mutex_;
  std::list<detail::capture_record> records_;
  std::list<detail::switched_blocks> baked_;  // of captures that go on, and of graphs
  std::vector<detail::known_arena> arenas_;
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, capture_switch>);
static_assert(!std::is_copy_constructible_v<capture_switch>, "blocks know their resource by its address");

}  // namespace tidemark
