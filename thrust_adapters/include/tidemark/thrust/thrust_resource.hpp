// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thrust_resource`: a resource of tidemark as a resource of Thrust. Owns nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <type_traits>

#include <thrust/device_ptr.h>
#include <thrust/memory.h>
#include <thrust/mr/memory_resource.h>

#include <tidemark/cuda/memory_access.hpp>
#include <tidemark/thrust/detail/backend.hpp>
#include <tidemark/thrust/detail/give_back.hpp>

namespace tidemark {
namespace detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// Whether memory of an `R` may be reached by such pointers, as far as its type tells: the host reads and
/// writes through all but `device_ptr`.
template <class R, class Pointer>
inline constexpr bool may_serve = std::is_same_v<Pointer, ::thrust::device_ptr<void>> ||
                                  cuda::memory_access_of<R> != cuda::memory_access::device;

/// Whether of two resources one may free what the other allocated. A device can tell only whether they are
/// one.
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

/// A `thrust::mr::memory_resource` that takes its memory from a resource of tidemark, or any of `std::pmr`:
/// what Thrust's own pools and allocators, and `thrust::device(&resource)`, are made with. Containers and
/// algorithms are better off with `thrust_allocator` and `policy`, which know of streams and need no object
/// of this class.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB}, stream};
/// thrust_resource memory{&step};
/// thrust::mr::allocator<float, decltype(memory)> floats{&memory};
/// thrust::transform(thrust::device(&memory), first, last, result, square{});
/// ```
/// Blocks start at multiples of 256 bytes, whatever Thrust asks for: it asks for `alignof(T)`, and passes
/// blocks on to code that reads wide words and expects what CUDA's allocator gives.
///
/// It is a handle: copies are equal to it, and whoever has one may free what another allocated. The resource
/// must outlive them. Two are equal if their resources are. That is so for two objects of this class; for two
/// references to `thrust::mr::memory_resource` Thrust's own `==` is true always.
///
/// Thread-safety and complexity: those of the resource. Thrust's OMP system calls it from several threads at
/// once as it sorts; `policy` does not let it.
/// @tparam R the resource's class. With a final class calls are not virtual; with `std::pmr::memory_resource`
/// the type is the same for all.
/// @tparam Pointer what Thrust gets: `thrust::device_ptr<void>`, `thrust::universal_ptr<void>`, or `void*`
/// for memory of the host's algorithms.
template <class R, class Pointer = ::thrust::device_ptr<void>>
class thrust_resource final : public ::thrust::mr::memory_resource<Pointer> {
 public:
  static_assert(std::is_base_of_v<std::pmr::memory_resource, R>,
                "thrust_resource<R>: R is a std::pmr::memory_resource, as all resources of tidemark are");
  static_assert(
      detail::may_serve<R, Pointer>,
      "thrust_resource<R, Pointer>: the host must not touch the memory of this R, and does with raw and "
      "universal pointers; take thrust::device_ptr<void>, or a resource of pinned or managed memory");

  /// Alignment of every block, at least: what cudaMalloc gives (CUDA C++ Programming Guide, "Device Memory
  /// Accesses").
  static constexpr std::size_t default_alignment = 256;

  /// Takes memory from `resource`, which is not null.
  TIDEMARK_HOST_DEVICE explicit thrust_resource(R* resource) noexcept : resource_{resource} {}
  TIDEMARK_HOST_DEVICE thrust_resource(thrust_resource const& other) noexcept : resource_{other.resource_} {}
  thrust_resource& operator=(thrust_resource const& other) noexcept {
    resource_ = other.resource_;
    return *this;
  }
  ~thrust_resource() override = default;

  /// A block. @throws what the resource throws: `out_of_memory`, which is a std::bad_alloc, for want of
  /// memory; and that for more than PTRDIFF_MAX bytes, which not every resource of `std::pmr` refuses.
  [[nodiscard]] Pointer do_allocate(std::size_t bytes, std::size_t align) override {
    detail::require_countable(bytes, align, "thrust_resource");
    return Pointer{resource_->allocate(bytes, std::max(align, default_alignment))};
  }
  /// Gives a block back; null is none. If the resource throws, which those of tidemark do not, the block is
  /// lost: a warning. Thrust calls this where an exception would end the program.
  void do_deallocate(Pointer block, std::size_t bytes, std::size_t align) noexcept override {
    detail::give_back(*resource_, ::thrust::raw_pointer_cast(block), bytes,
                      std::max(align, default_alignment), "thrust_resource");
  }

  /// The resource that memory comes from.
  [[nodiscard]] TIDEMARK_HOST_DEVICE R* resource() const noexcept { return resource_; }

  /// Whether one may free what the other allocated.
  TIDEMARK_HOST_DEVICE friend bool operator==(thrust_resource const& a, thrust_resource const& b) noexcept {
    return detail::is_same_memory(a.resource_, b.resource_);
  }
  TIDEMARK_HOST_DEVICE friend bool operator!=(thrust_resource const& a, thrust_resource const& b) noexcept {
    return !(a == b);
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
