// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mpi_memory`: chunks from `MPI_Alloc_mem`, which may be faster for sending and receiving.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/mpi/detail/calls.hpp>
#include <tidemark/mpi/detail/mpi_header.hpp>

namespace tidemark::mpi {

/// An `address_space` of `MPI_Alloc_mem`: memory that MPI has registered if its network needs that.
///
/// ```cpp
/// basic_arena<mpi::mpi_memory> buffers{{.reserve = 64 * MiB, .name = "halo"}, mpi::mpi_memory{}};
/// ```
/// MPI must be running when memory is reserved or returned: end the arena before `MPI_Finalize`. Memory that
/// is returned later is lost until the process ends, with a warning (`refused_return`). Thread-safety: one
/// thread at a time, and as MPI was initialised (`MPI_THREAD_MULTIPLE` if several threads have arenas).
class mpi_memory : public committed_ranges {
 public:
  static constexpr space_traits traits{.reserves_at_once = false, .chunk_growth = 2};

  /// Reserves a chunk of the wanted size. If MPI refuses, tries half the size each time, down to
  /// `least_bytes`.
  /// @return an empty range without memory, or for the reason in `refusal`.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) noexcept {
    refusal_ = "";
    if (!detail::is_running()) {
      refusal_ = "MPI is not running";
      return {};
    }
    return tidemark::detail::reserve_by_halves(least_bytes, wanted_bytes,
                                               [this](std::size_t bytes) { return allocate(bytes); });
  }
  void release(byte_range range) noexcept {
    int code = MPI_ERR_OTHER;
    char const* why = "MPI is not running";
    if (detail::is_running()) {
      const detail::returned_errors_of_process returned;
      code = MPI_Free_mem(range.data());
      if (code != MPI_SUCCESS) why = detail::lasting_text(code);
    }
    if (code != MPI_SUCCESS) {
      tidemark::detail::report_warning(warning_kind::refused_return, "mpi_memory",
                                       "mpi_memory: %zu bytes are lost until the process ends: %s",
                                       range.size, why);
    }
  }
  /// Returns 1 MiB.
  [[nodiscard]] static constexpr std::size_t chunk_bytes() noexcept { return 1 * MiB; }
  [[nodiscard]] static constexpr std::size_t granularity() noexcept { return traits.block_alignment; }
  /// Returns the reason why the last `reserve` failed; empty without memory.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }

 private:
  byte_range allocate(std::size_t bytes) noexcept {
    if (bytes > static_cast<std::size_t>((std::numeric_limits<MPI_Aint>::max)())) return {};
    void* first = nullptr;
    const detail::returned_errors_of_process returned;
    const int code = MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), MPI_INFO_NULL, &first);
    if (code != MPI_SUCCESS) {
      int error_class = MPI_ERR_UNKNOWN;
      MPI_Error_class(code, &error_class);
      refusal_ = error_class == MPI_ERR_NO_MEM ? "" : detail::lasting_text(code);
      return {};
    }
    refusal_ = "";
    return {reinterpret_cast<std::uintptr_t>(first), bytes};
  }

  char const* refusal_ = "";
};

static_assert(reporting_space<mpi_memory>);

}  // namespace tidemark::mpi
