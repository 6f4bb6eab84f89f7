// SPDX-License-Identifier: Apache-2.0
/// @file
/// `named_range`: the lifetime of a scope or an epoch, for profilers. Owns nothing.
#pragma once

#include <utility>

#include <tidemark/core/config.hpp>
#include <tidemark/diagnose/detail/listening_tool.hpp>

namespace tidemark::detail {

#if TIDEMARK_NVTX

/// Reports a range to the tool, from construction to destruction. Move-only; a moved-from range is empty.
///
/// Each range ends by the number that its beginning returned. Scopes that end out of order, on another thread
/// or never therefore do not affect other ranges; a stack of ranges per thread would not allow that.
// Not [[nodiscard]], because nvcc 13.0 would warn about each assignment.
class named_range {
 public:
  named_range() noexcept = default;
  /// Begins a range. @param name a null-terminated text, read during the call.
  [[nodiscard]] named_range(range_kind kind, char const* name) noexcept {
    if (ranges_are_heard.load(std::memory_order_relaxed)) id_ = current_tool().begin_range(kind, name);
  }
  named_range(named_range&& other) noexcept : id_{std::exchange(other.id_, 0)} {}
  named_range& operator=(named_range&& other) noexcept {
    named_range ended{std::move(other)};
    std::swap(id_, ended.id_);
    return *this;
  }
  ~named_range() { end(); }

  /// Ends the range, if any.
  void end() noexcept {
    if (id_ != 0) current_tool().end_range(std::exchange(id_, 0));
  }

 private:
  listening_tool::range_id id_ = 0;
};

#else

/// Replaces `named_range` in builds without NVTX.
struct named_range {
  constexpr named_range() noexcept = default;
  constexpr named_range(range_kind, char const*) noexcept {}
  constexpr void end() noexcept {}
};

#endif

}  // namespace tidemark::detail
