// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::nccl_registrar`, `gpu::nccl_window_registrar`: memory that a communicator of NCCL knows. Own
/// registrations, not memory.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/registered_memory.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/nccl/nccl.hpp>

namespace tidemark::gpu {

/// How NCCL registers memory.
enum class nccl_registration {
  buffer,  ///< `ncclCommRegister`: each rank by itself
  window,  ///< `ncclCommWindowRegister`: all ranks together
};

/// A place in a window, as NCCL's functions for devices take it.
struct nccl_window_position {
  nccl_window window = nullptr;  ///< null: in no window
  std::size_t offset = 0;        ///< in bytes, from its beginning

  friend bool operator==(nccl_window_position const&, nccl_window_position const&) = default;
};

/// A `memory_registrar` for `registered_memory`: a range is registered with a communicator when an arena
/// takes it, and deregistered before it goes, after a wait for the stream whose work uses it.
///
/// ```cpp
/// using nccl_arena = basic_arena<registered_memory<gpu::virtual_memory, gpu::nccl_registrar>>;
/// nccl_arena step{{.reserve = 256 * MiB, .name = "step"},
///                 gpu::virtual_memory{stream}, gpu::nccl_registrar{comm, stream}};
/// ```
/// The communicator must outlive the arena, and its device must be the memory's. NCCL takes memory of
/// `nccl_memory`, which every kind of registration can use; other memory only as far as its handles can be
/// exported (`gpu::virtual_memory_options::exported_as`).
///
/// *`nccl_registrar`*: of this rank alone. NCCL uses a buffer without a copy where all ranks pass one that is
/// registered, at the same offset from its beginning.
///
/// *`nccl_window_registrar`*: a call of all ranks, which returns when all have made it. So the arenas of all
/// ranks must take ranges of the same sizes in the same order: give them the same options, and make the same
/// requests. Then a block has the same offset on every rank. Where one rank runs out of memory, the others
/// wait in that call until the communicator is aborted (`ncclCommAbort`, from another thread): reserve enough
/// when the arena is made. Before an arena shrinks or ends, the work of the other ranks on its memory must
/// have ended, too: a barrier is the program's matter. `window_of` gives code on a device its place in a
/// window.
///
/// Memory is neither registered nor deregistered while the stream is capturing. For a communicator that does
/// not block, a call waits until NCCL has ended it. An arena must not grow between `ncclGroupStart` and
/// `ncclGroupEnd` of its thread: NCCL would register the range later, and write the window where it was.
///
/// Complexity: a call of NCCL for each range, O(ranges). Thread-safety: one thread at a time.
/// @tparam Kind what NCCL does
template <nccl_registration Kind>
class basic_nccl_registrar {
 public:
  static constexpr bool is_collective = Kind == nccl_registration::window;

  /// @param stream whose work uses the memory, as the arena's; a wait for it comes before a range goes
  /// @param calls NCCL; must outlive this object
  /// @param driver the calls to use; must outlive this object.
  /// @throws nccl_error, for example if NCCL is not installed, or the communicator is still being made;
  /// std::invalid_argument if the stream is the thread's default stream.
  basic_nccl_registrar(nccl_communicator communicator, stream_handle stream, nccl& calls = system_nccl(),
                       driver& driver = default_driver());
  /// The same with other flags than `symmetric`.
  basic_nccl_registrar(nccl_communicator communicator, stream_handle stream, nccl_window_flags flags,
                       nccl& calls = system_nccl(), driver& driver = default_driver())
    requires(Kind == nccl_registration::window)
      : basic_nccl_registrar{communicator, stream, calls, driver} {
    flags_ = flags;
  }

  /// Registers a range. @return false, with nothing changed, for the reason in `refusal`.
  [[nodiscard]] bool on_commit(byte_range range) noexcept;
  /// Deregisters it. @return false if NCCL or the stream refuses; it is still registered then.
  [[nodiscard]] bool on_decommit(byte_range range) noexcept;
  /// Why the last of these calls failed, in words that live as long as the program.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }

  /// The communicator.
  [[nodiscard]] nccl_communicator communicator() const noexcept { return communicator_; }
  /// Where an address lies in its window. O(windows).
  [[nodiscard]] nccl_window_position window_of(void const* address) const noexcept
    requires(Kind == nccl_registration::window);

 private:
  struct registration {
    byte_range range;
    void* handle;  // or the window
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
  device_number device_ = 0;  // the communicator's
  nccl_window_flags flags_ = nccl_window_flags::symmetric;
  char const* refusal_ = "";
  std::vector<registration> registrations_;
};

extern template class basic_nccl_registrar<nccl_registration::buffer>;
extern template class basic_nccl_registrar<nccl_registration::window>;

/// Memory that NCCL uses without a copy.
using nccl_registrar = basic_nccl_registrar<nccl_registration::buffer>;
/// Windows, at the same offset on every rank.
using nccl_window_registrar = basic_nccl_registrar<nccl_registration::window>;

static_assert(memory_registrar<nccl_registrar>);
static_assert(memory_registrar<nccl_window_registrar>);

}  // namespace tidemark::gpu
