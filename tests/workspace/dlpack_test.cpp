// SPDX-License-Identifier: Apache-2.0
// Strategy: the offsets of all members as in DLPack's ABI, and the numbers of its specification. They hold
// for DLPack's structures and for ours. If this file uses DLPack's, own_dlpack.* is this file with ours.
#include <tidemark/workspace/extras/dlpack.hpp>

#include <gtest/gtest.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tidemark {
namespace {

static_assert(std::is_standard_layout_v<dl_tensor> && std::is_trivially_copyable_v<dl_tensor>);
static_assert(sizeof(dl_tensor) == 48 && alignof(dl_tensor) == 8);
static_assert(sizeof(dl_tensor::ndim) == 4 && sizeof(dl_tensor::byte_offset) == 8, "offsets: dlpack.hpp");
static_assert(std::same_as<decltype(dl_tensor::shape), std::int64_t*>);
static_assert(std::same_as<decltype(dl_tensor::strides), std::int64_t*>);
static_assert(offsetof(dl_device, device_type) == 0 && sizeof(dl_device::device_type) == 4);
static_assert(offsetof(dl_device, device_id) == 4 && sizeof(dl_device::device_id) == 4);
static_assert(offsetof(dl_data_type, code) == 0 && sizeof(dl_data_type::code) == 1);
static_assert(offsetof(dl_data_type, bits) == 1 && sizeof(dl_data_type::bits) == 1);
static_assert(offsetof(dl_data_type, lanes) == 2 && sizeof(dl_data_type::lanes) == 2);

#if TIDEMARK_DLPACK
static_assert(std::same_as<dl_tensor, ::DLTensor>);
static_assert(detail::dl_int == kDLInt && detail::dl_uint == kDLUInt && detail::dl_float == kDLFloat &&
              detail::dl_complex == kDLComplex);
#endif

template <class T, int Code, int Bits>
constexpr bool is_of =
    dl_data_type_of<T>.code == Code && dl_data_type_of<T>.bits == Bits && dl_data_type_of<T>.lanes == 1;
static_assert(is_of<double const, 2, 64> && is_of<int volatile, 0, 32>, "const and volatile do not matter");

TEST(dlpack, tensor_describes_an_array) {
  double numbers[6] = {};
  std::int64_t shape[] = {2, 3};
  const dl_tensor tensor{.data = numbers,
                         .device = {dl_cpu, 0},
                         .ndim = 2,
                         .dtype = dl_data_type_of<double>,
                         .shape = shape,
                         .strides = nullptr,
                         .byte_offset = 0};
  EXPECT_EQ(tensor.dtype.bits, 64);
  EXPECT_EQ(tensor.shape[1], 3);
}

}  // namespace
}  // namespace tidemark
