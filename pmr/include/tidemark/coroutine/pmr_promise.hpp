// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pmr_promise`: base of a promise whose coroutine frames come from a `std::pmr::memory_resource`.
///
/// Level 2 tracks frames in all arenas and their scopes, `shared_arena`, `pool`, `synchronized_pool` and
/// `epoch_resource`, and in resources inside them. It does not track frames in `planned_arena`,
/// `graph_arena`, workspaces, and the resources of `compat`, of std and of others. A frame leaked there is
/// not reported. Its record is dropped when an arena, a pool or another frame gets its memory. If an
/// `epoch_resource` gets the memory, it later reports the frame as its own.
///
/// If the memory of a tracked frame is freed first, level 2 reports `violation_kind::frame_outlived` with the
/// place of the call. The handler may destroy the coroutine, because the memory still exists.
/// AddressSanitizer reports later uses.
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <source_location>
#include <type_traits>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/coroutine/frame_resource.hpp>

namespace tidemark {

namespace detail {

// Level 2 records the live frames, to detect frames whose memory is freed first. The process has one table,
// ordered by address, because a frame may lie in a pool that lies in an arena. The records come from operator
// new and are reused. Thread-safe.
//
// A resource that does not report the memory it frees, such as std::pmr::monotonic_buffer_resource, leaves
// stale records. The table drops a stale record when a new frame, an arena or a pool obtains the memory.
/// Allocates a frame's block and records it. @throws the resource's exception, or std::bad_alloc, with
/// nothing changed.
[[nodiscard]] void* allocate_recorded(std::pmr::memory_resource& memory, std::size_t bytes, std::size_t align,
                                      std::source_location where);
/// Removes the record of a frame that is destroyed. @return false without a record, because the memory was
/// freed
[[nodiscard]] bool untrack_frame(void const* frame) noexcept;

}  // namespace detail

/// Base of a promise type whose frames come from the resource after `std::allocator_arg`, as in
/// `std::generator`. The two are the coroutine's first arguments, or follow the object in members and
/// lambdas. The resource is a `frame_resource`, or converts to one; without it, the default resource is used.
///
/// ```cpp
/// struct promise_type : pmr_promise<> { … };
/// generator<int> squares(std::allocator_arg_t, frame_resource memory, int n) {
///   for (int i = 0; i < n; ++i) co_yield i * i;
/// }
/// arena::scope scope{step};
/// for (int square : squares(std::allocator_arg, scope, 10)) …   // no call of operator new
/// ```
/// A block holds the frame and a pointer to its resource. A frame that the compiler elides allocates nothing.
/// Level 2 reports frames that outlive their memory.
///
/// Complexity and thread-safety: those of the resource, plus O(log live frames) under a lock at level 2.
/// @tparam FrameAlignment alignment of the frame. Compilers align the contents only as far as the frame:
/// derive from `pmr_promise<64>` if the promise, an argument or a local has `alignas(64)`.
// Always inlined, because g++ 12 takes templates of `operator new` and `operator delete` for a mismatch
// (-Wmismatched-new-delete), and warns in the program. clang needs `noexcept` without a condition.
template <std::size_t FrameAlignment = alignof(std::max_align_t)>
class pmr_promise {
  static_assert((FrameAlignment & (FrameAlignment - 1)) == 0 && FrameAlignment >= alignof(void*),
                "the alignment of frames must be a power of two, and that of a pointer at least");

 public:
  /// The frame of a coroutine without `std::allocator_arg`. @throws the resource's exception, as the
  /// overloads below. The coroutine's call throws it; nothing has changed then.
  [[nodiscard, gnu::always_inline]] static void* operator new(std::size_t bytes) {
    return allocate_frame(bytes, {std::pmr::get_default_resource(), std::source_location{}});
  }
  /// The frame of a function, or of a static member function.
  template <class Memory, class... Arguments>
  [[nodiscard, gnu::always_inline]] static void* operator new(std::size_t bytes, std::allocator_arg_t,
                                                              Memory& memory, Arguments&...) {
    return allocate_frame(bytes, resource_from(memory));
  }
  /// The frame of a member function or of a lambda.
  template <class Object, class Memory, class... Arguments>
  [[nodiscard, gnu::always_inline]] static void* operator new(std::size_t bytes, Object&,
                                                              std::allocator_arg_t, Memory& memory,
                                                              Arguments&...) {
    return allocate_frame(bytes, resource_from(memory));
  }
  /// Returns a frame to its resource.
  [[gnu::always_inline]] static void operator delete(void* frame, std::size_t bytes) noexcept {
    deallocate_frame(frame, bytes);
  }

 private:
  // A block holds a frame of `bytes`, and then its resource.
  static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return detail::align_up(bytes, alignof(std::pmr::memory_resource*)) + sizeof(std::pmr::memory_resource*);
  }
  static std::pmr::memory_resource** resource_behind(void* frame, std::size_t bytes) noexcept {
    void* const end = static_cast<std::byte*>(frame) + block_bytes(bytes);
    return static_cast<std::pmr::memory_resource**>(end) - 1;
  }
  [[nodiscard]] static void* allocate_frame(std::size_t bytes, frame_resource memory) {
    std::pmr::memory_resource* const resource = memory.resource();
    void* frame = nullptr;
    if constexpr (check_level >= 2)
      frame = detail::allocate_recorded(*resource, block_bytes(bytes), FrameAlignment, memory.where());
    else frame = resource->allocate(block_bytes(bytes), FrameAlignment);
    std::construct_at(resource_behind(frame, bytes), resource);
    return frame;
  }
  static void deallocate_frame(void* frame, std::size_t bytes) noexcept {
    if constexpr (check_level >= 2) {
      if (!detail::untrack_frame(frame)) return;  // its memory was freed and reported
    }
    (*resource_behind(frame, bytes))->deallocate(frame, block_bytes(bytes), FrameAlignment);
  }
  // Converts the argument after `std::allocator_arg`. Only a `frame_resource` knows the place of the call.
  template <class Memory>
  static frame_resource resource_from(Memory& memory) noexcept {
    if constexpr (std::is_same_v<std::remove_const_t<Memory>, frame_resource>) {
      return memory;
    } else {
      static_assert(std::is_constructible_v<frame_resource, Memory&, std::source_location>,
                    "the argument behind std::allocator_arg of a coroutine must be a memory resource, an "
                    "allocator of std::pmr, a scope of an arena or a frame_resource");
      return frame_resource{memory, std::source_location{}};
    }
  }
};

}  // namespace tidemark
