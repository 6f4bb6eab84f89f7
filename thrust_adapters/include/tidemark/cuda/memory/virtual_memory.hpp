// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::virtual_memory`: device memory at reserved addresses, committed in steps. Owns both.
///
/// While the stream is capturing, `reserve` and `commit` still map memory, and nothing is unmapped: the graph
/// contains the addresses, and a wait would invalidate the capture. `decommit` and `suspend` fail, and
/// `release` takes effect at the first call after the capture. If the driver refuses to map memory during a
/// capture, `reserve` and `commit` fail too; one probe tests that (`detail::capture_probe`). Captures of
/// other streams are not disturbed.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/mapped_range.hpp>
#include <tidemark/cuda/memory/detail/whole_allocations.hpp>
#include <tidemark/cuda/memory/exported_memory.hpp>

namespace tidemark::gpu {

/// Options of a `gpu::virtual_memory`.
struct virtual_memory_options {
  /// Device; -1: the current device of the thread that makes the address space.
  device_number device = -1;
  /// Stream whose work uses the memory; null: the device's default stream. Must outlive the memory.
  stream_handle stream = nullptr;
  /// Maximum bytes of a handle, which is one allocation of physical memory: a power of two; 0: 64 MiB. At
  /// least the device's granularity is used. Mapping costs 32 µs for a handle of 2 MiB and 106 µs for a
  /// handle of 512 MiB (an H100). Larger handles need fewer calls.
  ///
  /// The driver unmaps only whole handles. A partly decommitted handle stays mapped and held until all of it
  /// is decommitted; a commit of such a part makes no call. At each end of a committed part, at most one
  /// handle holds bytes that are not committed. These bytes are at most a quarter of the bytes before them in
  /// the range.
  std::size_t handle_bytes = 0;
  /// Way to export the memory to other processes; fixed when the driver creates the memory.
  handle_type exported_as = handle_type::none;
  /// True if network adapters access the memory (GPUDirect RDMA); fixed at the same time.
  bool gpu_direct_rdma = false;
  /// Other devices whose work may read and write the memory. Each must be a peer of the device
  /// (`cuDeviceCanAccessPeer`). Order their work by events, like work of any other stream.
  device_set accessible_from = {};
};

/// An `address_space` of a device. It reserves addresses at once and maps memory when needed; blocks
/// therefore do not move when an arena grows. See `device_arena`.
///
/// ```cpp
/// gpu::virtual_memory space{{.stream = stream}};
/// byte_range range = space.reserve(1, 64 * GiB);        // no memory yet
/// if (!space.commit({range.begin, space.granularity()})) throw std::bad_alloc{};
/// // kernels on `stream` can use the first unit
/// space.suspend();                                      // frees the memory and keeps the addresses
/// space.resume();                                       // maps memory to the same addresses again
/// ```
/// All work that uses the memory is on the stream of the options, or an event orders it before later work
/// there (`wait_before_reuse`). Reuse then needs no wait. `decommit`, `release` and `suspend` wait for the
/// stream before they unmap. The file comment describes captures.
///
/// Kernels on the devices of `accessible_from` use the memory without `cudaDeviceEnablePeerAccess`. Other
/// processes map the result of `export_memory` as `gpu::imported_memory`.
///
/// Only these functions call the driver; each makes the device current. Complexity: O(units of the part)
/// driver calls. Thread-safety: one thread at a time.
class virtual_memory {
 public:
  // Reserves at once: the constructor calls the driver for the granularity anyway, and a later reservation
  // might be in a capture. 1 GiB ahead is 16 handles, which take about 0.7 ms on an H100.
  static constexpr space_traits traits{.host_accessible = false,
                                       .commits = true,
                                       .has_stream = true,
                                       .suspends = true,
                                       .max_commit_ahead_bytes = 1 * GiB};
  using event_type = event_handle;

  /// Makes an address space. @param driver table of driver calls; must outlive this object.
  /// @throws out_of_memory; cuda_error for another error, for example without a device; std::invalid_argument
  /// if `handle_bytes` is not a power of two, the stream is the thread's default stream
  /// (`gpu::per_thread_stream`), or a device of `accessible_from` is not a peer.
  explicit virtual_memory(virtual_memory_options options = {}, driver& driver = default_driver());
  /// Makes an address space of the current device and `stream`.
  explicit virtual_memory(stream_handle stream, driver& driver = default_driver())
      : virtual_memory{virtual_memory_options{.stream = stream}, driver} {}
  virtual_memory(virtual_memory&& other) noexcept = default;
  virtual_memory& operator=(virtual_memory&& other) noexcept;
  /// Frees all memory. If the stream is capturing or the driver returns an error, the memory is lost until
  /// the process ends, with a violation (`open_capture`) or a warning (`refused_return`).
  ~virtual_memory();

  /// Reserves the larger size, rounded up to units. If the driver refuses the addresses, tries half as many
  /// each time, down to `least_bytes`.
  /// @return an empty range without address space, or for the reason in `refusal`. @throws cuda_error for
  /// another error; std::bad_alloc if there is no memory for the record. Nothing has changed then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes);
  /// Maps memory to a part of a range. If memory is short, maps only the part's first bytes, but at least
  /// `least_bytes`.
  /// @pre The part's ends are multiples of the granularity; `least_bytes` is too, unless it equals the part's
  /// size.
  /// @return the bytes committed, which exceed the part if the range is one allocation; 0, with nothing
  /// changed, without memory or for the reason in `refusal`.
  [[nodiscard]] std::size_t commit(
      byte_range part, std::size_t least_bytes = (std::numeric_limits<std::size_t>::max)()) noexcept;
  /// Waits for the stream and frees the memory of a part, except handles that are committed in another part.
  /// @pre as `commit`.
  /// @return false, with the contents unchanged, if the driver returns an error or the stream is capturing.
  [[nodiscard]] bool decommit(byte_range part) noexcept;
  /// Frees a whole range, after a wait for the stream if the range has memory.
  void release(byte_range range) noexcept;
  /// Leaves a whole range mapped until the process ends.
  void abandon(byte_range range) noexcept;
  /// Returns the bytes of the device's memory, rounded up to units. Address space is nearly free, and one
  /// range is contiguous.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  /// Returns the bytes of a unit: the device's granularity.
  [[nodiscard]] std::size_t granularity() const noexcept { return unit_bytes_; }
  /// Returns the bytes of physical memory that are held, committed or not. O(units).
  [[nodiscard]] std::size_t held_bytes() const noexcept;

  /// Waits for the stream and frees all memory; the addresses stay. Does nothing if suspended. Nothing can be
  /// reserved or committed until `resume`; decommitted parts stay decommitted.
  /// @throws std::logic_error if the stream is capturing, or under compute-sanitizer; cuda_error for an error
  /// of the driver. The memory and its contents are unchanged then; if they could not be mapped again, the
  /// address space is suspended.
  void suspend();
  /// Maps uninitialised memory to all committed parts. Does nothing if not suspended.
  /// @throws out_of_memory; std::logic_error if the stream is capturing; cuda_error for another error. The
  /// address space is still suspended then.
  void resume();
  /// Returns false under compute-sanitizer (`TIDEMARK_NVTX`), where `suspend` and `export_memory` throw.
  ///
  /// The tool accepts no virtual memory as a heap. Each range is one allocation of `cuMemAlloc` there, of 64
  /// MiB or twice the previous size. The whole range is committed at once, and nothing is decommitted. Memory
  /// that is accessible from other devices is still virtual memory, and the tool does not see its blocks.
  [[nodiscard]] bool can_suspend() const noexcept { return !whole_.has_value(); }
  /// Returns true if suspended.
  [[nodiscard]] bool is_suspended() const noexcept { return suspended_; }

  /// Exports the memory of a committed part of a range for another process, in whole handles. The first
  /// handle may begin before the part, and the last may end after it. The part need not begin or end at a
  /// unit; it may be a block. The memory stays mapped here.
  ///
  /// The importer keeps the physical memory. `decommit`, `suspend` and the end of this object only remove it
  /// from these addresses. Memory that is committed or resumed there later is other memory and must be
  /// exported again. The physical memory is allocated until the last importer has unmapped it and the last
  /// file descriptor is closed. The program sends the result to the other process, and orders the work of
  /// both processes.
  /// @return owns the file descriptors. O(units of the part), and one driver call for each handle.
  /// @throws std::logic_error if the options have no `exported_as`, if suspended, or under compute-sanitizer;
  /// std::invalid_argument if the part is empty, or a byte of it is not committed; cuda_error for an error of
  /// the driver; std::bad_alloc. No descriptor is left open then.
  [[nodiscard]] exported_memory export_memory(byte_range part) const;

  /// Makes later work on the stream, and unmapping, wait for `event`. If the stream cannot wait, the calling
  /// thread waits. @pre The event was not recorded in a capture, because the wait would end the capture.
  void wait_before_reuse(event_handle event) noexcept;
  /// Makes later work on the stream wait for the present work of another stream, of this device or another;
  /// null is the default stream of this device. If one capture has both streams, the order is captured. If
  /// only the other stream is capturing, nothing can wait, and a violation is reported (`open_capture`).
  void wait_before_reuse(stream_handle last_used_on) noexcept;

  /// Returns the reason why the last `reserve` or `commit` failed, valid as long as the driver; empty if the
  /// host had no memory.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }
  /// Returns the device.
  [[nodiscard]] device_number device() const noexcept { return memory_.device; }
  /// Returns the devices that may access the memory, its own device included.
  [[nodiscard]] device_set accessible_from() const noexcept { return accessible_from_; }
  /// Returns the stream whose work uses the memory.
  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }

 private:
  [[nodiscard]] detail::outcome may_change(detail::on_device const& here) const noexcept;
  void require_may_change(char const* operation, detail::on_device const& here) const;
  [[nodiscard]] byte_range reserve_whole(std::size_t least_bytes, std::size_t wanted_bytes);
  [[nodiscard]] std::size_t map_some(byte_range part, std::size_t least_bytes, status& result) noexcept;
  [[nodiscard]] bool is_ready(detail::on_device const& here) noexcept;
  void set_refusal(status result) noexcept;
  [[nodiscard]] detail::outcome wait() const noexcept;
  [[nodiscard]] detail::mapped_range& range_of(byte_range part) noexcept;
  [[nodiscard]] detail::outcome map_all() noexcept;
  void require_mapped(char const* operation) const;
  detail::outcome free_released(bool may_wait = true) noexcept;
  void free_all() noexcept;

  driver* driver_;
  device_budget* budget_ = nullptr;
  memory_properties memory_;
  device_set accessible_from_;  // its own device included
  stream_handle stream_ = nullptr;
  std::size_t unit_bytes_ = 0;
  std::size_t handle_bytes_max_ = 0;  // a multiple of the unit
  std::size_t chunk_bytes_ = 0;
  char const* refusal_ = "";
  bool suspended_ = false;                    // committed parts may lack memory
  std::vector<detail::mapped_range> ranges_;  // reserved, or released but not freed yet
  std::optional<detail::whole_allocations>
      whole_;  // all memory under compute-sanitizer, in place of the ranges
};

static_assert(ordered_space<virtual_memory> && reporting_space<virtual_memory>);

}  // namespace tidemark::gpu
