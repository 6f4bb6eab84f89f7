// SPDX-License-Identifier: Apache-2.0
/// @file
/// `foreign_resource`: a resource of Thrust, CCCL or RMM as one of `std::pmr`. Owns nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory_resource>

#include <thrust/mr/memory_resource.h>

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

/// The way back: what an arena or a pool takes its memory from may be a `thrust::mr` resource of raw pointers, a
/// `cuda::mr` resource, or one of RMM.
///
/// ```cpp
/// rmm::mr::cuda_memory_resource device;
/// foreign_resource upstream{device};
/// device_pool blocks{{.upstream = &upstream}};
/// ```
/// Memory is as the source gives it: a device's must not go into a resource that writes into its memory, as
/// `pool` and containers do (`device_pool`, `graph_arena` and `reuse_cache` do not). What the source throws
/// passes through. `thrust::mr::memory_resource<void*>` is meant to be a `std::pmr::memory_resource` by itself,
/// and is none in any release so far, for a macro that is spelt in two ways.
///
/// Two are equal if their sources are one object, or equal where the source's `==` tells; that of `thrust::mr`
/// resources does not. Thread-safety and complexity: those of the source, which must outlive this object.
/// @tparam M the source's class.
template <raw_memory_source M>
class foreign_resource final : public std::pmr::memory_resource {
 public:
  /// Memory from `source`.
  explicit foreign_resource(M& source) noexcept : source_{&source} {}

  /// Where memory comes from.
  [[nodiscard]] M& source() const noexcept { return *source_; }

 private:
  static constexpr bool names_sync = requires(M& source) { source.allocate_sync(1, 1); };

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if constexpr (names_sync) {
      return source_->allocate_sync(bytes, align);
    } else {
      return source_->allocate(bytes, align);
    }
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    if constexpr (names_sync) {
      source_->deallocate_sync(block, bytes, align);
    } else {
      source_->deallocate(block, bytes, align);
    }
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    auto const* const same = dynamic_cast<foreign_resource const*>(&other);
    if (same == nullptr) return false;
    if constexpr (!std::derived_from<M, ::thrust::mr::memory_resource<void*>> &&
                  std::equality_comparable<M>) {
      return *source_ == *same->source_;
    } else {
      return source_ == same->source_;
    }
  }

  M* source_;
};

}  // namespace tidemark
