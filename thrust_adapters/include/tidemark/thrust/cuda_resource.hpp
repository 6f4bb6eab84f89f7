// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda_resource`: a resource of tidemark as a resource of CCCL and RMM. Owns nothing.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <type_traits>

#include <cuda/std/version>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error \
    "tidemark: CCCL before 3.1 has cuda::mr only where LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE is defined \
before its first header: on the command line, as the CMake target tidemark::thrust_headers does"
#endif

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/detail/capturing.hpp>
#include <tidemark/cuda/detail/event_result.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/cuda/memory_access.hpp>
#include <tidemark/cuda/stream_order.hpp>
#include <tidemark/warning.hpp>

namespace tidemark {

/// A handle that meets the concepts of `cuda::mr`, both those of CCCL 3.0 (`cuda::mr::async_resource`) and those
/// since 3.1 (`cuda::mr::resource`): what RMM's containers and adaptors, and CCCL's, take.
///
/// ```cpp
/// device_pool blocks{{.stream = stream}};
/// rmm::device_uvector<float> x(n, stream, cuda_resource{blocks});
/// ```
/// It is small and copyable, as CCCL wants it since 3.2; the resource must outlive it and what is made with it.
/// Blocks are aligned to what is asked for, and to what the resource always gives.
///
/// *Streams.* A call that names a stream gives memory for the work of that stream, and takes it back behind the
/// work that is on it now. If the resource is of another (`cuda::stream_bound`), events put the one stream
/// behind the other: right, and dearer than a resource of that stream. If the resource is of no stream, memory
/// goes back to it when the named stream's work has ended: the calling thread waits, unless the memory is the
/// host's alone, which work on streams does not use later, or the stream is captured, which cannot be waited
/// for (a `graph_arena` hands nothing out twice and is what a capture takes). Calls that name no stream are for
/// any work, so that the resource's stream is waited for before they return memory.
///
/// Two are equal if their resources are. Thread-safety: that of the resource; the driver's calls any thread's.
/// @tparam R the resource's class.
/// @tparam Access who may touch the memory: the properties `cuda::mr::host_accessible` and
/// `cuda::mr::device_accessible`.
template <class R, cuda::memory_access Access = cuda::memory_access_of<R>>
class cuda_resource {
 public:
  static_assert(std::is_base_of_v<std::pmr::memory_resource, R>,
                "cuda_resource<R>: R is a std::pmr::memory_resource, as all resources of tidemark are");
  static_assert(Access != cuda::memory_access::unknown,
                "cuda_resource<R>: the type R does not tell who may touch its memory; say it: "
                "cuda_resource<R, cuda::memory_access::device>");

  /// Alignment where none is asked for: that of CCCL and RMM.
  static constexpr std::size_t default_alignment = 256;

  /// Memory from `resource`. @param driver the calls that put streams in order; must outlive this object.
  explicit cuda_resource(R& resource, cuda::driver& driver = cuda::default_driver()) noexcept
      : resource_{&resource}, driver_{&driver} {}

  // ---- CCCL 3.1 and later ----

  /// A block for work that is put on `stream` from now on.
  /// @throws what the resource throws; `cuda_error` if the streams cannot be put in order. Nothing is handed out
  /// then.
  [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t bytes,
                               std::size_t align = default_alignment) {
    void* const block = resource_->allocate(bytes, align);
    if constexpr (cuda::stream_bound<R>) {
      const cuda::status ordered = cuda::put_behind(*driver_, stream.get(), resource_->stream());
      if (ordered != cuda::status::success) {
        resource_->deallocate(block, bytes, align);
        cuda::require(*driver_, "cuStreamWaitEvent", ordered);
      }
    }
    return block;
  }
  /// Gives a block back behind the work that is on `stream` now. If the driver will not order that, the block is
  /// lost: a warning.
  void deallocate(::cuda::stream_ref stream, void* block, std::size_t bytes,
                  std::size_t align = default_alignment) noexcept {
    const cuda::status ended = end_work(stream.get());
    if (ended == cuda::status::success) {
      resource_->deallocate(block, bytes, align);
    } else {
      detail::report_warning(
          warning_kind::refused_return, "cuda_resource",
          "cuda_resource: work on another stream cannot be waited for (%s): %zu bytes that it "
          "may use are lost until the process ends",
          driver_->error_name(ended), bytes);
    }
  }
  /// A block for any work. @throws as the other, and `cuda_error` of work on the resource's stream.
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t align = default_alignment) {
    void* const block = resource_->allocate(bytes, align);
    if constexpr (cuda::stream_bound<R>) {
      const cuda::status ended = driver_->synchronize(resource_->stream());
      if (ended != cuda::status::success) {
        resource_->deallocate(block, bytes, align);
        cuda::require(*driver_, "cuStreamSynchronize", ended);
      }
    }
    return block;
  }
  /// Gives back a block that no work uses.
  void deallocate_sync(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    resource_->deallocate(block, bytes, align);
  }

  // ---- CCCL 3.0, where the names without a stream are the synchronous ones ----

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align = default_alignment) {
    return allocate_sync(bytes, align);
  }
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    deallocate_sync(block, bytes, align);
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t align, ::cuda::stream_ref stream) {
    return allocate(stream, bytes, align);
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, ::cuda::stream_ref stream) {
    return allocate(stream, bytes);
  }
  void deallocate_async(void* block, std::size_t bytes, std::size_t align,
                        ::cuda::stream_ref stream) noexcept {
    deallocate(stream, block, bytes, align);
  }
  void deallocate_async(void* block, std::size_t bytes, ::cuda::stream_ref stream) noexcept {
    deallocate(stream, block, bytes);
  }

  /// The resource that memory comes from.
  [[nodiscard]] R& resource() const noexcept { return *resource_; }

  friend bool operator==(cuda_resource const& a, cuda_resource const& b) noexcept {
    return static_cast<std::pmr::memory_resource const&>(*a.resource_) == *b.resource_;
  }
  friend bool operator!=(cuda_resource const& a, cuda_resource const& b) noexcept { return !(a == b); }

  friend constexpr void get_property(cuda_resource const&, ::cuda::mr::host_accessible) noexcept
    requires(Access == cuda::memory_access::host || Access == cuda::memory_access::host_and_device)
  {}
  friend constexpr void get_property(cuda_resource const&, ::cuda::mr::device_accessible) noexcept
    requires(Access == cuda::memory_access::device || Access == cuda::memory_access::host_and_device)
  {}

 private:
  // What is given back may be used by others as soon as this returns success.
  [[nodiscard]] cuda::status end_work(cuda::stream_handle stream) noexcept {
    if constexpr (cuda::stream_bound<R>) {
      return cuda::put_behind(*driver_, resource_->stream(), stream);
    } else if constexpr (Access == cuda::memory_access::host) {
      return cuda::status::success;
    } else {
      if (cuda::detail::is_capturing(*driver_, stream)) return cuda::status::success;
      const cuda::status ended = driver_->synchronize(stream);
      return cuda::detail::shows_end_of_work(ended) ? cuda::status::success : ended;
    }
  }

  R* resource_;
  cuda::driver* driver_;
};

template <class R>
cuda_resource(R&) -> cuda_resource<R>;
template <class R>
cuda_resource(R&, cuda::driver&) -> cuda_resource<R>;

}  // namespace tidemark
