// SPDX-License-Identifier: Apache-2.0
/// @file
/// `owner`: a group of buffers that die together when it is closed. Owns the buffers' blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include <tidemark/buffer.hpp>
#include <tidemark/detail/block_group.hpp>
#include <tidemark/detail/storage.hpp>
#include <tidemark/epoch_resource.hpp>
#include <tidemark/epoch_stats.hpp>

namespace tidemark {

/// Buffers that were registered with it, and only these, are reclaimed when it is closed: for a tape or a
/// graph, whose lifetime is not a block of code.
///
/// ```cpp
/// owner tape{memory, "tape"};
/// buffer<float> a{memory, n}, b{memory, n};
/// tape.add(a, b);
/// float loss = tape.close_after([&] { return sum(b); });  // then a and b are empty
/// ```
/// A buffer that is registered leaves the epoch it was in, and outlives it. It may be given back before, by
/// any thread.
///
/// Invariant: `size()` is the number of buffers that were added and have not been given back.
///
/// Adding is O(1) amortised, closing O(buffers). The resource must outlive it. Thread-safety: one thread at a
/// time.
class [[nodiscard]] owner {
 public:
  /// Of nothing yet. @param name in messages; must outlive the resource. @throws std::bad_alloc.
  [[nodiscard]] explicit owner(epoch_resource& resource, char const* name = "owner");
  owner(owner const&) = delete;
  owner& operator=(owner const&) = delete;
  /// `close()`.
  ~owner();

  /// Registers buffers. Empty and reclaimed ones are left alone, as are those that it has already. Views of a
  /// buffer that was made in no epoch, and made before this, do not see its end.
  /// @return how many are new. @throws std::invalid_argument for a buffer of another resource;
  /// std::bad_alloc. Those before it are registered then.
  template <class... Ts>
  std::size_t add(buffer<Ts>&... buffers) {
    return (std::size_t{0} + ... + (add_storage(buffers.storage_) ? 1U : 0U));
  }

  /// Reclaims the buffers. It can be used again. O(buffers).
  epoch_summary close() noexcept;

  /// Calls `extract`, then `close()`, and returns what `extract` returned: results leave before the buffers
  /// go.
  /// @throws what `extract` throws, after closing.
  template <class Extract>
  std::invoke_result_t<Extract> close_after(Extract&& extract) {
    struct closing {
      owner& closed;
      ~closing() { (void)closed.close(); }
    } const at_end{*this};
    return std::invoke(std::forward<Extract>(extract));
  }

  /// Buffers that it has. O(1).
  [[nodiscard]] std::size_t size() const noexcept { return group_.size(); }
  [[nodiscard]] char const* name() const noexcept { return name_; }
  [[nodiscard]] epoch_resource& resource() const noexcept { return resource_; }

 private:
  bool add_storage(detail::storage& storage);

  epoch_resource& resource_;
  detail::block_group& group_;
  char const* name_;
};

}  // namespace tidemark
