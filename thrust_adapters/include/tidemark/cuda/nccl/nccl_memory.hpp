// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::nccl_memory`: device memory from `ncclMemAlloc` for arenas. Owns its blocks.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/nccl/nccl.hpp>

namespace tidemark::gpu {

/// Options of a `gpu::nccl_memory`.
struct nccl_memory_options {
  /// Device; -1: the current device of the thread that makes the address space.
  device_number device = -1;
  /// Stream whose work uses the memory; null: the device's default stream. Must outlive the memory.
  stream_handle stream = nullptr;
};

/// An `address_space` of blocks from `ncclMemAlloc`. NCCL can register such blocks in every way: for NVLink
/// SHARP, for network adapters and for windows.
///
/// ```cpp
/// using nccl_arena = basic_arena<registered_memory<gpu::nccl_memory, gpu::nccl_window_registrar>>;
/// nccl_arena step{{.reserve = 256 * MiB, .name = "step"},
///                 gpu::nccl_memory{{.stream = stream}}, gpu::nccl_window_registrar{comm, stream}};
/// {
///   nccl_arena::scope scope{step};
///   float* gradients = scope.push_array<float>(n, uninitialized).data();
///   ncclAllReduce(gradients, gradients, n, ncclFloat, ncclSum, comm, stream);   // without a copy
/// }
/// ```
/// Without a registrar, as `basic_arena<nccl_memory>`, the program registers the memory, or NCCL does when it
/// captures a graph.
///
/// All work that uses the memory, NCCL's included, is on the stream of the options, or is ordered before
/// later work there (`wait_before_reuse`). Reuse then needs no wait. While the stream is capturing, nothing
/// is allocated, and the first call after the capture frees released blocks.
///
/// NCCL rounds blocks up to the device's granularity, and other devices of the machine can access them.
/// Complexity: one NCCL call for each block, O(blocks). Thread-safety: one thread at a time.
class nccl_memory : public committed_ranges {
 public:
  // Reserves at once, because the ranks of a communicator register their first ranges when they make their
  // arenas. Blocks are aligned as those of `cudaMalloc`, which is NCCL's fallback.
  static constexpr space_traits traits{.host_accessible = false, .has_stream = true, .chunk_growth = 2};
  using event_type = event_handle;

  /// Makes an address space.
  /// @param calls table of NCCL calls; must outlive this object
  /// @param driver table of driver calls; must outlive this object.
  /// @throws cuda_error or out_of_memory if the driver does not return the current device;
  /// std::invalid_argument if the stream is the thread's default stream (`gpu::per_thread_stream`).
  explicit nccl_memory(nccl_memory_options const& options = {}, nccl& calls = system_nccl(),
                       driver& driver = default_driver());
  nccl_memory(nccl_memory&& other) noexcept = default;
  nccl_memory& operator=(nccl_memory&& other) noexcept;
  /// Frees all memory. If the stream is capturing, the memory is lost until the process ends, with a
  /// violation (`open_capture`).
  ~nccl_memory();

  /// Allocates a block of the larger size, or of `least_bytes` if memory is short.
  /// @return an empty range without memory, or for the reason in `refusal`. NCCL returns one result for
  /// missing memory and for other CUDA errors. The result counts as missing memory unless the driver also
  /// returns an error.
  /// @throws nccl_error for another error, for example without NCCL; cuda_error for an error of the driver;
  /// std::bad_alloc without memory for the record. Nothing has changed then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes);
  /// Frees a block after a wait for the stream. If NCCL returns an error, the block is lost until the process
  /// ends, with a warning (`refused_return`).
  void release(byte_range range) noexcept;
  /// Leaves a block allocated until the process ends.
  void abandon(byte_range range) noexcept;
  [[nodiscard]] static constexpr std::size_t chunk_bytes() noexcept { return 64 * MiB; }
  [[nodiscard]] std::size_t granularity() const noexcept { return traits.block_alignment; }

  /// Makes later work on the stream, and freeing, wait for `event`. If the stream cannot wait, the calling
  /// thread waits. @pre The event was not recorded in a capture.
  void wait_before_reuse(event_handle event) noexcept;
  /// Makes later work on the stream wait for the present work of another stream; null is the default stream
  /// of this device. If only the other stream is capturing, nothing can wait, and a violation is reported
  /// (`open_capture`).
  void wait_before_reuse(stream_handle last_used_on) noexcept;

  /// Returns the reason why the last `reserve` failed, valid until the program ends; empty if there was no
  /// memory.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }
  /// Returns the device.
  [[nodiscard]] device_number device() const noexcept { return device_; }
  /// Returns the stream whose work uses the memory.
  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }

 private:
  struct block {
    byte_range range;
    bool released = false;  // released, but not freed yet
  };

  [[nodiscard]] byte_range allocate_range(std::size_t bytes);
  void explain_refusal(std::size_t bytes);
  detail::outcome free_released() noexcept;

  nccl* calls_;
  driver* driver_;
  device_number device_;
  stream_handle stream_;
  char const* refusal_ = "";
  std::vector<block> blocks_;
};

static_assert(ordered_space<nccl_memory> && reporting_space<nccl_memory>);

}  // namespace tidemark::gpu
