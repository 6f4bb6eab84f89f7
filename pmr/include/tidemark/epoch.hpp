// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch`: what is allocated between its opening and its end dies at its end, except what is kept.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/detail/block_group.hpp>
#include <tidemark/detail/keepable.hpp>
#include <tidemark/detail/named_range.hpp>
#include <tidemark/detail/storage.hpp>
#include <tidemark/epoch_resource.hpp>
#include <tidemark/epoch_stats.hpp>

namespace tidemark {

/// Opens an epoch of this thread on an `epoch_resource`, and ends it when it is destroyed.
///
/// ```cpp
/// epoch e{memory, "step"};
/// buffer<float> hidden{memory, 4096}, loss{memory, 1};
/// e.keep(loss);
/// ```                     // here hidden is empty, and loss is as it was
/// Epochs nest. What an inner one keeps becomes the outer one's and dies with that unless it is kept again;
/// what the outermost keeps is from then on an ordinary block that whoever holds it gives back. Epochs of
/// other threads, and of other resources, know nothing of this one.
///
/// Epochs on one resource end in the reverse order of their opening. Ending an outer one first is reported as
/// a violation; it then ends with the last one inside it. Ending one on another thread is reported as well;
/// it then stays open until the resource is destroyed.
///
/// It owns nothing but the epoch; the resource must outlive its use. Opening is O(1), at most a lock for the
/// outermost only; the end is O(blocks). One thread, the one that made it.
class [[nodiscard]] epoch {
 public:
  /// Opens an epoch. @param name in messages; must outlive the resource.
  /// @throws std::bad_alloc; no epoch is open then that was not before.
  [[nodiscard]] explicit epoch(epoch_resource& resource, char const* name = "epoch")
      : resource_{resource}, group_{resource.group_of_this_thread()}, name_{name} {
    open();
  }
  epoch(epoch const&) = delete;
  epoch& operator=(epoch const&) = delete;
  /// `end()`, if that was not called.
  ~epoch() {
    if (number_ != 0) (void)end();
  }

  /// Keeps the blocks of `things` when the epoch ends: buffers, views of them, pointers and spans into a
  /// block, contiguous containers (their storage, and what elements lead to that can be kept themselves),
  /// other ranges (what their elements lead to, and not their nodes), and tuples, optionals and smart
  /// pointers of such. What is no block of this epoch (null, of an epoch around or inside it, of another
  /// thread or resource, given back) is left alone, and twice is once.
  /// @return blocks that will now outlive the epoch and would not have before. O(1) for the start of a block,
  /// O(blocks of the epoch) for an address inside one.
  template <keepable... Things>
  std::size_t keep(Things const&... things) noexcept {
    std::size_t kept = 0;
    const auto count = [&](auto const& where) { kept += keep_block(where) ? 1 : 0; };
    (detail::for_each_block(things, count), ...);
    return kept;
  }

  /// Ends the epoch now. Calling it again does nothing; level 2 reports that. O(blocks).
  epoch_summary end() noexcept;

  /// Whether it has not been ended.
  [[nodiscard]] bool is_open() const noexcept { return number_ != 0; }
  /// How many epochs of this thread on this resource there are down to this one: 1 for the outermost; 0 if it
  /// was ended.
  [[nodiscard]] std::size_t depth() const noexcept { return number_ == 0 ? 0 : group_.depth_of(number_); }
  [[nodiscard]] char const* name() const noexcept { return name_; }
  [[nodiscard]] epoch_resource& resource() const noexcept { return resource_; }

 private:
  void open();
  bool keep_block(detail::storage const& storage) noexcept;
  bool keep_block(void const* address) noexcept;

  epoch_resource& resource_;
  detail::block_group& group_;
  char const* name_;
  std::uint64_t number_ = 0;  // of the group's frame; 0: ended
  [[no_unique_address]] detail::named_range range_;
};

}  // namespace tidemark
