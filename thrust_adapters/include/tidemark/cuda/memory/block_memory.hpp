// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::device_memory`, `gpu::pinned_memory`, `gpu::managed_memory`: one block of the driver as an arena's
/// memory. Own the block.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {

/// A kind of memory, by its allocating call.
enum class block_kind {
  device,   ///< `cuMemAlloc`: memory of a device; the host must not access it
  pinned,   ///< `cuMemHostAlloc`: host memory for asynchronous copies
  managed,  ///< `cuMemAllocManaged`: moves to the processor that accesses it
};

/// Alignment of the driver's blocks of every kind.
inline constexpr std::size_t driver_block_alignment = 256;

/// An `address_space` of one driver block of fixed size. Use it for staging buffers of asynchronous copies
/// (`pinned_arena`) and for data shared by host and device (`managed_arena`). Use it also for device memory
/// that is allocated at once.
///
/// ```cpp
/// pinned_arena staging{{.reserve = 64 * MiB, .name = "staging"}};
/// {
///   pinned_arena::scope scope{staging};
///   std::span<float> row = scope.push_array<float>(n, uninitialized);
///   ...                          // fill it, and enqueue a copy to the device
///   scope.end_after(copied);     // an event behind the copy: waits for it here
/// }
/// ```
/// The block has the size of the arena's `reserve`. It is allocated when the arena is made and after its
/// `release`. The host reuses memory at once: work on the memory must have ended before a rewind and before
/// the end of the arena. `scope.end_after(event)` waits for the work.
///
/// Thread-safety: one thread at a time.
/// @tparam Kind kind of memory. Blocks of an arena start at multiples of 256, or 64 on pinned memory.
template <block_kind Kind>
class basic_block_memory : public committed_ranges {
 public:
  /// Kind of memory.
  static constexpr block_kind kind = Kind;
  static constexpr space_traits traits{
      .host_accessible = Kind != block_kind::device,
      .device_accessible = true,
      .block_alignment = Kind == block_kind::pinned ? 64 : driver_block_alignment};
  using event_type = event_handle;

  /// @param bytes size of the block if the arena's options do not set it
  /// @param driver table of driver calls; must outlive this object
  explicit basic_block_memory(std::size_t bytes = 64 * MiB, driver& driver = default_driver()) noexcept
      : driver_{&driver}, bytes_{bytes} {}
  basic_block_memory(basic_block_memory&& other) noexcept
      : driver_{other.driver_},
        bytes_{other.bytes_},
        device_{other.device_},
        block_{std::exchange(other.block_, {})} {}
  basic_block_memory& operator=(basic_block_memory&& other) noexcept {
    if (this == &other) return *this;
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }
  ~basic_block_memory() {
    if (!block_.empty()) release(block_);
  }

  /// Allocates a block of the larger size, on the device that was current at the first call.
  /// @return an empty range if the block is in use or there is no memory. @throws cuda_error for another
  /// error.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes);
  /// Frees the block. If the driver returns an error, the block is lost until the process ends, with a
  /// warning.
  void release(byte_range range) noexcept;
  /// Leaves the block allocated until the process ends.
  void abandon(byte_range) noexcept { block_ = {}; }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t granularity() const noexcept { return traits.block_alignment; }

  /// Waits for `event` in the calling thread. @pre The event was not recorded in a capture.
  void wait_before_reuse(event_handle event) noexcept;
  /// Waits for the present work of a stream of the device in the calling thread. Reports a violation
  /// (`open_capture`) if the stream is capturing.
  void wait_before_reuse(stream_handle last_used_on) noexcept;

 private:
  driver* driver_;
  std::size_t bytes_;
  device_number device_ = -1;  // device of the block; -1: not known yet
  byte_range block_{};         // empty while not in use
};

extern template class basic_block_memory<block_kind::device>;
extern template class basic_block_memory<block_kind::pinned>;
extern template class basic_block_memory<block_kind::managed>;

/// A block from `cuMemAlloc`.
using device_memory = basic_block_memory<block_kind::device>;
/// A block from `cuMemHostAlloc`.
using pinned_memory = basic_block_memory<block_kind::pinned>;
/// A block from `cuMemAllocManaged`.
using managed_memory = basic_block_memory<block_kind::managed>;

static_assert(ordered_space<device_memory>);
static_assert(ordered_space<pinned_memory>);
static_assert(ordered_space<managed_memory>);

}  // namespace tidemark::gpu
