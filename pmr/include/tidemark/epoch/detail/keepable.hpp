// SPDX-License-Identifier: Apache-2.0
/// @file
/// What can be kept: things that lead to a block and to nothing else.
#pragma once

#include <memory>
#include <ranges>
#include <type_traits>

#include <tidemark/core/detail/leads_to_memory.hpp>
#include <tidemark/epoch/detail/storage.hpp>

namespace tidemark {
namespace detail {

/// Handles and pointers.
template <class T>
concept keepable_itself = has_storage<T> || raw_pointer<T> || std::is_null_pointer_v<T>;
/// Ranges in one block. Elements that own memory have other blocks, which nothing here would find.
template <class T>
concept keepable_range = !keepable_itself<T> && std::ranges::contiguous_range<T const> &&
                         std::is_trivially_copyable_v<std::ranges::range_value_t<T const>>;

}  // namespace detail

/// What `epoch::keep` takes: buffers and their views, pointers, and contiguous ranges of trivially copyable
/// elements.
template <class T>
concept keepable =
    detail::keepable_itself<std::remove_cvref_t<T>> || detail::keepable_range<std::remove_cvref_t<T>>;

namespace detail {

/// Calls `keep(storage const&)` or `keep(void const*)` for every block that `thing` leads to.
template <keepable T, class Keep>
void for_each_block(T const& thing, Keep const& keep) {
  if constexpr (has_storage<T>) {
    keep(thing.storage());
  } else if constexpr (keepable_itself<T>) {
    keep(const_cast<void const*>(static_cast<void const volatile*>(thing)));
  } else {
    using element = std::ranges::range_value_t<T const>;
    // An empty span may point to the end of a block, which is the start of the next. An empty container may
    // have storage.
    if constexpr (std::ranges::borrowed_range<T>) {
      if (std::ranges::empty(thing)) return;
    }
    // Views and pointers lead further; other elements lie in the range's own block.
    if constexpr (keepable_itself<element> || (keepable_range<element> && std::ranges::view<element>)) {
      for (auto const& each : thing) for_each_block(each, keep);
    }
    keep(static_cast<void const*>(std::to_address(std::ranges::begin(thing))));
  }
}

}  // namespace detail
}  // namespace tidemark
