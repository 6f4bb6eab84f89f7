// SPDX-License-Identifier: Apache-2.0
/// @file
/// How tidemark calls MPI: errors are returned, and become exceptions.
#pragma once

#include <cstddef>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include <tidemark/mpi/detail/mpi_header.hpp>
#include <tidemark/mpi/mpi_error.hpp>

namespace tidemark::mpi::detail {

inline void require_success(int code, char const* call) {
  if (code != MPI_SUCCESS) throw mpi_error{call, code};
}

/// Whether MPI can be called: it was initialised, and not finalised.
[[nodiscard]] inline bool is_running() noexcept {
  int initialized = 0, finalized = 0;
  return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized != 0 &&
         MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0;
}

/// While it exists, a communicator returns errors. One thread at a time for a communicator. @pre MPI is
/// running. @throws std::invalid_argument for the null communicator, which other ranks may have got of a split.
class returned_errors {
 public:
  [[nodiscard]] explicit returned_errors(MPI_Comm comm) : comm_{comm} {
    if (comm == MPI_COMM_NULL) throw std::invalid_argument{"tidemark: the communicator is MPI_COMM_NULL"};
    MPI_Comm_get_errhandler(comm_, &before_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  returned_errors(returned_errors const&) = delete;
  returned_errors& operator=(returned_errors const&) = delete;
  ~returned_errors() {
    MPI_Comm_set_errhandler(comm_, before_);
    MPI_Errhandler_free(&before_);
  }

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

/// The same for calls without a communicator, whose errors are the world's before MPI 4 and the process's
/// since. Any threads: the first changes the handlers, and the last one puts them back.
class returned_errors_of_process {
 public:
  [[nodiscard]] returned_errors_of_process() {
    shared_state& shared = state();
    const std::scoped_lock lock{shared.mutex};
    if (shared.users == 0) {
      shared.world.emplace(MPI_COMM_WORLD);
      shared.self.emplace(MPI_COMM_SELF);
    }
    ++shared.users;
  }
  returned_errors_of_process(returned_errors_of_process const&) = delete;
  returned_errors_of_process& operator=(returned_errors_of_process const&) = delete;
  ~returned_errors_of_process() {
    shared_state& shared = state();
    const std::scoped_lock lock{shared.mutex};
    if (--shared.users > 0) return;
    shared.self.reset();
    shared.world.reset();
  }

 private:
  struct shared_state {
    std::mutex mutex;
    std::size_t users = 0;
    std::optional<returned_errors> world, self;  // there while there are users
  };
  /// In a function: clang 19 and 22 crash now and then on a module with inline variables that have destructors.
  static shared_state& state() {
    static shared_state shared;
    return shared;
  }
};

/// Whether an exception has been thrown since it was made, and destroys its owner on the way up. Then other
/// ranks are elsewhere, and a collective call would wait for them for ever.
class unwinding {
 public:
  [[nodiscard]] bool is_under_way() const noexcept { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

/// The text of an error's class, which lives as long as the program: there are few classes.
[[nodiscard]] inline char const* lasting_text(int code) noexcept {
  static constexpr char const* unknown = "MPI refused it, and there is no memory to say why";
  try {
    int error_class = MPI_ERR_UNKNOWN;
    MPI_Error_class(code, &error_class);
    static std::mutex mutex;
    static std::map<int, std::string> texts;
    const std::scoped_lock lock{mutex};
    std::string& text = texts[error_class];
    if (text.empty()) {
      char found[MPI_MAX_ERROR_STRING] = "";
      int length = 0;
      if (MPI_Error_string(error_class, found, &length) != MPI_SUCCESS) length = 0;
      text = "MPI refused it: " + std::string{found, found + length};
    }
    return text.c_str();
  } catch (std::exception const&) {
    return unknown;
  }
}

}  // namespace tidemark::mpi::detail
