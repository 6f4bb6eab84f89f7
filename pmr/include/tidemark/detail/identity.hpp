// SPDX-License-Identifier: Apache-2.0
/// @file
/// Identities: a token that tells threads apart and a number that tells resources apart.
#pragma once

namespace tidemark::detail {

/// An address that no other living thread has. Never null.
[[nodiscard]] void const* this_thread_token() noexcept;

/// A number that no other call in this process gets, from 1 on.
[[nodiscard]] unsigned long long next_identity() noexcept;

}  // namespace tidemark::detail
