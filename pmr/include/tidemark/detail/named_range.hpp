// SPDX-License-Identifier: Apache-2.0
/// @file
/// `named_range`: the life of a scope or an epoch, as profilers show it. Owns nothing.
#pragma once

#include <utility>

#include <tidemark/config.hpp>
#include <tidemark/detail/listening_tool.hpp>

namespace tidemark::detail {

#if TIDEMARK_NVTX

/// Tells the tool of a range, from its making to its end. Move-only; moved from, it is none.
///
/// Each range ends by the number that its beginning got. So scopes that end out of order, on another
/// thread or never leave all others as they are, which a stack of ranges for each thread would not.
// Not [[nodiscard]], because nvcc 13.0 would warn of each assignment.
class named_range {
 public:
  /// None.
  named_range() noexcept = default;
  /// Begins one. @param name a text that ends in 0, and is read now.
  named_range(range_kind kind, char const* name) noexcept {
    if (ranges_are_heard.load(std::memory_order_relaxed)) id_ = current_tool().begin_range(kind, name);
  }
  named_range(named_range&& other) noexcept : id_{std::exchange(other.id_, 0)} {}
  named_range& operator=(named_range&& other) noexcept {
    if (this != &other) {
      end();
      id_ = std::exchange(other.id_, 0);
    }
    return *this;
  }
  ~named_range() { end(); }

  /// Ends it, if there is one.
  void end() noexcept {
    if (id_ != 0) current_tool().end_range(std::exchange(id_, 0));
  }

 private:
  listening_tool::range_id id_ = 0;
};

#else

/// No tool is told of ranges.
struct named_range {
  constexpr named_range() noexcept = default;
  constexpr named_range(range_kind, char const*) noexcept {}
  constexpr void end() noexcept {}
};

#endif

}  // namespace tidemark::detail
