// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::nccl_registrar`, `gpu::nccl_window_registrar`: register memory with a communicator of NCCL. Own
/// registrations, not memory.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/registered_memory.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/nccl/nccl.hpp>

namespace tidemark::gpu {

/// Ways in which NCCL registers memory.
enum class nccl_registration {
  buffer,  ///< `ncclCommRegister`: each rank by itself
  window,  ///< `ncclCommWindowRegister`: all ranks together
};

/// A position in a window, as NCCL's device functions take it.
struct nccl_window_position {
  nccl_window window = nullptr;  ///< null: in no window
  std::size_t offset = 0;        ///< bytes from the beginning of the window

  friend bool operator==(nccl_window_position const&, nccl_window_position const&) = default;
};

/// A `memory_registrar` for `registered_memory`. It registers a range with a communicator when an arena takes
/// the range. It deregisters the range before its release, after a wait for the stream whose work uses the
/// range.
///
/// ```cpp
/// using nccl_arena = basic_arena<registered_memory<gpu::virtual_memory, gpu::nccl_registrar>>;
/// nccl_arena step{{.reserve = 256 * MiB, .name = "step"},
///                 gpu::virtual_memory{stream}, gpu::nccl_registrar{comm, stream}};
/// ```
/// The communicator must outlive the arena, and must be on the memory's device. NCCL registers memory of
/// `nccl_memory` in every way, and other memory only if its handles can be exported
/// (`gpu::virtual_memory_options::exported_as`).
///
/// Nothing is registered or deregistered while the stream is capturing. For a non-blocking communicator, a
/// call waits until NCCL has completed it. An arena must not grow between `ncclGroupStart` and `ncclGroupEnd`
/// of its thread. NCCL would register the range later, and write the window to its old address.
///
/// Complexity: one NCCL call for each range, O(ranges). Thread-safety: one thread at a time.
/// @tparam Kind way of registration
template <nccl_registration Kind>
class basic_nccl_registrar {
 public:
  static constexpr bool is_collective = Kind == nccl_registration::window;

  /// Makes a registrar.
  /// @param stream stream whose work uses the memory, as the arena's; awaited before a range is deregistered
  /// @param calls table of NCCL calls; must outlive this object
  /// @param driver table of driver calls; must outlive this object.
  /// @throws nccl_error, for example without NCCL, or while the communicator is still under construction;
  /// std::invalid_argument if the stream is the thread's default stream.
  basic_nccl_registrar(nccl_communicator communicator, stream_handle stream, nccl& calls = system_nccl(),
                       driver& driver = default_driver());
  /// Makes a registrar with other flags than `symmetric`.
  basic_nccl_registrar(nccl_communicator communicator, stream_handle stream, nccl_window_flags flags,
                       nccl& calls = system_nccl(), driver& driver = default_driver())
    requires(Kind == nccl_registration::window)
      : basic_nccl_registrar{communicator, stream, calls, driver} {
    flags_ = flags;
  }

  /// Registers a range. @return false, with nothing changed, for the reason in `refusal`.
  [[nodiscard]] bool on_commit(byte_range range) noexcept;
  /// Deregisters a range. @return false if NCCL or the stream refuses; the range is still registered then.
  [[nodiscard]] bool on_decommit(byte_range range) noexcept;
  /// Returns the reason why the last of these calls failed, valid until the program ends.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }

  /// Returns the communicator.
  [[nodiscard]] nccl_communicator communicator() const noexcept { return communicator_; }
  /// Returns the position of an address in its window. O(windows).
  [[nodiscard]] nccl_window_position window_of(void const* address) const noexcept
    requires(Kind == nccl_registration::window);

 private:
  struct registration {
    byte_range range;
    void* handle;  // handle, or window
  };

  [[nodiscard]] nccl_status register_with_nccl(byte_range range, void*& handle) noexcept;
  [[nodiscard]] nccl_status deregister_with_nccl(void* handle) noexcept;
  [[nodiscard]] nccl_status end_of(nccl_status begun) noexcept;
  bool refuse(char const* why) noexcept {
    refusal_ = why;
    return false;
  }

  nccl_communicator communicator_;
  stream_handle stream_;
  nccl* calls_;
  driver* driver_;
  device_number device_ = 0;  // device of the communicator
  nccl_window_flags flags_ = nccl_window_flags::symmetric;
  char const* refusal_ = "";
  std::vector<registration> registrations_;
};

extern template class basic_nccl_registrar<nccl_registration::buffer>;
extern template class basic_nccl_registrar<nccl_registration::window>;

/// Registers memory for this rank alone. NCCL uses a buffer without a copy if all ranks pass a registered
/// buffer at the same offset from its beginning.
using nccl_registrar = basic_nccl_registrar<nccl_registration::buffer>;
/// Registers memory as windows, with the same offset of a block on every rank.
///
/// A registration is a call of all ranks, which returns after all ranks have made it. The arenas of all ranks
/// must therefore take ranges of the same sizes in the same order: give them the same options, and make the
/// same requests. If one rank runs out of memory, the others wait until the communicator is aborted
/// (`ncclCommAbort`, from another thread): reserve enough when the arena is made. Before an arena shrinks or
/// ends, the other ranks' work on its memory must have ended; the program provides the barrier. `window_of`
/// returns the position of an address for device code.
using nccl_window_registrar = basic_nccl_registrar<nccl_registration::window>;

static_assert(memory_registrar<nccl_registrar>);
static_assert(memory_registrar<nccl_window_registrar>);

}  // namespace tidemark::gpu
