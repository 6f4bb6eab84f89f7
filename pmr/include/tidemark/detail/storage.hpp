// SPDX-License-Identifier: Apache-2.0
/// @file
/// `storage`: a block as a handle sees it: where it is, and in which of its lives. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <tidemark/detail/ended_lives.hpp>
#include <tidemark/detail/tracked_block.hpp>

namespace tidemark {

class epoch_resource;

namespace detail {

/// What `buffer` and `buffer_view` know of their block. Thread-safety: that of a plain value; `is_live` may be
/// asked while another thread ends the epoch.
class storage {
 public:
  storage() = default;

  /// A block of that resource, none for 0 bytes. @throws what `epoch_resource::allocate` throws.
  static storage allocate(epoch_resource& resource, std::size_t bytes, std::size_t align);
  /// Gives the block back if it is still there. @return whether it was.
  bool release() noexcept { return is_live() && release_live(); }

  /// Null: none.
  [[nodiscard]] epoch_resource* resource() const noexcept { return resource_; }
  /// Where it is, or was.
  [[nodiscard]] void* address() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t align() const noexcept { return align_; }
  /// Null: the block was never tracked.
  [[nodiscard]] tracked_block* record() const noexcept { return record_; }
  [[nodiscard]] std::uint64_t life() const noexcept { return life_; }

  /// Whether there is a block and it has not been given back or reclaimed. O(1), no lock.
  [[nodiscard]] bool is_live() const noexcept {
    return data_ != nullptr && (record_ == nullptr || record_->load().life() == life_);
  }
  /// Who reclaimed the block, as far as it is known.
  [[nodiscard]] std::optional<ending> how_it_ended() const noexcept;
  /// Its block's record, from now on, as an `owner` makes one.
  void set_record(tracked_block& record) noexcept {
    record_ = &record;
    life_ = record.load().life();
  }

 private:
  bool release_live() noexcept;

  epoch_resource* resource_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t align_ = 1;
  tracked_block* record_ = nullptr;
  std::uint64_t life_ = 0;
};

}  // namespace detail
}  // namespace tidemark
