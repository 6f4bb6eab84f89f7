// SPDX-License-Identifier: Apache-2.0
/// @file
/// `storage`: a handle on one generation of a block. Owns nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <tidemark/epoch/detail/tracked_block.hpp>

namespace tidemark {

class epoch_resource;

namespace detail {

/// The handle of `buffer` and `buffer_view` on their block. Thread-safety: that of a plain value, except that
/// `is_live` may run while another thread ends the epoch.
struct storage {
  /// Allocates a block of `resource`; no block for 0 bytes. @throws whatever `epoch_resource::allocate`
  /// throws
  /// @tparam Resource `epoch_resource`, which is complete where this is inlined in the constructor of `buffer`
  template <class Resource>
  static storage allocate(Resource& resource, std::size_t bytes, std::size_t align) {
    if (bytes == 0) return {};
    storage made{.resource = &resource, .bytes = bytes, .align = align};
    if (auto* const group = resource.own_group()) {
      tracked_block& record = resource.allocate_in(*group, bytes, align);
      made.address = record.data();
      made.set_record(record);
    } else {
      made.address = resource.allocate_untracked(bytes, align);
    }
    return made;
  }
  /// Deallocates the block if it is live. @return true if the block was live
  bool release() noexcept { return is_live() && release_live(); }
  /// True if the handle has a block that was neither deallocated nor reclaimed. O(1), no lock.
  [[nodiscard]] bool is_live() const noexcept {
    return address != nullptr && (record == nullptr || record->load().generation() == generation);
  }
  /// Returns the epoch or buffer group that reclaimed the block, if known.
  [[nodiscard]] std::optional<ending> how_it_ended() const noexcept;
  /// Sets the record, because the block is tracked now.
  void set_record(tracked_block& of) noexcept {
    record = &of;
    generation = of.load().generation();
  }

  epoch_resource* resource = nullptr;
  void* address = nullptr;
  std::size_t bytes = 0, align = 1;
  tracked_block* record = nullptr;  // null: the block was never tracked
  std::uint64_t generation = 0;

 private:
  bool release_live() noexcept;
};

/// Satisfied by `buffer` and `buffer_view`.
template <class T>
concept has_storage = requires(T const& thing) {
  { thing.storage() } -> std::convertible_to<storage const&>;
};

}  // namespace detail
}  // namespace tidemark
