// SPDX-License-Identifier: Apache-2.0
/// @file
/// `buffer_view`: some elements of a `buffer`. Owns nothing.
#pragma once

#include <cstddef>

#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/detail/element_access.hpp>
#include <tidemark/epoch/detail/storage.hpp>

namespace tidemark {

template <class T>
class buffer;

namespace detail {
[[noreturn]] void refuse_view(std::size_t offset, std::size_t count, std::size_t size);
}  // namespace detail

/// Some elements of a `buffer`, as long as its storage lives: once that is deallocated or reclaimed the view
/// is empty. An epoch that keeps a view keeps the storage.
///
/// ```cpp
/// buffer<float> batch{memory, 32 * 64};
/// buffer_view<float> first_row = batch.view(0, 64);
/// ```
/// A view of a buffer that was never tracked cannot know when that is gone. Cheap to copy. Each access is
/// O(1) and looks up the storage's state; take `span()` for a loop. Thread-safety: that of a pointer.
template <class T>
class TIDEMARK_POINTER buffer_view : public detail::element_access<buffer_view<T>, T> {
 public:
  /// Of nothing.
  buffer_view() = default;

  /// Elements `offset` and following. @throws std::out_of_range if there are not `count` of them.
  [[nodiscard]] buffer_view view(std::size_t offset, std::size_t count) const {
    this->check_access("view");
    return part(offset, count);
  }

 private:
  friend class buffer<T>;
  friend detail::element_access<buffer_view, T>;
  static constexpr char const* role = "view";

  buffer_view(detail::storage const& storage, T* data, std::size_t size) noexcept
      : detail::element_access<buffer_view, T>{storage, size}, data_{data} {}

  [[nodiscard]] T* first_element() const noexcept { return data_; }
  [[nodiscard]] buffer_view part(std::size_t offset, std::size_t count) const {
    const std::size_t size = this->size();
    if (offset > size || count > size - offset) detail::refuse_view(offset, count, size);
    return {this->storage_, data_ + offset, count};
  }

  T* data_ = nullptr;
};

}  // namespace tidemark
