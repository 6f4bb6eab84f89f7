// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_fence`: something that is done at some time, after which a block may be used again. Owns what it
/// asks.
#pragma once

#include <type_traits>
#include <utility>

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
/// is done: nothing on that device uses the block then, and whoever waits would do so for ever. Several
/// blocks may wait for one event, if its state counts the fences that share it.
///
/// Invariant: a fence without functions is done, and has nothing to destroy; moved-from fences are such.
///
/// Complexity: that of the functions. Thread-safety: one thread at a time; any, one after the other.
class reuse_fence {
 public:
  /// What one kind of fence does. All of them may be called on any thread, and must not throw.
  struct functions {
    /// Whether the work has ended. @pre It is quick, and does not use the cache that the fence was given to:
    /// that calls it under its lock.
    bool (*done)(void* state) noexcept;
    /// Returns when it has ended, at once where it has. May take long, and may use the cache.
    void (*wait)(void* state) noexcept;
    /// Ends the state, also where nobody has seen the work end. May use the cache. Null: nothing is to be
    /// done.
    void (*destroy)(void* state) noexcept;
  };

  /// A fence that is done.
  constexpr reuse_fence() noexcept = default;
  /// @param calls of this kind of fence; must outlive the fence
  /// @param state what they are called with; the fence's own from here on
  constexpr reuse_fence(functions const& calls, void* state) noexcept : calls_{&calls}, state_{state} {}
  reuse_fence(reuse_fence&& other) noexcept
      : calls_{std::exchange(other.calls_, nullptr)}, state_{std::exchange(other.state_, nullptr)} {}
  /// Destroys its own state first.
  reuse_fence& operator=(reuse_fence&& other) noexcept {
    if (this != &other) {
      reset();
      calls_ = std::exchange(other.calls_, nullptr);
      state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
  }
  ~reuse_fence() { reset(); }

  /// Whether there is nothing to ask: then it is done.
  [[nodiscard]] bool empty() const noexcept { return calls_ == nullptr; }
  /// Whether the work has ended.
  [[nodiscard]] bool done() const noexcept { return empty() || calls_->done(state_); }
  /// Returns when it has.
  void wait() const noexcept {
    if (!empty()) calls_->wait(state_);
  }
  /// Destroys the state; the fence is empty then.
  void reset() noexcept {
    functions const* const calls = std::exchange(calls_, nullptr);
    if (calls != nullptr && calls->destroy != nullptr) calls->destroy(state_);
    state_ = nullptr;
  }

 private:
  functions const* calls_ = nullptr;
  void* state_ = nullptr;
};

static_assert(!std::is_copy_constructible_v<reuse_fence>, "a state is destroyed once");
static_assert(std::is_nothrow_move_constructible_v<reuse_fence> &&
                  std::is_nothrow_move_assignable_v<reuse_fence>,
              "fences move inside deallocations, which do not throw");
static_assert(sizeof(reuse_fence) == 2 * sizeof(void*));

}  // namespace tidemark
