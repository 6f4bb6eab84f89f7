// SPDX-License-Identifier: Apache-2.0
/// @file
/// `buffer_view`: a range of elements of a `buffer`; `element_access`: the base of both. Own nothing.
#pragma once

#include <cstddef>
#include <span>

#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/detail/storage.hpp>
#include <tidemark/epoch/use_after_epoch.hpp>

namespace tidemark {

template <class T>
class buffer;

namespace detail {
[[noreturn]] void refuse_view(std::size_t offset, std::size_t count, std::size_t size);

/// Element access through a handle on a block, valid while the block lives. A dead handle has no elements:
/// its block was deallocated or reclaimed, or the handle never had a block. With the use-after-epoch detector
/// on, each access to a reclaimed block is reported.
/// @tparam Handle has `first_element()`, and `role`, the handle's name in messages
template <class Handle, class T>
class element_access {
 public:
  /// Returns the first element; null if the block is not live. @throws use_after_epoch as `require_live` does
  [[nodiscard]] T* data() const { return elements("data").data(); }
  /// Number of elements; 0 if the block is not live. The detector reports nothing here, so callers can use it
  /// as a test.
  [[nodiscard]] std::size_t size() const noexcept { return storage_.is_live() ? size_ : 0; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size() * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// True if the handle has a live block.
  [[nodiscard]] bool is_live() const noexcept { return storage_.is_live(); }
  /// Returns all elements; empty if the block is not live. @throws use_after_epoch as `data` does
  [[nodiscard]] std::span<T> span() const { return elements("span"); }
  /// Returns one element. A dead handle reports a violation (`use_after_epoch`), with the detector on or off.
  /// It aborts if the handler returns, because a dead handle has no element. @pre `i < size()`. @throws
  /// use_after_epoch if the policy is to throw
  [[nodiscard]] T& operator[](std::size_t i) const {
    if (!storage_.is_live()) [[unlikely]]
      refuse_element({Handle::role, *this});
    return first_element()[i];
  }
  [[nodiscard]] T* begin() const { return elements("begin").data(); }
  [[nodiscard]] T* end() const {
    const std::span<T> all = elements("end");
    return all.data() + all.size();
  }
  /// The block's handle. Used by `epoch`, `buffer_group` and `require_live`.
  [[nodiscard]] detail::storage const& storage() const noexcept { return storage_; }

 protected:
  element_access() = default;
  element_access(detail::storage const& storage, std::size_t size) noexcept
      : storage_{storage}, size_{size} {}

  // Returns null and 0 for a dead handle.
  [[nodiscard]] std::span<T> elements(char const* operation) const {
    check_access(operation);
    const bool lives = storage_.is_live();
    T* first = lives ? first_element() : nullptr;
    // Hides from the compiler that the pointer may be null. Access through null is undefined. A compiler that
    // sees both can omit the liveness check and access the block now at this address.
    asm("" : "+r"(first));
    return {first, lives ? size_ : 0};
  }
  // Like `require_live`, but builds the list of operands only if the detector is on.
  void check_access(char const* operation) const {
    if (epoch_detector()) [[unlikely]]
      find_reclaimed(operation, {{Handle::role, *this}});
  }

  detail::storage storage_;
  std::size_t size_ = 0;  // valid while the storage lives

 private:
  [[nodiscard]] T* first_element() const noexcept {
    return static_cast<Handle const*>(this)->first_element();
  }
};

}  // namespace detail

/// A range of elements of a `buffer`, valid while the buffer's storage lives. The view is empty once the
/// storage is deallocated or reclaimed. An epoch that keeps a view keeps the whole storage.
///
/// ```cpp
/// buffer<float> batch{memory, 32 * 64};
/// buffer_view<float> first_row = batch.view(0, 64);
/// ```
/// A view of an untracked buffer cannot detect the end of its storage. Cheap to copy. Each access is O(1) and
/// checks the state of the storage. Use `span()` in a loop. Thread-safety: that of a pointer.
template <class T>
class TIDEMARK_POINTER buffer_view : public detail::element_access<buffer_view<T>, T> {
  using base = detail::element_access<buffer_view, T>;

 public:
  /// Creates an empty view.
  buffer_view() = default;

  /// Returns a view of `count` elements from `offset` on. @throws std::out_of_range if the view has fewer
  /// than `offset + count` elements
  [[nodiscard]] buffer_view view(std::size_t offset, std::size_t count) const {
    this->check_access("view");
    return part(offset, count);
  }

 private:
  friend class buffer<T>;
  friend base;
  static constexpr char const* role = "view";

  buffer_view(detail::storage const& storage, T* data, std::size_t size) noexcept
      : base{storage, size}, data_{data} {}

  [[nodiscard]] T* first_element() const noexcept { return data_; }
  [[nodiscard]] buffer_view part(std::size_t offset, std::size_t count) const {
    const std::size_t size = this->size();
    if (offset > size || count > size - offset) detail::refuse_view(offset, count, size);
    return {this->storage_, data_ + offset, count};
  }

  T* data_ = nullptr;
};

}  // namespace tidemark
