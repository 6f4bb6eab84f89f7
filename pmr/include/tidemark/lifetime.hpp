// SPDX-License-Identifier: Apache-2.0
/// @file
/// `lifetime`: a block that a plan is to place, and when it is live. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tidemark {

/// A block that is live in `[lower, upper)`. Two blocks are in conflict if a moment is in both.
///
/// Moments are any numbers that grow: events of a trace, nanoseconds. A block of no bytes, or whose `lower`
/// is its `upper`, is in conflict with none.
struct lifetime {
  std::uint64_t lower = 0;                           ///< the first moment
  std::uint64_t upper = 0;                           ///< the moment after the last; not below `lower`
  std::size_t size = 0;                              ///< bytes
  std::size_t alignment = 1;                         ///< its offset is a multiple of this power of two
  std::optional<std::size_t> offset = std::nullopt;  ///< where it must lie, if that is fixed

  friend bool operator==(lifetime const&, lifetime const&) = default;
};

/// A block that a plan is to place where lifetimes do not say which are in conflict.
struct plan_block {
  std::size_t size = 0;                              ///< bytes
  std::size_t alignment = 1;                         ///< its offset is a multiple of this power of two
  std::optional<std::size_t> offset = std::nullopt;  ///< where it must lie, if that is fixed

  friend bool operator==(plan_block const&, plan_block const&) = default;
};

/// Two blocks, by their number from 0, that must not share a byte: both may be live at one moment.
struct conflict {
  std::size_t first = 0;   ///< one
  std::size_t second = 0;  ///< the other

  friend bool operator==(conflict const&, conflict const&) = default;
};

}  // namespace tidemark
