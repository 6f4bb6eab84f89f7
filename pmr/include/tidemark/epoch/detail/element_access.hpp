// SPDX-License-Identifier: Apache-2.0
/// @file
/// `element_access`: what `buffer` and `buffer_view` have in common. Owns nothing.
#pragma once

#include <cstddef>
#include <span>

#include <tidemark/epoch/detail/storage.hpp>
#include <tidemark/epoch/use_after_epoch.hpp>

namespace tidemark::detail {

/// The elements of a handle on a block, as long as the block lives. With the use-after-epoch detector on, an
/// access to a reclaimed block is reported.
/// @tparam Handle has `first_element()`, and `role`, its name in messages
template <class Handle, class T>
class element_access {
 public:
  /// The first element; null if there is none (any more). @throws use_after_epoch as `require_live` does.
  [[nodiscard]] T* data() const { return access("data"); }
  /// Elements; 0 if they are gone. The detector reports nothing here, so that it is a way to find out.
  [[nodiscard]] std::size_t size() const noexcept { return storage_.is_live() ? size_ : 0; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size() * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// Whether there is a block and it lives.
  [[nodiscard]] bool is_live() const noexcept { return storage_.is_live(); }
  /// All elements; none if they are gone. @throws as `data`.
  [[nodiscard]] std::span<T> span() const { return {access("span"), size()}; }
  /// An element. @pre `i < size()`. @throws as `data`.
  [[nodiscard]] T& operator[](std::size_t i) const { return access("operator[]")[i]; }
  [[nodiscard]] T* begin() const { return access("begin"); }
  [[nodiscard]] T* end() const { return access("end") + size(); }
  /// For `epoch`, `buffer_group` and `require_live`.
  [[nodiscard]] detail::storage const& storage() const noexcept { return storage_; }

 protected:
  element_access() = default;
  element_access(detail::storage const& storage, std::size_t size) noexcept
      : storage_{storage}, size_{size} {}

  [[nodiscard]] T* access(char const* operation) const {
    check(operation);
    return storage_.is_live() ? static_cast<Handle const*>(this)->first_element() : nullptr;
  }
  // `require_live`, but that the operand is put into a list only if the detector is on.
  void check(char const* operation) const {
    if (epoch_detector()) [[unlikely]]
      find_reclaimed(operation, {{Handle::role, *this}});
  }

  detail::storage storage_;
  std::size_t size_ = 0;  // while the storage lives
};

}  // namespace tidemark::detail
