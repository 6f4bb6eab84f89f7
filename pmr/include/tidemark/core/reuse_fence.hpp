// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_fence`: the end of work after which a block may be reused. Owns its state.
#pragma once

#include <memory>
#include <type_traits>

namespace tidemark {

/// Reports the end of the work that still uses a block: an event on a device's stream, a counter or a flag. A
/// fence holds two pointers, to functions and to a state, and allocates nothing. It is moved, never copied,
/// and calls `destroy` once.
///
/// ```cpp
/// constexpr reuse_fence::functions event_functions{  // of(event) is the pointer as a cudaEvent_t
///     .done = [](void* event) noexcept { return cudaEventQuery(of(event)) != cudaErrorNotReady; },
///     .wait = [](void* event) noexcept { (void)cudaEventSynchronize(of(event)); },
///     .destroy = [](void* event) noexcept { (void)cudaEventDestroy(of(event)); }};
/// cache.deallocate_after(block, bytes, 256, reuse_fence{event_functions, event});
/// ```
/// A done fence stays done. Several blocks may share one event if its state counts the fences.
///
/// Invariant: a fence without functions is done and has nothing to destroy; this includes moved-from fences.
///
/// Complexity: that of the functions. One thread at a time; different threads may call one after the other.
class reuse_fence {
 public:
  /// Functions of one kind of fence. They may run on any thread and must not throw. They may use the cache
  /// that holds the fence, because a cache calls them without a lock.
  struct functions {
    /// Returns true if the work has ended. Also returns true if the device is lost: no work on that device
    /// uses the block then, and a waiting thread must not wait for ever. @pre the call is quick, because a
    /// request waits for it.
    bool (*done)(void* state) noexcept;
    /// Returns when the work has ended. May take long.
    void (*wait)(void* state) noexcept;
    /// Destroys the state, also if the end of the work was never observed. Null: nothing to destroy.
    void (*destroy)(void* state) noexcept;
    /// Order of the fence, such as its event's stream. Fences with one order finish in the order in which the
    /// cache got them. A cache then polls only the first of them. The order is constant while the fence
    /// lives, and is only compared. Null, or a null result: no order. A wrong order delays reuse but is never
    /// unsafe, because a cache checks each fence before it reuses the block.
    void const* (*order)(void* state) noexcept = nullptr;
  };

  /// A fence that is done.
  constexpr reuse_fence() noexcept = default;
  /// @param calls functions of this kind of fence; must outlive the fence
  /// @param state argument of the functions; the fence takes ownership
  reuse_fence(functions const& calls, void* state) noexcept : calls_{&calls, destroyer{state}} {}
  /// True if the fence has no functions; it is then done.
  [[nodiscard]] bool empty() const noexcept { return calls_ == nullptr; }
  /// True if the work has ended.
  [[nodiscard]] bool done() const noexcept { return empty() || calls_->done(state()); }
  /// The order of the fence; null if it has no order.
  [[nodiscard]] void const* order() const noexcept {
    return empty() || calls_->order == nullptr ? nullptr : calls_->order(state());
  }
  /// Returns when the work has ended.
  void wait() const noexcept {
    if (!empty()) calls_->wait(state());
  }
  /// Destroys the state; the fence is empty afterwards.
  void reset() noexcept { calls_.reset(); }

 private:
  struct destroyer {
    void* state;
    void operator()(functions const* calls) const noexcept {
      if (calls->destroy != nullptr) calls->destroy(state);
    }
  };
  [[nodiscard]] void* state() const noexcept { return calls_.get_deleter().state; }

  std::unique_ptr<functions const, destroyer> calls_;  // not owned: it owns the state
};

static_assert(!std::is_copy_constructible_v<reuse_fence>, "a state is destroyed once");
static_assert(std::is_nothrow_move_constructible_v<reuse_fence> &&
                  std::is_nothrow_move_assignable_v<reuse_fence>,
              "fences move inside deallocations, which do not throw");
static_assert(sizeof(reuse_fence) == 2 * sizeof(void*));

}  // namespace tidemark
