// SPDX-License-Identifier: Apache-2.0
/// @file
/// `allocation_observer`: sees the blocks of arenas, shared arenas, workspaces and planned arenas. Owns
/// nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// Sees each block that a resource allocates and releases. Set it as `observer` in the options of an arena,
/// a workspace or a planned arena. It then sees `push`, `make` and scopes too, which no adaptor below or
/// above the resource sees. `statistics_resource`, `limit_resource` and `trace_resource` are observers.
///
/// ```cpp
/// limit_resource budget{64 * MiB};
/// arena step{{.name = "step", .observer = &budget}};
/// (void)step.push_array<float>(32 * MiB);   // throws out_of_memory: 128 MiB; `step` is unchanged
/// ```
/// Exactly one call of `allocated` or `failed` follows each return of `before_allocate`. The functions must not
/// use the observed resource, and are called on the thread that uses it. The observer of a shared arena or of
/// resources of several threads must be thread-safe. It must outlive its resources.
class allocation_observer {
 public:
  /// Called before an allocation. An exception rejects the allocation; the resource has not changed then.
  virtual void before_allocate([[maybe_unused]] std::size_t bytes, [[maybe_unused]] std::size_t align) {}
  /// Called for each new block. An exception undoes the allocation; the observer must then have undone its part.
  /// @param bytes size as requested
  virtual void allocated(void* block, std::size_t bytes, std::size_t align) = 0;
  /// Called if the resource has no block after `before_allocate`.
  virtual void failed([[maybe_unused]] std::size_t bytes) noexcept {}
  /// Called before the memory of a block may be reused. A rewind releases the newest block first.
  virtual void released(void* block, std::size_t bytes) noexcept = 0;
  /// Called when a step of a planned arena begins. @param kind the kind of the step
  virtual void step_began([[maybe_unused]] std::uint64_t kind) noexcept {}
  /// Called when the step ends.
  virtual void step_ended() noexcept {}
  /// Called at the end of a resource, as its last call.
  virtual void detached() noexcept {}

 protected:
  allocation_observer() = default;
  allocation_observer(allocation_observer const&) = default;
  allocation_observer& operator=(allocation_observer const&) = default;
  ~allocation_observer() = default;
};

}  // namespace tidemark
