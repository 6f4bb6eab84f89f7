// SPDX-License-Identifier: Apache-2.0
/// @file
/// Identities: numbers that tell threads apart, and resources.
#pragma once

namespace tidemark::detail {

/// A number that no other thread of this process has, or had. Never 0.
[[nodiscard]] unsigned long long this_thread_number() noexcept;

/// A number that no other call in this process gets, from 1 on.
[[nodiscard]] unsigned long long next_identity() noexcept;

}  // namespace tidemark::detail
