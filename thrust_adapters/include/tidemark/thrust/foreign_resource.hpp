// SPDX-License-Identifier: Apache-2.0
/// @file
/// `foreign_resource`: a resource of Thrust, CCCL or RMM as one of `std::pmr`. Owns nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <optional>

#include <thrust/mr/memory_resource.h>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/thrust/detail/give_back.hpp>

namespace tidemark {

/// A resource that gives raw pointers, and whose name for that is `allocate`, as in Thrust and in CCCL before
/// 3.1, or `allocate_sync`, as in CCCL since and in RMM.
template <class M>
concept raw_memory_source = requires(M& source, void* block, std::size_t bytes, std::size_t align) {
  { source.allocate_sync(bytes, align) } -> std::same_as<void*>;
  source.deallocate_sync(block, bytes, align);
} || requires(M& source, void* block, std::size_t bytes, std::size_t align) {
  { source.allocate(bytes, align) } -> std::same_as<void*>;
  source.deallocate(block, bytes, align);
};

/// One that also does so in the order of a stream: by `allocate_async`, as in CCCL before 3.1, or by
/// `allocate` with a stream before its other arguments, as in CCCL since and in RMM.
template <class M>
concept stream_ordered_source =
    raw_memory_source<M> && (requires(M& source, void* block, std::size_t n, cuda::stream_handle stream) {
      { source.allocate(stream, n, n) } -> std::same_as<void*>;
      source.deallocate(stream, block, n, n);
    } || requires(M& source, void* block, std::size_t n, cuda::stream_handle stream) {
      { source.allocate_async(n, n, stream) } -> std::same_as<void*>;
      source.deallocate_async(block, n, n, stream);
    });

/// The way back: what an arena or a pool takes its memory from may be a `thrust::mr` resource of raw
/// pointers, a `cuda::mr` resource, or one of RMM.
///
/// ```cpp
/// rmm::mr::cuda_async_memory_resource device;
/// foreign_resource upstream{device, stream};
/// device_pool blocks{{.stream = stream, .upstream = &upstream}};
/// ```
/// Memory is as the source gives it: a device's must not go into a resource that writes into its memory, as
/// `pool` and containers do (`device_pool`, `graph_arena` and `reuse_cache` do not). What the source throws
/// passes through. `thrust::mr::memory_resource<void*>` is meant to be a `std::pmr::memory_resource` by
/// itself, and is none in any release so far, for a macro that is spelt in two ways.
///
/// *Streams.* With a stream, memory is for the work of that stream, and goes back behind the work that is on
/// it: give it the one of the `device_pool` or the `device_cache` above. Without, memory is for any work, and
/// what is given back is used by none: most sources wait for the default stream each time, and for no other.
///
/// What others leave out is seen to here: requests of 0 bytes ask for 1, because RMM's pools give null for
/// none; and a block that is not aligned as asked for, because RMM's pools and `cudaMalloc` know of 256 bytes
/// and no more, goes back at once.
///
/// Two are equal if they are for the same stream, and their sources are one object, or equal where the
/// source's `==` tells; that of `thrust::mr` resources does not. Thread-safety and complexity: those of the
/// source, which must outlive this object.
/// @tparam M the source's class.
template <raw_memory_source M>
class foreign_resource final : public std::pmr::memory_resource {
 public:
  /// Memory from `source`, for any work.
  explicit foreign_resource(M& source) noexcept : source_{&source} {}
  /// Memory from `source` in the order of `stream`.
  foreign_resource(M& source, cuda::stream_handle stream) noexcept
    requires stream_ordered_source<M>
      : source_{&source}, stream_{stream} {}

  /// Where memory comes from.
  [[nodiscard]] M& source() const noexcept { return *source_; }

 private:
  static constexpr bool names_sync = requires(M& source) { source.allocate_sync(1, 1); };
  static constexpr bool names_async =
      requires(M& source, cuda::stream_handle stream) { source.allocate_async(1, 1, stream); };

  /// @throws what the source throws; out_of_memory if it gives null, does not keep to the alignment, or is
  /// asked for more than PTRDIFF_MAX bytes.
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    detail::require_countable(bytes, align, "foreign_resource");
    void* const block = ask(at_least_one(bytes), align);
    if (block == nullptr) refuse(bytes, align, "its source gave null");
    if (reinterpret_cast<std::uintptr_t>(block) % align != 0) {
      do_deallocate(block, bytes, align);
      refuse(bytes, align, "its source does not keep to such alignments");
    }
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    give_back(block, at_least_one(bytes), align);
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

  [[nodiscard]] void* ask(std::size_t bytes, std::size_t align) {
    if constexpr (stream_ordered_source<M>) {
      if (stream_) {
        if constexpr (names_async) {
          return source_->allocate_async(bytes, align, *stream_);
        } else {
          return source_->allocate(*stream_, bytes, align);
        }
      }
    }
    if constexpr (names_sync) {
      return source_->allocate_sync(bytes, align);
    } else {
      return source_->allocate(bytes, align);
    }
  }
  void give_back(void* block, std::size_t bytes, std::size_t align) {
    if constexpr (stream_ordered_source<M>) {
      if (stream_) {
        if constexpr (names_async) {
          source_->deallocate_async(block, bytes, align, *stream_);
        } else {
          source_->deallocate(*stream_, block, bytes, align);
        }
        return;
      }
    }
    if constexpr (names_sync) {
      source_->deallocate_sync(block, bytes, align);
    } else {
      source_->deallocate(block, bytes, align);
    }
  }

  [[nodiscard]] static std::size_t at_least_one(std::size_t bytes) noexcept { return bytes == 0 ? 1 : bytes; }
  [[noreturn]] static void refuse(std::size_t bytes, std::size_t align, char const* because) {
    throw out_of_memory{{.resource = "foreign_resource",
                         .requested_bytes = bytes,
                         .alignment = align,
                         .largest_bytes = std::numeric_limits<std::size_t>::max(),
                         .because = because}};
  }

  M* source_;
  std::optional<cuda::stream_handle> stream_;
};

}  // namespace tidemark
