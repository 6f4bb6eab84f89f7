// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_parts`: what each thread has of an object that many threads use, and how it finds that.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include <tidemark/core/detail/std_sync.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// Where a thread finds its part of an object without a search: an entry is right if it bears the object's
/// number, which no other object ever bears.
struct thread_slot {
  unsigned long long owner = 0;
  void* part = nullptr;
};
inline constexpr std::size_t thread_slot_count =
    8;  // more objects than that in turn cost a search now and then
extern constinit thread_local std::array<thread_slot, thread_slot_count> thread_slots;

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
/// The thread has a part from now on, until it ends or gives it up. @throws std::bad_alloc; nothing has
/// changed then.
void add_thread_part(std::shared_ptr<owner_anchor> anchor, void* part);
/// The thread has no part any more, if it had one; the object is not told.
void remove_thread_part(std::shared_ptr<owner_anchor> const& anchor) noexcept;
/// A number that no other call returns, from 1 on: numbers of their own, so that the objects of a program
/// take its threads' slots in turn.
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
  /// Where the calling thread's part is found, if it is that of this object. A copy: two loads, and no
  /// address to compute.
  [[nodiscard]] slot own_slot() const noexcept {
    const thread_slot found = thread_slots[number_ % thread_slot_count];
    return {found.owner, static_cast<Part*>(found.part)};
  }
  /// The calling thread's part, whether or not its slot is another object's at the moment; null without one.
  [[nodiscard]] Part* find() const noexcept {
    if (const slot own = own_slot(); own.owner == number_) return own.part;
    return static_cast<Part*>(find_thread_part(anchor_));
  }
  /// The calling thread has this part from now on. @pre it has none. @throws std::bad_alloc.
  void add(Part& part) { add_thread_part(anchor_, &part); }
  /// The calling thread has no part from now on.
  void remove() noexcept {
    remove_thread_part(anchor_);
    if (own_slot().owner == number_) thread_slots[number_ % thread_slot_count] = {};
  }
  /// The calling thread's slot becomes this object's. @pre it has the part.
  void use_slot(Part& part) const noexcept { thread_slots[number_ % thread_slot_count] = {number_, &part}; }

 private:
  unsigned long long number_ = next_owner_number();
  std::shared_ptr<owner_anchor> anchor_;
};

}  // namespace tidemark::detail
