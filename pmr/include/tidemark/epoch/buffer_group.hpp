// SPDX-License-Identifier: Apache-2.0
/// @file
/// `buffer_group`: buffers that die together when it is closed. Owns the buffers' blocks.
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

/// Reclaims the buffers that were added to it when it is closed: for a tape or a graph, whose lifetime is not
/// a block of code.
///
/// ```cpp
/// buffer_group tape{memory, "tape"};
/// buffer<float> a{memory, n}, b{memory, n};
/// tape.add(a, b);
/// float loss = tape.close_after([&] { return sum(b); });  // then a and b are empty
/// ```
/// A buffer that is added leaves the epoch it was in, and outlives it. Any thread may deallocate it before.
///
/// Invariant: `size()` is the number of buffers that were added and have not been deallocated.
///
/// Adding is O(1) amortised, closing O(buffers). The resource must outlive it. Thread-safety: one thread at a
/// time.
class [[nodiscard]] buffer_group {
 public:
  /// An empty group. @param name in messages; must outlive the resource. @throws std::bad_alloc.
  [[nodiscard]] explicit buffer_group(epoch_resource& resource, char const* name = "buffer_group");
  buffer_group(buffer_group const&) = delete;
  buffer_group& operator=(buffer_group const&) = delete;
  /// `close()`.
  ~buffer_group();

  /// Adds buffers, but for empty and reclaimed ones and those that it has already. Views of a buffer that was
  /// made in no epoch do not see its end if they were made before this.
  /// @return how many were added. @throws std::invalid_argument for a buffer of another resource;
  /// std::bad_alloc. Those before it were added then.
  template <class... Ts>
  std::size_t add(buffer<Ts>&... buffers) {
    return (std::size_t{0} + ... + (add_storage(buffers.storage_) ? 1U : 0U));
  }

  /// Reclaims the buffers. It can be used again. O(buffers).
  epoch_summary close() noexcept;

  /// Calls `extract`, then `close()`, and returns what `extract` returned. @throws what `extract` throws,
  /// after closing.
  template <class Extract>
  std::invoke_result_t<Extract> close_after(Extract&& extract) {
    constexpr auto close_group = [](buffer_group* group) { (void)group->close(); };
    const std::unique_ptr<buffer_group, decltype(close_group)> closes_at_end{this, close_group};
    return std::invoke(std::forward<Extract>(extract));
  }

  /// Buffers that it has. O(1).
  [[nodiscard]] std::size_t size() const noexcept { return group_.size(); }
  /// The name that it was made with.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// The resource of its buffers.
  [[nodiscard]] epoch_resource& resource() const noexcept { return resource_; }

 private:
  bool add_storage(detail::storage& storage);

  epoch_resource& resource_;
  detail::block_group& group_;
  char const* name_;
};

}  // namespace tidemark
