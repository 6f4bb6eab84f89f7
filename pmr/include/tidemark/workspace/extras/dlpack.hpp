// SPDX-License-Identifier: Apache-2.0
/// @file
/// `acquire_tensor`: memory of a workspace with a DLPack header, which describes the array to code in C and
/// other languages. The workspace owns both.
///
/// DLPack is how array libraries share memory: https://dmlc.github.io/dlpack. The structures are DLPack's own
/// where tidemark was configured with its header (`TIDEMARK_DLPACK` in `<tidemark/core/config.hpp>`), and
/// otherwise ours, with the same members in the same places, so that a pointer to one converts to the other.
#pragma once

#include <array>
#include <complex>
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
/// The device "host memory", whose number is 0.
inline constexpr auto dl_cpu = kDLCPU;

#else

/// Where memory is.
struct dl_device {
  std::int32_t device_type;  ///< a kind of device as DLPack numbers them; `dl_cpu` for host memory
  std::int32_t device_id;    ///< which one of that kind; 0 for host memory
};

/// What elements are. A code as DLPack numbers them and `bits` for each of `lanes` numbers of an element.
struct dl_data_type {
  std::uint8_t code;    ///< 0 signed integer, 1 unsigned, 2 IEEE floating point, 5 complex
  std::uint8_t bits;    ///< of one lane; of a complex number both parts together
  std::uint16_t lanes;  ///< 1, except for vectors
};

/// An array. Thread-safety: that of a pointer.
struct dl_tensor {
  void* data;                 ///< the memory; elements begin `byte_offset` behind it
  dl_device device;           ///< where it is
  std::int32_t ndim;          ///< number of dimensions
  dl_data_type dtype;         ///< what the elements are
  std::int64_t* shape;        ///< `ndim` extents
  std::int64_t* strides;      ///< `ndim` strides in elements; null: row major without gaps
  std::uint64_t byte_offset;  ///< bytes from `data` to the first element
};

/// The device "host memory", whose number is 0.
inline constexpr std::int32_t dl_cpu = 1;

#endif

namespace detail {

// The codes have not changed since DLPack 0.2. They are numbers here, so that both kinds of build agree.
inline constexpr std::uint8_t dl_int = 0;
inline constexpr std::uint8_t dl_uint = 1;
inline constexpr std::uint8_t dl_float = 2;
inline constexpr std::uint8_t dl_complex = 5;

template <class T>
constexpr std::uint8_t dl_code() noexcept {
  // Before 0.8 DLPack had no code for bool (kDLBool, 6), and readers of that time reject unknown codes; so it
  // is what NumPy and PyTorch stored it as, a byte that is 0 or 1.
  if constexpr (std::same_as<T, bool>) {
    return dl_uint;
  } else if constexpr (std::same_as<T, float> || std::same_as<T, double>) {
    return dl_float;
  } else if constexpr (std::same_as<T, std::complex<float>> || std::same_as<T, std::complex<double>>) {
    return dl_complex;
  } else {  // long double neither: it has several formats, and DLPack cannot tell which
    static_assert(std::integral<T>,
                  "DLPack has codes for bool, integers, float, double, std::complex<float> and "
                  "std::complex<double>, and for no other type that tidemark knows.");
    return std::is_signed_v<T> ? dl_int : dl_uint;
  }
}

}  // namespace detail

/// DLPack's description of elements of type `T`, const and volatile aside: any integral type, float, double,
/// std::complex of these, and bool, as an unsigned integer of 8 bits. Others do not compile.
template <class T>
inline constexpr dl_data_type dl_data_type_of{detail::dl_code<std::remove_cv_t<T>>(),
                                              static_cast<std::uint8_t>(8 * sizeof(T)), 1};

static_assert(sizeof(dl_tensor) == 48 && offsetof(dl_tensor, device) == 8 &&
                  offsetof(dl_tensor, ndim) == 16 && offsetof(dl_tensor, dtype) == 20 &&
                  offsetof(dl_tensor, shape) == 24 && offsetof(dl_tensor, strides) == 32 &&
                  offsetof(dl_tensor, byte_offset) == 40,
              "a dl_tensor goes to libraries that were compiled with DLPack's own header");

namespace detail {

/// Most extents of a tensor that has a header.
inline constexpr std::size_t max_tensor_rank = 8;

template <>
inline constexpr bool is_tensor_header<dl_tensor> = true;

/// The header for the list's newest slot. @throws std::bad_alloc if there is no memory for one; the slot is
/// taken back then.
dl_tensor& header_of(workspace_core& core, slot_list& list, slot& newest,
                     std::span<std::size_t const> extents, bool column_major, dl_data_type type);

}  // namespace detail

/// Memory for code in C and other languages: `acquire_tensor<float>(scope, rows, columns)`.
///
/// The header stays where it is as long as the slot does, and is the same one whenever the slot is acquired
/// with the same extents. At most 8 extents; strides count elements, and the data is aligned as the options
/// say. The workspace owns the header and its arrays, which must be neither freed nor changed.
///
/// Headers are kept for `workspace_options::cache_ways` shapes of each slot; a further one replaces the
/// oldest, and neither allocates once warm. O(headers of the slot). Thread-safety: the workspace's.
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
  return &detail::header_of(access::core(from), access::list<T>(from), memory, extents,
                            std::is_same_v<Layout, column_major>, dl_data_type_of<T>);
}
/// The same with each extent an argument.
template <class T, class Layout = row_major, class Source, bool Checked, std::integral... Extents>
[[nodiscard]] dl_tensor* acquire_tensor(workspace_acquisition<Source, Checked>& source TIDEMARK_LIFETIMEBOUND,
                                        detail::located_extent first, Extents... rest) {
  return acquire_tensor<T, Layout>(source, detail::all_extents(first, rest...), first.where);
}

}  // namespace tidemark
