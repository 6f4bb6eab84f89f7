// SPDX-License-Identifier: Apache-2.0
/// @file
/// `foreign_resource`: adapts a resource of Thrust, CCCL or RMM to `std::pmr`. Owns nothing.
///
/// `thrust::mr::memory_resource<void*>` is intended to be a `std::pmr::memory_resource` itself. In all
/// releases so far it is not, because a macro is spelt in two ways.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>

#include <thrust/mr/memory_resource.h>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/thrust/detail/deallocate_or_warn.hpp>

namespace tidemark {

/// A resource of raw pointers with `allocate`, as in Thrust and in CCCL before 3.1, or with `allocate_sync`,
/// as in later CCCL and in RMM.
template <class M>
concept raw_memory_source = requires(M& source, void* block, std::size_t bytes, std::size_t align) {
  { source.allocate_sync(bytes, align) } -> std::same_as<void*>;
  source.deallocate_sync(block, bytes, align);
} || requires(M& source, void* block, std::size_t bytes, std::size_t align) {
  { source.allocate(bytes, align) } -> std::same_as<void*>;
  source.deallocate(block, bytes, align);
};

/// A source that also allocates in stream order: by `allocate_async`, as in CCCL before 3.1, or by `allocate`
/// with a stream as its first argument, as in later CCCL and in RMM.
template <class M>
concept stream_ordered_source =
    raw_memory_source<M> && (requires(M& source, void* block, std::size_t n, gpu::stream_handle stream) {
      { source.allocate(stream, n, n) } -> std::same_as<void*>;
      source.deallocate(stream, block, n, n);
    } || requires(M& source, void* block, std::size_t n, gpu::stream_handle stream) {
      { source.allocate_async(n, n, stream) } -> std::same_as<void*>;
      source.deallocate_async(block, n, n, stream);
    });

/// Adapts a `thrust::mr` resource of raw pointers, a `cuda::mr` resource, or an RMM resource to `std::pmr`.
/// Use it as the upstream of an arena or a pool.
///
/// ```cpp
/// rmm::mr::cuda_async_memory_resource device;
/// foreign_resource upstream{device, stream};
/// device_pool blocks{{.stream = stream, .upstream = &upstream}};
/// ```
/// Do not put a resource that writes into its memory on device memory: `pool` and containers write;
/// `device_pool`, `graph_arena` and `reuse_cache` do not. Exceptions of the source pass through.
///
/// Two resources are equal if their streams are the same and their sources are equal: one object, or equal by
/// `==`. Sources of `thrust::mr` are equal only as one object. Thread-safety and complexity: as the source,
/// which must outlive this object.
/// @tparam M class of the source
template <raw_memory_source M>
class foreign_resource final : public std::pmr::memory_resource, public gpu::detail::stream_ordered {
 public:
  /// Makes a resource on `source`, for any work. No work may use the memory when it is freed: most sources
  /// wait for the default stream in each call, and for no other stream.
  explicit foreign_resource(M& source) noexcept : source_{&source} {}
  /// Makes a resource on `source` in the order of `stream`: memory is for the work of this stream, and is
  /// freed behind its work. Pass the stream of the `device_pool` or `device_cache` above.
  foreign_resource(M& source, gpu::stream_handle stream) noexcept
    requires stream_ordered_source<M>
      : source_{&source}, stream_{stream} {}

  /// Returns the source of memory.
  [[nodiscard]] M& source() const noexcept { return *source_; }
  /// Returns true if the memory is for the work of `stream`.
  [[nodiscard]] bool is_ordered_by(gpu::stream_handle stream) const noexcept override {
    return stream_ && gpu::is_same_stream(*stream_, stream);
  }

 private:
  static constexpr bool names_sync = requires(M& source) { source.allocate_sync(1, 1); };
  static constexpr bool names_async =
      requires(M& source, gpu::stream_handle stream) { source.allocate_async(1, 1, stream); };

  /// Allocates 1 byte for a request of 0, because RMM's pools return null otherwise. Frees a block without
  /// the requested alignment at once, because RMM's pools and `cudaMalloc` align only to 256 bytes.
  /// @throws the exceptions of the source; out_of_memory if the source returns null or an unaligned block,
  /// and for more than PTRDIFF_MAX bytes.
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    detail::require_possible("foreign_resource", bytes, align);
    void* const block = allocate_block(at_least_one(bytes), align);
    if (block == nullptr) throw_out_of_memory(bytes, align, "its source returned null");
    if (reinterpret_cast<std::uintptr_t>(block) % align != 0) {
      do_deallocate(block, bytes, align);
      throw_out_of_memory(bytes, align, "its source does not support that alignment");
    }
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    if (block != nullptr) free_block(block, at_least_one(bytes), align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    auto const* const same = dynamic_cast<foreign_resource const*>(&other);
    if (same == nullptr || stream_ != same->stream_) return false;
    if constexpr (!std::derived_from<M, ::thrust::mr::memory_resource<void*>> &&
                  std::equality_comparable<M>) {
      return *source_ == *same->source_;
    } else {
      return source_ == same->source_;
    }
  }

  [[nodiscard]] void* allocate_block(std::size_t bytes, std::size_t align) {
    if constexpr (stream_ordered_source<M>) {
      if (stream_) {
        if constexpr (names_async) return source_->allocate_async(bytes, align, *stream_);
        else return source_->allocate(*stream_, bytes, align);
      }
    }
    if constexpr (names_sync) return source_->allocate_sync(bytes, align);
    else return source_->allocate(bytes, align);
  }
  void free_block(void* block, std::size_t bytes, std::size_t align) {
    if constexpr (stream_ordered_source<M>) {
      if (stream_) {
        if constexpr (names_async) return source_->deallocate_async(block, bytes, align, *stream_);
        else return source_->deallocate(*stream_, block, bytes, align);
      }
    }
    if constexpr (names_sync) source_->deallocate_sync(block, bytes, align);
    else source_->deallocate(block, bytes, align);
  }

  [[nodiscard]] static std::size_t at_least_one(std::size_t bytes) noexcept { return bytes == 0 ? 1 : bytes; }
  [[noreturn]] static void throw_out_of_memory(std::size_t bytes, std::size_t align, char const* because) {
    throw out_of_memory{{.resource = "foreign_resource",
                         .requested_bytes = bytes,
                         .alignment = align,
                         .largest_bytes = exhaustion_report::unknown_bytes,
                         .because = because}};
  }

  M* source_;
  std::optional<gpu::stream_handle> stream_;
};

}  // namespace tidemark
