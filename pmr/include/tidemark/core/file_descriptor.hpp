// SPDX-License-Identifier: Apache-2.0
/// @file
/// `file_descriptor`: owns a file descriptor.
#pragma once

#include <utility>

namespace tidemark {

/// Closes its file descriptor at destruction. Memory behind a descriptor, such as a `shared_memory` or a
/// device driver's export, stays allocated while any process has a descriptor of it open.
///
/// The program transfers descriptors itself: as `SCM_RIGHTS` of a Unix socket, by `pidfd_getfd`, or by a
/// fork. Move-only; a moved-from object is empty. Not thread-safe: one thread at a time.
class file_descriptor {
 public:
  /// An empty object.
  file_descriptor() noexcept = default;
  /// Takes ownership of a descriptor, for example received on a socket. A negative number means no
  /// descriptor.
  explicit file_descriptor(int number) noexcept : number_{number} {}
  file_descriptor(file_descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    file_descriptor moved{std::move(other)};
    std::swap(number_, moved.number_);
    return *this;
  }
  /// Closes the descriptor, if any.
  ~file_descriptor();

  /// The descriptor's number; -1 if empty.
  [[nodiscard]] int get() const noexcept { return number_; }
  /// Releases ownership. @return the descriptor's number; -1 if empty.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

}  // namespace tidemark
