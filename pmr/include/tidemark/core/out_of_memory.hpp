// SPDX-License-Identifier: Apache-2.0
/// @file
/// `out_of_memory`: the exception of every resource that has no memory left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>

namespace tidemark {

/// Why an allocation could not be served, in numbers. All sizes in bytes.
struct exhaustion_report {
  /// A number that the resource does not know.
  static constexpr std::size_t unknown_bytes = (std::numeric_limits<std::size_t>::max)();

  char const* resource = "";        ///< name of the resource; must outlive the exception
  std::size_t requested_bytes = 0;  ///< as requested; SIZE_MAX where `n * sizeof(T)` overflows
  std::size_t alignment = 0;        ///< as requested
  std::size_t used_bytes = 0;       ///< in use at that moment
  std::size_t committed_bytes = 0;  ///< backed by memory
  std::size_t reserved_bytes = 0;   ///< address space held
  /// the largest request of that alignment that held memory could serve; may be `unknown_bytes`
  std::size_t largest_bytes = 0;
  std::uint64_t injected_failure =
      0;  ///< number of the request that a `test_resource` had to fail; 0: not so
  /// why memory was refused, where that is not for want of it; must outlive the exception
  char const* because = "";
};

/// Thrown when memory is exhausted. The resource is as it was before the call.
///
/// It is a `std::bad_alloc`, carries the numbers, and allocates nothing itself.
class out_of_memory final : public std::bad_alloc {
 public:
  /// With these numbers, as `what` prints them.
  explicit out_of_memory(exhaustion_report const& report) noexcept;

  /// One sentence with all the numbers; of a request that had to fail, one that says so.
  [[nodiscard]] char const* what() const noexcept override { return message_; }
  /// The numbers.
  [[nodiscard]] exhaustion_report const& report() const noexcept { return report_; }

 private:
  exhaustion_report report_;
  char message_[384];  // inside the object, because a failed allocation must not allocate to say so
};

}  // namespace tidemark
