// SPDX-License-Identifier: Apache-2.0
/// @file
/// `file_descriptor`: a file descriptor with one owner. Owns it.
#pragma once

#include <utility>

namespace tidemark {

/// A file descriptor that is closed at the end. Memory that it refers to, such as a `shared_memory` or what
/// a device's driver exported, stays allocated while a descriptor of it is open, in whatever process.
///
/// To send it to another process is the program's matter: as `SCM_RIGHTS` of a Unix socket, by `pidfd_getfd`,
/// or by a fork. Move-only; a moved-from one is empty. Thread-safety: one thread at a time.
class file_descriptor {
 public:
  /// None.
  file_descriptor() noexcept = default;
  /// Takes ownership, as of one that a socket has received; a negative number is none.
  explicit file_descriptor(int number) noexcept : number_{number} {}
  file_descriptor(file_descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    file_descriptor moved{std::move(other)};
    std::swap(number_, moved.number_);
    return *this;
  }
  /// Closes it, if there is one.
  ~file_descriptor();

  /// Its number; -1 if there is none.
  [[nodiscard]] int get() const noexcept { return number_; }
  /// Gives up ownership. @return its number; -1 if there is none.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

}  // namespace tidemark
