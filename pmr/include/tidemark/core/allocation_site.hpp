// SPDX-License-Identifier: Apache-2.0
/// @file
/// `allocation_site`: labels the allocations of containers; `detail::call_site`: the place of a call. Owns
/// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>

#include <tidemark/core/config.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark {

/// Labels this thread's allocations for `tracking_resource` and `test_resource` while it lives.
///
/// A pmr container allocates inside the standard library, so its call site does not help in a leak report.
/// Place an `allocation_site` at the relevant place in your code.
///
/// ```cpp
/// allocation_site here{"loading weights"};
/// std::pmr::vector<float> weights(n, &tracked);  // if it leaks: "from model.cpp:12 (loading weights)"
/// ```
/// Sites nest; the innermost counts. An allocation through a resource's own `allocate` is recorded at that
/// call, with the innermost label.
///
/// Complexity: O(1). Thread-safety: affects only its own thread, which must destroy it.
class [[nodiscard(TIDEMARK_NAME_SCOPE)]] allocation_site {
 public:
  /// @param label purpose of the memory; must live as long as the blocks, as a literal does
  /// @param where place in the source; defaults to the caller
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] explicit allocation_site(
      char const* label = "", std::source_location where = std::source_location::current()) noexcept;
  allocation_site(allocation_site const&) = delete;
  allocation_site& operator=(allocation_site const&) = delete;
  ~allocation_site();

  /// The calling thread's innermost site, or null.
  [[nodiscard]] static allocation_site const* innermost() noexcept;

  /// Purpose of the memory.
  [[nodiscard]] char const* label() const noexcept { return label_; }
  /// Place in the source.
  [[nodiscard]] std::source_location where() const noexcept { return where_; }

 private:
  char const* label_;
  std::source_location where_;
  allocation_site* outer_;  // the previous innermost site
};

static_assert(!std::is_move_constructible_v<allocation_site>,
              "a thread's sites form a stack of objects that stay");

/// A block in `leaks()` of `tracking_resource` and `test_resource`.
struct live_block {
  void const* address = nullptr;  ///< first byte
  std::size_t bytes = 0;          ///< as requested
  std::size_t align = 0;          ///< as requested
  /// place of the request; `line() == 0` if unknown
  // The braces are needed: without them, initialisers that omit this field cause a warning.
  std::source_location site{};  // NOLINT(readability-redundant-member-init)
  char const* label = "";       ///< purpose; empty if unknown
  std::uint64_t number = 0;     ///< number of the request at the resource, from 1, including refused requests
};

}  // namespace tidemark

namespace tidemark::detail {

/// The place of a call: `void rewind(call_site where = std::source_location::current())`. Below level 2 it is
/// empty and costs nothing, unless built with AddressSanitizer.
class call_site {
 public:
  constexpr call_site() noexcept = default;
#if TIDEMARK_CHECKS >= 2 || TIDEMARK_ASAN
  constexpr call_site(std::source_location where) noexcept : where_{where} {}
  /// The place; line 0 if unknown.
  [[nodiscard]] std::source_location location() const noexcept { return where_; }

 private:
  std::source_location where_;

 public:
#else
  constexpr call_site(std::source_location) noexcept {}
  [[nodiscard]] static std::source_location location() noexcept { return {}; }
#endif
  /// " at main.cpp:12", for a message; empty if the place is unknown.
  [[nodiscard]] std::string text() const {
    const std::source_location place = location();
    if (place.line() == 0) return "";
    return std::string(" at ") + place.file_name() + ':' + std::to_string(place.line());
  }
  /// ", opened at main.cpp:12", for a message about a scope; empty if the place is unknown.
  [[nodiscard]] std::string opened() const {
    const std::string at = text();
    return at.empty() ? at : ", opened" + at;
  }
};

/// "; they were opened at main.cpp:12 and at main.cpp:14", for a message about two scopes; empty if a place
/// is unknown.
[[nodiscard]] TIDEMARK_COLD std::string opened_text(call_site outer, call_site inner);

/// Reports the use of an inert scope: ended, moved from, or never opened. @throws std::logic_error with the
/// same message if the violation handler returns.
[[noreturn]] TIDEMARK_COLD void throw_not_open(char const* owner, call_site opened);

}  // namespace tidemark::detail
