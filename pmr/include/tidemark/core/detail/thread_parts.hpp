// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_parts`: per-thread parts of an object that many threads use, and their lookup.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>

namespace tidemark::detail {

/// The calling thread's part of one object. Valid if `owner` is the object's number, which is never reused.
struct thread_slot {
  unsigned long long owner = 0;
  void* part = nullptr;
};
/// The calling thread's table of slots. The slot before the first holds the table's mask in place of an
/// owner. The part of object `n` is in the slot `n & mask` bytes after the first, or in a later slot if
/// another object uses this slot. Numbers are multiples of the slot size, so that no shift is needed. The
/// table grows up to 16 slots per part to make collisions rare.
extern constinit thread_local thread_slot* thread_slots;

/// The link from threads to an object of which they have parts. Threads may outlive the object.
///
/// Invariant: the object is not called after `leave`. Thread-safe.
template <class Sync>
class basic_owner_anchor {
 public:
  using end_function = void (*)(void* owner, void* part) noexcept;

  basic_owner_anchor(void* owner, end_function end_part) noexcept : owner_{owner}, end_part_{end_part} {}

  /// Detaches the object, which is not called afterwards. Waits for a thread that is calling it.
  void deregister() noexcept {
    const std::scoped_lock lock{mutex_};
    owner_.store(nullptr, std::memory_order_relaxed);
  }
  /// Calls the object to end a part, unless the object has left.
  void end(void* part) noexcept {
    const std::scoped_lock lock{mutex_};
    if (void* const owner = owner_.load(std::memory_order_relaxed)) end_part_(owner, part);
  }
  /// True once the object has left, and from then on. False may be out of date. Takes no lock.
  [[nodiscard]] bool is_abandoned() const noexcept {
    return owner_.load(std::memory_order_relaxed) == nullptr;
  }

 private:
  Sync::mutex mutex_;  // held during calls of the object
  Sync::template atomic<void*> owner_;
  end_function end_part_;
};
using owner_anchor = basic_owner_anchor<std_sync>;

/// Makes an anchor. A library function, because threads may keep an anchor after the program that contains
/// the object is unloaded. @throws std::bad_alloc.
[[nodiscard]] std::shared_ptr<owner_anchor> make_owner_anchor(void* owner,
                                                              owner_anchor::end_function end_part);
/// The calling thread's part of the object, moved to its first slot; null without a part. O(1) for few
/// collisions.
[[nodiscard]] void* find_thread_part(unsigned long long number) noexcept;
/// Gives the calling thread a part, and a table of slots, until the thread ends or removes the part.
/// @param number the object's number.
/// @throws std::bad_alloc, with nothing changed. O(objects of which the thread has parts).
void add_thread_part(std::shared_ptr<owner_anchor> anchor, unsigned long long number, void* part);
/// Removes the calling thread's part, if any, without a call of the object.
void remove_thread_part(unsigned long long number) noexcept;
/// A nonzero multiple of the slot size that no other call returns.
[[nodiscard]] unsigned long long next_owner_number() noexcept;

/// The parts that threads have of one object. At a thread's end `owner.end(part)` runs on the thread, unless
/// the object has left. Owns no part.
///
/// Thread-safe except construction and `leave`.
/// @tparam Owner class of the object, which has `void end(Part&) noexcept`
template <class Owner, class Part>
class thread_parts {
 public:
  struct slot {
    unsigned long long owner;
    Part* part;
  };

  /// @throws std::bad_alloc.
  explicit thread_parts(Owner& owner)
      : anchor_{make_owner_anchor(&owner, [](void* object, void* part) noexcept {
          static_cast<Owner*>(object)->end(*static_cast<Part*>(part));
        })} {}

  /// Detaches the object: ending threads no longer call it. Waits for threads that do. Call it in the
  /// destructor.
  void deregister() noexcept { anchor_->deregister(); }

  /// The owner number in this object's slots.
  [[nodiscard]] unsigned long long number() const noexcept { return number_; }
  /// A copy of the slot that may hold the calling thread's part. Another object may currently use the slot.
  [[nodiscard]] slot own_slot() const noexcept {
    auto const* const first = reinterpret_cast<char const*>(thread_slots);
    thread_slot const& found =
        *reinterpret_cast<thread_slot const*>(first + (number_ & thread_slots[-1].owner));
    return {found.owner, static_cast<Part*>(found.part)};
  }
  /// The calling thread's part, which `own_slot` finds from now on; null without a part.
  [[nodiscard]] Part* find() const noexcept {
    if (const slot own = own_slot(); own.owner == number_) return own.part;
    return static_cast<Part*>(find_thread_part(number_));
  }
  /// Makes `part` the calling thread's part. @pre the thread has no part. @throws std::bad_alloc.
  void add(Part& part) { add_thread_part(anchor_, number_, &part); }
  /// Removes the calling thread's part.
  void remove() noexcept { remove_thread_part(number_); }

 private:
  unsigned long long number_ = next_owner_number();
  std::shared_ptr<owner_anchor> anchor_;
};

}  // namespace tidemark::detail
