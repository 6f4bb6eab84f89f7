// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda_resource`: a resource of tidemark as a resource of CCCL and RMM. Owns nothing.
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

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/detail/event_result.hpp>
#include <tidemark/cuda/detail/relaxed_mode.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/cuda/memory_access.hpp>
#include <tidemark/cuda/stream_order.hpp>
#include <tidemark/thrust/detail/give_back.hpp>
#include <tidemark/warning.hpp>

namespace tidemark {

/// A handle that meets the concepts of `cuda::mr`, both those of CCCL 3.0 (`cuda::mr::async_resource`) and
/// those since 3.1 (`cuda::mr::resource`): what RMM's containers and adaptors, and CCCL's, take.
///
/// ```cpp
/// device_pool blocks{{.stream = stream}};
/// rmm::device_uvector<float> x(n, stream, cuda_resource{blocks});
///
/// statistics_resource counted{&blocks};  // an adaptor does not tell whose its memory is, nor its stream
/// cuda_resource<statistics_resource, cuda::memory_access::device> memory{counted, stream};
/// ```
/// It is small and copyable, as CCCL wants it since 3.2; the resource must outlive it and what is made with
/// it. Where devices may touch the memory, blocks are aligned to 256 bytes at least, as those of RMM's
/// resources are: RMM's containers ask for `alignof(T)`, and code that reads wide words relies on more.
///
/// *Streams.* A call that names a stream gives memory for the work of that stream, and takes it back behind
/// the work that is on it now. If the resource is of another (`cuda::stream_bound`, or it was told so),
/// events put the one stream behind the other: right, and dearer than a resource of that stream; a
/// `device_cache` takes the block back by its own way, and its stream does not wait. If the resource is of no
/// stream, memory goes back to it when the named stream's work has ended: the calling thread waits, unless
/// the memory is the host's alone, which work on streams does not use later. Calls that name no stream are
/// for any work, so that the resource's stream is waited for before they return memory. The current device is
/// that of the streams.
///
/// *Captures.* A stream that is captured cannot wait for one that is not, nor that one for it, nor the
/// calling thread: what would end a capture is not done. Memory of another stream is refused then, and what
/// is given back to that is lost; memory of no stream goes back at once. The default stream cannot be asked
/// or waited for while another is captured that it waits for: it counts as one outside. What a capture takes
/// is a `graph_arena`, which hands nothing out twice.
///
/// Two are equal if their resources are, and both are for the same stream. Thread-safety: that of the
/// resource; the driver's calls any thread's.
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

  /// Alignment where none is asked for: that of RMM.
  static constexpr std::size_t default_alignment = 256;

  /// Memory from `resource`. @param driver the calls that put streams in order; must outlive this object.
  explicit cuda_resource(R& resource, cuda::driver& driver = cuda::default_driver()) noexcept
      : resource_{&resource}, driver_{&driver} {}
  /// Memory from `resource`, which is for the work of `stream` and whose type does not tell: an adaptor on a
  /// `device_pool`, a `std::pmr::memory_resource`.
  cuda_resource(R& resource, cuda::stream_handle stream,
                cuda::driver& driver = cuda::default_driver()) noexcept
    requires(!cuda::stream_bound<R>)
      : resource_{&resource}, driver_{&driver}, told_stream_{stream} {}

  // ---- CCCL 3.1 and later ----

  /// A block for work that is put on `stream` from now on.
  /// @throws what the resource throws; `cuda_error` if the streams cannot be put in order. Nothing is handed
  /// out then.
  [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t bytes,
                               std::size_t align = default_alignment) {
    detail::require_countable(bytes, align, "cuda_resource");
    void* const block = resource_->allocate(bytes, aligned(align));
    if (is_of_a_stream()) {
      require_done("cuStreamWaitEvent", cuda::put_behind(*driver_, stream.get(), own_stream()), block, bytes,
                   align);
    }
    return block;
  }
  /// Gives a block back behind the work that is on `stream` now. If the driver will not order that, the block
  /// is lost: a warning (`refused_return`). Null is nothing.
  void deallocate(::cuda::stream_ref stream, void* block, std::size_t bytes,
                  std::size_t align = default_alignment) noexcept {
    if (block == nullptr) return;
    if constexpr (orders_itself) {
      resource_->deallocate(block, bytes, aligned(align), stream.get());
    } else {
      const cuda::status ended = end_work(stream.get());
      if (is_done(ended) || cuda::detail::shows_end_of_work(ended)) {
        give_back(block, bytes, align);
      } else {
        detail::report_warning(
            warning_kind::refused_return, "cuda_resource",
            "cuda_resource: work on another stream cannot be waited for (%s): %zu bytes that it "
            "may use are lost until their resource ends",
            driver_->error_name(ended), bytes);
      }
    }
  }
  /// A block for any work. @throws as the other, and `cuda_error` of work on the resource's stream.
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t align = default_alignment) {
    detail::require_countable(bytes, align, "cuda_resource");
    void* const block = resource_->allocate(bytes, aligned(align));
    if (is_of_a_stream()) require_done("cuStreamSynchronize", wait_for(own_stream()), block, bytes, align);
    return block;
  }
  /// Gives back a block that no work uses. Null is nothing.
  void deallocate_sync(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if (block != nullptr) give_back(block, bytes, align);
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
    return static_cast<std::pmr::memory_resource const&>(*a.resource_) == *b.resource_ &&
           a.told_stream_ == b.told_stream_;
  }
  friend bool operator!=(cuda_resource const& a, cuda_resource const& b) noexcept { return !(a == b); }

  friend constexpr void get_property(cuda_resource const&, ::cuda::mr::host_accessible) noexcept
    requires(Access == cuda::memory_access::host || Access == cuda::memory_access::host_and_device)
  {}
  friend constexpr void get_property(cuda_resource const&, ::cuda::mr::device_accessible) noexcept
    requires(Access == cuda::memory_access::device || Access == cuda::memory_access::host_and_device)
  {}

 private:
  // As `device_cache`, which guards the block by an event.
  static constexpr bool orders_itself = requires(R& resource, void* block, cuda::stream_handle last_used_on) {
    { resource.deallocate(block, std::size_t{}, std::size_t{}, last_used_on) } noexcept;
  };

  [[nodiscard]] static constexpr std::size_t aligned(std::size_t align) noexcept {
    return Access == cuda::memory_access::host ? align : std::max(align, default_alignment);
  }
  [[nodiscard]] bool is_of_a_stream() const noexcept {
    return cuda::stream_bound<R> || told_stream_.has_value();
  }
  // @pre is_of_a_stream().
  [[nodiscard]] cuda::stream_handle own_stream() const noexcept {
    if constexpr (cuda::stream_bound<R>) {
      return resource_->stream();
    } else {
      return *told_stream_;
    }
  }

  // Where there is no device there is no work either.
  [[nodiscard]] static bool is_done(cuda::status result) noexcept {
    return result == cuda::status::success || cuda::detail::shows_that_nothing_runs(result);
  }
  // What is given back may be used by others as soon as this is done.
  [[nodiscard]] cuda::status end_work(cuda::stream_handle stream) const noexcept {
    if (is_of_a_stream()) return cuda::put_behind(*driver_, own_stream(), stream);
    if (Access == cuda::memory_access::host) return cuda::status::success;
    const cuda::status waited = wait_for(stream);
    return waited == cuda::status::capture_unsupported ? cuda::status::success : waited;
  }
  // `capture_unsupported` of a captured stream: that is asked first, because a capture ends that is waited
  // for.
  [[nodiscard]] cuda::status wait_for(cuda::stream_handle stream) const noexcept {
    bool captured = false;
    const cuda::status asked = driver_->is_capturing(stream, captured);
    if (asked != cuda::status::success) return asked;
    if (captured) return cuda::status::capture_unsupported;
    const cuda::detail::relaxed_mode waiting{*driver_};
    return driver_->synchronize(stream);
  }
  void require_done(char const* call, cuda::status result, void* block, std::size_t bytes,
                    std::size_t align) {
    if (is_done(result)) return;
    give_back(block, bytes, align);
    cuda::require(*driver_, call, result);
  }
  void give_back(void* block, std::size_t bytes, std::size_t align) const noexcept {
    detail::give_back(*resource_, block, bytes, aligned(align), "cuda_resource");
  }

  R* resource_;
  cuda::driver* driver_;
  std::optional<cuda::stream_handle> told_stream_;  // that its type does not tell of
};

template <class R>
cuda_resource(R&) -> cuda_resource<R>;
template <class R>
cuda_resource(R&, cuda::driver&) -> cuda_resource<R>;
template <class R>
cuda_resource(R&, cuda::stream_handle) -> cuda_resource<R>;
template <class R>
cuda_resource(R&, cuda::stream_handle, cuda::driver&) -> cuda_resource<R>;

}  // namespace tidemark
