// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mpi_error`: an error of MPI as an exception. Owns its text.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include <tidemark/mpi/detail/mpi_header.hpp>

namespace tidemark::mpi {

/// Thrown for a failed call of MPI. tidemark never calls `MPI_Abort`: its calls return errors with any error
/// handler of the communicator.
class mpi_error : public std::runtime_error {
 public:
  /// @param call function that failed. @param code code that it returned.
  mpi_error(char const* call, int code) : runtime_error{text_of(call, code)}, code_{code} {}

  /// Returns the code of the call, which is specific to the implementation of MPI.
  [[nodiscard]] int code() const noexcept { return code_; }
  /// Returns the standard's class of the code, such as `MPI_ERR_NO_MEM`.
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
