// SPDX-License-Identifier: Apache-2.0
/// @file
/// `byte_marks`: tells tools which bytes of an arena's chunk may be touched. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {

/// What `device_marks` is for memory of a device, for memory of the host: sanitizers and Valgrind know bytes,
/// and so nothing is recorded.
/// @tparam OnHost false for memory that the host must not touch and no tool watches: nothing is reported
/// @tparam Fills whether level 2 overwrites freed bytes, so that a late read is seen
template <bool OnHost, bool Fills = OnHost>
struct byte_marks {
  [[nodiscard]] static constexpr bool reserve() noexcept { return true; }
  [[nodiscard]] static constexpr bool has_room() noexcept { return true; }

  static void on_commit(std::uintptr_t first, std::uintptr_t last, char const*) noexcept {
    if constexpr (OnHost) poison(first, last - first);
  }
  static void on_decommit(std::uintptr_t first, std::uintptr_t last) noexcept {
    if constexpr (OnHost) unpoison(first, last - first);  // its owner may touch it
  }
  static void on_allocate(std::uintptr_t block, std::size_t bytes) noexcept {
    if constexpr (OnHost) unpoison(block, bytes);
  }
  static void on_resize(std::uintptr_t block, std::size_t new_bytes, std::size_t old_bytes) noexcept {
    if (OnHost && new_bytes > old_bytes) unpoison(block + old_bytes, new_bytes - old_bytes);
  }
  static void on_free(std::uintptr_t first, std::uintptr_t last) noexcept {
    if (Fills && check_level >= 2 && first < last) {
      unpoison(first, last - first);
      std::memset(reinterpret_cast<void*>(first), freed_fill, last - first);
    }
    if constexpr (OnHost) poison(first, last - first);
  }
};

}  // namespace tidemark::detail
