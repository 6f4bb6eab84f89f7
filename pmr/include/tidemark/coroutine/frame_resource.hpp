// SPDX-License-Identifier: Apache-2.0
/// @file
/// `frame_resource`: argument that selects the resource of a coroutine's frame. Owns nothing.
#pragma once

#include <concepts>
#include <memory_resource>
#include <source_location>
#include <type_traits>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark {

/// The argument after `std::allocator_arg` of a coroutine whose promise is a `pmr_promise`. Made in the
/// coroutine's call from a resource, a `std::pmr` allocator or an open arena scope.
///
/// ```cpp
/// generator<int> squares(std::allocator_arg_t, frame_resource memory, int n);
/// for (int square : squares(std::allocator_arg, scope, 10)) …
/// ```
/// At level 2 it also records the place of the call, for reports of frames that outlive their memory. Below
/// level 2 it is one pointer. Copies refer to the same resource, which must outlive the frame. O(1).
/// Thread-safe.
class TIDEMARK_POINTER frame_resource {
 public:
  /// @param memory null selects the default resource
  frame_resource(std::pmr::memory_resource* memory TIDEMARK_LIFETIMEBOUND,
                 detail::call_site where = std::source_location::current()) noexcept
      : memory_{memory != nullptr ? memory : std::pmr::get_default_resource()}, where_{where} {}
  /// Frames from `memory`.
  frame_resource(std::pmr::memory_resource& memory TIDEMARK_LIFETIMEBOUND,
                 detail::call_site where = std::source_location::current()) noexcept
      : memory_{&memory}, where_{where} {}
  /// Frames from the allocator's resource.
  template <class T>
  frame_resource(std::pmr::polymorphic_allocator<T> const& allocator,
                 detail::call_site where = std::source_location::current()) noexcept
      : memory_{allocator.resource()}, where_{where} {}
  /// Frames from the arena of a scope. @pre the scope is open and innermost: an arena has one position, so
  /// the end of an inner scope would free the frame.
  template <class Scope>
    requires requires(Scope const& scope) {
      { scope.arena() } -> std::convertible_to<std::pmr::memory_resource&>;
    }
  frame_resource(Scope const& scope TIDEMARK_LIFETIMEBOUND,
                 detail::call_site where = std::source_location::current()) noexcept
      : memory_{&static_cast<std::pmr::memory_resource&>(scope.arena())}, where_{where} {}

  /// The resource, never null.
  [[nodiscard]] std::pmr::memory_resource* resource() const noexcept { return memory_; }
  /// The place of the call; line 0 if unknown, and always 0 below level 2.
  [[nodiscard]] std::source_location where() const noexcept { return where_.location(); }

 private:
  std::pmr::memory_resource* memory_;
  [[no_unique_address]] detail::call_site where_;
};

static_assert(std::is_trivially_copyable_v<frame_resource>, "a frame keeps a copy of its argument");

}  // namespace tidemark
