// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thrust_allocator`: an allocator for Thrust's containers on a resource of tidemark. Owns nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory_resource>
#include <new>
#include <type_traits>

#include <thrust/device_ptr.h>
#include <thrust/universal_ptr.h>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/cuda/stream_order.hpp>
#include <tidemark/thrust/detail/backend.hpp>
#include <tidemark/thrust/detail/stream_policy.hpp>
#include <tidemark/thrust/thrust_resource.hpp>

namespace tidemark {
namespace detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// Pointers to elements of the kind of a pointer to void. (Thrust's traits for it have moved from release to
/// release, and the standard's know nothing of reference types.)
template <class VoidPointer>
struct pointers_like;
template <>
struct pointers_like<::thrust::device_ptr<void>> {
  template <class T>
  using to = ::thrust::device_ptr<T>;
};
template <>
struct pointers_like<::thrust::universal_ptr<void>> {
  template <class T>
  using to = ::thrust::universal_ptr<T>;
};
template <>
struct pointers_like<void*> {
  template <class T>
  using to = T*;
};

/// Which work of Thrust makes the elements of a container: for a device's pointers, with CUDA, what runs on
/// the allocator's stream; else what Thrust takes for the pointer.
template <bool OnStream>
class element_work {
 public:
  TIDEMARK_HOST_DEVICE explicit element_work(cuda::stream_handle stream) noexcept : stream_{stream} {}
  /// The stream that memory and elements are for; null: the default stream.
  [[nodiscard]] TIDEMARK_HOST_DEVICE cuda::stream_handle stream() const noexcept { return stream_; }

 private:
  cuda::stream_handle stream_;
};

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
template <>
class element_work<true> {
 public:
  using system_type = stream_policy;

  TIDEMARK_HOST_DEVICE explicit element_work(cuda::stream_handle stream) noexcept
      : system_{stream != nullptr ? stream : ::thrust::cuda_cub::default_stream(), true} {}
  [[nodiscard]] TIDEMARK_HOST_DEVICE cuda::stream_handle stream() const noexcept { return system_.stream(); }

  /// Thrust asks for this each time that it makes or copies elements.
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

/// What `std::pmr::polymorphic_allocator` is for the standard's containers: a handle on a resource, that the
/// resource's address converts to. `device_vector`, `universal_vector` and `host_vector` are Thrust's vectors
/// with it.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB}, stream};
/// device_vector<float> x(1000, 0.0f, &step);  // allocated in `step`, filled on `stream`
/// device_vector<float> y{x};                  // a copy lies in the same resource
/// kept = x;                                   // and what is assigned stays in that of `kept`
/// kept = std::move(x);                        // but here `kept` takes the memory, and is of `step` now
/// ```
/// There is no default resource: a vector without one does not compile, because a device's memory cannot
/// stand in for the host's. The resource must outlive the vector, and the vector the scope or the step that
/// its memory belongs to.
///
/// Copy assignment keeps the resource of the left side, so that what is kept of a step is copied out of the
/// step's memory. Moves and swaps take memory along with its resource, in O(1).
///
/// *Streams* (CUDA only). Elements are made and destroyed, and copied with their vector or as it grows, on
/// the stream that the resource is of (`cuda::stream_bound`) or that was given; by default the default
/// stream. As ever in Thrust that has ended when the vector's function returns; while the stream is captured
/// it is put on the stream and not waited for, so that a vector can be made in a capture. What Thrust does by
/// pointers alone knows of no stream: access to one element, assignment into room that is there, insertion
/// and erasure in the middle, and comparison are on the default stream, whatever the resource. Memory is
/// allocated and freed on the host; what still uses a vector when it goes must be on the same stream.
///
/// Blocks are aligned to 256 bytes at least. Nothing is thrown where memory is given back. Two are equal if
/// their resources are. Thread-safety: that of the resource.
/// @tparam T the elements.
/// @tparam R the resource's class; `std::pmr::memory_resource` for any. With a final class calls are not
/// virtual.
/// @tparam VoidPointer `thrust::device_ptr<void>`, `thrust::universal_ptr<void>`, or `void*`.
template <class T, class R = std::pmr::memory_resource, class VoidPointer = ::thrust::device_ptr<void>>
class thrust_allocator : public detail::element_work<!std::is_pointer_v<VoidPointer>> {
  using work = detail::element_work<!std::is_pointer_v<VoidPointer>>;

 public:
  using value_type = T;
  using void_pointer = VoidPointer;
  using pointer = typename detail::pointers_like<VoidPointer>::template to<T>;
  using const_pointer = typename detail::pointers_like<VoidPointer>::template to<T const>;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using propagate_on_container_copy_assignment = std::false_type;
  // Thrust's move assignment takes the other's memory whatever this says; so it must take the resource as
  // well.
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;
  template <class U>
  struct rebind {
    using other = thrust_allocator<U, R, VoidPointer>;
  };

  /// Memory from `resource`, for work of its stream.
  template <class Resource>
    requires std::convertible_to<Resource*, R*>  // what is no resource may be incomplete, as CUstream_st is
  thrust_allocator(Resource* resource) noexcept  // NOLINT(google-explicit-constructor)
      : thrust_allocator{resource, cuda::stream_of(*resource)} {
    static_assert(
        detail::may_serve<Resource, VoidPointer>,
        "host_vector and universal_vector: the host must not touch the memory of this resource, and does "
        "with them; take device_vector, or a resource of pinned or managed memory");
  }
  /// Memory from `resource`, which is of no stream, for work of `stream`; or of that stream, whose type is
  /// not known.
  TIDEMARK_HOST_DEVICE thrust_allocator(R* resource, cuda::stream_handle stream) noexcept
      : work{stream}, resource_{resource} {}
  template <class U>
  TIDEMARK_HOST_DEVICE thrust_allocator(  // NOLINT(google-explicit-constructor)
      thrust_allocator<U, R, VoidPointer> const& other) noexcept
      : thrust_allocator{other.resource(), other.stream()} {}

  /// Room for `n` elements. @throws std::bad_array_new_length if these are more than `max_size()`; otherwise
  /// what the resource throws. Nothing has changed then.
  [[nodiscard]] pointer allocate(std::size_t n) {
    if (n > max_size()) throw std::bad_array_new_length{};
    return static_cast<pointer>(memory().do_allocate(n * sizeof(T), alignof(T)));
  }
  /// Gives back what `allocate(n)` gave.
  void deallocate(pointer block, std::size_t n) noexcept {
    memory().do_deallocate(VoidPointer{block}, n * sizeof(T), alignof(T));
  }

  /// Elements in PTRDIFF_MAX bytes.
  [[nodiscard]] TIDEMARK_HOST_DEVICE static constexpr std::size_t max_size() noexcept {
    return std::size_t(-1) / 2 / sizeof(T);
  }
  /// The resource that memory comes from.
  [[nodiscard]] TIDEMARK_HOST_DEVICE R* resource() const noexcept { return resource_; }

  /// Whether one may free what the other allocated, whatever elements they are for.
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
