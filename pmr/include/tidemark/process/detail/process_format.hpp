// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data that a process arena writes for its readers, in addition to the user's objects. Owns nothing.
///
/// ```text
/// file:  header | blocks ... | publication 1 | blocks ... | publication 2 | blocks, not published
///          newest ------------------------------^
/// ```
/// The first part of the header and each publication are written once, before a reader can find them. They
/// never change while a view exists. Only `newest` changes: a reader finds a complete generation, at whatever
/// instruction the writer was killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {

/// The part of the header that is read before the file is mapped.
struct process_format {
  static constexpr std::uint64_t expected_magic = 0x6b72'616d'6564'6974;  // "tidemark"
  static constexpr std::uint32_t newest_version = 1;

  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t address;  // of the header: every process maps the file there
  std::uint64_t bytes;    // of the file
  std::uint64_t layout;   // library_layout() of the writer
};

/// The header, the first block of the arena.
struct process_header {
  process_format format;
  std::atomic<std::uint64_t> newest;  // offset of the newest publication; 0 if none
};
static_assert(std::is_standard_layout_v<process_header> && std::atomic<std::uint64_t>::is_always_lock_free);

/// One finished generation, a block of the arena.
struct publication {
  std::uint64_t generation;
  std::uint64_t root;       // address
  std::uint64_t root_type;  // type_layout of the root
  std::uint64_t end;        // its own end, above all blocks of the generation; also checks validity
};

/// Name of a type with its template arguments and the inline namespaces of the standard library's ABI. The
/// mangled name is the same for GCC and clang. Without RTTI it is the compiler's own text, which differs.
template <class T>
[[nodiscard]] std::string_view type_name() noexcept {
#if defined(__cpp_rtti)
  return typeid(T).name();
#else
  return __PRETTY_FUNCTION__;
#endif
}

/// Hash of a type's name, size and alignment.
template <class T>
[[nodiscard]] std::uint64_t type_layout() noexcept {
  return fnv_more(fnv_more(fnv_more(fnv_basis, type_name<T>()), sizeof(T)), alignof(T));
}

/// Hash of the compiler and the standard library: sizes of basic types and of containers.
[[nodiscard]] std::uint64_t library_layout(std::uint64_t layout_version) noexcept;

}  // namespace tidemark::detail
