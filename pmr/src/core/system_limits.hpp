// SPDX-License-Identifier: Apache-2.0
/// @file
/// The limits of the system on a process's memory: which one refused a call, and how much it leaves. Owns
/// nothing.
#pragma once

#include <cstddef>

#include <tidemark/core/os_memory.hpp>

namespace tidemark::detail {

/// The limit that refused a call just now and how to change it, in words that live as long as the program;
/// empty if none is known. Reads /proc; allocates nothing.
[[nodiscard]] char const* limit_behind(refused_call const& call) noexcept;

/// The most bytes that a range should have after a larger one was refused: a share of the bytes that the limit
/// leaves, because threads, malloc and other arenas need addresses too. SIZE_MAX where no limit is known.
[[nodiscard]] std::size_t fair_share_bytes(refused_call const& call) noexcept;

/// The size above which a file may not be made: the kernel ends a process that tries.
[[nodiscard]] std::size_t max_file_bytes() noexcept;

}  // namespace tidemark::detail
