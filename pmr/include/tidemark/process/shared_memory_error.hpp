// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_memory_error`: why memory of another process is refused. Owns its message.
#pragma once

#include <stdexcept>
#include <string>

namespace tidemark {

/// Why memory that processes share is refused.
enum class shared_memory_refusal {
  addresses_taken,  ///< something else lies at its addresses in this process
  not_sealed,       ///< the file could be made smaller under its views
  busy,             ///< its writer frees it at this moment: try again
  unpublished,      ///< no generation is published in it yet: try again later
  damaged,          ///< it is no process arena, or is truncated, or its header contradicts itself
  newer_version,    ///< its header is of a later version of tidemark
  other_layout,     ///< its writer lays types out differently, or has another layout version
  other_root,       ///< its root is of another type
};

/// Thrown where memory that processes share is refused. Nothing is mapped or locked then. A system call that
/// fails throws a `std::system_error` instead.
class shared_memory_error final : public std::runtime_error {
 public:
  /// With the reason, and a sentence that says it.
  shared_memory_error(shared_memory_refusal reason, std::string const& sentence)
      : std::runtime_error{sentence}, reason_{reason} {}

  /// Why, for a program that tries again or goes on without.
  [[nodiscard]] shared_memory_refusal reason() const noexcept { return reason_; }

 private:
  shared_memory_refusal reason_;
};

}  // namespace tidemark
