// SPDX-License-Identifier: Apache-2.0
/// @file
/// `out_of_memory`: the exception of every resource that has run out of memory.
#pragma once

#include <cstddef>
#include <limits>
#include <new>

namespace tidemark {

/// Numbers about a failed allocation. All sizes are in bytes.
struct exhaustion_report {
  /// Value of a number that the resource does not know.
  static constexpr std::size_t unknown_bytes = (std::numeric_limits<std::size_t>::max)();

  char const* resource = "";        ///< name of the resource; must outlive the exception
  std::size_t requested_bytes = 0;  ///< as requested; SIZE_MAX if `n * sizeof(T)` overflows
  std::size_t alignment = 0;        ///< as requested
  std::size_t used_bytes = 0;       ///< in use at the time of the failure
  std::size_t committed_bytes = 0;  ///< backed by memory
  std::size_t reserved_bytes = 0;   ///< address space held
  /// largest request of that alignment that held memory could serve; may be `unknown_bytes`
  std::size_t largest_bytes = 0;
  /// cause of a refusal other than lack of memory; must outlive the exception
  char const* because = "";
};

/// Thrown when memory is exhausted. The resource is unchanged by the call. The exception is a
/// `std::bad_alloc`, carries the numbers, and allocates nothing.
class out_of_memory final : public std::bad_alloc {
 public:
  /// Formats the message of `what` from the numbers.
  explicit out_of_memory(exhaustion_report const& report) noexcept;

  /// One sentence with all the numbers.
  [[nodiscard]] char const* what() const noexcept override { return message_; }
  /// The numbers.
  [[nodiscard]] exhaustion_report const& report() const noexcept { return report_; }

 private:
  exhaustion_report report_;
  char message_[384];  // inside the object, because reporting a failed allocation must not allocate
};

}  // namespace tidemark
