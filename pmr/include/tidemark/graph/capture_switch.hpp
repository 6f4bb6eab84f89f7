// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture_switch`: the resource of programs that capture graphs. Owns no memory: blocks belong to the
/// upstream or the graph arena. `baked_blocks`: upstream blocks whose addresses a capture has seen. Owns the
/// blocks that were deallocated.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <set>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/resource_stats.hpp>

namespace tidemark {

/// Behaviour of a frozen `capture_switch` if the thread has no graph arena.
enum class frozen_policy {
  forward,  ///< allocate from the upstream, and do not reuse the block while the graph lives
  refuse,   ///< throw `allocator_frozen`, for an upstream that must not be called in a capture
};

/// Options of `capture_switch`.
struct capture_switch_options {
  /// Behaviour if a thread has frozen the switch and installed no arena.
  frozen_policy without_arena = frozen_policy::forward;
  /// Used in messages and statistics; must outlive the switch.
  char const* name = "capture_switch";
  /// Source of memory outside captures; null: `std::pmr::get_default_resource()`. Must outlive the switch,
  /// and be thread-safe if several threads use the switch.
  std::pmr::memory_resource* upstream = nullptr;
};

/// A snapshot of a capture switch, over graph arenas and upstream. Bytes are as requested.
struct capture_switch_stats : resource_stats {
  std::size_t deferred_blocks = 0;  ///< deallocated by the caller, but not yet returned to the upstream
  std::size_t frozen_threads = 0;   ///< threads in a capture
};

class capture_switch;
class graph_arena;

namespace detail {
class rewound_arena;
struct capture_record;
struct switch_records;

/// Addresses of the blocks of a capture or a graph.
using switched_addresses = std::set<std::uintptr_t>;

/// Number of records, held blocks and known arenas of a switch. Written with the switch's lock, and read
/// without the lock. A thread learns of a held block or a block of such an arena only after the count was
/// set. It therefore reads a count other than 0.
template <class Sync>
class basic_special_count {
 public:
  /// True if the count is not 0. Any thread.
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] std::size_t value() const noexcept { return count_.load(std::memory_order_acquire); }
  /// @pre the caller has held the lock since counting
  void set(std::size_t count) noexcept { count_.store(count, std::memory_order_release); }

 private:
  Sync::template atomic<std::size_t> count_{0};
};
using special_count = basic_special_count<std_atomics>;

}  // namespace detail

/// The upstream blocks whose addresses a graph contains, returned by `capture_switch::unfreeze` to the owner
/// of the graph. The switch allocated these blocks during the capture without a graph arena, or they were
/// deallocated during the capture.
///
/// The upstream gets none of these blocks back while this object lives, and so cannot reuse them. At the end
/// of this object, blocks deallocated meanwhile are returned, unless another graph has them too. The other
/// blocks are returned when they are deallocated. On a thread that has frozen the switch, the return waits
/// for the end of the capture.
///
/// Move-only; a moved-from object is empty. The switch must outlive the object. Thread-safety: one thread at
/// a time.
class [[nodiscard]] baked_blocks {
 public:
  /// Creates an empty set. Assignment first releases the blocks of the target.
  baked_blocks() noexcept = default;

  /// Releases the blocks now. O(blocks).
  void release() noexcept { blocks_.reset(); }
  /// Number of blocks, in use or deallocated.
  [[nodiscard]] std::size_t size() const noexcept { return blocks_ != nullptr ? blocks_->size() : 0; }

 private:
  friend capture_switch;
  struct releaser {
    capture_switch* owner;
    void operator()(detail::switched_addresses* blocks) const noexcept;
  };
  baked_blocks(capture_switch& owner, std::unique_ptr<detail::switched_addresses> blocks) noexcept
      : blocks_{blocks.release(), releaser{&owner}} {}

  std::unique_ptr<detail::switched_addresses, releaser> blocks_;
};

/// Forwards to its upstream, and during a capture to a graph arena. A program that allocates through a switch
/// can be captured without changes.
///
/// A capture concerns one thread. From `freeze()` to `unfreeze()`, which `capture` calls, this thread
/// allocates from its installed arena.
///
/// ```cpp
/// capture_switch memory{&device_pool};
/// std::pmr::vector<float> w{weights, &memory};     // of the pool
/// auto graph = capture(stream, memory, std::move(arena), std::move(x), std::move(y), body);
/// // what body allocated through `memory` lies in the arena, which the graph owns
/// ```
/// Invariants, checked by `check_invariants()`: a thread with a record is frozen or has an arena; held blocks
/// have a holder and lie in no known arena; a known arena has at least as many blocks in use as were
/// allocated through the switch.
///
/// Complexity: O(1) plus the upstream without captures and known arenas; otherwise O(captures + arenas),
/// under a lock. Thread-safety: any thread, also in a forked child, where captures of other threads stay
/// open.
class capture_switch final : public detail::forwarding_resource<capture_switch> {
 public:
  /// @param upstream source of memory outside captures; null: the default resource
  explicit capture_switch(std::pmr::memory_resource* upstream = nullptr)
      : capture_switch{capture_switch_options{.upstream = upstream}} {}
  /// Uses `options`.
  explicit capture_switch(capture_switch_options const& options);
  /// Deallocates deferred blocks. Reports a violation if a thread still has the switch frozen, or if a
  /// `baked_blocks` still holds blocks of the switch.
  ~capture_switch() override;

  /// Allocates from the upstream, or from the calling thread's arena if the thread has frozen the switch. A
  /// block that a frozen thread allocates from the upstream is baked into the graph (see `baked_blocks`).
  /// @throws whatever these throw; allocator_frozen as the options say; std::bad_alloc if there is no memory
  /// for a record. Only the count of refused requests has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// Deallocates a block at its source, as soon as possible. Ignores null. Blocks that cross the border of a
  /// capture:
  /// - An upstream block deallocated by a frozen thread may be used by each launch. It is returned when the
  ///   graph ends, or at `unfreeze` without a graph (see `baked_blocks`).
  /// - An upstream block allocated during a capture belongs to the graph. If it is deallocated in a later
  ///   capture, it belongs to both graphs and is returned with the last.
  /// - An arena block deallocated after the capture is recognised by its address while the arena lives. Arena
  ///   blocks in use are invalid once the arena ends, with its graph or because the body threw, and must not
  ///   be deallocated then. Declare containers that grow in a body inside the body, or in its inputs and
  ///   outputs, which are destroyed before the arena.
  ///
  /// Reports a violation without counting a deallocation: `violation_kind::bad_deallocate` if the block is
  /// already deferred, or if an arena rejects it (as the arena's options say). Reports
  /// `violation_kind::exhausted` if there is no memory to record a deferred block, which is then lost to its
  /// upstream.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (block == nullptr) [[unlikely]]
      return;
    if (special_.any() && deallocate_or_defer(block, bytes, align)) [[unlikely]]
      return;
    counter_.on_deallocate(bytes);
    options_.upstream->deallocate(block, bytes, align);
  }

  /// From now on the calling thread allocates from its arena. @throws std::logic_error if the thread has
  /// frozen the switch already; std::bad_alloc. Nothing has changed then.
  void freeze();
  /// From now on the calling thread allocates from the upstream. An installed arena stays installed, and the
  /// switch recognises its blocks until it ends. Does nothing if the thread has not frozen the switch.
  /// @return the blocks that the graph must hold, including blocks deallocated by the thread while frozen.
  /// The latter are returned to the upstream when the result is destroyed.
  baked_blocks unfreeze() noexcept;
  /// True if the calling thread has frozen the switch.
  [[nodiscard]] bool is_frozen() const noexcept;

  /// Installs the arena of the calling thread, for the next `freeze`, or from now on if the thread is frozen.
  /// The arena must end before the switch, or have no block in use when the switch ends. From now on, use the
  /// arena through the switch only.
  /// @throws std::logic_error if the thread has an arena installed, or if `arena` is known to another switch
  /// or installed by another thread; std::bad_alloc. Nothing has changed then.
  void install_arena(graph_arena& arena);
  /// Uninstalls the arena of the calling thread. The switch recognises its blocks until the arena ends.
  /// @return the uninstalled arena; null if no arena was installed
  graph_arena* clear_arena() noexcept;
  /// True if the calling thread has an arena installed.
  [[nodiscard]] bool has_arena() const noexcept;

  /// Resets counts and peaks. Does not change the frozen state. @throws allocator_busy if blocks are in use;
  /// nothing has changed then. @pre no other thread uses the switch
  void reset();

  /// Returns a snapshot of the counts.
  [[nodiscard]] capture_switch_stats stats() const noexcept;
  /// The name used in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }
  /// Source of memory outside captures.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }

  /// Reports a violation for each broken invariant of the class comment. O(records, held blocks and arenas).
  void check_invariants() const noexcept;

 private:
  friend graph_arena;
  friend baked_blocks;
  friend class detail::rewound_arena;
  [[nodiscard]] TIDEMARK_COLD void* allocate_specially(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* allocate_baked(detail::switched_addresses& baked, std::size_t bytes, std::size_t align);
  // Deallocates or defers a block, unless the upstream must deallocate it now. @return false if it must
  [[nodiscard]] TIDEMARK_COLD bool deallocate_or_defer(void* block, std::size_t bytes,
                                                       std::size_t align) noexcept;
  // At level 2, reports an upstream allocation of a block that the switch holds back from the upstream.
  void check_new(void const* block) const noexcept;
  // Called at the end of an arena.
  void forget(graph_arena& arena) noexcept;
  // Called at the end of the graph that uses the addresses.
  void release(detail::switched_addresses& held) noexcept;

  // The functions below need mutex_.
  // Returns the calling thread's record, or null; `frozen_record` only if the thread has frozen the switch.
  [[nodiscard]] detail::capture_record* own_record() const noexcept;
  [[nodiscard]] detail::capture_record* frozen_record() const noexcept;
  void end_idle_records() noexcept;
  // If several arenas contain the address: the thread's own arena, else an arena with a block in use there.
  [[nodiscard]] graph_arena* arena_at(std::uintptr_t address) const noexcept;
  void count_special() noexcept;

  capture_switch_options options_;
  detail::usage_counter counter_;
  detail::special_count special_;      // records, held blocks and known arenas
  mutable detail::fork_safe<> mutex_;  // guards the member below, and the known arenas
  std::unique_ptr<detail::switch_records> of_;
};

}  // namespace tidemark
