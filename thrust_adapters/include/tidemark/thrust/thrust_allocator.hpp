// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thrust_allocator`: an allocator for Thrust's containers on a resource of tidemark. Owns nothing.
///
/// *Streams* (CUDA only). A vector makes, destroys and copies its elements on the stream of the resource
/// (`gpu::stream_bound`) or on a given stream, else on the default stream. As always in Thrust, this work has
/// ended when the vector's function returns. The function does not wait while the stream is captured, and a
/// vector can be made in a capture. Thrust's operations on pointers alone have no stream: access to one
/// element, assignment within the capacity, insertion and erasure in the middle, and comparison use the
/// default stream. The host allocates and frees memory; work that still uses a destroyed vector must be on
/// the same stream.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory_resource>
#include <new>
#include <type_traits>

#include <thrust/device_ptr.h>
#include <thrust/universal_ptr.h>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/thrust/detail/backend.hpp>
#include <tidemark/thrust/detail/stream_policy.hpp>
#include <tidemark/thrust/thrust_resource.hpp>

namespace tidemark {
namespace detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// Returns the pointer to `T` of the same kind as a pointer to void. Thrust's traits for the type differ
/// between releases, and the standard's traits do not know reference types.
template <class T>
::thrust::device_ptr<T> pointer_like(::thrust::device_ptr<void>);
template <class T>
::thrust::universal_ptr<T> pointer_like(::thrust::universal_ptr<void>);
template <class T>
T* pointer_like(void*);

/// Execution policy that makes the elements of a container. With CUDA and device pointers it runs on the
/// allocator's stream; otherwise it is Thrust's policy for the pointer.
template <bool OnStream>
class element_work {
 public:
  TIDEMARK_HOST_DEVICE explicit element_work(gpu::stream_handle stream) noexcept : stream_{stream} {}
  /// Returns the stream of memory and elements; null: the default stream.
  [[nodiscard]] TIDEMARK_HOST_DEVICE gpu::stream_handle stream() const noexcept { return stream_; }

 private:
  gpu::stream_handle stream_;
};

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
template <>
class element_work<true> {
 public:
  using system_type = stream_policy;

  TIDEMARK_HOST_DEVICE explicit element_work(gpu::stream_handle stream) noexcept
      : system_{stream != nullptr ? stream : ::thrust::cuda_cub::default_stream(), true} {}
  [[nodiscard]] TIDEMARK_HOST_DEVICE gpu::stream_handle stream() const noexcept { return system_.stream(); }

  /// Called by Thrust each time it makes or copies elements.
  [[nodiscard]] TIDEMARK_HOST_DEVICE system_type& system() noexcept {
#if !defined(__CUDA_ARCH__)
    system_ = system_type{system_.stream(), may_wait_for(system_.stream())};
#endif
    return system_;
  }

 private:
  system_type system_;
};
#endif

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace detail

inline namespace TIDEMARK_THRUST_SYSTEM {

/// The counterpart of `std::pmr::polymorphic_allocator` for Thrust's containers: a handle on a resource. The
/// resource's address converts to it. `device_vector`, `universal_vector` and `host_vector` use it.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB}, stream};
/// device_vector<float> x(1000, 0.0f, &step);  // allocated in `step`, filled on `stream`
/// device_vector<float> y{x};                  // a copy uses the same resource
/// kept = x;                                   // copy assignment keeps the resource of `kept`
/// kept = std::move(x);                        // move assignment takes the memory and its resource
/// ```
/// There is no default resource: a vector without a resource does not compile, because host memory cannot
/// replace device memory. The resource, and the scope of its memory, must outlive the vector. The file
/// comment has the rules of streams.
///
/// Copy assignment keeps the left resource, which allows copies of results out of a step's memory. Moves and
/// swaps move memory and resource in O(1).
///
/// Blocks are aligned to at least 256 bytes. Deallocation does not throw. Two allocators are equal if their
/// resources are equal. Thread-safety: as the resource.
/// @tparam T type of the elements
/// @tparam R class of the resource; `std::pmr::memory_resource` for any. Calls of a final class are not
/// virtual.
/// @tparam VoidPointer `thrust::device_ptr<void>`, `thrust::universal_ptr<void>`, or `void*`
template <class T, class R = std::pmr::memory_resource, class VoidPointer = ::thrust::device_ptr<void>>
class thrust_allocator : public detail::element_work<!std::is_pointer_v<VoidPointer>> {
  using work = detail::element_work<!std::is_pointer_v<VoidPointer>>;

 public:
  using value_type = T;
  using void_pointer = VoidPointer;
  using pointer = decltype(detail::pointer_like<T>(VoidPointer{}));
  using const_pointer = decltype(detail::pointer_like<T const>(VoidPointer{}));
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using propagate_on_container_copy_assignment = std::false_type;
  // Thrust's move assignment always takes the other's memory, and must therefore take the resource as well.
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;
  template <class U>
  struct rebind {
    using other = thrust_allocator<U, R, VoidPointer>;
  };

  /// Makes an allocator on `resource`, for work of its stream.
  template <class Resource>
    requires std::convertible_to<Resource*, R*>  // other classes may be incomplete, as CUstream_st is
  thrust_allocator(Resource* resource) noexcept  // NOLINT(google-explicit-constructor)
      : thrust_allocator{resource, gpu::stream_of(*resource)} {
    static_assert(
        detail::may_serve<Resource, VoidPointer>,
        "host_vector and universal_vector: the host must not touch the memory of this resource, and does "
        "with them; take device_vector, or a resource of pinned or managed memory");
  }
  /// Makes an allocator on `resource` for work of `stream`, if the resource's type has no stream.
  TIDEMARK_HOST_DEVICE thrust_allocator(R* resource, gpu::stream_handle stream) noexcept
      : work{stream}, resource_{resource} {}
  /// Makes an allocator on the same resource and stream, for another type.
  template <class U>
  TIDEMARK_HOST_DEVICE thrust_allocator(  // NOLINT(google-explicit-constructor)
      thrust_allocator<U, R, VoidPointer> const& other) noexcept
      : thrust_allocator{other.resource(), other.stream()} {}

  /// Allocates memory for `n` elements. @throws std::bad_array_new_length if `n > max_size()`; the exceptions
  /// of the resource. Nothing has changed then.
  [[nodiscard]] pointer allocate(std::size_t n) {
    if (n > max_size()) throw std::bad_array_new_length{};
    return static_cast<pointer>(memory().do_allocate(n * sizeof(T), alignof(T)));
  }
  /// Frees the result of `allocate(n)`.
  void deallocate(pointer block, std::size_t n) noexcept {
    memory().do_deallocate(VoidPointer{block}, n * sizeof(T), alignof(T));
  }

  /// Returns the number of elements in PTRDIFF_MAX bytes.
  [[nodiscard]] TIDEMARK_HOST_DEVICE static constexpr std::size_t max_size() noexcept {
    return std::size_t(-1) / 2 / sizeof(T);
  }
  /// Returns the resource.
  [[nodiscard]] TIDEMARK_HOST_DEVICE R* resource() const noexcept { return resource_; }

  /// Returns true if one allocator may free the other's blocks, for any types of elements.
  template <class U>
  TIDEMARK_HOST_DEVICE friend bool operator==(thrust_allocator const& a,
                                              thrust_allocator<U, R, VoidPointer> const& b) noexcept {
    return detail::is_same_memory(a.resource(), b.resource());
  }

 private:
  [[nodiscard]] thrust_resource<R, VoidPointer> memory() const noexcept {
    return thrust_resource<R, VoidPointer>{resource_};
  }

  R* resource_;
};

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark
