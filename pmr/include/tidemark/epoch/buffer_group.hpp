// SPDX-License-Identifier: Apache-2.0
/// @file
/// `buffer_group`: buffers that are reclaimed together when the group is closed. Owns the buffers' blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <tidemark/epoch/buffer.hpp>
#include <tidemark/epoch/detail/block_group.hpp>
#include <tidemark/epoch/detail/storage.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark {

/// Reclaims the buffers added to the group when the group is closed. Use it for a tape or a graph, whose
/// lifetime is not a block of code.
///
/// ```cpp
/// buffer_group tape{memory, "tape"};
/// buffer<float> a{memory, n}, b{memory, n};
/// tape.add(a, b);
/// float loss = tape.close_after([&] { return sum(b); });  // then a and b are empty
/// ```
/// An added buffer leaves its epoch and outlives it. Any thread may deallocate an added buffer early.
///
/// Invariant: `size() == buffers added - buffers deallocated or reclaimed`.
///
/// Adding is O(1) amortised, closing O(buffers). The resource must outlive the group. Thread-safety: one
/// thread at a time.
class [[nodiscard]] buffer_group {
 public:
  /// Creates an empty group. @param name used in messages; must outlive the resource. @throws std::bad_alloc
  [[nodiscard]] explicit buffer_group(epoch_resource& resource, char const* name = "buffer_group");
  buffer_group(buffer_group const&) = delete;
  buffer_group& operator=(buffer_group const&) = delete;
  /// Calls `close()`.
  ~buffer_group();

  /// Adds buffers. Skips buffers that are empty, reclaimed, or already in the group. A view that was made
  /// before this call, of a buffer that was untracked then, does not detect the end of the group.
  /// @return number of buffers added
  /// @throws std::invalid_argument if a buffer belongs to another resource; std::bad_alloc. Buffers before
  /// the failing buffer stay added.
  template <class... Ts>
  std::size_t add(buffer<Ts>&... buffers) {
    return (std::size_t{0} + ... + (add_storage(buffers.storage_) ? 1U : 0U));
  }

  /// Reclaims the buffers. The group can be used again. O(buffers).
  epoch_summary close() noexcept;

  /// Calls `extract`, then `close()`, and returns the result of `extract`. @throws whatever `extract` throws,
  /// after closing
  template <class Extract>
  std::invoke_result_t<Extract> close_after(Extract&& extract) {
    constexpr auto close_group = [](buffer_group* group) { (void)group->close(); };
    const std::unique_ptr<buffer_group, decltype(close_group)> closes_at_end{this, close_group};
    return std::invoke(std::forward<Extract>(extract));
  }

  /// Number of live buffers in the group. O(1).
  [[nodiscard]] std::size_t size() const noexcept { return group_.size(); }
  /// The name given to the constructor.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// The resource of the buffers.
  [[nodiscard]] epoch_resource& resource() const noexcept { return resource_; }

 private:
  bool add_storage(detail::storage& storage);

  epoch_resource& resource_;
  detail::block_group& group_;
  char const* name_;
};

}  // namespace tidemark
