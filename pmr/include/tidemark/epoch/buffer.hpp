// SPDX-License-Identifier: Apache-2.0
/// @file
/// `buffer`: elements in a block of an `epoch_resource`. Owns the block until its epoch reclaims it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/buffer_view.hpp>
#include <tidemark/epoch/detail/storage.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark {

class buffer_group;

/// An array of fixed length in a block of an `epoch_resource`. The destructor deallocates the block. A buffer
/// is empty, and safe to use and to destroy, once its epoch has reclaimed the block.
///
/// ```cpp
/// epoch e{memory};
/// buffer<float> x{memory, 4096};        // 4,096 floats, not initialised
/// std::ranges::fill(x.span(), 2.0F);
/// e.end();                              // x.size() == 0, x.data() == nullptr
/// ```
/// Elements are trivially copyable. On memory that the host must not touch, call only the functions marked
/// "any memory". A buffer of length 0 has no block. Each access is O(1), takes no lock, and checks the state
/// of the block. Use `span()` in a loop.
///
/// Move-only. The resource must outlive the buffer. Thread-safety: that of a container. In addition, the
/// epoch may end on another thread during `size`, `release` or destruction; the block is deallocated exactly
/// once.
template <class T>
class [[nodiscard]] buffer : public detail::element_access<buffer<T>, T> {
  using base = detail::element_access<buffer, T>;
  // A variable gives a short error: clang lists every reason why a class is not trivially copyable.
  static constexpr bool has_trivial_elements = std::is_trivially_copyable_v<T>;
  static_assert(
      has_trivial_elements,
      "buffer elements must be trivially copyable: write std::pmr::vector<T> v{&memory} for others");

 public:
  using value_type = T;
  /// Minimum alignment of the first element: a cache line.
  static constexpr std::size_t alignment = std::max<std::size_t>(alignof(T), 64);

  /// Creates an empty buffer without a resource.
  buffer() = default;
  /// Allocates `size` elements without initialising them. Any memory.
  /// @throws std::bad_array_new_length if the size in bytes exceeds `PTRDIFF_MAX`
  /// @throws whatever `epoch_resource::allocate` throws
  buffer(epoch_resource& resource TIDEMARK_LIFETIMEBOUND, std::size_t size)
      : base{detail::storage::allocate(resource, bytes_of(size), alignment), size} {}
  /// Allocates `size` elements and sets each to `value`. Host memory.
  buffer(epoch_resource& resource TIDEMARK_LIFETIMEBOUND, std::size_t size, T const& value)
      : buffer{resource, size} {
    std::fill_n(first_element(), size, value);
  }
  /// Allocates a copy of `elements`. Host memory.
  buffer(epoch_resource& resource TIDEMARK_LIFETIMEBOUND, std::span<T const> elements)
      : buffer{resource, elements.size()} {
    std::copy_n(elements.data(), elements.size(), first_element());
  }
  /// Rejects a wrong order at compile time.
  template <std::integral Size>
  buffer(Size, epoch_resource&) {
    static_assert(detail::right_form<Size>, "a buffer takes a resource first: write buffer<T> b{memory, n}");
  }
  buffer(buffer&& other) noexcept : base{std::exchange(other.storage_, {}), other.size_} {}
  buffer& operator=(buffer&& other) noexcept {
    buffer taken{std::move(other)};
    std::swap(this->storage_, taken.storage_);
    std::swap(this->size_, taken.size_);
    return *this;
  }
  ~buffer() { (void)this->storage_.release(); }

  /// Deallocates the block now. O(1). Any memory. @return true if the block was live
  bool release() noexcept { return std::exchange(this->storage_, {}).release(); }

  // These overloads carry the lifetime attribute: elements end with the buffer, but not with a view.
  /// Returns the first element; null if the buffer has no live block. @throws use_after_epoch as
  /// `require_live` does
  [[nodiscard]] T* data() const TIDEMARK_LIFETIMEBOUND { return base::data(); }
  /// Returns all elements; empty if `data` is null. @throws use_after_epoch as `data` does
  [[nodiscard]] std::span<T> span() const TIDEMARK_LIFETIMEBOUND { return base::span(); }
  /// Returns one element. Without a live block it reports a violation (`use_after_epoch`), and aborts if the
  /// handler returns. @pre `i < size()`. @throws use_after_epoch if the policy is to throw
  [[nodiscard]] T& operator[](std::size_t i) const TIDEMARK_LIFETIMEBOUND { return base::operator[](i); }
  /// Start of the range of elements.
  [[nodiscard]] T* begin() const TIDEMARK_LIFETIMEBOUND { return base::begin(); }
  /// End of the range of elements.
  [[nodiscard]] T* end() const TIDEMARK_LIFETIMEBOUND { return base::end(); }

  /// True while the block is live, like `is_live`. `data`, `size`, `span` and this operator accept any
  /// memory.
  [[nodiscard]] explicit operator bool() const noexcept { return this->is_live(); }

  /// Returns a view of `count` elements from `offset` on, valid while the storage lives. Any memory.
  /// @throws std::out_of_range if the buffer has fewer than `offset + count` elements
  [[nodiscard]] buffer_view<T> view(std::size_t offset, std::size_t count) const TIDEMARK_LIFETIMEBOUND {
    return view().part(offset, count);
  }
  /// Returns a view of all elements.
  [[nodiscard]] buffer_view<T> view() const TIDEMARK_LIFETIMEBOUND {
    this->check_access("view");
    return {this->storage_, first_element(), this->size()};
  }

  /// Copies the elements to a new buffer from the same resource, in the epoch that is open now. Host memory.
  /// @throws as `data` and the constructor
  [[nodiscard]] buffer copy() const {
    const std::span<T const> from = this->elements("copy");
    if (from.empty()) return {};
    return buffer{*resource(), from};
  }
  /// Copies the elements to the start of `to`. Host memory.
  /// @throws std::out_of_range if `to` is too short; copies nothing then
  /// @throws use_after_epoch as `data` does
  void copy_to(std::span<T> to) const {
    const std::span<T const> from = this->elements("copy_to");
    if (from.size() > to.size()) detail::refuse_view(0, from.size(), to.size());
    std::ranges::copy(from, to.begin());
  }

  /// Returns the resource; null if the buffer has no resource.
  [[nodiscard]] epoch_resource* resource() const noexcept { return this->storage_.resource; }

 private:
  friend class buffer_group;
  friend base;
  static constexpr char const* role = "buffer";

  static std::size_t bytes_of(std::size_t size) {
    if (size > (std::numeric_limits<std::ptrdiff_t>::max)() / sizeof(T)) throw std::bad_array_new_length{};
    return size * sizeof(T);
  }
  [[nodiscard]] T* first_element() const noexcept { return static_cast<T*>(this->storage_.address); }
};

/// Deallocates `scratch` and returns `result`. Use it as the last statement of a function that has both.
/// ```cpp
/// return release_then(scratch, std::move(gradient));
/// ```
template <class T, class Result>
Result release_then(buffer<T>& scratch, Result result) noexcept {
  (void)scratch.release();
  return result;
}

}  // namespace tidemark
