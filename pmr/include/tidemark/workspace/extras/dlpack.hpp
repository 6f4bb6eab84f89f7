// SPDX-License-Identifier: Apache-2.0
/// @file
/// `acquire_tensor`: memory of a workspace with a DLPack header, which describes the array to code in C and
/// other languages. The workspace owns both.
///
/// Array libraries share memory through DLPack: https://dmlc.github.io/dlpack. The structures are DLPack's
/// own if tidemark was configured with its header (`TIDEMARK_DLPACK` in `<tidemark/core/config.hpp>`).
/// Otherwise they are ours with the same layout, and a pointer to one structure converts to a pointer to the
/// other.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <type_traits>

#include <tidemark/core/config.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/workspace/workspace.hpp>

#if TIDEMARK_DLPACK
#include <dlpack/dlpack.h>
#endif

namespace tidemark {

#if TIDEMARK_DLPACK

using dl_device = ::DLDevice;
using dl_data_type = ::DLDataType;
using dl_tensor = ::DLTensor;
/// Device type of host memory; its device number is 0.
inline constexpr auto dl_cpu = kDLCPU;

#else

/// Device of memory.
struct dl_device {
  std::int32_t device_type;  ///< kind of device in DLPack's numbers; `dl_cpu` for host memory
  std::int32_t device_id;    ///< number of the device of this kind; 0 for host memory
};

/// Type of elements: DLPack's code, and `bits` for each of the `lanes` numbers of an element.
struct dl_data_type {
  std::uint8_t code;    ///< 0 signed integer, 1 unsigned, 2 IEEE floating point, 5 complex
  std::uint8_t bits;    ///< bits of one lane; both parts of a complex number together
  std::uint16_t lanes;  ///< 1, except for vectors
};

/// An array. Thread-safety: as a pointer.
struct dl_tensor {
  void* data;                 ///< start of the memory; elements begin `byte_offset` after it
  dl_device device;           ///< device of the memory
  std::int32_t ndim;          ///< number of dimensions
  dl_data_type dtype;         ///< type of the elements
  std::int64_t* shape;        ///< `ndim` extents
  std::int64_t* strides;      ///< `ndim` strides in elements; null: row major without gaps
  std::uint64_t byte_offset;  ///< bytes from `data` to the first element
};

/// Device type of host memory; its device number is 0.
inline constexpr std::int32_t dl_cpu = 1;

#endif

namespace detail {

// The codes have not changed since DLPack 0.2. They are numbers here to keep both kinds of build equal.
inline constexpr std::uint8_t dl_int = 0;
inline constexpr std::uint8_t dl_uint = 1;
inline constexpr std::uint8_t dl_float = 2;
inline constexpr std::uint8_t dl_complex = 5;

template <class T>
constexpr std::uint8_t dl_code() noexcept {
  // DLPack before 0.8 had no code for bool (kDLBool, 6), and its readers reject unknown codes. The code is
  // therefore the one that NumPy and PyTorch used: an unsigned byte that is 0 or 1.
  if constexpr (std::same_as<T, bool>) {
    return dl_uint;
  } else if constexpr (std::same_as<T, float> || std::same_as<T, double>) {
    return dl_float;
  } else if constexpr (complex_number<T>) {
    return dl_complex;
  } else {  // not long double: it has several formats, and DLPack cannot tell them apart
    static_assert(std::integral<T>,
                  "DLPack has codes for bool, integers, float, double, std::complex<float> and "
                  "std::complex<double>, and for no other type that tidemark knows.");
    return std::is_signed_v<T> ? dl_int : dl_uint;
  }
}

}  // namespace detail

/// DLPack's description of elements of type `T` without const and volatile. `T` is an integral type, float,
/// double, std::complex of these, or bool, which is an unsigned integer of 8 bits. Other types do not
/// compile.
template <class T>
inline constexpr dl_data_type dl_data_type_of{detail::dl_code<std::remove_cv_t<T>>(),
                                              static_cast<std::uint8_t>(8 * sizeof(T)), 1};

static_assert(sizeof(dl_tensor) == 48 && offsetof(dl_tensor, device) == 8 &&
                  offsetof(dl_tensor, ndim) == 16 && offsetof(dl_tensor, dtype) == 20 &&
                  offsetof(dl_tensor, shape) == 24 && offsetof(dl_tensor, strides) == 32 &&
                  offsetof(dl_tensor, byte_offset) == 40,
              "a dl_tensor goes to libraries that were compiled with DLPack's own header");

namespace detail {

/// Maximum rank of a tensor with a header.
inline constexpr std::size_t max_tensor_rank = 8;

template <>
inline constexpr bool is_tensor_header<dl_tensor> = true;

/// Returns the header of the list's newest slot. @throws std::bad_alloc if there is no memory for a header;
/// the slot is free again then.
dl_tensor& header_of(workspace_core& core, slot_list& list, slot& newest,
                     std::span<std::size_t const> extents, bool column_major, dl_data_type type);

}  // namespace detail

/// Acquires memory for code in C and other languages: `acquire_tensor<float>(scope, rows, columns)`.
///
/// The header does not move while the slot exists. Each acquisition of the slot with the same extents returns
/// the same header. A tensor has at most 8 extents. Strides count elements, and the data has the alignment of
/// the options. The workspace owns the header and its arrays; do not free or change them.
///
/// Each slot keeps headers for `workspace_options::cache_ways` shapes, and a further shape replaces the
/// oldest. An acquisition allocates nothing if the slot is warm and has a header for the shape. O(headers of
/// the slot). Thread-safety: the workspace's.
/// @param source a workspace or a scope
/// @throws as `workspace_acquisition`, and std::bad_alloc if there is no memory for a header; nothing is
/// acquired then.
template <class T, class Layout = row_major, class Source, bool Checked, std::size_t Rank>
[[nodiscard]] dl_tensor* acquire_tensor(workspace_acquisition<Source, Checked>& source TIDEMARK_LIFETIMEBOUND,
                                        std::array<std::size_t, Rank> const& extents,
                                        std::source_location where = std::source_location::current()) {
  static_assert(Rank <= detail::max_tensor_rank, "a tensor header has room for 8 extents");
  using access = detail::workspace_access;
  auto& from = static_cast<Source&>(source);
  detail::slot& memory = access::claim<T>(from, detail::element_count(extents), where);
  detail::workspace_core& core = access::core(from);
  return &detail::header_of(core, core.list<T>(), memory, extents, std::is_same_v<Layout, column_major>,
                            dl_data_type_of<T>);
}
/// Acquires memory with each extent as an argument.
template <class T, class Layout = row_major, class Source, bool Checked, std::integral... Extents>
[[nodiscard]] dl_tensor* acquire_tensor(workspace_acquisition<Source, Checked>& source TIDEMARK_LIFETIMEBOUND,
                                        detail::located_extent first, Extents... rest) {
  return acquire_tensor<T, Layout>(source, detail::checked_extents(first.value, rest...), first.where);
}

}  // namespace tidemark
