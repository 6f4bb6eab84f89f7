// SPDX-License-Identifier: Apache-2.0
/// @file
/// System limits on a process's memory: the limit that refused a call, and the memory that it leaves. Owns
/// nothing.
#pragma once

#include <cstddef>

#include <tidemark/core/os_memory.hpp>

namespace tidemark::detail {

/// The limit behind a call that was just refused, and how to change it; empty if unknown. The text lives as
/// long as the program. Reads /proc; allocates nothing.
[[nodiscard]] char const* limit_behind(refused_call const& call) noexcept;

/// Maximum bytes of a range after a larger range was refused: a share of the bytes left by the limit.
/// Threads, malloc and other arenas need addresses too. SIZE_MAX if no limit is known.
[[nodiscard]] std::size_t fair_share_bytes(refused_call const& call) noexcept;

/// Maximum size of a new file, in bytes. The kernel kills a process that exceeds it.
[[nodiscard]] std::size_t max_file_bytes() noexcept;

}  // namespace tidemark::detail
