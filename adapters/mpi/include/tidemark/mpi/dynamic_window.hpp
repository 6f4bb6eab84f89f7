// SPDX-License-Identifier: Apache-2.0
/// @file
/// `dynamic_window`: a window of MPI to which memory is attached during its use. `window_registrar`: attaches
/// an arena's memory. The window is owned by `dynamic_window`.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/registered_memory.hpp>
#include <tidemark/mpi/detail/calls.hpp>
#include <tidemark/mpi/detail/mpi_header.hpp>

namespace tidemark::mpi {

/// A window to which each rank attaches its own memory, at any time and without the others. It returns
/// errors.
///
/// ```cpp
/// mpi::dynamic_window window{MPI_COMM_WORLD};
/// basic_arena<registered_memory<virtual_memory, mpi::window_registrar>> step{
///     {.reserve = 64 * MiB, .name = "halo"}, virtual_memory{}, mpi::window_registrar{window}};
/// double* const halo = step.push_array<double>(n).data();
/// MPI_Aint const mine = mpi::displacement(halo);   // peers put there, once they know it
/// ```
/// Peers name memory by its address on its rank. Ranks whose arenas make the same allocations have the same
/// offsets (`same_layout`): one exchange of an arena's first address is enough for all steps.
///
/// The window must outlive all its registrars. Constructor and destructor are collective.
class dynamic_window {
 public:
  /// Makes a window on `comm`. @throws mpi_error. Open MPI 4 makes no window on a single rank unless the
  /// environment sets `OMPI_MCA_osc=sm,rdma,pt2pt` (open-mpi#10726).
  explicit dynamic_window(MPI_Comm comm) {
    {
      const detail::returned_errors returned{comm};
      detail::require_success(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window_),
                              "MPI_Win_create_dynamic");
    }
    MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
  }
  dynamic_window(dynamic_window&& other) noexcept : window_{std::exchange(other.window_, MPI_WIN_NULL)} {}
  dynamic_window& operator=(dynamic_window&& other) noexcept {
    std::swap(window_, other.window_);
    return *this;
  }
  /// Frees the window, which detaches all memory. Leaves the window to MPI after `MPI_Finalize`, and while an
  /// exception destroys this object: the other ranks would not call, and the job would wait.
  ~dynamic_window() {
    if (window_ != MPI_WIN_NULL && !unwinding_.is_under_way() && detail::is_running()) MPI_Win_free(&window_);
  }

  /// Returns the window; `MPI_WIN_NULL` after a move.
  [[nodiscard]] MPI_Win get() const noexcept { return window_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  detail::unwinding unwinding_;
};

/// Returns the number by which peers name this memory in a `dynamic_window`.
[[nodiscard]] inline MPI_Aint displacement(void const* memory) noexcept {
  MPI_Aint address = 0;
  MPI_Get_address(memory, &address);
  return address;
}

/// Attaches memory to a window when an arena takes the memory, and detaches it before its release
/// (`registered_memory`). Peers must not use memory that an arena returns. Synchronise before `trim`,
/// `release` and the end of the arena, as with any window. Synchronise also before a planned arena changes
/// its plan. Thread-safety: one thread at a time.
class window_registrar {
 public:
  /// @param window must outlive the memory.
  explicit window_registrar(dynamic_window const& window) noexcept : window_{window.get()} {}

  /// Calls `MPI_Win_attach`.
  [[nodiscard]] bool on_commit(byte_range range) noexcept {
    if (range.size > static_cast<std::size_t>((std::numeric_limits<MPI_Aint>::max)())) {
      refusal_ = "the memory is larger than MPI can attach at once";
      return false;
    }
    return succeeds(
        [=, this] { return MPI_Win_attach(window_, range.data(), static_cast<MPI_Aint>(range.size)); });
  }
  /// Calls `MPI_Win_detach`.
  [[nodiscard]] bool on_decommit(byte_range range) noexcept {
    return succeeds([=, this] { return MPI_Win_detach(window_, range.data()); });
  }
  /// Returns the reason why the last call failed.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }

 private:
  template <class Call>
  bool succeeds(Call call) noexcept {
    if (!detail::is_running()) {
      refusal_ = "MPI is not running";
      return false;
    }
    const int code = call();
    refusal_ = code == MPI_SUCCESS ? "" : detail::lasting_text(code);
    return code == MPI_SUCCESS;
  }

  MPI_Win window_;
  char const* refusal_ = "";
};

static_assert(memory_registrar<window_registrar>);

}  // namespace tidemark::mpi
