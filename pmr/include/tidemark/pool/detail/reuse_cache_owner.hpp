// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_cache_owner`: replaces two steps of a `reuse_cache`. Owns nothing.
#pragma once

#include <functional>

namespace tidemark::detail {

/// The object that contains a `reuse_cache` and replaces two of its steps, such as a `device_cache`. Its
/// functions are called without a lock, by any thread, and may use the cache.
class reuse_cache_owner {
 public:
  /// Frees memory when the upstream throws std::bad_alloc, in place of `collect()` and `collect(true)`. The
  /// cache then also ignores memory pressure.
  /// @return true if the cache should call the upstream once more
  virtual bool relieve() noexcept = 0;
  /// Calls `queries`, which query fences, once, or not at all if no fence may be queried now. Prepares the
  /// thread for all queries of one call.
  virtual void query(std::function<void()> const& queries) noexcept = 0;

 protected:
  ~reuse_cache_owner() = default;
};

}  // namespace tidemark::detail
