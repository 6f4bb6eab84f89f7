// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_fence`: something that is done at some time, after which a block may be used again. Owns what it
/// asks.
#pragma once

#include <memory>
#include <type_traits>

namespace tidemark {

/// Tells whether work that still uses a block has ended: an event recorded on a device's stream, a counter, a
/// flag.
///
/// Two pointers and no allocation: functions for one kind of fence, and the state of this one. What the
/// functions do with the state is theirs; a fence is moved about, never copied, and calls `destroy` once.
///
/// ```cpp
/// constexpr reuse_fence::functions event_functions{  // of(event) is the pointer as a cudaEvent_t
///     .done = [](void* event) noexcept { return cudaEventQuery(of(event)) != cudaErrorNotReady; },
///     .wait = [](void* event) noexcept { (void)cudaEventSynchronize(of(event)); },
///     .destroy = [](void* event) noexcept { (void)cudaEventDestroy(of(event)); }};
/// cache.deallocate_after(block, bytes, 256, reuse_fence{event_functions, event});
/// ```
/// Once done, a fence stays done. One that cannot tell any more, since its device is lost, must say that it
/// is done: nothing on that device uses the block then, and a waiting thread would do so for ever. Several
/// blocks may wait for one event, if its state counts the fences that share it.
///
/// Invariant: a fence without functions is done, and has nothing to destroy; moved-from fences are such.
///
/// Complexity: that of the functions. Thread-safety: one thread at a time; any, one after the other.
class reuse_fence {
 public:
  /// What one kind of fence does. All functions may be called on any thread, must not throw, and may use the
  /// cache that the fence was given to: a cache calls them without a lock.
  struct functions {
    /// Whether the work has ended. @pre It is quick: a request waits for it.
    bool (*done)(void* state) noexcept;
    /// Returns when it has ended, at once where it has. May take long.
    void (*wait)(void* state) noexcept;
    /// Ends the state, also if the end of the work was not noticed. Null: nothing is to be done.
    void (*destroy)(void* state) noexcept;
    /// What the fence comes in the order of, such as its event's stream: of fences with one order, those
    /// given to a cache later are done later. A cache then asks only the first of them. It must be the same
    /// as long as the fence lives, and is compared, not used. Null, or a null order: it comes in none. A
    /// wrong order costs delay, never a wrong reuse: each fence is asked before its block is used.
    void const* (*order)(void* state) noexcept = nullptr;
  };

  /// A fence that is done.
  constexpr reuse_fence() noexcept = default;
  /// @param calls of this kind of fence; must outlive the fence
  /// @param state what they are called with; the fence's own from here on
  reuse_fence(functions const& calls, void* state) noexcept : calls_{&calls, destroyer{state}} {}
  /// Whether there is nothing to ask: then it is done.
  [[nodiscard]] bool empty() const noexcept { return calls_ == nullptr; }
  /// Whether the work has ended.
  [[nodiscard]] bool done() const noexcept { return empty() || calls_->done(state()); }
  /// What it comes in the order of; null: nothing.
  [[nodiscard]] void const* order() const noexcept {
    return empty() || calls_->order == nullptr ? nullptr : calls_->order(state());
  }
  /// Returns when it has.
  void wait() const noexcept {
    if (!empty()) calls_->wait(state());
  }
  /// Destroys the state; the fence is empty then.
  void reset() noexcept { calls_.reset(); }

 private:
  struct destroyer {
    void* state;
    void operator()(functions const* calls) const noexcept {
      if (calls->destroy != nullptr) calls->destroy(state);
    }
  };
  [[nodiscard]] void* state() const noexcept { return calls_.get_deleter().state; }

  std::unique_ptr<functions const, destroyer> calls_;  // not owned: what it owns is the state
};

static_assert(!std::is_copy_constructible_v<reuse_fence>, "a state is destroyed once");
static_assert(std::is_nothrow_move_constructible_v<reuse_fence> &&
                  std::is_nothrow_move_assignable_v<reuse_fence>,
              "fences move inside deallocations, which do not throw");
static_assert(sizeof(reuse_fence) == 2 * sizeof(void*));

}  // namespace tidemark
