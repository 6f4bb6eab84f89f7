// SPDX-License-Identifier: Apache-2.0
/// @file
/// `with_epoch`: runs a function in an epoch. Owns nothing.
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include <tidemark/detail/keepable.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/epoch_resource.hpp>

namespace tidemark {
namespace detail {

template <class Body>
decltype(auto) call_body(epoch& e, Body&& body) {
  if constexpr (std::invocable<Body, epoch&>) return std::invoke(std::forward<Body>(body), e);
  else return std::invoke(std::forward<Body>(body));
}

template <class Body>
using body_result = decltype(call_body(std::declval<epoch&>(), std::declval<Body>()));

}  // namespace detail

/// Runs `body`, as `body()` or `body(epoch&)`, in an epoch and returns its result. Kept is what `keep`
/// returns, called with the result (with nothing, if that is void): buffers, pointers, spans, or a tuple or
/// range of such.
///
/// ```cpp
/// auto [loss, gradients] = with_epoch(memory, "step", [&] { return train(batch); },
///                                     [](auto& result) { return std::tie(result.loss); });
/// ```
/// @throws what `body` or `keep` throws; everything that the epoch tracked, but for what `body` itself has
/// kept, is reclaimed then. Thread-safety and complexity: as `epoch`.
template <class Body, class Keep>
  requires(!std::convertible_to<Body, char const*>)
detail::body_result<Body> with_epoch(epoch_resource& resource, char const* name, Body&& body, Keep&& keep) {
  epoch e{resource, name};
  if constexpr (std::is_void_v<detail::body_result<Body>>) {
    detail::call_body(e, std::forward<Body>(body));
    e.keep(std::invoke(std::forward<Keep>(keep)));
  } else {
    detail::body_result<Body> result = detail::call_body(e, std::forward<Body>(body));
    e.keep(std::invoke(std::forward<Keep>(keep), result));
    return result;
  }
}

/// The same, keeping the result itself if it is something that can be kept.
template <class Body>
  requires(!std::convertible_to<Body, char const*>)
detail::body_result<Body> with_epoch(epoch_resource& resource, char const* name, Body&& body) {
  epoch e{resource, name};
  if constexpr (std::is_void_v<detail::body_result<Body>>) {
    detail::call_body(e, std::forward<Body>(body));
  } else {
    detail::body_result<Body> result = detail::call_body(e, std::forward<Body>(body));
    if constexpr (keepable<detail::body_result<Body>>) e.keep(result);
    return result;
  }
}

/// Both with the name "epoch".
template <class Body, class... Keep>
  requires(!std::convertible_to<Body, char const*> && sizeof...(Keep) <= 1)
detail::body_result<Body> with_epoch(epoch_resource& resource, Body&& body, Keep&&... keep) {
  return with_epoch(resource, "epoch", std::forward<Body>(body), std::forward<Keep>(keep)...);
}

}  // namespace tidemark
