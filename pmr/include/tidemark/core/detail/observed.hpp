// SPDX-License-Identifier: Apache-2.0
/// @file
/// `ended_pointer`: a resource's pointer to its observer or trap, which it ends. `allocate_observed`: the
/// protocol of `allocation_observer`.
#pragma once

#include <cstddef>
#include <utility>

#include <tidemark/core/allocation_observer.hpp>

namespace tidemark::detail {

/// Points to an object and to the function that ends the object, or is null. The function is the owner's: a
/// program's observer is only detached. Not `std::unique_ptr`, because <memory> has a third as many lines as
/// <memory_resource>.
template <class T>
class ended_pointer {
 public:
  ended_pointer() = default;
  ended_pointer(T& object, void (*end)(T&) noexcept) noexcept : object_{&object}, end_{end} {}
  ended_pointer(ended_pointer&& other) noexcept
      : object_{std::exchange(other.object_, nullptr)}, end_{other.end_} {}
  ended_pointer& operator=(ended_pointer const&) = delete;
  ~ended_pointer() {
    if (object_ != nullptr) end_(*object_);
  }
  [[nodiscard]] T& operator*() const noexcept { return *object_; }
  [[nodiscard]] T* operator->() const noexcept { return object_; }
  [[nodiscard]] bool operator==(std::nullptr_t) const noexcept { return object_ == nullptr; }

 private:
  T* object_ = nullptr;
  void (*end_)(T&) noexcept = nullptr;
};

/// Returns `chosen`, which may be null. With `TIDEMARK_TRACE` in the environment, returns a new observer that
/// also writes to the process's trace. Detaches the observer at the end. @param name the resource's name in
/// the trace @throws std::bad_alloc
[[nodiscard]] ended_pointer<allocation_observer> observer_of(allocation_observer* chosen, char const* name);

/// Allocates by `allocate()`, which may return null, and tells the observer. `undo(block)` takes a block back
/// if the observer rejects it. @throws the exceptions of the observer and of `allocate`
template <class Observer, class Allocate, class Undo>
[[nodiscard, gnu::always_inline]] inline void* allocate_observed(Observer& observer, std::size_t bytes,
                                                                 std::size_t align, Allocate const& allocate,
                                                                 Undo const& undo) {
  observer.before_allocate(bytes, align);
  void* block = nullptr;
  try {
    block = allocate();
    if (block != nullptr) observer.allocated(block, bytes, align);
  } catch (...) {
    if (block != nullptr) undo(block);
    else observer.failed(bytes);
    throw;
  }
  if (block == nullptr) observer.failed(bytes);
  return block;
}

}  // namespace tidemark::detail
