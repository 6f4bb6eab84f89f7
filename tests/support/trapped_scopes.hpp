// SPDX-License-Identifier: Apache-2.0
// Arenas that trap each scope, and uses of their memory after the scope's end.
#pragma once

#include <cstddef>

#include <tidemark/arena/arena.hpp>

namespace tidemark::test {

constexpr arena_options trapping{.name = "trapping", .trap = {.one_in = 1, .reserve = 1 * MiB}};
constexpr char const* late_use =
    "arena 'trapping': use of 0x[0-9a-f]+ after it was rewound over, at .+; rewound by .+";

/// A read that no sanitizer sees, which would report it before it is a fault.
#if defined(__clang__)
[[clang::no_sanitize("address", "memory", "thread", "undefined")]]
#else
[[gnu::no_sanitize_address]]
#endif
[[gnu::noinline]] inline char read(void const* address) {
  return *static_cast<char const volatile*>(address);
}

/// A block of a scope that has ended.
inline void* in_a_scope(arena& a, std::size_t bytes = 1) {
  void* block = nullptr;
  {
    arena::scope scope{a};
    block = scope.allocate(bytes);
  }
  return block;
}

}  // namespace tidemark::test
