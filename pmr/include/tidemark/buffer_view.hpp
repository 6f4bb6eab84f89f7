// SPDX-License-Identifier: Apache-2.0
/// @file
/// `buffer_view`: elements of a `buffer` that somebody else owns.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <tidemark/detail/storage.hpp>
#include <tidemark/use_after_epoch.hpp>

namespace tidemark {

template <class T>
class buffer;

/// Some elements of a `buffer`, which are there as long as its storage lives: once that is given back or
/// reclaimed the view is empty, whoever has its memory by then. An epoch that keeps a view keeps the storage.
///
/// ```cpp
/// buffer<float> batch{memory, 32 * 64};
/// buffer_view<float> first_row = batch.view(0, 64);
/// ```
/// A view of a buffer that was never tracked cannot know when that is gone. Cheap to copy. Each access is O(1)
/// and looks up the storage's life; take `span()` for a loop. Thread-safety: that of a pointer.
template <class T>
class buffer_view {
 public:
  /// Of nothing.
  buffer_view() = default;

  /// The first element; null if there is none any more. @throws use_after_epoch as `require_live` does.
  [[nodiscard]] T* data() const { return access("data"); }
  /// Elements; 0 if they are gone. The detector does not ask here, so that it is a way to find out.
  [[nodiscard]] std::size_t size() const noexcept { return storage_.is_live() ? size_ : 0; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size() * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// Whether the storage is still there.
  [[nodiscard]] bool is_live() const noexcept { return storage_.is_live(); }
  /// All elements; none if they are gone. @throws as `data`.
  [[nodiscard]] std::span<T> span() const { return {access("span"), size()}; }
  /// An element. @pre `i < size()`. @throws as `data`.
  [[nodiscard]] T& operator[](std::size_t i) const { return access("operator[]")[i]; }
  [[nodiscard]] T* begin() const { return access("begin"); }
  [[nodiscard]] T* end() const { return access("end") + size(); }

  /// Elements `offset` and following. @throws std::out_of_range if there are not `count` of them.
  [[nodiscard]] buffer_view view(std::size_t offset, std::size_t count) const {
    detail::require_one_live("view", "view", *this);
    return part(offset, count);
  }

  /// What `epoch` and `require_live` know it by.
  [[nodiscard]] detail::storage const& storage() const noexcept { return storage_; }

 private:
  friend class buffer<T>;
  buffer_view(detail::storage const& storage, T* data, std::size_t size) noexcept
      : storage_{storage}, data_{data}, size_{size} {}

  [[nodiscard]] T* access(char const* operation) const {
    detail::require_one_live(operation, "view", *this);
    return storage_.is_live() ? data_ : nullptr;
  }
  [[nodiscard]] buffer_view part(std::size_t offset, std::size_t count) const;

  detail::storage storage_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {
[[noreturn]] void refuse_view(std::size_t offset, std::size_t count, std::size_t size);
}  // namespace detail

template <class T>
buffer_view<T> buffer_view<T>::part(std::size_t offset, std::size_t count) const {
  if (offset > size() || count > size() - offset) detail::refuse_view(offset, count, size());
  return {storage_, data_ + offset, count};
}

}  // namespace tidemark
