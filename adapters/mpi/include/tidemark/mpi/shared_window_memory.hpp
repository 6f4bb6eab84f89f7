// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_window_memory`: memory of `MPI_Win_allocate_shared` for reads and writes in place by the ranks of
/// one machine. Owns the window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/mpi/detail/calls.hpp>
#include <tidemark/mpi/detail/mpi_header.hpp>

namespace tidemark::mpi {

/// An `address_space` over this rank's part of a shared window: one range of fixed size. The other ranks find
/// the part by `part_of`, each at its own address.
///
/// ```cpp
/// mpi::shared_window_memory shared{comm, 64 * MiB};                    // by all ranks of one machine
/// byte_range const of_left = shared.part_of(left);
/// basic_arena<mpi::shared_window_memory> halo{{.name = "halo"}, std::move(shared)};
/// ```
/// Constructor and destructor are collective: an arena on the memory ends on all ranks at one point, before
/// `MPI_Finalize`. The program orders reads of other ranks' parts, as with any window: `MPI_Win_sync` and a
/// barrier. Thread-safety: one thread at a time.
class shared_window_memory : public committed_ranges {
 public:
  static constexpr space_traits traits{.seen_by_others = true};

  /// Allocates the window. @param bytes size of this rank's part, which may differ between ranks.
  /// @throws std::invalid_argument, on all ranks, if the ranks are not on one machine or a rank requests more
  /// than MPI can count; mpi_error on the ranks where MPI reports an error. If only one rank has no room, the
  /// others may wait for it.
  shared_window_memory(MPI_Comm comm, std::size_t bytes) {
    const detail::returned_errors returned{comm};
    require_possible(comm, bytes);
    void* first = nullptr;
    // The parts may be apart, which lets each part begin at a page.
    MPI_Info info = MPI_INFO_NULL;
    detail::require_success(MPI_Info_create(&info), "MPI_Info_create");
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
    const int code = MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, info, comm,
                                             static_cast<void*>(&first), &window_);
    MPI_Info_free(&info);
    detail::require_success(code, "MPI_Win_allocate_shared");
    MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
    range_ = unused_ = {reinterpret_cast<std::uintptr_t>(first), bytes};
  }
  shared_window_memory(shared_window_memory&& other) noexcept
      : window_{std::exchange(other.window_, MPI_WIN_NULL)},
        range_{std::exchange(other.range_, {})},
        unused_{std::exchange(other.unused_, {})} {}
  shared_window_memory& operator=(shared_window_memory&& other) noexcept {
    std::swap(window_, other.window_);
    std::swap(range_, other.range_);
    std::swap(unused_, other.unused_);
    return *this;
  }
  /// Frees the window. Leaves the window to MPI after `MPI_Finalize`, and while an exception destroys this
  /// object: the other ranks would not call, and the job would wait.
  ~shared_window_memory() {
    if (window_ != MPI_WIN_NULL && !unwinding_.is_under_way() && detail::is_running()) MPI_Win_free(&window_);
  }

  /// Returns the whole part if it has `least_bytes` and is not in use.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t) noexcept {
    return least_bytes <= unused_.size ? std::exchange(unused_, {}) : byte_range{};
  }
  void release(byte_range range) noexcept { unused_ = range; }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return range_.size; }
  [[nodiscard]] static constexpr std::size_t granularity() noexcept { return traits.block_alignment; }

  /// Returns the part of a rank of the communicator, at this rank's addresses. @throws mpi_error;
  /// std::logic_error after a move.
  [[nodiscard]] byte_range part_of(int rank) const {
    if (window_ == MPI_WIN_NULL) throw std::logic_error{"shared_window_memory: part_of: it was moved from"};
    MPI_Aint bytes = 0;
    int unit = 0;
    void* first = nullptr;
    detail::require_success(MPI_Win_shared_query(window_, rank, &bytes, &unit, static_cast<void*>(&first)),
                            "MPI_Win_shared_query");
    return {reinterpret_cast<std::uintptr_t>(first), static_cast<std::size_t>(bytes)};
  }
  /// Returns the window; `MPI_WIN_NULL` after a move.
  [[nodiscard]] MPI_Win get() const noexcept { return window_; }

 private:
  // Throws on all ranks alike, because the other ranks would wait for a single one in the next collective
  // call.
  static void require_possible(MPI_Comm comm, std::size_t bytes) {
    int ranks = 0, ranks_here = 0;
    MPI_Comm here = MPI_COMM_NULL;
    detail::require_success(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
    detail::require_success(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
                            "MPI_Comm_split_type");
    MPI_Comm_size(here, &ranks_here);
    MPI_Comm_free(&here);
    const bool fits = bytes <= static_cast<std::size_t>((std::numeric_limits<MPI_Aint>::max)());
    int possible[2] = {ranks_here == ranks, fits};
    detail::require_success(MPI_Allreduce(MPI_IN_PLACE, possible, 2, MPI_INT, MPI_MIN, comm),
                            "MPI_Allreduce");
    if (possible[0] == 0)
      throw std::invalid_argument{
          "shared_window_memory: the ranks of the communicator are not all of one machine; split it with "
          "MPI_Comm_split_type(MPI_COMM_TYPE_SHARED)"};
    if (possible[1] == 0)
      throw std::invalid_argument{"shared_window_memory: a rank wants more bytes than MPI can count"};
  }

  MPI_Win window_ = MPI_WIN_NULL;
  byte_range range_{};
  byte_range unused_{};  // `range_` while no arena uses it
  detail::unwinding unwinding_;
};

static_assert(address_space<shared_window_memory>);

}  // namespace tidemark::mpi
