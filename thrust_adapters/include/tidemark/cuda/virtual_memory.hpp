// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::virtual_memory`: a device's memory behind addresses that stay, reserved large and committed in
/// steps. Owns the memory and the addresses.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/address_space.hpp>
#include <tidemark/byte_range.hpp>
#include <tidemark/cuda/detail/mapped_range.hpp>
#include <tidemark/cuda/detail/on_device.hpp>
#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda {

/// What a `cuda::virtual_memory` is on, and in what pieces it takes memory.
struct virtual_memory_options {
  /// The device; -1: the one that is current for the thread that makes the address space.
  device_number device = -1;
  /// The stream whose work uses the memory; null: the device's default stream. It must outlive the memory.
  stream_handle stream = nullptr;
  /// Bytes of a piece of physical memory, a power of two: memory comes and goes in such pieces, so that
  /// larger ones take fewer calls. 0, or less than the device's granularity: that.
  std::size_t handle_bytes = 0;
};

/// An `address_space` of a device: addresses are reserved at once, memory is mapped behind them as it is
/// needed, so that blocks never move while an arena grows. See `device_arena`.
///
/// ```cpp
/// cuda::virtual_memory space{{.stream = stream}};
/// byte_range range = space.reserve(1, 64 * GiB);        // no memory yet
/// space.commit({range.begin, space.granularity()});     // the first unit can be used by kernels on `stream`
/// space.suspend();                                      // the memory is everybody's, the addresses are ours
/// space.resume();                                       // and memory is behind the same addresses again
/// ```
/// One resource, one stream: all work that uses the memory is on the stream of the options, or is ordered
/// before later work there by an event (`wait_before_reuse`). Reuse needs no waiting then. But unmapping
/// does: `decommit`, `release` and `suspend` wait for the stream first.
///
/// Nothing is mapped or unmapped while that stream is capturing, because the addresses go into the graph, and
/// a wait would invalidate the capture: `reserve` and `commit` refuse then, and so do `decommit` and
/// `suspend`. What is released then is given back with the first call after the capture. All that the driver
/// is asked meanwhile is which device is current and whether the stream captures. Other streams' captures are
/// not known here; in a mode other than relaxed the driver may refuse what is done here, and invalidate them.
///
/// The driver is called in these functions and in no other. Each makes the device current for its calls.
/// Complexity: calls to the driver, O(units of the part). Thread-safety: one thread at a time.
class virtual_memory {
 public:
  static constexpr bool host_accessible = false;
  static constexpr bool fresh_is_zero = false;  // the driver does not promise it
  static constexpr bool commits = true;
  // The constructor needs the driver for the granularity, so that to reserve later would spare no program
  // without a device anything, and could fall into a capture.
  static constexpr bool reserves_at_once = true;
  static constexpr std::size_t block_alignment = 256;
  static constexpr std::size_t chunk_growth = 1;

  /// @param driver the calls to use; must outlive this object.
  /// @throws cuda_error if the driver refuses, because there is no device for example, out_of_memory if that
  /// is for want of memory; std::invalid_argument if `handle_bytes` is not a power of two.
  explicit virtual_memory(virtual_memory_options options = {}, driver& driver = default_driver());
  /// The same, of the current device and `stream`.
  explicit virtual_memory(stream_handle stream, driver& driver = default_driver())
      : virtual_memory{virtual_memory_options{.stream = stream}, driver} {}
  virtual_memory(virtual_memory&& other) noexcept = default;
  virtual_memory& operator=(virtual_memory&& other) noexcept;
  /// Gives back all that is left. If the stream is capturing, or the driver refuses, the memory is lost until
  /// the process ends: a violation (`open_capture`), or a warning (`refused_return`).
  ~virtual_memory();

  /// Reserves the larger of the two, rounded up to units.
  /// @return an empty range if there is no address space left, or as `refusal` says. @throws cuda_error of
  /// another reason; std::bad_alloc if there is no memory for the record. Nothing has changed then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes);
  /// Maps memory behind a part of a range. @pre its ends are multiples of the granularity.
  /// @return false, with nothing changed, if there is none, or as `refusal` says.
  [[nodiscard]] bool commit(byte_range part) noexcept;
  /// Waits for the stream, and takes the memory behind a part. @pre as `commit`.
  /// @return false, with what is in the memory unchanged, if the driver refuses or the stream is capturing.
  [[nodiscard]] bool decommit(byte_range part) noexcept;
  /// Gives a whole range back, after a wait for the stream if memory is behind it.
  void release(byte_range range) noexcept;
  /// The device's memory, rounded up to units: address space is nearly free, and what stays within one range
  /// is contiguous.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  /// Bytes of a unit, which is one mapping of one handle.
  [[nodiscard]] std::size_t granularity() const noexcept { return unit_bytes_; }

  /// Waits for the stream and gives all memory back to the system; addresses stay. Does nothing if suspended.
  /// Meanwhile nothing can be reserved or committed; what is decommitted is not committed again by `resume`.
  /// @throws std::logic_error if the stream is capturing; cuda_error if the driver refuses. The memory is
  /// then there, with what is in it; only if it cannot be mapped again either, the space is suspended.
  void suspend();
  /// Puts memory, uninitialised, behind all that is committed. Does nothing if not suspended.
  /// @throws out_of_memory if there is not enough; std::logic_error if the stream is capturing; cuda_error if
  /// the driver refuses. It is suspended then.
  void resume();
  /// Whether it is.
  [[nodiscard]] bool is_suspended() const noexcept { return suspended_; }

  /// Work that will be put on the stream, and unmapping, wait for `event`. The calling thread does only if
  /// the stream cannot.
  void wait_before_reuse(event_handle event) noexcept;

  /// Why the last `reserve` or `commit` was refused, in words, as long-lived as the driver; empty if there
  /// was no memory.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }
  /// The device.
  [[nodiscard]] device_number device() const noexcept { return device_; }
  /// The stream whose work uses the memory.
  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }

 private:
  [[nodiscard]] detail::outcome may_change(detail::on_device const& here) const noexcept;
  void require_may_change(char const* operation, detail::on_device const& here) const;
  [[nodiscard]] bool granted(detail::outcome asked) noexcept;
  [[nodiscard]] detail::outcome wait() const noexcept;
  [[nodiscard]] detail::mapped_range& range_of(byte_range part) noexcept;
  [[nodiscard]] detail::outcome map_again() noexcept;
  detail::outcome give_back_released() noexcept;
  void give_back_all() noexcept;

  driver* driver_;
  device_number device_ = 0;
  stream_handle stream_ = nullptr;
  std::size_t unit_bytes_ = 0;
  std::size_t chunk_bytes_ = 0;
  char const* refusal_ = "";
  bool suspended_ = false;                    // memory may be missing behind what is committed
  std::vector<detail::mapped_range> ranges_;  // reserved, or released and not given back yet
};

static_assert(address_space<virtual_memory>);

}  // namespace tidemark::cuda
