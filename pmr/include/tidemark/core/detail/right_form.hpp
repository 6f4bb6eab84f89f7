// SPDX-License-Identifier: Apache-2.0
/// @file
/// `right_form`: lets a constructor that takes a wrong argument say which argument is right. Owns nothing.
#pragma once

namespace tidemark::detail {

/// False for every type: `static_assert(right_form<T>, "write …")` in a template of a wrong form fails with
/// one sentence where the form is used, and only there.
template <class T>
inline constexpr bool right_form = false;

}  // namespace tidemark::detail
