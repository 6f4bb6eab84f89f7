// SPDX-License-Identifier: Apache-2.0
/// @file
/// `observer_pointer`: a resource's pointer to its observer. `allocate_observed`: the protocol of
/// `allocation_observer`. They own nothing.
#pragma once

#include <cstddef>

#include <tidemark/core/allocation_observer.hpp>

namespace tidemark::detail {

// Not std::unique_ptr, because <memory> makes each source that includes an arena slower to compile.
class observer_pointer {
 public:
  observer_pointer() = default;
  explicit observer_pointer(allocation_observer* observer) noexcept : observer_{observer} {}
  observer_pointer(observer_pointer const&) = delete;
  observer_pointer& operator=(observer_pointer const&) = delete;
  ~observer_pointer() {
    if (observer_ != nullptr) observer_->detached();
  }
  [[nodiscard]] allocation_observer& operator*() const noexcept { return *observer_; }
  [[nodiscard]] allocation_observer* operator->() const noexcept { return observer_; }
  [[nodiscard]] bool operator==(std::nullptr_t) const noexcept { return observer_ == nullptr; }

 private:
  allocation_observer* observer_ = nullptr;  // null: none
};

/// Returns `chosen`, which may be null. With `TIDEMARK_TRACE` in the environment, returns a new observer that
/// also writes to the process's trace, and ends with its resource. @param name the resource's name in the trace
/// @throws std::bad_alloc
[[nodiscard]] observer_pointer observer_of(allocation_observer* chosen, char const* name);

/// Allocates by `allocate()`, which may return null, and tells the observer. `undo(block)` takes a block back
/// if the observer rejects it. @throws the exceptions of the observer and of `allocate`
template <class Observer, class Allocate, class Undo>
[[nodiscard]] void* allocate_observed(Observer& observer, std::size_t bytes, std::size_t align,
                                      Allocate const& allocate, Undo const& undo) {
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
