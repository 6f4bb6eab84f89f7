// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture_switch`: the resource that programs allocate through that capture graphs. The memory stays the
/// upstream's, or the graph arena's. `special_count`: the number of its records, read without its lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory_resource>
#include <mutex>
#include <type_traits>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/resource_stats.hpp>
#include <tidemark/graph/baked_blocks.hpp>

namespace tidemark {

/// What a frozen `capture_switch` does without a graph arena for the thread.
enum class frozen_policy {
  forward,  ///< allocate from the upstream, and keep that block out of use as long as the graph lives
  refuse,   ///< throw `allocator_frozen`: for an upstream that must not be called in a capture
};

/// How a capture switch is made.
struct capture_switch_options {
  /// What to do where a thread has frozen the switch and installed no arena.
  frozen_policy without_arena = frozen_policy::forward;
  /// In messages and statistics; must outlive the switch.
  char const* name = "capture_switch";
  /// Where memory comes from outside captures; null: `std::pmr::get_default_resource()`. Must outlive the
  /// switch, and be thread-safe if several threads use that.
  std::pmr::memory_resource* upstream = nullptr;
};

/// A snapshot of a capture switch, of graph arenas and upstream together. Bytes are as requested.
struct capture_switch_stats : resource_stats {
  std::size_t deferred_blocks = 0;  ///< deallocated, and not yet by the upstream
  std::size_t frozen_threads = 0;   ///< threads in a capture
};

class graph_arena;

namespace detail {
class rewound_arena;

/// What was allocated from an arena through a switch, and not deallocated.
struct switched_usage {
  std::size_t blocks = 0, bytes = 0;
};

/// A thread that has frozen a switch, or has an arena installed in it.
struct capture_record {
  bool frozen = false;
  graph_arena* arena = nullptr;      // installed
  switched_blocks deferred;          // of graphs that ended meanwhile
  switched_blocks* baked = nullptr;  // of the upstream, allocated or deallocated while frozen; null: none yet
};

/// How many records, baked sets and known arenas a switch has: written with its lock held, read without it.
///
/// Who has a block of one of them learnt of it from a thread that saw the count after it, so reads no 0 while
/// it is there.
template <class Sync>
class basic_special_count {
 public:
  /// Whether there are any. Any thread.
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] std::size_t value() const noexcept { return count_.load(std::memory_order_acquire); }
  /// @pre the lock is held in which they were counted
  void set(std::size_t count) noexcept { count_.store(count, std::memory_order_release); }

 private:
  Sync::template atomic<std::size_t> count_{0};
};
using special_count = basic_special_count<std_atomics>;

}  // namespace detail

/// Forwards to its upstream, and during a capture to a graph arena: so that a program that allocates
/// through it can be captured without a change.
///
/// A capture is a matter of one thread: from `freeze()` to `unfreeze()` what that thread allocates comes
/// from the arena it has installed; other threads go on as ever. Most use it through `capture`, which
/// freezes and unfreezes it whatever happens between.
///
/// ```cpp
/// capture_switch memory{&device_pool};
/// std::pmr::vector<float> w{weights, &memory};     // of the pool
/// auto graph = capture(stream, memory, std::move(arena), std::move(x), std::move(y), body);
/// // what body allocated through `memory` lies in the arena, which the graph owns
/// ```
/// What becomes of blocks that cross the borders of a capture:
/// - one from before that its thread deallocates inside is in the graph, whose work may use it at each
///   launch: it goes to the upstream when the graph ends, or at `unfreeze` if there is none: see
///   `baked_blocks`
/// - one of an arena that is deallocated after the capture is recognised by its address, for as long as the
///   arena lives; those that are in use when the arena ends are invalid then, and must not be deallocated.
///   An arena ends with its graph, or because the body threw: so what grows
///   in a body is declared there, or is of its inputs and outputs, which end before the arena
/// - one of the upstream that was allocated during a capture, because no arena was installed, is in the
///   graph, too: see `baked_blocks`; deallocated in a later capture, it is in both graphs, and goes with the
///   last of them
///
/// Invariants, checked by `check_invariants()`: a thread with a record is frozen or has an arena; no address
/// that is deferred or baked lies in an arena known; no address is deferred and baked; an arena known has at
/// least as many blocks in use as were allocated through the switch.
///
/// Complexity: O(1) above the upstream's while there is neither a capture nor a known arena; else
/// O(captures + arenas), and under a lock that the upstream is not called under. Thread-safety: any
/// thread; an arena is used through the switch only, from its installation to its end. A child that is
/// forked may do the same; captures of threads that are not there stay open in it.
class capture_switch final : public detail::forwarding_resource<capture_switch> {
 public:
  /// @param upstream where memory comes from outside captures; null: the default resource.
  explicit capture_switch(std::pmr::memory_resource* upstream = nullptr)
      : capture_switch{capture_switch_options{.upstream = upstream}} {}
  /// As `options` say.
  explicit capture_switch(capture_switch_options const& options);
  /// Deallocates what was deferred. Reports a violation if a thread has frozen it still, or if a
  /// `baked_blocks` holds on to blocks of it.
  ~capture_switch() override;

  /// Memory of the upstream, or of the calling thread's arena if that thread has frozen the switch.
  /// @throws what these throw; allocator_frozen as the options say; std::bad_alloc if there is
  /// no memory for a record. Nothing but `refused` has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// Deallocates a block where it was allocated, as soon as that is possible. Null: does nothing. A block
  /// that must wait, and for which there is no memory to record that, is reported as a violation
  /// (`violation_kind::exhausted`) and lost to its upstream. One that waits already, or that an arena
  /// refuses, is reported (`violation_kind::bad_deallocate`; by the arena as its options say), and not
  /// counted.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (block == nullptr) [[unlikely]]
      return;
    if (special_.any()) [[unlikely]] {
      deallocate_specially(block, bytes, align);
      return;
    }
    counter_.on_deallocate(bytes);
    options_.upstream->deallocate(block, bytes, align);
  }

  /// From here on the calling thread's requests are served by its arena. @throws std::logic_error if the
  /// thread has frozen the switch already; std::bad_alloc. Nothing has changed then.
  void freeze();
  /// From here on the calling thread's requests are the upstream's again, and the arena, if one is
  /// installed, is known until it ends; it stays installed. Does nothing if the thread has not frozen the
  /// switch.
  /// @return what the graph must hold on to, what the thread deallocated meanwhile among it: that goes to the
  /// upstream when the result ends.
  baked_blocks unfreeze() noexcept;
  /// Whether the calling thread has frozen it.
  [[nodiscard]] bool is_frozen() const noexcept;

  /// `arena` serves the calling thread from the next `freeze` on, or from now on if it is frozen. It must
  /// end before the switch does, or the switch first with no block of it in use any more.
  /// @throws std::logic_error if the thread has one installed, or if `arena` is known to another switch or
  /// installed by another thread; std::bad_alloc. Nothing has changed then.
  void install_arena(graph_arena& arena);
  /// The calling thread has no arena installed any more. Blocks of it are recognised all the same, as
  /// long as it lives. @return what was installed; null, with nothing done, if nothing was.
  graph_arena* clear_arena() noexcept;
  /// Whether the calling thread has one installed.
  [[nodiscard]] bool has_arena() const noexcept;

  /// Counts and peaks start anew. @throws allocator_busy if blocks are in use, with nothing changed.
  /// Whether it is frozen stays as it is. @pre no other thread is using it.
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
  friend class detail::rewound_arena;
  [[nodiscard]] TIDEMARK_COLD void* allocate_specially(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* allocate_baked(detail::capture_record& record, std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void deallocate_specially(void* block, std::size_t bytes, std::size_t align);
  // Deallocates a block unless the upstream must do that now. @return false if it must.
  [[nodiscard]] bool keep(void* block, std::size_t bytes, std::size_t align) noexcept;
  // Level 2: reports that the upstream allocates what is kept from it.
  void check_new(void const* block) const noexcept;
  // The arena has ended.
  void forget(graph_arena& arena) noexcept;
  // The graph that has the addresses has ended.
  void release(detail::switched_blocks& baked) noexcept;

  // With mutex_ held:
  // The calling thread's record, or null; and the same if it has frozen the switch.
  [[nodiscard]] detail::capture_record const* own_record() const noexcept;
  [[nodiscard]] detail::capture_record* own_record() noexcept;
  [[nodiscard]] detail::capture_record* frozen_record() noexcept;
  // What the graph of a capture is to hold on to, made if there is none. @throws std::bad_alloc.
  [[nodiscard]] detail::switched_blocks& baked_by(detail::capture_record& record);
  void end_idle_records() noexcept;
  // Of arenas on one memory the thread's own, then one with a block in use there.
  [[nodiscard]] graph_arena* arena_at(std::uintptr_t address) const noexcept;
  [[nodiscard]] bool is_baked(std::uintptr_t address) const noexcept;
  void count_special() noexcept;
  [[nodiscard]] char const* broken_invariant() const noexcept;

  capture_switch_options options_;
  detail::usage_counter counter_;
  detail::special_count special_;      // records, baked sets and known arenas
  mutable detail::fork_safe<> mutex_;  // for what follows, and for the arenas known
  std::map<unsigned long long, detail::capture_record> records_;  // by the thread's number
  std::list<detail::switched_blocks> baked_;                      // of captures that go on, and of graphs
  std::map<graph_arena*, detail::switched_usage> arenas_;         // installed once, and not ended
};

}  // namespace tidemark
