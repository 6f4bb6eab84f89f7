// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_parts`: what each thread has of an object that many threads use, and how it finds that.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>

namespace tidemark::detail {

/// The calling thread's part of one object: right if `owner` is the object's number, which no other object
/// ever has.
struct thread_slot {
  unsigned long long owner = 0;
  void* part = nullptr;
};
/// The calling thread's table of slots. The slot in front of the first one has the mask of the table in place
/// of an owner: the part of object `n` is in the slot `n & mask` bytes behind the first one. Numbers are
/// multiples of the size of a slot, so that they need no shift. The table grows up to 16 slots for each part,
/// so that parts seldom meet in one slot, which then has the part that was used last.
extern constinit thread_local thread_slot* thread_slots;

/// What threads that have a part of an object keep of it: they may outlive it.
///
/// Invariant: an object is not called after `leave`. Any thread.
template <class Sync>
class basic_owner_anchor {
 public:
  using end_function = void (*)(void* owner, void* part) noexcept;

  basic_owner_anchor(void* owner, end_function end_part) noexcept : owner_{owner}, end_part_{end_part} {}

  /// The object is going, and is not called any more. Waits for a thread that is calling it.
  void leave() noexcept {
    const std::scoped_lock lock{mutex_};
    owner_.store(nullptr, std::memory_order_relaxed);
  }
  /// Calls the object to end a part, unless it is gone.
  void end(void* part) noexcept {
    const std::scoped_lock lock{mutex_};
    if (void* const owner = owner_.load(std::memory_order_relaxed)) end_part_(owner, part);
  }
  /// Whether the object is gone, which it stays. False may be out of date. Takes no lock.
  [[nodiscard]] bool is_abandoned() const noexcept {
    return owner_.load(std::memory_order_relaxed) == nullptr;
  }

 private:
  Sync::mutex mutex_;  // held while the object is called
  Sync::template atomic<void*> owner_;
  end_function end_part_;
};
using owner_anchor = basic_owner_anchor<std_sync>;

/// An anchor. A function of the library: threads keep anchors longer than the program that contains the
/// object may stay loaded. @throws std::bad_alloc.
[[nodiscard]] std::shared_ptr<owner_anchor> make_owner_anchor(void* owner,
                                                              owner_anchor::end_function end_part);
/// The calling thread's part of the object; null if it has none. O(objects that the thread has parts of).
[[nodiscard]] void* find_thread_part(std::shared_ptr<owner_anchor> const& anchor) noexcept;
/// The thread has a part, and a table of slots, until it ends or gives the part up. @param number of the
/// object.
/// @throws std::bad_alloc; nothing has changed then. O(objects that the thread has parts of).
void add_thread_part(std::shared_ptr<owner_anchor> anchor, unsigned long long number, void* part);
/// The thread has no part any more, if it had one; the object is not told.
void remove_thread_part(std::shared_ptr<owner_anchor> const& anchor) noexcept;
/// A multiple of the size of a slot that no other call returns; not 0.
[[nodiscard]] unsigned long long next_owner_number() noexcept;

/// The parts that threads have of one object. When a thread ends, `owner.end(part)` is called on it, unless
/// the object is gone. Owns no part.
///
/// Any thread, but for construction and `leave`.
/// @tparam Owner the object, which has `void end(Part&) noexcept`
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

  /// Threads that end do not call the object any more. Waits for those that do. For its destructor.
  void leave() noexcept { anchor_->leave(); }

  /// What the slots of a thread say of the object where they are right.
  [[nodiscard]] unsigned long long number() const noexcept { return number_; }
  /// Where the calling thread's part is found, if it is that of this object. A copy.
  [[nodiscard]] slot own_slot() const noexcept {
    const thread_slot found = slot_in(thread_slots);
    return {found.owner, static_cast<Part*>(found.part)};
  }
  /// The calling thread's part, whether or not its slot is another object's at the moment; null without one.
  [[nodiscard]] Part* find() const noexcept {
    if (const slot own = own_slot(); own.owner == number_) return own.part;
    return static_cast<Part*>(find_thread_part(anchor_));
  }
  /// The calling thread has this part from now on. @pre it has none. @throws std::bad_alloc.
  void add(Part& part) { add_thread_part(anchor_, number_, &part); }
  /// The calling thread has no part from now on.
  void remove() noexcept {
    remove_thread_part(anchor_);
    if (own_slot().owner == number_) slot_in(thread_slots) = {};
  }
  /// The calling thread's slot becomes this object's. @pre it has the part.
  void use_slot(Part& part) const noexcept { slot_in(thread_slots) = {number_, &part}; }

 private:
  [[nodiscard]] thread_slot& slot_in(thread_slot* first) const noexcept {
    return *reinterpret_cast<thread_slot*>(reinterpret_cast<char*>(first) + (number_ & first[-1].owner));
  }

  unsigned long long number_ = next_owner_number();
  std::shared_ptr<owner_anchor> anchor_;
};

}  // namespace tidemark::detail
