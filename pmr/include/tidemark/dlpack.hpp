// SPDX-License-Identifier: Apache-2.0
/// @file
/// `dl_tensor`: DLPack's description of an array in memory that somebody else owns. Owns nothing.
///
/// DLPack is how array libraries hand memory to one another: https://dmlc.github.io/dlpack. Its structures
/// are its own where tidemark was configured with its header (`TIDEMARK_DLPACK` in `<tidemark/config.hpp>`),
/// and otherwise ours, with the same members in the same places, so that a pointer to one can be passed on
/// either way.
#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tidemark/config.hpp>

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

// The codes have not changed since DLPack 0.2, and are given here as numbers so that both kinds of build
// agree.
inline constexpr std::uint8_t dl_int = 0;
inline constexpr std::uint8_t dl_uint = 1;
inline constexpr std::uint8_t dl_float = 2;
inline constexpr std::uint8_t dl_complex = 5;
inline constexpr std::uint8_t dl_none = 255;

template <class T>
constexpr std::uint8_t dl_code() noexcept {
  // DLPack has no code for bool before 0.8 (kDLBool, 6), and readers of that time refuse what they do not
  // know; so it goes as what NumPy and PyTorch stored it as, a byte that is 0 or 1.
  if constexpr (std::same_as<T, bool>) return dl_uint;
  else if constexpr (std::same_as<T, float> || std::same_as<T, double>) return dl_float;
  else if constexpr (std::same_as<T, std::complex<float>> || std::same_as<T, std::complex<double>>)
    return dl_complex;
  else if constexpr (std::integral<T>) return std::is_signed_v<T> ? dl_int : dl_uint;
  else return dl_none;  // long double too: which of several formats it is, DLPack cannot say
}

template <class T>
constexpr dl_data_type make_dl_data_type() noexcept {
  constexpr std::uint8_t code = dl_code<T>();
  static_assert(code != dl_none,
                "DLPack has codes for bool, integers, float, double, std::complex<float> and "
                "std::complex<double>, and for nothing else that tidemark knows of.");
  return {code, static_cast<std::uint8_t>(8 * sizeof(T)), 1};
}

}  // namespace detail

/// What DLPack says of elements of type `T`, const and volatile aside: any integral type, float, double,
/// std::complex of these, and bool, which is an unsigned integer of 8 bits to it. Others do not compile.
/// Complexity: none, it is made while compiling. Thread-safe.
template <class T>
inline constexpr dl_data_type dl_data_type_of = detail::make_dl_data_type<std::remove_cv_t<T>>();

static_assert(sizeof(dl_tensor) == 48 && offsetof(dl_tensor, device) == 8 &&
                  offsetof(dl_tensor, ndim) == 16 && offsetof(dl_tensor, dtype) == 20 &&
                  offsetof(dl_tensor, shape) == 24 && offsetof(dl_tensor, strides) == 32 &&
                  offsetof(dl_tensor, byte_offset) == 40,
              "a dl_tensor goes to libraries that were compiled with DLPack's own header");

}  // namespace tidemark
