// SPDX-License-Identifier: Apache-2.0
/// @file
/// `unique_block`: owns one block of a resource.
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <span>
#include <type_traits>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark {

/// Owns one uninitialised block of any `std::pmr::memory_resource`, host or device. Use it for example for
/// the input of a captured graph.
///
/// ```cpp
/// unique_block x{&device_memory, 1000 * sizeof(float)};
/// std::span<float> const values = x.as<float>();   // 1000 of them, at an address that the device knows
/// ```
/// Move-only; a moved-from or released block is empty. The resource must outlive the block. Not thread-safe:
/// one thread at a time.
class [[nodiscard]] unique_block {
 public:
  /// Default alignment of the block: a cache line, and enough for vector instructions.
  static constexpr std::size_t default_alignment = 64;

  /// An empty block.
  unique_block() noexcept = default;
  /// Allocates a block from `memory`; null selects the default resource. @throws the resource's exception;
  /// out_of_memory for more than PTRDIFF_MAX bytes.
  [[nodiscard]] unique_block(std::pmr::memory_resource* memory, std::size_t bytes,
                             std::size_t align = default_alignment)
      : block_{nullptr, {detail::or_default(memory), bytes, align}} {
    block_.reset(detail::allocate_from(*block_.get_deleter().memory, "unique_block", bytes, align));
  }

  /// First byte; null if empty.
  [[nodiscard]] void* data() const noexcept TIDEMARK_LIFETIMEBOUND { return block_.get(); }
  /// Size in bytes, as requested; 0 if empty.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return block_ != nullptr ? block_.get_deleter().bytes : 0;
  }
  /// Alignment, as requested.
  [[nodiscard]] std::size_t alignment() const noexcept { return block_.get_deleter().align; }
  /// The block as a span of as many `T` as fit.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<T> as() const noexcept TIDEMARK_LIFETIMEBOUND {
    return {static_cast<T*>(data()), bytes() / sizeof(T)};
  }
  /// True if there is a block.
  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }

  /// Gives ownership of the block to the caller. @return null if empty
  [[nodiscard]] void* release() noexcept { return block_.release(); }
  /// Deallocates the block.
  void reset() noexcept { block_.reset(); }

 private:
  struct deallocator {
    std::pmr::memory_resource* memory;
    std::size_t bytes, align;
    void operator()(void* block) const noexcept { memory->deallocate(block, bytes, align); }
  };

  std::unique_ptr<void, deallocator> block_{nullptr, {nullptr, 0, default_alignment}};  // null: empty
};

}  // namespace tidemark
