// SPDX-License-Identifier: Apache-2.0
/// @file
/// `construct_object`: `std::construct_at` without <memory>. Owns nothing.
#pragma once

#include <new>
#include <utility>

// As for `std::construct_at`: compilers do not warn of conversions of the caller's arguments here.
#if defined(__GNUC__)
#pragma GCC system_header
#endif

namespace tidemark::detail {

template <class T, class... Arguments>
T* construct_object(T* place, Arguments&&... arguments) {
  return ::new (const_cast<void*>(static_cast<void const volatile*>(place)))
      T(std::forward<Arguments>(arguments)...);
}

}  // namespace tidemark::detail
