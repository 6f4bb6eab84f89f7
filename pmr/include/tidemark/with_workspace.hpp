// SPDX-License-Identifier: Apache-2.0
/// @file
/// `with_workspace`: runs a function in a scope. Owns nothing.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>

#include <tidemark/detail/escape.hpp>
#include <tidemark/workspace.hpp>
#include <tidemark/workspace_errors.hpp>
#include <tidemark/workspace_scope.hpp>

namespace tidemark {
namespace detail {

template <class Scope, class Body>
decltype(auto) call_in_scope(Scope& scope, Body&& body) {
  if constexpr (std::invocable<Body, Scope&>) return std::invoke(std::forward<Body>(body), scope);
  else return std::invoke(std::forward<Body>(body));
}

}  // namespace detail

/// Runs `body`, as `body(scope)` or `body()`, in a scope and returns its result. The element types that are
/// named have their counts saved at once, as in `workspace::scope<double, int>`.
///
/// ```cpp
/// double norm = with_workspace(ws, [&](auto& scope) {
///   auto r = scope.template acquire<double>(n);
///   ...
///   return sum;
/// });
/// ```
/// At level 1 the result is looked into, as by `scope::returning`: `where`, the place of this call, is the
/// place of return in messages. A view that is the result itself is no error, because it guards itself: who
/// discards it is right, and who uses it gets `stale_view`. A result that cannot be moved is not looked into.
/// @throws what `body` throws; workspace_escape at level 1. The scope has ended then. Thread-safety: the
/// workspace's.
template <class... Types, workspace_policy Policy, class Body>
decltype(auto) with_workspace(basic_workspace<Policy>& ws, Body&& body,
                              std::source_location where = std::source_location::current()) {
  basic_workspace_scope<Policy, Types...> scope{ws, where};
  using result_type = decltype(detail::call_in_scope(scope, std::forward<Body>(body)));
  constexpr bool arrives = std::is_reference_v<result_type> || std::move_constructible<result_type>;
  constexpr bool looked_into =
      basic_workspace<Policy>::checked && arrives && !detail::guards_itself<std::remove_cvref_t<result_type>>;
  if constexpr (looked_into) {
    result_type result = detail::call_in_scope(scope, std::forward<Body>(body));
    if constexpr (std::is_reference_v<result_type>) (void)scope.returning(std::addressof(result), where);
    return static_cast<result_type>(scope.returning(std::forward<result_type>(result), where));
  } else {
    return detail::call_in_scope(scope, std::forward<Body>(body));
  }
}

/// `with_workspace` where pooling is a question: without (`set_workspace_pooling(false)`), each acquisition
/// through the scope, and through the workspace that the scope names, is one allocation of the upstream,
/// given back when its scope ends. What functions acquire of `ws` itself is pooled as ever, and taken back at
/// the end too. `with_workspace` itself does not ask.
template <class... Types, workspace_policy Policy, class Body>
decltype(auto) maybe_with_workspace(basic_workspace<Policy>& ws, Body&& body,
                                    std::source_location where = std::source_location::current());

/// Whether `maybe_with_workspace` keeps memory, in all threads; it does at the start. Thread-safe.
[[nodiscard]] bool workspace_pooling_enabled() noexcept;
/// Sets that, for scopes that open from now on. Thread-safe.
void set_workspace_pooling(bool enabled) noexcept;

template <class... Types, workspace_policy Policy, class Body>
decltype(auto) maybe_with_workspace(basic_workspace<Policy>& ws, Body&& body, std::source_location where) {
  if (workspace_pooling_enabled()) return with_workspace<Types...>(ws, std::forward<Body>(body), where);
  basic_workspace_scope<Policy> of_who_knows_only_ws{ws, where};
  return with_workspace<Types...>(ws.unpooled(), std::forward<Body>(body), where);
}

}  // namespace tidemark
