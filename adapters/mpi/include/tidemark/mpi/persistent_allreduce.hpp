// SPDX-License-Identifier: Apache-2.0
/// @file
/// `persistent_allreduce`: a sum over all ranks, set up once and started in each step. Owns the request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/mpi/detail/calls.hpp>
#include <tidemark/mpi/detail/mpi_header.hpp>

namespace tidemark::mpi {

namespace detail {

/// Returns MPI's type for an arithmetic `T`.
template <class T>
MPI_Datatype datatype_of() = delete;
template <>
inline MPI_Datatype datatype_of<float>() {
  return MPI_FLOAT;
}
template <>
inline MPI_Datatype datatype_of<double>() {
  return MPI_DOUBLE;
}
template <>
inline MPI_Datatype datatype_of<std::int32_t>() {
  return MPI_INT32_T;
}
template <>
inline MPI_Datatype datatype_of<std::int64_t>() {
  return MPI_INT64_T;
}

/// Sets up a reduction in place, by the call that this MPI has. @return MPI's code
template <class T>
int allreduce_init(T* memory, int n, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
#if MPI_VERSION >= 4
  return MPI_Allreduce_init(MPI_IN_PLACE, memory, n, datatype_of<T>(), op, comm, MPI_INFO_NULL, request);
#elif defined OMPI_HAVE_MPI_EXT_PCOLLREQ
  return MPIX_Allreduce_init(MPI_IN_PLACE, memory, n, datatype_of<T>(), op, comm, MPI_INFO_NULL, request);
#else
  static_assert(sizeof(T) == 0, "persistent collectives need MPI 4, or Open MPI's extension pcollreq");
#endif
}

}  // namespace detail

/// `MPI_Allreduce_init`: the same reduction of the same memory, in place, in each step.
///
/// ```cpp
/// mpi::persistent_allreduce<float> sum{MPI_COMM_WORLD, gradients};   // blocks of a plan: they stay there
/// for (…) {
///   std::span<float> gradients = step();
///   sum.start(gradients);   // refused if the plan has changed, and the block lies elsewhere
///   sum.wait();
/// }
/// ```
/// MPI gets the address once, and may register the memory and choose an algorithm once. `start` compares the
/// address and refuses a changed plan before MPI reads memory with other contents. All ranks must agree on a
/// change, or the others wait: see `same_layout`.
///
/// Needs MPI 4, or Open MPI's extension `pcollreq` (`MPIX_Allreduce_init`, since 4.0). Constructor, `start`,
/// `wait` and the end of a running reduction are collective. The communicator must outlive this object.
/// Construct it in a step that follows a plan, because blocks of the recorded step belong to the fallback.
/// Thread-safety: one thread at a time.
template <class T>
class persistent_allreduce {
 public:
  /// Sets up the reduction. @param memory has the same number of elements on all ranks, and must outlive this
  /// object.
  /// @param op operation that combines elements. @throws std::invalid_argument if MPI cannot count the
  /// elements; mpi_error
  persistent_allreduce(MPI_Comm comm, std::span<T> memory, MPI_Op op = MPI_SUM)
      : comm_{comm}, memory_{memory} {
    if (memory.size() > static_cast<std::size_t>((std::numeric_limits<int>::max)()))
      throw std::invalid_argument{"persistent_allreduce: " + std::to_string(memory.size()) +
                                  " elements are more than MPI counts"};
    const detail::returned_errors returned{comm};
    const int code =
        detail::allreduce_init(memory.data(), static_cast<int>(memory.size()), op, comm, &request_);
    detail::require_success(code, "MPI_Allreduce_init");
  }
  persistent_allreduce(persistent_allreduce&& other) noexcept
      : comm_{other.comm_},
        memory_{std::exchange(other.memory_, {})},
        request_{std::exchange(other.request_, MPI_REQUEST_NULL)},
        is_started_{std::exchange(other.is_started_, false)} {}
  persistent_allreduce& operator=(persistent_allreduce&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(memory_, other.memory_);
    std::swap(request_, other.request_);
    std::swap(is_started_, other.is_started_);
    return *this;
  }
  /// Waits for a started reduction and frees the request. Leaves the request to MPI after `MPI_Finalize`, and
  /// while an exception destroys this object: the other ranks would not call, and the job would wait.
  ~persistent_allreduce() {
    if (request_ == MPI_REQUEST_NULL || unwinding_.is_under_way() || !detail::is_running()) return;
    const detail::returned_errors returned{comm_};
    if (is_started_) MPI_Wait(&request_, MPI_STATUS_IGNORE);
    MPI_Request_free(&request_);
  }

  /// Starts the reduction. @param memory present place of the elements.
  /// @throws std::logic_error, with nothing started, if the place differs from the constructor's, the
  /// reduction runs or the object was moved from; mpi_error.
  void start(std::span<T const> memory) {
    if (request_ == MPI_REQUEST_NULL)
      throw std::logic_error{"persistent_allreduce: start: it was moved from"};
    if (is_started_) throw std::logic_error{"persistent_allreduce: start: the reduction runs"};
    if (memory.data() != memory_.data() || memory.size() != memory_.size())
      throw std::logic_error{"persistent_allreduce: start: the plan has changed: it was set up for " +
                             text_of(memory_) + ", and the elements are now " + text_of(memory)};
    const detail::returned_errors returned{comm_};
    detail::require_success(MPI_Start(&request_), "MPI_Start");
    is_started_ = true;
  }
  /// Waits until the elements are the sums. Does nothing without a started reduction. @throws mpi_error
  void wait() {
    if (!is_started_) return;
    const detail::returned_errors returned{comm_};
    const int code = MPI_Wait(&request_, MPI_STATUS_IGNORE);
    is_started_ = false;
    detail::require_success(code, "MPI_Wait");
  }

 private:
  static std::string text_of(std::span<T const> memory) {
    return std::to_string(memory.size()) + " elements at " +
           std::to_string(reinterpret_cast<std::uintptr_t>(memory.data()));
  }

  MPI_Comm comm_;
  std::span<T> memory_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool is_started_ = false;
  detail::unwinding unwinding_;
};

}  // namespace tidemark::mpi
