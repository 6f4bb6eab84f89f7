// SPDX-License-Identifier: Apache-2.0
/// @file
/// `buffer`: elements in a block of an `epoch_resource`. Owns the block until its epoch reclaims it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/buffer_view.hpp>
#include <tidemark/epoch/detail/storage.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark {

class buffer_group;

/// An array of fixed length. It deallocates its block when it is destroyed; if its epoch ends before and does
/// not keep it, the block is reclaimed then, and the buffer is empty and safe to use and to destroy.
///
/// ```cpp
/// epoch e{memory};
/// buffer<float> x{memory, 4096};        // 4,096 floats, not initialised
/// std::ranges::fill(x.span(), 2.0F);
/// e.end();                              // x.size() == 0, x.data() == nullptr
/// ```
/// Elements are trivially copyable, because no destructor runs when their epoch ends. The memory may be one
/// that the host must not touch: then only what says "any memory" below may be called. Of length 0 it has no
/// block, and nothing is tracked.
///
/// Each access is O(1), takes no lock, and looks up the block's state; take `span()` for a loop. `x[i]` of an
/// empty or reclaimed buffer is a violation that ends the program. With the detector on
/// (`use_after_epoch.hpp`) every access to a reclaimed buffer is reported.
///
/// Move-only. The resource must outlive it. Thread-safety: as any container; besides, its epoch may end on
/// another thread while `size` or `release` is called, or it is destroyed: the block is deallocated once.
template <class T>
class [[nodiscard]] buffer : public detail::element_access<buffer<T>, T> {
  using base = detail::element_access<buffer, T>;
  static_assert(
      std::is_trivially_copyable_v<T>,
      "tidemark::buffer elements must be trivially copyable: no destructor runs when their epoch ends");

 public:
  using value_type = T;
  /// Alignment of the first element, at least: a cache line.
  static constexpr std::size_t alignment = std::max<std::size_t>(alignof(T), 64);

  /// Empty, and of no resource.
  buffer() = default;
  /// `size` elements, not initialised. Any memory. @throws std::bad_array_new_length if there cannot be so
  /// many; what `epoch_resource::allocate` throws.
  buffer(epoch_resource& resource TIDEMARK_LIFETIMEBOUND, std::size_t size)
      : base{detail::storage::allocate(resource, bytes_of(size), alignment), size} {}
  /// `size` elements, each `value`. Host memory.
  buffer(epoch_resource& resource TIDEMARK_LIFETIMEBOUND, std::size_t size, T const& value)
      : buffer{resource, size} {
    std::fill_n(first_element(), size, value);
  }
  /// A copy of `elements`. Host memory.
  buffer(epoch_resource& resource TIDEMARK_LIFETIMEBOUND, std::span<T const> elements)
      : buffer{resource, elements.size()} {
    std::copy_n(elements.data(), elements.size(), first_element());
  }
  buffer(buffer&& other) noexcept : base{std::exchange(other.storage_, {}), other.size_} {}
  buffer& operator=(buffer&& other) noexcept {
    buffer taken{std::move(other)};
    std::swap(this->storage_, taken.storage_);
    std::swap(this->size_, taken.size_);
    return *this;
  }
  ~buffer() { (void)this->storage_.release(); }

  /// Deallocates the block now. @return whether it lived. O(1). Any memory.
  bool release() noexcept { return std::exchange(this->storage_, {}).release(); }

  // Clang knows by these that the elements end with the buffer; a view's do not end with the view.
  /// The first element; null if there is none (any more). @throws use_after_epoch as `require_live` does.
  [[nodiscard]] T* data() const TIDEMARK_LIFETIMEBOUND { return base::data(); }
  /// All elements: none where `data` is null. @throws as `data`.
  [[nodiscard]] std::span<T> span() const TIDEMARK_LIFETIMEBOUND { return base::span(); }
  /// One of them. Without a block (any more) it reports a violation (`use_after_epoch`), and aborts if the
  /// handler returns. @pre `i < size()`. @throws use_after_epoch if that is the policy.
  [[nodiscard]] T& operator[](std::size_t i) const TIDEMARK_LIFETIMEBOUND { return base::operator[](i); }
  /// Where the elements begin: with `end` a range.
  [[nodiscard]] T* begin() const TIDEMARK_LIFETIMEBOUND { return base::begin(); }
  /// Behind the last element.
  [[nodiscard]] T* end() const TIDEMARK_LIFETIMEBOUND { return base::end(); }

  /// Whether it lives, as `is_live` says. So are `data`, `size` and `span` for any memory.
  [[nodiscard]] explicit operator bool() const noexcept { return this->is_live(); }

  /// Elements `offset` and following, as long as the storage lives. Any memory. @throws std::out_of_range if
  /// there are not `count` of them.
  [[nodiscard]] buffer_view<T> view(std::size_t offset, std::size_t count) const TIDEMARK_LIFETIMEBOUND {
    return view().part(offset, count);
  }
  /// All of them.
  [[nodiscard]] buffer_view<T> view() const TIDEMARK_LIFETIMEBOUND {
    this->check_access("view");
    return {this->storage_, first_element(), this->size()};
  }

  /// Another buffer of the same elements, from the same resource, in the epoch that is open now. Host memory.
  /// @throws as `data` and the constructor.
  [[nodiscard]] buffer copy() const {
    const std::span<T const> from = this->elements("copy");
    if (from.empty()) return {};
    return buffer{*resource(), from};
  }
  /// Copies the elements to the start of `to`. Host memory. @throws as `data`; std::out_of_range if there is
  /// no room, and nothing is copied.
  void copy_to(std::span<T> to) const {
    const std::span<T const> from = this->elements("copy_to");
    if (from.size() > to.size()) detail::refuse_view(0, from.size(), to.size());
    std::ranges::copy(from, to.begin());
  }

  /// The resource; null if it has none.
  [[nodiscard]] epoch_resource* resource() const noexcept { return this->storage_.resource(); }

 private:
  friend class buffer_group;
  friend base;
  static constexpr char const* role = "buffer";

  static std::size_t bytes_of(std::size_t size) {
    if (size > (std::numeric_limits<std::ptrdiff_t>::max)() / sizeof(T)) throw std::bad_array_new_length{};
    return size * sizeof(T);
  }
  [[nodiscard]] T* first_element() const noexcept { return static_cast<T*>(this->storage_.address()); }
};

/// Deallocates `scratch` and returns `result`: for the end of a function that has both.
/// ```cpp
/// return release_then(scratch, std::move(gradient));
/// ```
template <class T, class Result>
Result release_then(buffer<T>& scratch, Result result) noexcept {
  (void)scratch.release();
  return result;
}

}  // namespace tidemark
