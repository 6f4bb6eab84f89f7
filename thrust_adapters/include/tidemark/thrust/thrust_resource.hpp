// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thrust_resource`: adapts a resource of tidemark to Thrust. Owns nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <type_traits>

#include <thrust/device_ptr.h>
#include <thrust/memory.h>
#include <thrust/mr/memory_resource.h>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/cuda/memory/memory_access.hpp>
#include <tidemark/thrust/detail/backend.hpp>
#include <tidemark/thrust/detail/deallocate_or_warn.hpp>

namespace tidemark {
namespace detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// True if such pointers may refer to memory of an `R`, as far as its type determines it. The host accesses
/// memory through all pointers except `device_ptr`.
template <class R, class Pointer>
inline constexpr bool may_serve = std::is_same_v<Pointer, ::thrust::device_ptr<void>> ||
                                  gpu::memory_access_of<R> != gpu::memory_access::device;

/// Returns true if one resource may free the other's blocks. Device code compares only addresses.
template <class R>
TIDEMARK_HOST_DEVICE bool is_same_memory(R const* a, R const* b) noexcept {
#if defined(__CUDA_ARCH__)
  return a == b;
#else
  return static_cast<std::pmr::memory_resource const&>(*a) == *b;
#endif
}

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace detail

inline namespace TIDEMARK_THRUST_SYSTEM {

/// A `thrust::mr::memory_resource` on a resource of tidemark or `std::pmr`. Use it for Thrust's own pools and
/// allocators, and for `thrust::device(&resource)`. For containers and algorithms prefer `thrust_allocator`
/// and `par`, which support streams.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB}, stream};
/// thrust_resource memory{&step};
/// thrust::mr::allocator<float, decltype(memory)> floats{&memory};
/// thrust::transform(thrust::device(&memory), first, last, result, square{});
/// ```
/// Blocks start at multiples of 256 bytes. Two handles are equal if their resources are equal, and each may
/// then free the other's blocks. The resource must outlive them.
///
/// Thread-safety and complexity: as the resource. Thrust's OMP system calls it from several threads in a
/// sort; `par` prevents that.
/// @tparam R class of the resource. Calls of a final class are not virtual; with `std::pmr::memory_resource`
/// the type is the same for all resources.
/// @tparam Pointer `thrust::device_ptr<void>`, `thrust::universal_ptr<void>`, or `void*` for host algorithms
template <class R, class Pointer = ::thrust::device_ptr<void>>
class thrust_resource final : public ::thrust::mr::memory_resource<Pointer> {
 public:
  static_assert(std::is_base_of_v<std::pmr::memory_resource, R>,
                "thrust_resource<R>: R is a std::pmr::memory_resource, as all resources of tidemark are");
  static_assert(
      detail::may_serve<R, Pointer>,
      "thrust_resource<R, Pointer>: the host must not touch the memory of this R, and does with raw and "
      "universal pointers; take thrust::device_ptr<void>, or a resource of pinned or managed memory");

  /// Minimum alignment of every block, as for cudaMalloc (CUDA C++ Programming Guide, "Device Memory
  /// Accesses"). Thrust requests `alignof(T)`, but passes blocks to code that reads wide words.
  static constexpr std::size_t default_alignment = 256;

  /// Makes a handle on `resource`, which is not null.
  TIDEMARK_HOST_DEVICE explicit thrust_resource(R* resource) noexcept : resource_{resource} {}

  /// Allocates a block. @throws the exceptions of the resource; out_of_memory for more than PTRDIFF_MAX
  /// bytes.
  [[nodiscard]] Pointer do_allocate(std::size_t bytes, std::size_t align) override {
    detail::require_possible("thrust_resource", bytes, align);
    return Pointer{resource_->allocate(bytes, (std::max)(align, default_alignment))};
  }
  /// Frees a block. Does nothing for null. If the resource throws, the block is lost, with a warning;
  /// tidemark's resources do not throw. An exception would end the program at Thrust's calls.
  void do_deallocate(Pointer block, std::size_t bytes, std::size_t align) noexcept override {
    detail::deallocate_or_warn(*resource_, ::thrust::raw_pointer_cast(block), bytes,
                               (std::max)(align, default_alignment), "thrust_resource");
  }

  /// Returns the resource.
  [[nodiscard]] TIDEMARK_HOST_DEVICE R* resource() const noexcept { return resource_; }

  /// Returns true if one handle may free the other's blocks. `==` of two references to
  /// `thrust::mr::memory_resource` is Thrust's own and always true.
  TIDEMARK_HOST_DEVICE friend bool operator==(thrust_resource const& a, thrust_resource const& b) noexcept {
    return detail::is_same_memory(a.resource_, b.resource_);
  }

 private:
  TIDEMARK_HOST_DEVICE bool do_is_equal(
      ::thrust::mr::memory_resource<Pointer> const& other) const noexcept override {
#if defined(__CUDA_ARCH__)
    return this == &other;
#else
    auto const* const same = dynamic_cast<thrust_resource const*>(&other);
    return same != nullptr && *this == *same;
#endif
  }

  R* resource_;
};

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark
