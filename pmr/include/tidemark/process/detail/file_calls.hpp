// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of the system calls behind `shared_memory`, and a hook by which tests make them fail. Owns nothing.
#pragma once

#include <string>

namespace tidemark::detail {

/// Called before each system call on shared memory, with its name. Returns 0, or an error number that replaces
/// the call.
using file_call_hook = int (*)(char const* call) noexcept;

/// Sets the hook; null restores the real calls. For tests. @return the previous hook
file_call_hook set_file_call_hook(file_call_hook hook) noexcept;

/// True if the call should be made; otherwise errno has the error of the hook.
[[nodiscard]] bool may_call(char const* call) noexcept;

/// @throws std::system_error of errno with the sentence `who + what`, unless the call has succeeded
void require_call(bool succeeded, std::string const& who, char const* what);

}  // namespace tidemark::detail
