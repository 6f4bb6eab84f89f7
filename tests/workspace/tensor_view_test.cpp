// SPDX-License-Identifier: Apache-2.0
// Strategy: elements are compared by address with index formulas written out here, for both layouts; each
// error's sentence is compared; a generation that rejects shows which members call it.
#include <tidemark/workspace/tensor_view.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ended_generation.hpp"

namespace tidemark {
namespace {

static_assert(std::ranges::contiguous_range<tensor_view<double, 1>>);
static_assert(std::ranges::sized_range<tensor_view<double, 1> const>);
static_assert(std::ranges::view<tensor_view<double, 1>>);
static_assert(std::ranges::borrowed_range<tensor_view<double, 1>>);
static_assert(!std::ranges::range<tensor_view<double, 2>>,
              "rows or elements: it would have to be one of them");
static_assert(std::is_convertible_v<tensor_view<double, 1>, std::span<double>>);
static_assert(std::is_convertible_v<tensor_view<double, 1> const, std::span<double const>>);
static_assert(!std::is_convertible_v<tensor_view<double, 2>, std::span<double>>);
static_assert(!std::is_convertible_v<tensor_view<double const, 1>, std::span<double>>);
static_assert(!std::is_constructible_v<tensor_view<double, 2, column_major>, tensor_view<double, 2>>,
              "an array does not become its transpose by itself");
static_assert(!std::is_constructible_v<tensor_view<long, 1>, tensor_view<int, 1>>);
static_assert(noexcept(tensor_view<double, 2>{}(0, 0)) && noexcept(tensor_view<double, 2>{}.data()) &&
              noexcept(tensor_view<double, 1>{}.begin()) && noexcept(tensor_view<double, 1>{}.elements()));
static_assert(std::same_as<tensor_view<double const, 2>::element_type, double const>);
static_assert(std::same_as<tensor_view<double const, 2>::value_type, double>);
static_assert(std::same_as<tensor_view<double const, 2>::reference, double const&>);
static_assert(std::same_as<tensor_view<double, 2>::data_handle_type, double*>);
static_assert(std::same_as<tensor_view<double, 2, column_major>::layout_type, column_major>);
static_assert(tensor_view<double, 3>::rank() == 3);

/// Returns the message of a call that throws an invalid argument; otherwise the reason for its absence.
template <class Call>
std::string refusal_of(Call call) {
  return test::message_of<std::invalid_argument>(call);
}

std::vector<double> numbered(std::size_t size) {
  std::vector<double> numbers(size);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  return numbers;
}

TEST(tensor_view, computes_row_major_and_column_major_addresses) {
  std::vector<double> numbers = numbered(120);
  const tensor_view<double, 4> rows{numbers.data(), {2, 3, 4, 5}};
  const tensor_view<double, 4, column_major> columns{numbers.data(), {2, 3, 4, 5}};
  for (std::size_t i = 0; i != 2; ++i) {
    for (std::size_t j = 0; j != 3; ++j) {
      for (std::size_t k = 0; k != 4; ++k) {
        for (std::size_t l = 0; l != 5; ++l) {
          EXPECT_EQ(&rows(i, j, k, l), &numbers[i * 60 + j * 20 + k * 5 + l]);
          EXPECT_EQ(&columns(i, j, k, l), &numbers[i + j * 2 + k * 6 + l * 24]);
        }
      }
    }
  }
}

TEST(tensor_view, strides_match_the_layout) {
  std::vector<double> numbers(24);
  const tensor_view<double, 3> rows{numbers.data(), {2, 3, 4}};
  EXPECT_EQ((std::array{rows.stride(0), rows.stride(1), rows.stride(2)}),
            (std::array<std::size_t, 3>{12, 4, 1}));
  const tensor_view<double, 3, column_major> columns{numbers.data(), {2, 3, 4}};
  EXPECT_EQ((std::array{columns.stride(0), columns.stride(1), columns.stride(2)}),
            (std::array<std::size_t, 3>{1, 2, 6}));
}

TEST(tensor_view, accepts_indices_of_any_integral_type) {
  std::vector<double> numbers = numbered(600);
  const tensor_view<double, 2> view{numbers.data(), {300, 2}};
  EXPECT_EQ(view(std::int8_t{2}, std::uint64_t{1}), 5.0);
  EXPECT_EQ(view(std::uint8_t{255}, 1), 511.0);
  EXPECT_EQ(view(std::int64_t{299}, std::uint16_t{0}), 598.0);
}

TEST(tensor_view, rank_0_view_has_one_element) {
  double number = 1;
  const tensor_view<double, 0> view{&number, {}};
  EXPECT_EQ(view.size(), 1u);
  EXPECT_EQ(&view(), &number);
  EXPECT_EQ(view.elements().size(), 1u);
}

TEST(tensor_view, can_be_empty) {
  constexpr std::size_t max = std::numeric_limits<std::size_t>::max();
  double number = 1;
  EXPECT_EQ((tensor_view<double, 2>{}.extents()), (std::array<std::size_t, 2>{0, 0}));
  EXPECT_EQ((tensor_view<double, 2>{}.data()), nullptr);
  EXPECT_TRUE((tensor_view<double, 1>{}.elements().empty()));
  EXPECT_EQ((tensor_view<double, 3>{&number, {3, 0, 5}}.size()), 0u);
  EXPECT_EQ((tensor_view<double, 1>{}.reshape(max, max, 0).extents()),
            (std::array<std::size_t, 3>{max, max, 0}));
}

TEST(tensor_view, rank_1_view_is_a_range) {
  std::vector<int> numbers{3, 1, 2};
  const tensor_view<int, 1> view{numbers.data(), {3}};
  std::ranges::sort(view);
  EXPECT_EQ(numbers, (std::vector{1, 2, 3}));
  for (int& number : view) number *= 2;
  EXPECT_EQ(numbers, (std::vector{2, 4, 6}));
}

TEST(tensor_view, can_be_used_in_constant_expressions) {
  constexpr int sum = [] {
    std::array<int, 6> numbers{1, 2, 3, 4, 5, 6};
    const tensor_view<int, 2> view{numbers.data(), {2, 3}};
    return view(1, 2) + view.reshape(3, 2)(0, 1);
  }();
  EXPECT_EQ(sum, 8);
}

TEST(tensor_view, reshapes_to_any_extents_with_the_same_number_of_elements) {
  std::vector<double> numbers(24);
  const tensor_view<double, 2> view{numbers.data(), {4, 6}};
  const tensor_view<double, 3> reshaped = view.reshape(2, std::uint8_t{3}, std::int64_t{4});
  EXPECT_EQ(reshaped.extents(), (std::array<std::size_t, 3>{2, 3, 4}));
  EXPECT_EQ(reshaped.data(), view.data());
  EXPECT_EQ(view.reshape(std::array{3, 8}).extents(), (std::array<std::size_t, 2>{3, 8}));
  const tensor_view<double, 2, column_major> columns{numbers.data(), {4, 6}};
  const tensor_view<double const, 2, column_major> read = columns.reshape(3, 8);
  EXPECT_EQ(&read(1, 2), &numbers[7]);
}

TEST(tensor_view, single_element_view_reshapes_to_rank_0_and_back) {
  double number = 1;
  const tensor_view<double, 2> view{&number, {1, 1}};
  const tensor_view<double, 0> scalar = view.reshape();
  EXPECT_EQ(&scalar(), &number);
  EXPECT_EQ(&scalar.reshape(1)[0], &number);
  EXPECT_EQ(view.reshape(std::array<std::size_t, 0>{}).data(), &number);
}

// S4.25
TEST(tensor_view, rejects_a_reshape_to_another_number_of_elements) {
  std::vector<double> numbers(12);
  const tensor_view<double, 2> view{numbers.data(), {3, 4}};
  EXPECT_EQ(refusal_of([&] { (void)view.reshape(5, 2); }),
            "reshape: float64[3, 4] has 12 elements, [5, 2] has 10");
  EXPECT_EQ(refusal_of([&] { (void)view.reshape(std::array{13}); }),
            "reshape: float64[3, 4] has 12 elements, [13] has 13");
  EXPECT_EQ(refusal_of([&] { (void)view.reshape(); }), "reshape: float64[3, 4] has 12 elements, [] has 1");
  EXPECT_EQ(refusal_of([&] { (void)view.reshape(-3, -4); }), "extent -3 is negative");
  EXPECT_EQ(refusal_of([&] { (void)view.reshape(std::array{12, -1}); }), "extent -1 is negative");
}

TEST(tensor_view, rejects_a_reshape_whose_element_count_overflows) {
  std::vector<float> numbers(4);
  const tensor_view<float, 1> view{numbers.data(), {4}};
  // 4 * (2^62 + 1) is 4 in 64 bits.
  EXPECT_EQ(refusal_of([&] { (void)view.reshape(4, (std::size_t{1} << 62) + 1); }),
            "reshape: float32[4] has 4 elements, [4, 4611686018427387905] has more than can be counted");
}

TEST(reshape, makes_a_view_of_foreign_memory) {
  std::vector<double> numbers(12);
  const tensor_view<double, 2> view = reshape(std::span{numbers}, 3, 4);
  EXPECT_EQ(&view(2, 1), &numbers[9]);
  const tensor_view<double, 2> same = reshape(std::span{numbers}, std::array{3, 4});
  EXPECT_EQ(&same(2, 1), &numbers[9]);
  const tensor_view<double, 2, column_major> columns = reshape<column_major>(std::span{numbers}, 3, 4);
  EXPECT_EQ(&columns(2, 1), &numbers[5]);
  const std::array<int, 4> few{1, 2, 3, 4};
  const tensor_view<int const, 2> read_only = reshape(std::span{few}, 2, 2);
  EXPECT_EQ(read_only(1, 0), 3);
}

static_assert(detail::view_generation<test::ended_generation>);
static_assert(!noexcept(tensor_view<double, 1, row_major, test::ended_generation>{}.data()));

template <std::size_t Rank>
using ended_view = tensor_view<double, Rank, row_major, test::ended_generation>;

// S4.47
TEST(tensor_view, checks_its_generation_before_each_access_to_an_element) {
  double numbers[12] = {};
  const ended_view<2> view{numbers, {3, 4}};
  EXPECT_EQ(test::message_of_access([&] { (void)view(0, 0); }), "float64[3, 4]");
  const ended_view<1> line{numbers, {12}};
  EXPECT_EQ(test::message_of_access([&] { (void)line[0]; }), "float64[12]");
  const ended_view<0> scalar{numbers, {}};
  EXPECT_EQ(test::message_of_access([&] { (void)scalar(); }), "float64[]");
}

TEST(tensor_view, checks_its_generation_before_it_returns_memory) {
  double numbers[12] = {};
  const ended_view<1> view{numbers, {12}};
  EXPECT_EQ(test::message_of_access([&] { (void)view.data(); }), "float64[12]");
  EXPECT_EQ(test::message_of_access([&] { (void)view.data_handle(); }), "float64[12]");
  EXPECT_EQ(test::message_of_access([&] { (void)view.elements(); }), "float64[12]");
  EXPECT_EQ(test::message_of_access([&] { (void)view.begin(); }), "float64[12]");
  EXPECT_EQ(test::message_of_access([&] { (void)view.end(); }), "float64[12]");
  EXPECT_EQ(test::message_of_access([&] { (void)std::span<double>{view}; }), "float64[12]");
}

TEST(tensor_view, does_not_check_its_generation_for_its_shape) {
  double numbers[12] = {};
  const ended_view<2> view{numbers, {3, 4}};
  EXPECT_EQ(view.size(), 12u);
  EXPECT_FALSE(view.empty());
  EXPECT_EQ(view.extent(0), 3u);
  EXPECT_EQ(view.extents()[1], 4u);
  EXPECT_EQ(view.stride(0), 4u);
  EXPECT_TRUE(view.generation().over);
}

TEST(tensor_view, converts_to_an_unchecked_view_while_its_memory_is_live) {
  std::array<double, 2> data{1, 2};
  const auto sum = [](tensor_view<double const, 1> x) { return x[0] + x[1]; };
  const tensor_view<double, 1, row_major, test::ended_generation> live{data.data(), {2}, {.over = false}};
  EXPECT_EQ(sum(live), 3.0);
  const tensor_view<double, 1, row_major, test::ended_generation> stale{data.data(), {2}, {.over = true}};
  EXPECT_THROW((void)sum(stale), test::ended_generation::ended);
}

// S4.25
TEST(tensor_view, passes_its_generation_to_derived_views) {
  double numbers[12] = {};
  const ended_view<2> view{numbers, {3, 4}};
  EXPECT_EQ(test::message_of_access([&] { (void)view.reshape(12).data(); }), "float64[12]");
  const tensor_view<double const, 2, row_major, test::ended_generation> read = view;
  EXPECT_EQ(test::message_of_access([&] { (void)read(0, 0); }), "float64[3, 4]");
  const ended_view<2> live{numbers, {3, 4}, test::ended_generation{false}};
  EXPECT_EQ(live.reshape(12).data(), numbers);
  EXPECT_EQ((tensor_view<double const, 2, row_major, test::ended_generation>{live}.data()), numbers);
}

struct point {
  int x, y;
};
template <class T>
struct pair_of {
  T first, second;
};

TEST(element_name, is_equal_for_integer_types_of_one_size) {
  EXPECT_STREQ(detail::element_name<long long>, detail::element_name<long>);
  EXPECT_STREQ(detail::element_name<unsigned long long>, "uint64");
}

TEST(element_name, is_the_cxx_name_for_other_types) {
  EXPECT_STREQ(detail::element_name<long double>, "long double");
  EXPECT_STREQ(detail::element_name<std::align_val_t>, "std::align_val_t");
  EXPECT_TRUE(std::string_view{detail::element_name<point const>}.ends_with("point"));
  EXPECT_TRUE(std::string_view{detail::element_name<pair_of<int>>}.ends_with("pair_of<int>"));
}

TEST(extents, count_their_elements) {
  constexpr std::size_t max = detail::uncountable;
  constexpr std::size_t half = std::size_t{1} << 32;
  const auto counted = [](std::vector<std::size_t> const& extents) { return detail::element_count(extents); };
  EXPECT_EQ(counted({}), 1u);
  EXPECT_EQ(counted({3, 4}), 12u);
  EXPECT_EQ(counted({max - 1}), max - 1);
  EXPECT_EQ(counted({1, max - 1, 1}), max - 1);
  EXPECT_EQ(counted({half - 1, half}), (half - 1) * half)
      << "the largest product of two that are nearly equal";
  EXPECT_EQ(counted({half - 1, half + 1}), max);  // 2^64 - 1, which no memory holds
  EXPECT_EQ(counted({half, half}), max);
  EXPECT_EQ(counted({max, 2}), max);
  EXPECT_EQ(counted({2, max}), max);
  EXPECT_EQ(counted({half, half, 3}), max) << "though the product wraps to 0 on the way";
}

}  // namespace
}  // namespace tidemark
