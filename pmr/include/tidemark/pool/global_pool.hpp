// SPDX-License-Identifier: Apache-2.0
/// @file
/// `global_pool`: the one pool of the process. It lives until the process ends.
#pragma once

#include <cstddef>

#include <tidemark/pool/synchronized_pool.hpp>

namespace tidemark {

namespace detail {
[[nodiscard]] synchronized_pool& make_global_pool();
}  // namespace detail

/// The process's pool, with default options, made at the first call and destroyed only when the library is unloaded, so that destructors
/// of static objects may still use it. Its memory comes from `operator new` whatever the default resource is:
/// so the default resource may be this pool.
///
/// ```cpp
/// std::pmr::set_default_resource(&global_pool());
/// ```
/// @throws std::bad_alloc at the first call. Thread-safe; a child that is forked may use it as well.
[[nodiscard]] inline synchronized_pool& global_pool() {
  static synchronized_pool& pool = detail::make_global_pool();
  return pool;
}

/// `global_pool().allocate(bytes)`: a block aligned for every fundamental type. @throws std::bad_alloc.
/// Thread-safe.
[[nodiscard]] inline void* pooled_alloc(std::size_t bytes) { return global_pool().allocate(bytes); }

/// Takes a block of `pooled_alloc` back, from any thread. Does nothing for null. @param bytes as it was
/// allocated with.
inline void pooled_free(void* block, std::size_t bytes) noexcept { global_pool().deallocate(block, bytes); }

}  // namespace tidemark
