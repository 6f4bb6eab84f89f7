// SPDX-License-Identifier: Apache-2.0
/// @file
/// `unique_block`: one block of a resource, given back when it ends. Owns the block.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <type_traits>
#include <utility>

namespace tidemark {

/// Owns one block of any `std::pmr::memory_resource`, host or device, uninitialised: the input of a captured
/// graph, for instance.
///
/// ```cpp
/// unique_block x{&device_memory, 1000 * sizeof(float)};
/// std::span<float> const values = x.as<float>();   // 1000 of them, at an address that the device knows
/// ```
/// Move-only; a moved-from or released block is empty and gives nothing back. The resource must outlive it.
/// Thread-safety: one thread at a time.
class [[nodiscard]] unique_block {
 public:
  /// Alignment of the block where none is asked for: a cache line, and enough for vector instructions.
  static constexpr std::size_t default_alignment = 64;

  /// An empty one.
  unique_block() noexcept = default;
  /// A block of `memory`; null: the default resource. @throws what the resource throws.
  [[nodiscard]] unique_block(std::pmr::memory_resource* memory, std::size_t bytes,
                             std::size_t align = default_alignment)
      : memory_{memory != nullptr ? memory : std::pmr::get_default_resource()},
        block_{memory_->allocate(bytes, align)},
        bytes_{bytes},
        align_{align} {}
  unique_block(unique_block&& other) noexcept
      : memory_{other.memory_}, block_{other.release()}, bytes_{other.bytes_}, align_{other.align_} {}
  /// Gives its own block back first.
  unique_block& operator=(unique_block&& other) noexcept {
    if (this != &other) {
      reset();
      memory_ = other.memory_;
      block_ = other.release();
      bytes_ = other.bytes_;
      align_ = other.align_;
    }
    return *this;
  }
  ~unique_block() { reset(); }

  /// Its first byte; null if it is empty.
  [[nodiscard]] void* data() const noexcept { return block_; }
  /// Bytes, as asked for; 0 if it is empty.
  [[nodiscard]] std::size_t bytes() const noexcept { return block_ != nullptr ? bytes_ : 0; }
  /// What it is aligned to, as asked for.
  [[nodiscard]] std::size_t alignment() const noexcept { return align_; }
  /// As many `T` as fit. Who may touch them is the resource's matter.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(block_), bytes() / sizeof(T)};
  }
  /// Whether it has a block.
  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }

  /// The block is the caller's from here on; this is empty. @return null if it was.
  [[nodiscard]] void* release() noexcept { return std::exchange(block_, nullptr); }
  /// Gives the block back now; this is empty.
  void reset() noexcept {
    if (void* const block = release()) memory_->deallocate(block, bytes_, align_);
  }

 private:
  std::pmr::memory_resource* memory_ = nullptr;
  void* block_ = nullptr;  // null: empty
  std::size_t bytes_ = 0;
  std::size_t align_ = default_alignment;
};

}  // namespace tidemark
