// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda_resource`: a resource of tidemark as a resource of CCCL and RMM. Owns nothing.
///
/// *Streams.* A call with a stream allocates memory for the work of this stream, and frees memory behind its
/// present work. If the resource has another stream (`gpu::stream_bound`, or a given stream), events order
/// the two streams, which costs more than one stream. A `device_cache` frees the block by its own events, and
/// its stream does not wait. If the resource has no stream, the calling thread waits for the named stream
/// before it frees memory, unless only the host may access the memory. Calls without a stream serve any work:
/// they wait for the resource's stream before they return memory. The current device is the device of the
/// streams.
///
/// *Captures.* A captured stream cannot wait for a stream outside the capture. Neither a stream outside nor
/// the calling thread can wait for a captured stream. Calls that would end a capture are not made: memory of
/// another stream is then not allocated, and is lost when it is freed. Memory without a stream is freed at
/// once. The default stream counts as outside while another stream is captured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <optional>
#include <type_traits>

#include <cuda/std/version>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error \
    "tidemark: CCCL before 3.1 has cuda::mr only where LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE is defined \
before its first header: on the command line, as the CMake target tidemark::thrust_headers does"
#endif

#include <cuda/memory_resource>
#if __has_include(<cuda/stream>)
#include <cuda/stream>
#else
#include <cuda/stream_ref>
#endif

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/cuda/memory/memory_access.hpp>
#include <tidemark/thrust/detail/deallocate_or_warn.hpp>

namespace tidemark {

/// A handle with the concepts of `cuda::mr`: those of CCCL 3.0 (`cuda::mr::async_resource`) and those since
/// 3.1 (`cuda::mr::resource`). Use it for containers and adaptors of RMM and CCCL.
///
/// ```cpp
/// device_pool blocks{{.stream = stream}};
/// rmm::device_uvector<float> x(n, stream, cuda_resource{blocks});
///
/// statistics_resource counted{&blocks};  // the type of an adaptor has neither access nor stream
/// cuda_resource<statistics_resource, tidemark::gpu::memory_access::device> memory{counted, stream};
/// ```
/// The handle is small and copyable, which CCCL requires since 3.2. The resource must outlive the handle and
/// its blocks. Memory with device access is aligned to at least 256 bytes, as in RMM's resources: RMM's
/// containers request `alignof(T)`, and code that reads wide words relies on more. The file comment has the
/// rules of streams and captures. In a capture, use a `graph_arena`, which never reuses memory.
///
/// Two handles are equal if their resources are equal and their streams are the same. Thread-safety: as the
/// resource.
/// @tparam R class of the resource
/// @tparam Access processors that may access the memory: sets the properties `cuda::mr::host_accessible` and
/// `cuda::mr::device_accessible`
template <class R, gpu::memory_access Access = gpu::memory_access_of<R>>
class cuda_resource {
 public:
  static_assert(std::is_base_of_v<std::pmr::memory_resource, R>,
                "cuda_resource<R>: R is a std::pmr::memory_resource, as all resources of tidemark are");
  static_assert(Access != gpu::memory_access::unknown,
                "cuda_resource<R>: the type R does not determine who may access its memory; say it: "
                "cuda_resource<R, gpu::memory_access::device>");

  /// Default alignment, as in RMM.
  static constexpr std::size_t default_alignment = 256;

  /// Makes a handle on `resource`. @param driver table of driver calls that order streams; must outlive this
  /// object.
  explicit cuda_resource(R& resource, gpu::driver& driver = gpu::default_driver()) noexcept
      : resource_{&resource}, driver_{&driver} {}
  /// Makes a handle on `resource` with `stream`, if its type has no stream, such as an adaptor on a
  /// `device_pool` or a `std::pmr::memory_resource`.
  cuda_resource(R& resource, gpu::stream_handle stream, gpu::driver& driver = gpu::default_driver()) noexcept
    requires(!gpu::stream_bound<R>)
      : resource_{&resource}, driver_{&driver}, stream_{stream} {}

  // ---- CCCL 3.1 and later ----

  /// Allocates a block for later work on `stream`.
  /// @throws the exceptions of the resource; `cuda_error` if the streams cannot be ordered. Nothing is
  /// allocated then.
  [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t bytes,
                               std::size_t align = default_alignment) {
    detail::require_possible("cuda_resource", bytes, align);
    void* const block = resource_->allocate(bytes, aligned(align));
    if (has_stream()) {
      require_done("cuStreamWaitEvent", gpu::put_behind(*driver_, stream.get(), own_stream()), block, bytes,
                   align);
    }
    return block;
  }
  /// Frees a block behind the present work of `stream`. Does nothing for null. If the driver returns an
  /// error, the block is lost, with a warning (`refused_return`).
  void deallocate(::cuda::stream_ref stream, void* block, std::size_t bytes,
                  std::size_t align = default_alignment) noexcept {
    if (block == nullptr) return;
    if constexpr (orders_itself) {
      resource_->deallocate(block, bytes, aligned(align), stream.get());
    } else {
      const gpu::status ended = end_work(stream.get());
      if (gpu::detail::shows_end_of_work(ended)) {
        free_block(block, bytes, align);
      } else {
        detail::report_warning(
            warning_kind::refused_return, "cuda_resource",
            "cuda_resource: cannot wait for the work of another stream (%s): %zu bytes that it may use are "
            "lost until their resource ends",
            driver_->error_name(ended), bytes);
      }
    }
  }
  /// Allocates a block for any work. @throws as `allocate`, and `cuda_error` for errors of work on the
  /// resource's stream.
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t align = default_alignment) {
    detail::require_possible("cuda_resource", bytes, align);
    void* const block = resource_->allocate(bytes, aligned(align));
    if (has_stream()) require_done("cuStreamSynchronize", wait_for(own_stream()), block, bytes, align);
    return block;
  }
  /// Frees a block that no work uses. Does nothing for null.
  void deallocate_sync(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    free_block(block, bytes, align);
  }

  // ---- CCCL 3.0, in which the names without a stream are the synchronous ones ----

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

  /// Returns the resource.
  [[nodiscard]] R& resource() const noexcept { return *resource_; }

  friend bool operator==(cuda_resource const& a, cuda_resource const& b) noexcept {
    return static_cast<std::pmr::memory_resource const&>(*a.resource_) == *b.resource_ &&
           a.stream_ == b.stream_;
  }

  friend constexpr void get_property(cuda_resource const&, ::cuda::mr::host_accessible) noexcept
    requires(Access == gpu::memory_access::host || Access == gpu::memory_access::host_and_device)
  {}
  friend constexpr void get_property(cuda_resource const&, ::cuda::mr::device_accessible) noexcept
    requires(Access == gpu::memory_access::device || Access == gpu::memory_access::host_and_device)
  {}

 private:
  // True for a resource that guards the block by an event itself, such as `device_cache`.
  static constexpr bool orders_itself = requires(R& resource, void* block, gpu::stream_handle last_used_on) {
    { resource.deallocate(block, std::size_t{}, std::size_t{}, last_used_on) } noexcept;
  };

  [[nodiscard]] static constexpr std::size_t aligned(std::size_t align) noexcept {
    return Access == gpu::memory_access::host ? align : (std::max)(align, default_alignment);
  }
  [[nodiscard]] bool has_stream() const noexcept { return gpu::stream_bound<R> || stream_.has_value(); }
  // @pre `has_stream()`.
  [[nodiscard]] gpu::stream_handle own_stream() const noexcept {
    if constexpr (gpu::stream_bound<R>) {
      return resource_->stream();
    } else {
      return *stream_;
    }
  }

  // Without a device there is no work.
  [[nodiscard]] static bool is_done(gpu::status result) noexcept {
    return result == gpu::status::success || gpu::detail::shows_that_nothing_runs(result);
  }
  // Orders the reuse of memory behind the work of a stream.
  [[nodiscard]] gpu::status end_work(gpu::stream_handle stream) const noexcept {
    if (has_stream()) return gpu::put_behind(*driver_, own_stream(), stream);
    if (Access == gpu::memory_access::host) return gpu::status::success;
    const gpu::status waited = wait_for(stream);
    return waited == gpu::status::capture_unsupported ? gpu::status::success : waited;
  }
  // Returns `capture_unsupported` if the stream is captured. Checked first, because a wait ends a capture.
  [[nodiscard]] gpu::status wait_for(gpu::stream_handle stream) const noexcept {
    const gpu::detail::relaxed_mode waiting{*driver_};
    bool captured = false;
    const gpu::status asked = driver_->is_capturing(stream, captured);
    if (asked != gpu::status::success) return asked;
    if (captured) return gpu::status::capture_unsupported;
    return driver_->synchronize(stream);
  }
  void require_done(char const* call, gpu::status result, void* block, std::size_t bytes, std::size_t align) {
    if (is_done(result)) return;
    free_block(block, bytes, align);
    gpu::require_success(*driver_, call, result);
  }
  void free_block(void* block, std::size_t bytes, std::size_t align) const noexcept {
    detail::deallocate_or_warn(*resource_, block, bytes, aligned(align), "cuda_resource");
  }

  R* resource_;
  gpu::driver* driver_;
  std::optional<gpu::stream_handle> stream_;  // set if its type has no stream
};

}  // namespace tidemark
