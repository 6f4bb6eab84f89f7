// SPDX-License-Identifier: Apache-2.0
/// @file
/// Argument checks: the largest request, upstream calls that reject larger requests, alignments, and
/// constructors that name the right form. Owns nothing.
#pragma once

#include <cstddef>
#include <limits>
#include <memory_resource>

#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// Largest block of any resource, in bytes. No C++ object is larger, and some resources of the standard
/// library overflow when they round a larger size up.
inline constexpr std::size_t max_block_bytes = (std::numeric_limits<std::ptrdiff_t>::max)();

/// @throws out_of_memory.
[[noreturn]] TIDEMARK_COLD void throw_too_large(char const* resource, std::size_t bytes, std::size_t align);

/// Rejects more than `max_block_bytes`. @param resource name of the resource, which must outlive the
/// exception
/// @throws out_of_memory, before any other call.
inline void require_possible(char const* resource, std::size_t bytes, std::size_t align) {
  if (bytes > max_block_bytes) [[unlikely]]
    throw_too_large(resource, bytes, align);
}

/// Allocates a block from `upstream`. @throws as `require_possible`, before the upstream is called; the
/// upstream's exception.
[[nodiscard, gnu::returns_nonnull]] inline void* allocate_from(std::pmr::memory_resource& upstream,
                                                               char const* resource, std::size_t bytes,
                                                               std::size_t align) {
  require_possible(resource, bytes, align);
  return upstream.allocate(bytes, align);
}

/// `name`, or the default name for null.
[[nodiscard]] constexpr char const* name_or(char const* name, char const* default_name) noexcept {
  return name != nullptr ? name : default_name;
}

/// `upstream`, or the default resource for null.
[[nodiscard]] inline std::pmr::memory_resource* or_default(std::pmr::memory_resource* upstream) noexcept {
  return upstream != nullptr ? upstream : std::pmr::get_default_resource();
}

/// @throws std::invalid_argument, with a sentence as message, if `align` is not a power of two.
void require_power_of_two(char const* kind, char const* name, std::size_t align);

/// False for every type. `static_assert(right_form<T>, "write …")` in a template of a wrong form then fails
/// only at a use of the form, with one sentence.
template <class T>
inline constexpr bool right_form = false;

}  // namespace tidemark::detail
