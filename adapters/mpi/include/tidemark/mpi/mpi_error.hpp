// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mpi_error`: an error of MPI as an exception. Owns its text.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include <tidemark/mpi/detail/mpi_header.hpp>

namespace tidemark::mpi {

/// A call of MPI that failed. Nothing here calls `MPI_Abort`: while tidemark makes a call, errors are
/// returned, whatever error handler the communicator has.
class mpi_error : public std::runtime_error {
 public:
  /// @param call the function that failed. @param code what it returned.
  mpi_error(char const* call, int code) : runtime_error{text_of(call, code)}, code_{code} {}

  /// What the call returned, of one implementation of MPI.
  [[nodiscard]] int code() const noexcept { return code_; }
  /// The same in the standard's classes, such as `MPI_ERR_NO_MEM`.
  [[nodiscard]] int error_class() const noexcept {
    int found = MPI_ERR_UNKNOWN;
    MPI_Error_class(code_, &found);
    return found;
  }

 private:
  static std::string text_of(char const* call, int code) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
    return std::string{call} + ": " +
           (length != 0 ? std::string(text, static_cast<std::size_t>(length))
                        : "error " + std::to_string(code));
  }

  int code_;
};

}  // namespace tidemark::mpi
