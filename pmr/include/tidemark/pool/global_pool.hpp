// SPDX-License-Identifier: Apache-2.0
/// @file
/// `global_pool`: the pool of the process. It lives until the library is unloaded.
#pragma once

#include <cstddef>

#include <tidemark/pool/synchronized_pool.hpp>

namespace tidemark {

namespace detail {
[[nodiscard]] synchronized_pool& make_global_pool();
}  // namespace detail

/// Returns the process's pool, with default options. The pool is created by the first call, and destroyed
/// only when the library is unloaded, so destructors of static objects may use it. Its memory always comes
/// from `operator new`, so the pool may be the default resource.
///
/// ```cpp
/// std::pmr::set_default_resource(&global_pool());
/// ```
/// @throws std::bad_alloc in the first call. Thread-safe, also in a forked child.
[[nodiscard]] inline synchronized_pool& global_pool() {
  static synchronized_pool& pool = detail::make_global_pool();
  return pool;
}

/// Calls `global_pool().allocate(bytes)`. The block is aligned for every fundamental type. @throws
/// std::bad_alloc. Thread-safe.
[[nodiscard]] inline void* pooled_alloc(std::size_t bytes) { return global_pool().allocate(bytes); }

/// Deallocates a block of `pooled_alloc`, on any thread. Ignores null. @param bytes as passed to
/// `pooled_alloc`
inline void pooled_free(void* block, std::size_t bytes) noexcept { global_pool().deallocate(block, bytes); }

}  // namespace tidemark
