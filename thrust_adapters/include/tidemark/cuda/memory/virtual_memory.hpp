// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::virtual_memory`: device memory behind reserved addresses, committed in steps. Owns both.
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

/// How a `gpu::virtual_memory` is made.
struct virtual_memory_options {
  /// The device; -1: the current device of the thread that makes the address space.
  device_number device = -1;
  /// The stream whose work uses the memory; null: the device's default stream. It must outlive the memory.
  stream_handle stream = nullptr;
  /// Bytes of the largest allocation of physical memory (a handle), a power of two; 0: 64 MiB. Mapping costs
  /// 32 µs for a handle of 2 MiB and 106 µs for one of 512 MiB (an H100). Larger ones need fewer calls, and a
  /// `decommit` may leave more memory that is held and not committed. At least the device's granularity is
  /// used.
  std::size_t handle_bytes = 0;
  /// How the memory can be handed to other processes: the driver wants to know when it makes it.
  handle_type exported_as = handle_type::none;
  /// Whether network adapters shall read and write it (GPUDirect RDMA), which is said then, too.
  bool gpu_direct_rdma = false;
  /// Other devices whose work may read and write the memory; each must be a peer of the device
  /// (`cuDeviceCanAccessPeer`). Their work has to be ordered by events, as that of any other stream.
  device_set accessible_from = {};
};

/// An `address_space` of a device: addresses are reserved at once and memory is mapped to them when
/// needed, so that blocks do not move when an arena grows. See `device_arena`.
///
/// ```cpp
/// gpu::virtual_memory space{{.stream = stream}};
/// byte_range range = space.reserve(1, 64 * GiB);        // no memory yet
/// if (!space.commit({range.begin, space.granularity()})) throw std::bad_alloc{};
/// // kernels on `stream` can use the first unit
/// space.suspend();                                      // frees the memory and keeps the addresses
/// space.resume();                                       // maps memory to the same addresses again
/// ```
/// One resource, one stream: all work that uses the memory is on the stream of the options, or is ordered
/// before later work there by an event (`wait_before_reuse`). Then reuse does not wait; `decommit`,
/// `release` and `suspend` wait for the stream before they unmap.
///
/// While that stream is capturing, `reserve` and `commit` map memory as they do outside of captures. Nothing
/// is unmapped, because the graph contains the addresses and a wait would invalidate the capture: `decommit`
/// and `suspend` fail, and `release` takes effect at the first call after the capture. If the driver refuses
/// to map memory during a capture, `reserve` and `commit` fail too; a probe finds that out once
/// (`detail::capture_probe`). Captures of other streams are not disturbed.
///
/// Memory comes in handles of one unit up to `handle_bytes`, and the driver unmaps whole handles only. One
/// that is partly decommitted stays mapped and held until all of it is decommitted; a commit of such a part
/// makes no call. So up to one handle more is held than is committed at each end of a committed part, and at
/// most a quarter of what lies before it in the range.
///
/// Under compute-sanitizer (`TIDEMARK_NVTX`) each range is one allocation of `cuMemAlloc`, of 64 MiB or twice
/// as much as the one before, because the tool accepts no other memory as a heap. All of a range is committed
/// at once, nothing is decommitted, and `suspend` and `export_memory` throw. Memory that is accessible from
/// other devices is virtual memory all the same, and the tool does not see its blocks.
///
/// Kernels on other devices use the memory where `accessible_from` names them, with no
/// `cudaDeviceEnablePeerAccess`. Other processes map what `export_memory` gives them, as
/// `gpu::imported_memory`.
///
/// Only these functions call the driver; each makes the device current.
/// Complexity: calls to the driver, O(units of the part). Thread-safety: one thread at a time.
class virtual_memory : public refusals_only {
 public:
  // Reserves at once: the constructor calls the driver anyway, for the granularity, and a later reservation
  // could meet a capture. 1 GiB ahead is 16 handles, which take about 0.7 ms on an H100.
  static constexpr space_traits traits{.host_accessible = false,
                                       .commits = true,
                                       .has_stream = true,
                                       .suspends = true,
                                       .max_commit_ahead_bytes = 1 * GiB};
  using event_type = event_handle;

  /// @param driver the calls to use; must outlive this object.
  /// @throws out_of_memory; cuda_error of another error, for example if there is no device;
  /// std::invalid_argument if `handle_bytes` is not a power of two, the stream is the thread's default
  /// stream (`gpu::per_thread_stream`), or a device of `accessible_from` is not a peer.
  explicit virtual_memory(virtual_memory_options options = {}, driver& driver = default_driver());
  /// The same, of the current device and `stream`.
  explicit virtual_memory(stream_handle stream, driver& driver = default_driver())
      : virtual_memory{virtual_memory_options{.stream = stream}, driver} {}
  virtual_memory(virtual_memory&& other) noexcept = default;
  virtual_memory& operator=(virtual_memory&& other) noexcept;
  /// Frees everything. If the stream is capturing, or the driver returns an error, the memory is lost
  /// until the process ends: a violation (`open_capture`), or a warning (`refused_return`).
  ~virtual_memory();

  /// Reserves the larger size, rounded up to units. If the driver refuses the addresses, half as many each time,
  /// down to `least_bytes`.
  /// @return an empty range if there is no address space, or for the reason in `refusal`. @throws
  /// cuda_error of another error; std::bad_alloc if there is no memory for the record. Nothing has changed
  /// then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes);
  /// Maps memory to a part of a range or, if there is too little, to its first bytes, `least_bytes` or more.
  /// @pre the part's ends, and `least_bytes` below its size, are multiples of the granularity.
  /// @return the bytes committed, and more than the part if the range is one allocation; 0, with nothing
  /// changed, if there is no memory, or for the reason in `refusal`.
  [[nodiscard]] std::size_t commit(
      byte_range part, std::size_t least_bytes = (std::numeric_limits<std::size_t>::max)()) noexcept;
  /// Waits for the stream, and frees the memory of a part, but for handles that are committed in another
  /// part. @pre as `commit`.
  /// @return false, with the contents unchanged, if the driver returns an error or the stream is capturing.
  [[nodiscard]] bool decommit(byte_range part) noexcept;
  /// Frees a whole range, after a wait for the stream if it has memory.
  void release(byte_range range) noexcept;
  /// Leaves a whole range mapped until the process ends.
  void abandon(byte_range range) noexcept;
  /// The device's memory, rounded up to units: address space is nearly free, and one range is contiguous.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  /// Bytes of a unit: the device's granularity.
  [[nodiscard]] std::size_t granularity() const noexcept { return unit_bytes_; }
  /// Bytes of physical memory that are held, committed or not. O(units).
  [[nodiscard]] std::size_t held_bytes() const noexcept;

  /// Waits for the stream and frees all memory; addresses stay. Does nothing if suspended. Until `resume`
  /// nothing can be reserved or committed; decommitted parts stay so.
  /// @throws std::logic_error if the stream is capturing, or under compute-sanitizer; cuda_error of an error
  /// of the driver. The memory and its contents are still there then; if they could not be mapped again, it
  /// is suspended.
  void suspend();
  /// Maps uninitialised memory to all committed parts. Does nothing if not suspended.
  /// @throws out_of_memory; std::logic_error if the stream is capturing; cuda_error of another error. It is
  /// still suspended then.
  void resume();
  /// False under compute-sanitizer, where `suspend` throws.
  [[nodiscard]] bool can_suspend() const noexcept { return !whole_.has_value(); }
  /// Whether it is suspended.
  [[nodiscard]] bool is_suspended() const noexcept { return suspended_; }

  /// The memory behind a committed part of a range, in the form that another process imports: whole handles,
  /// of which the first may begin before the part and the last may end behind it. The part need not begin or
  /// end at a unit, so it may be a block. The memory stays mapped here.
  ///
  /// The importer keeps the physical memory: `decommit`, `suspend` and the end of this object take it from
  /// these addresses, and what is committed or resumed there later is other memory, which has to be exported
  /// again. Until the last importer has unmapped it and the last file descriptor is closed, it is allocated.
  /// To send the result to the other process is the program's matter, and so is the order of both
  /// processes' work.
  /// @return owns the file descriptors. O(units of the part), and a call to the driver for each handle.
  /// @throws std::logic_error if the options did not say `exported_as`, it is suspended, or under
  /// compute-sanitizer; std::invalid_argument if the part is empty, or a byte of it is not committed;
  /// cuda_error of an error of the driver; std::bad_alloc. No descriptor is left open then.
  [[nodiscard]] exported_memory export_memory(byte_range part) const;

  /// Later work on the stream, and unmapping, wait for `event`. If the stream cannot, the calling thread
  /// waits. @pre the event was not recorded in a capture, which waiting for it would end.
  void wait_before_reuse(event_handle event) noexcept;
  /// The same for what is on another stream now, of this device or another one; null is the default stream of
  /// this device. In one capture with the stream, the order is captured; if only the other one is capturing,
  /// nothing can wait: a violation (`open_capture`).
  void wait_before_reuse(stream_handle last_used_on) noexcept;

  /// Why the last `reserve` or `commit` failed, in words, as long-lived as the driver; empty if the host had no
  /// memory.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }
  /// The device.
  [[nodiscard]] device_number device() const noexcept { return memory_.device; }
  /// The devices that may access the memory, its own among them.
  [[nodiscard]] device_set accessible_from() const noexcept { return accessible_from_; }
  /// The stream whose work uses the memory.
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
  device_set accessible_from_;  // its own device among them
  stream_handle stream_ = nullptr;
  std::size_t unit_bytes_ = 0;
  std::size_t handle_bytes_max_ = 0;  // a multiple of the unit
  std::size_t chunk_bytes_ = 0;
  char const* refusal_ = "";
  bool suspended_ = false;                    // committed parts may lack memory
  std::vector<detail::mapped_range> ranges_;  // reserved, or released and not freed yet
  std::optional<detail::whole_allocations>
      whole_;  // all memory, in place of the ranges, under compute-sanitizer
};

static_assert(ordered_space<virtual_memory> && reporting_space<virtual_memory>);

}  // namespace tidemark::gpu
