// SPDX-License-Identifier: Apache-2.0
/// @file
/// `storage`: a block as a handle sees it: where it is, and its generation. Owns nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <tidemark/epoch/detail/tracked_block.hpp>

namespace tidemark {

class epoch_resource;

namespace detail {

/// What `buffer` and `buffer_view` know of their block. Thread-safety: that of a plain value; `is_live` may
/// be called while another thread ends the epoch.
class storage {
 public:
  storage() = default;

  /// A block of `resource`, none for 0 bytes. @throws what `epoch_resource::allocate` throws.
  static storage allocate(epoch_resource& resource, std::size_t bytes, std::size_t align);
  /// Deallocates the block if it lives. @return whether it did.
  bool release() noexcept { return is_live() && release_live(); }

  [[nodiscard]] epoch_resource* resource() const noexcept { return resource_; }
  [[nodiscard]] void* address() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t align() const noexcept { return align_; }
  /// Null: the block was never tracked.
  [[nodiscard]] tracked_block* record() const noexcept { return record_; }
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

  /// Whether there is a block that has not been deallocated or reclaimed. O(1), no lock.
  [[nodiscard]] bool is_live() const noexcept {
    return data_ != nullptr && (record_ == nullptr || record_->load().generation() == generation_);
  }
  /// What reclaimed the block, if that is known.
  [[nodiscard]] std::optional<ending> how_it_ended() const noexcept;
  /// The block is tracked now.
  void set_record(tracked_block& record) noexcept {
    record_ = &record;
    generation_ = record.load().generation();
  }

 private:
  bool release_live() noexcept;

  epoch_resource* resource_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t align_ = 1;
  tracked_block* record_ = nullptr;
  std::uint64_t generation_ = 0;
};

/// `buffer`, `buffer_view`.
template <class T>
concept has_storage = requires(T const& thing) {
  { thing.storage() } -> std::convertible_to<storage const&>;
};

}  // namespace detail
}  // namespace tidemark
