// SPDX-License-Identifier: Apache-2.0
/// @file
/// `buffer`: elements in a block of an `epoch_resource`. The buffer owns the block, unless its epoch takes
/// it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include <tidemark/buffer_view.hpp>
#include <tidemark/detail/storage.hpp>
#include <tidemark/epoch_resource.hpp>
#include <tidemark/use_after_epoch.hpp>

namespace tidemark {

class owner;

/// An array of fixed length. It gives its block back when it is destroyed; but if its epoch ends before and
/// does not keep it, the block goes then and the buffer is empty, safe to ask and to destroy.
///
/// ```cpp
/// epoch e{memory};
/// buffer<float> x{memory, 4096};        // 4,096 floats, not initialised
/// std::ranges::fill(x.span(), 2.0F);
/// e.end();                              // x.size() == 0, x.data() == nullptr
/// ```
/// Elements are trivially copyable, because nobody destroys them when their epoch ends. The memory may be one
/// that the host must not touch: then only what says so below may be called. Of length 0 it has no block, and
/// nothing is tracked.
///
/// Each access is O(1), takes no lock, and looks up the block's life; take `span()` for a loop. With the
/// detector on (`use_after_epoch.hpp`) an access to a reclaimed buffer is reported.
///
/// Move-only. The resource must outlive it. Thread-safety: as any container; besides, its epoch may end on
/// another thread while it is asked for its size, released, or destroyed: the block goes back once.
template <class T>
class [[nodiscard]] buffer {
  static_assert(
      std::is_trivially_copyable_v<T>,
      "tidemark::buffer elements must be trivially copyable: nobody destroys them when their epoch ends");

 public:
  using value_type = T;
  /// Alignment of the first element, at least: a cache line.
  static constexpr std::size_t alignment = std::max<std::size_t>(alignof(T), 64);

  /// Empty, and of no resource.
  buffer() = default;
  /// `size` elements, not initialised. Any memory. @throws std::bad_array_new_length if there cannot be so
  /// many; what `epoch_resource::allocate` throws.
  buffer(epoch_resource& resource, std::size_t size)
      : storage_{detail::storage::allocate(resource, bytes_of(size), alignment)}, size_{size} {}
  /// `size` elements, each `value`. Host memory.
  buffer(epoch_resource& resource, std::size_t size, T const& value) : buffer{resource, size} {
    std::fill_n(raw(), size, value);
  }
  /// A copy of `elements`. Host memory.
  buffer(epoch_resource& resource, std::span<T const> elements) : buffer{resource, elements.size()} {
    std::copy_n(elements.data(), elements.size(), raw());
  }
  buffer(buffer&& other) noexcept
      : storage_{std::exchange(other.storage_, {})}, size_{std::exchange(other.size_, 0)} {}
  buffer& operator=(buffer&& other) noexcept {
    buffer{std::move(other)}.swap(*this);
    return *this;
  }
  ~buffer() { (void)storage_.release(); }

  /// Gives the block back now. @return whether it was there to give: true once, then false. O(1). Any memory.
  bool release() noexcept {
    size_ = 0;
    return std::exchange(storage_, {}).release();
  }

  /// The first element; null if there is none (any more). Any memory. @throws use_after_epoch as
  /// `require_live` does, if the block was reclaimed.
  [[nodiscard]] T* data() const { return access("data"); }
  /// Elements; 0 if they are gone. Any memory. The detector does not ask here, so that it is a way to find
  /// out.
  [[nodiscard]] std::size_t size() const noexcept { return storage_.is_live() ? size_ : 0; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size() * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// Whether there is a block and it is still this buffer's.
  [[nodiscard]] bool is_live() const noexcept { return storage_.is_live(); }
  [[nodiscard]] explicit operator bool() const noexcept { return is_live(); }

  /// All elements; none if they are gone. @throws as `data`.
  [[nodiscard]] std::span<T> span() const { return {access("span"), size()}; }
  /// An element. @pre `i < size()`. @throws as `data`.
  [[nodiscard]] T& operator[](std::size_t i) const { return access("operator[]")[i]; }
  [[nodiscard]] T* begin() const { return access("begin"); }
  [[nodiscard]] T* end() const { return access("end") + size(); }

  /// Elements `offset` and following, as long as the storage lives. Any memory. @throws std::out_of_range if
  /// there are not `count` of them.
  [[nodiscard]] buffer_view<T> view(std::size_t offset, std::size_t count) const {
    return whole("view").part(offset, count);
  }
  /// All of them.
  [[nodiscard]] buffer_view<T> view() const { return whole("view"); }

  /// Another buffer of the same elements, from the same resource, in the epoch that is open now. Host memory.
  /// @throws as `data` and the constructor.
  [[nodiscard]] buffer copy() const {
    T const* const from = access("copy");
    if (from == nullptr) return {};
    return buffer{*storage_.resource(), std::span<T const>{from, size()}};
  }
  /// Copies the elements to the start of `to`. Host memory. @throws as `data`; std::out_of_range if there is
  /// no room, and nothing is copied.
  void copy_to(std::span<T> to) const {
    T const* const from = access("copy_to");
    if (size() > to.size()) detail::refuse_view(0, size(), to.size());
    std::copy_n(from, size(), to.data());
  }

  /// The resource; null if it has none.
  [[nodiscard]] epoch_resource* resource() const noexcept { return storage_.resource(); }
  /// What `epoch`, `owner` and `require_live` know it by.
  [[nodiscard]] detail::storage const& storage() const noexcept { return storage_; }

  void swap(buffer& other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(size_, other.size_);
  }
  friend void swap(buffer& a, buffer& b) noexcept { a.swap(b); }

 private:
  friend class owner;

  static std::size_t bytes_of(std::size_t size) {
    if (size > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T)) throw std::bad_array_new_length{};
    return size * sizeof(T);
  }
  [[nodiscard]] T* raw() const noexcept { return static_cast<T*>(storage_.address()); }
  [[nodiscard]] T* access(char const* operation) const {
    detail::require_one_live(operation, "buffer", *this);
    return storage_.is_live() ? raw() : nullptr;
  }
  [[nodiscard]] buffer_view<T> whole(char const* operation) const {
    detail::require_one_live(operation, "buffer", *this);
    return {storage_, raw(), size()};
  }

  detail::storage storage_;
  std::size_t size_ = 0;
};

/// Gives `scratch` back and returns `result`: for the end of a function that has both.
/// ```cpp
/// return release_then(scratch, std::move(gradient));
/// ```
template <class T, class Result>
Result release_then(buffer<T>& scratch, Result result) noexcept {
  (void)scratch.release();
  return result;
}

}  // namespace tidemark
