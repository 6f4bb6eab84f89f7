// SPDX-License-Identifier: Apache-2.0
/// @file
/// tidemark's calls of MPI: converts returned errors to exceptions.
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

/// Returns true if MPI can be called: it is initialised and not finalised.
[[nodiscard]] inline bool is_running() noexcept {
  int initialized = 0, finalized = 0;
  return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized != 0 &&
         MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0;
}

/// Makes a communicator return errors during its lifetime. One thread at a time for each communicator. @pre
/// MPI is running. @throws std::invalid_argument for the null communicator, which a split may return to some
/// ranks.
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

/// Makes calls without a communicator return errors. Their errors belong to the world before MPI 4, and to
/// the process since. Any thread: the first user changes the handlers, and the last user restores them.
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
    std::optional<returned_errors> world, self;  // set while there are users
  };
  /// In a function, because clang 19 and 22 sometimes crash on a module with inline variables that have
  /// destructors.
  static shared_state& state() {
    static shared_state shared;
    return shared;
  }
};

/// Detects that an exception has been thrown since its construction and destroys its owner. The other ranks
/// are then elsewhere, and a collective call would wait for them forever.
class unwinding {
 public:
  [[nodiscard]] bool is_under_way() const noexcept { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

/// Returns the text of an error's class, valid until the program ends: there are few classes.
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
