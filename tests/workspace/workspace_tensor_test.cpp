// SPDX-License-Identifier: Apache-2.0
// Strategy: tensor headers at both check levels: the header for each shape, the order of replacement, and the
// contents. A program in C reads the headers too (tests/workspace/dlpack), if DLPack's header is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

#include "warning_recorder.hpp"
#include "workspace_levels.hpp"

#if defined(TIDEMARK_DLPACK_CONSUMER)
extern "C" {
double consume_sum(DLManagedTensor* managed);
std::int64_t consume_offset(DLTensor const* tensor, std::int64_t const* index);
}
#endif

namespace tidemark::test {
namespace {

template <class Workspace>
class workspace_tensor : public testing::Test {
 protected:
  using scope = typename Workspace::template scope<>;

  /// The header for `extents` of doubles, from the first slot.
  template <std::integral... Extents>
  static dl_tensor* header(Workspace& ws, Extents... extents) {
    const scope one{ws};  // clang knows that its results must not leave
    return acquire_tensor<double>(ws, extents...);
  }

  Workspace ws{workspace_options{.cache_ways = 4}};
};
TYPED_TEST_SUITE(workspace_tensor, both_levels, );

template <class Number>
std::vector<std::int64_t> numbers(Number const* first, int n) {
  return {first, first + n};
}
using extents_list = std::vector<std::int64_t>;

// ---- which header -----------------------------------------------------------------------------------------

// S4.18 S4.22
TYPED_TEST(workspace_tensor, the_same_shape_of_the_same_slot_has_the_same_header) {
  dl_tensor* const first = this->header(this->ws, 3, 4);
  std::int64_t* const shape = first->shape;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(this->header(this->ws, 3, 4), first);
    EXPECT_EQ(first->shape, shape);
  }
  EXPECT_EQ(this->ws.stats().tensor_headers, 1u);
}

TYPED_TEST(workspace_tensor, different_shapes_ranks_types_and_slots_have_different_headers) {
  typename TestFixture::scope scope{this->ws};
  std::set<dl_tensor*> headers{acquire_tensor<double>(scope, 4, 4), acquire_tensor<double>(scope, 4, 4),
                               acquire_tensor<float>(scope, 4, 4)};
  scope.end();
  headers.insert({this->header(this->ws, 16), this->header(this->ws, 4, 2), this->header(this->ws, 4, 4, 1)});
  EXPECT_EQ(headers.size(), 6u);
  EXPECT_EQ(this->ws.stats().tensor_headers, 6u);
  this->ws.template reset<double>();
  typename TestFixture::scope again{this->ws};
  EXPECT_EQ(headers.count(acquire_tensor<double, column_major>(again, 4, 4)), 1u)
      << "the fifth shape of the slot is in the place of the first";
  EXPECT_EQ(headers.count(acquire_tensor<double, column_major>(again, 4, 4)), 0u);
}

// S4.53
TYPED_TEST(workspace_tensor, modified_header_is_restored_at_its_next_use) {
  dl_tensor* const changed = this->header(this->ws, 3, 4);
  changed->strides[0] = 77;
  changed->strides = nullptr;
  changed->shape = nullptr;
  changed->byte_offset = 8;
  changed->dtype.bits = 1;
  changed->data = nullptr;
  typename TestFixture::scope scope{this->ws};
  dl_tensor const* const again = acquire_tensor<double>(scope, 3, 4);
  EXPECT_EQ(again, changed);
  EXPECT_EQ(numbers(again->shape, 2), (extents_list{3, 4}));
  EXPECT_EQ(numbers(again->strides, 2), (extents_list{4, 1}));
  EXPECT_EQ(again->byte_offset, 0u);
  EXPECT_EQ(again->dtype.bits, 64);
  EXPECT_NE(again->data, nullptr);
}

// S4.21
TYPED_TEST(workspace_tensor, cached_header_has_the_new_address_of_a_grown_slot) {
  typename TestFixture::scope first{this->ws};
  dl_tensor* const tensor = acquire_tensor<double>(first, 10);
  first.end();
  typename TestFixture::scope grown{this->ws};
  dl_tensor* const larger = acquire_tensor<double>(grown, 1'000'000);
  void* const address = larger->data;
  grown.end();
  typename TestFixture::scope again{this->ws};
  EXPECT_EQ(acquire_tensor<double>(again, 10), tensor);
  EXPECT_EQ(tensor->data, address);
  EXPECT_EQ(tensor->shape[0], 10);
}

// S4.18 S4.20
TYPED_TEST(workspace_tensor, replaces_headers_in_fifo_order) {
  const warning_recorder warnings;
  for (unsigned ways = 1; ways <= 16; ++ways) {
    TypeParam ws{workspace_options{.cache_ways = ways}};
    std::vector<dl_tensor*> places;
    for (unsigned shape = 1; shape <= ways; ++shape) places.push_back(this->header(ws, shape));
    ASSERT_EQ(std::set(places.begin(), places.end()).size(), ways);
    for (unsigned shape = ways + 1; shape <= 3 * ways; ++shape) {
      // The oldest is used once more, but stays the oldest.
      ASSERT_EQ(this->header(ws, shape - ways), places[(shape - 1) % ways]) << ways << " ways";
      ASSERT_EQ(this->header(ws, shape), places[(shape - 1) % ways]) << ways << " ways";
      ASSERT_EQ(places[(shape - 1) % ways]->shape[0], shape);
    }
    EXPECT_EQ(ws.stats().tensor_headers, ways);
    EXPECT_EQ(ws.trim().slot_count, 1u);
    EXPECT_EQ(ws.stats().tensor_headers, 0u) << "trimmed slots take their headers with them";
  }
  EXPECT_EQ(warning_recorder::reports().size(), 0u) << "ways in range are not warned of";
}

// S4.20
TYPED_TEST(workspace_tensor, warns_about_ways_out_of_range_and_uses_four) {
  for (const unsigned ways : {0u, 17u}) {
    const warning_recorder warnings;
    TypeParam ws{workspace_options{.cache_ways = ways, .name = "tensors"}};
    EXPECT_EQ(warning_recorder::only(warning_kind::refused_setting),
              "workspace 'tensors': cache_ways is " + std::to_string(ways) +
                  ", which is neither 1 to 16 nor unlimited; it is 4 instead");
    EXPECT_EQ(ws.options().cache_ways, 4u);
    dl_tensor* const first = this->header(ws, 1);
    for (int shape = 2; shape <= 4; ++shape) EXPECT_NE(this->header(ws, shape), first);
    EXPECT_EQ(this->header(ws, 1), first);
    EXPECT_EQ(this->header(ws, 5), first);
    EXPECT_EQ(ws.stats().tensor_headers, 4u);
  }
}

TEST(workspace_tensor_checked, a_tensor_that_outlives_its_scope_has_no_data) {
  checked_workspace ws;
  dl_tensor* tensor = nullptr;
  {
    checked_workspace::scope<> scope{ws};
    tensor = acquire_tensor<double>(scope, 10);
    EXPECT_NE(tensor->data, nullptr);
  }
  EXPECT_EQ(tensor->data, nullptr);
  checked_workspace::scope<> scope{ws};
  EXPECT_EQ(acquire_tensor<double>(scope, 10), tensor);
  EXPECT_NE(tensor->data, nullptr);
}

// ---- fields of the tensor ---------------------------------------------------------------------------------

template <std::size_t Rank>
void expect_rank(auto& scope) {
  std::array<std::size_t, Rank> extents{};
  for (std::size_t r = 0; r < Rank; ++r) extents[r] = 1 + r % 3;
  dl_tensor const* const tensor = acquire_tensor<double>(scope, extents);
  ASSERT_EQ(tensor->ndim, static_cast<int>(Rank));
  std::int64_t stride = 1;
  for (std::size_t r = Rank; r-- > 0;) {
    EXPECT_EQ(tensor->shape[r], static_cast<std::int64_t>(extents[r])) << "of rank " << Rank;
    EXPECT_EQ(tensor->strides[r], stride) << "of rank " << Rank;
    stride *= tensor->shape[r];
  }
  auto* const elements = static_cast<double*>(tensor->data);
  std::fill_n(elements, stride, 1.0);  // a sanitizer sees whether the memory is large enough
  EXPECT_EQ(std::accumulate(elements, elements + stride, 0.0), static_cast<double>(stride));
}

TYPED_TEST(workspace_tensor, ranks_from_zero_to_eight_have_headers) {
  typename TestFixture::scope scope{this->ws};
  [&]<std::size_t... Ranks>(std::index_sequence<Ranks...>) {
    (expect_rank<Ranks>(scope), ...);
  }(std::make_index_sequence<9>{});
}

template <class T>
void expect_type(auto& scope, char const* name, int code, int bits) {
  EXPECT_STREQ(detail::element_name<T>, name) << "as numerical users say";
  dl_data_type const type = acquire_tensor<T>(scope, 4)->dtype;
  EXPECT_EQ(type.code, code) << detail::element_name<T>;
  EXPECT_EQ(type.bits, bits) << detail::element_name<T>;
  EXPECT_EQ(type.lanes, 1) << detail::element_name<T>;
}

TYPED_TEST(workspace_tensor, every_element_type_has_its_name_and_code) {
  typename TestFixture::scope scope{this->ws};
  constexpr int signed_integer = 0, unsigned_integer = 1, floating = 2, complex = 5;
  expect_type<std::int8_t>(scope, "int8", signed_integer, 8);
  expect_type<std::int16_t>(scope, "int16", signed_integer, 16);
  expect_type<std::int32_t>(scope, "int32", signed_integer, 32);
  expect_type<std::int64_t>(scope, "int64", signed_integer, 64);
  expect_type<std::uint8_t>(scope, "uint8", unsigned_integer, 8);
  expect_type<std::uint16_t>(scope, "uint16", unsigned_integer, 16);
  expect_type<std::uint32_t>(scope, "uint32", unsigned_integer, 32);
  expect_type<std::uint64_t>(scope, "uint64", unsigned_integer, 64);
  expect_type<bool>(scope, "bool", unsigned_integer, 8);
  expect_type<float>(scope, "float32", floating, 32);
  expect_type<double>(scope, "float64", floating, 64);
  expect_type<std::complex<float>>(scope, "complex64", complex, 64);
  expect_type<std::complex<double>>(scope, "complex128", complex, 128);
}

// ---- a consumer in C --------------------------------------------------------------------------------------

#if defined(TIDEMARK_DLPACK_CONSUMER)

/// A tensor for a library that calls a deleter after use. The deleter ends the scope of the tensor.
template <class Workspace>
struct exported {
  explicit exported(Workspace& ws) : scope{ws} { managed.manager_ctx = this; }
  exported(exported const&) = delete;
  exported& operator=(exported const&) = delete;
  ~exported() = default;
  static void end_scope(DLManagedTensor* done) {
    auto* const self = static_cast<exported*>(done->manager_ctx);
    self->scope.end();
    ++self->ended_scopes;
  }

  typename Workspace::template scope<> scope;
  DLManagedTensor managed{.dl_tensor = {}, .manager_ctx = nullptr, .deleter = &end_scope};
  int ended_scopes = 0;
};

template <class T, class Layout>
void expect_sum_in_c(auto& ws) {
  exported<std::remove_reference_t<decltype(ws)>> out{ws};
  dl_tensor* const tensor = acquire_tensor<T, Layout>(out.scope, 5, 6, 7);
  auto* const elements = static_cast<T*>(tensor->data);
  for (int i = 0; i < 210; ++i) elements[i] = static_cast<T>(i % 100);
  const double sum = std::accumulate(elements, elements + 210, 0.0);
  out.managed.dl_tensor = *tensor;
  EXPECT_EQ(consume_sum(&out.managed), sum) << detail::element_name<T>;
  EXPECT_EQ(out.ended_scopes, 1);
  EXPECT_EQ(ws.stats().active_slots, 0u);
}

TYPED_TEST(workspace_tensor, c_program_sums_and_returns_a_tensor) {
  expect_sum_in_c<double, row_major>(this->ws);
  expect_sum_in_c<double, column_major>(this->ws);
  expect_sum_in_c<float, row_major>(this->ws);
  expect_sum_in_c<std::int32_t, column_major>(this->ws);
  expect_sum_in_c<std::int64_t, row_major>(this->ws);
  expect_sum_in_c<std::uint8_t, row_major>(this->ws);
}

TYPED_TEST(workspace_tensor, c_program_sums_part_of_a_tensor_by_offset_shape_and_strides) {
  exported<TypeParam> out{this->ws};
  dl_tensor const* const tensor = acquire_tensor<double>(out.scope, 4, 5);
  std::iota(static_cast<double*>(tensor->data), static_cast<double*>(tensor->data) + 20, 0.0);
  std::array<std::int64_t, 2> shape{2, 3};  // rows 1 and 2, columns 1 to 3
  out.managed.dl_tensor = *tensor;
  out.managed.dl_tensor.shape = shape.data();
  out.managed.dl_tensor.byte_offset = (1 * 5 + 1) * sizeof(double);
  EXPECT_EQ(consume_sum(&out.managed), 6 + 7 + 8 + 11 + 12 + 13);
  EXPECT_EQ(out.ended_scopes, 1);
}

#endif

}  // namespace
}  // namespace tidemark::test
