// SPDX-License-Identifier: Apache-2.0
// Strategy: each form of acquisition, at both check levels: the result, the slot, the written bytes, and a
// failed request, which must change nothing. The memory is dirty before, so that zeros are not there by
// chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/extras/random.hpp>
#include <tidemark/workspace/tensor_view.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "caught.hpp"
#include "warning_recorder.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

template <class Workspace>
class acquisitions : public workspace_suite<Workspace> {
 protected:
  /// Lets the first slots of these types hold something that no form writes.
  void spoil(std::size_t n) {
    typename Workspace::template scope<> before{this->ws};
    (void)before.template fill<double>(-9, n);
    (void)before.template fill<float>(-9, n);
    (void)before.template fill<std::int32_t>(-9, n);
    auto bits = before.bits(64 * n);
    std::ranges::fill(bits.words(), 0xA5A5'A5A5'A5A5'A5A5u);
  }
};
TYPED_TEST_SUITE(acquisitions, both_levels, );

constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();

template <class View>
bool all_are(View const& view, auto value) {
  return std::ranges::all_of(view.elements(), [&](auto const& x) { return x == value; });
}

// ---- types ----

// Resolved at compile time: a constant for each common type, and no place for any other.
using detail::fixed_place;
static_assert(fixed_place<double> == 0 && fixed_place<float> == 1);
static_assert(fixed_place<std::int64_t> == 2 && fixed_place<std::int32_t> == 3);
static_assert(fixed_place<std::complex<float>> == 4 && fixed_place<std::complex<double>> == 5);
static_assert(fixed_place<bool> == 6 && fixed_place<packed_bits> == 7 && detail::fixed_elements == 8);
static_assert(fixed_place<std::uint64_t> == 8 && fixed_place<std::int16_t> == 8,
              "words are no bits to a workspace");
// A class of complex numbers is known by its parts and its layout.
struct own_complex {
  [[nodiscard]] double real() const { return parts[0]; }
  [[nodiscard]] double imag() const { return parts[1]; }
  double parts[2];
};
struct alignas(16) aligned_complex : own_complex {};
static_assert(fixed_place<own_complex> == 5 && fixed_place<aligned_complex> == 8);
static_assert(fixed_place<std::complex<long double>> == 8);

// S4.11
TYPED_TEST(acquisitions, have_separate_slots_for_each_type) {
  typename TypeParam::template scope<> scope{this->ws};
  (void)acquire_from<double>(scope, 1);
  (void)acquire_from<float>(scope, 1);
  (void)acquire_from<std::int64_t>(scope, 1);
  (void)acquire_from<std::int32_t>(scope, 1);
  (void)acquire_from<std::complex<float>>(scope, 1);
  (void)acquire_from<std::complex<double>>(scope, 1);
  (void)acquire_from<bool>(scope, 1);
  (void)scope.bits(1);
  (void)acquire_from<std::uint64_t>(scope, 1);
  (void)acquire_from<std::int16_t>(scope, 1);
  std::vector<std::string> elements;
  this->ws.for_each_type([&](workspace_type_stats const& one) {
    elements.emplace_back(one.element);
    EXPECT_EQ(one.slot_count, 1u) << one.element;
  });
  std::ranges::sort(elements.begin() + 8,
                    elements.end());  // the others come in the order in which a process met them
  EXPECT_EQ(elements, (std::vector<std::string>{"float64", "float32", "int64", "int32", "complex64",
                                                "complex128", "bool", "bits", "int16", "uint64"}));
}

#ifdef __FLT16_MAX__
// S4.11
TYPED_TEST(acquisitions, support_half_precision_elements) {
  for (int pass = 0; pass < 2; ++pass) {
    typename TypeParam::template scope<> scope{this->ws};
    const auto table = scope.fill(static_cast<_Float16>(0.5), 10, 10);
    EXPECT_EQ(table.size(), 100u);
    for (_Float16 const each : table.elements()) ASSERT_EQ(static_cast<float>(each), 0.5F);
    EXPECT_EQ(stats_of(this->ws, detail::element_name<_Float16>).slot_count, 1u);
    EXPECT_EQ(this->ws.stats().used_bytes, 200u);
  }
  EXPECT_EQ(this->upstream.calls, 1u);
}
#endif

// ---- sizes ----

// S4.14
TYPED_TEST(acquisitions, empty_acquisitions_use_a_slot_and_no_memory) {
  auto none = acquire_from<double>(this->ws, 0);
  EXPECT_EQ(none.size(), 0u);
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(acquire_from<float>(this->ws, huge, 0, huge).empty());
  EXPECT_TRUE(this->ws.bits(0).empty());
  EXPECT_TRUE(this->ws.zeros(0).empty());
  EXPECT_TRUE(this->ws.trues(0, 7).empty());
  EXPECT_EQ(this->ws.stats().active_slots, 5u);
  EXPECT_EQ(this->upstream.calls, 0u);
}

// ---- impossible requests ----

/// Requests too much, with some idle memory and some in use, and expects that nothing has changed.
template <class Workspace, class Acquire>
void expect_refused(Workspace& ws, char const* what, Acquire acquire) {
  typename Workspace::template scope<> scope{ws};
  (void)acquire_from<double>(scope, 10);
  (void)scope.bits(10);
  const workspace_stats before = ws.stats();
  try {
    acquire(scope);
    FAIL() << what << ": was served";
  } catch (out_of_memory const& thrown) {
    EXPECT_EQ(thrown.report().requested_bytes, huge) << what;
    EXPECT_EQ(thrown.report().used_bytes, before.used_bytes) << what;
    EXPECT_EQ(thrown.report().committed_bytes, before.held_bytes) << what;
    EXPECT_STREQ(thrown.report().resource, "test") << what;
  }
  const workspace_stats after = ws.stats();
  EXPECT_EQ(after.active_slots, before.active_slots) << what;
  EXPECT_EQ(after.slot_count, before.slot_count) << what;
  EXPECT_EQ(after.held_bytes, before.held_bytes) << what;
  ws.check_invariants();
}

// S4.14
TYPED_TEST(acquisitions, reject_sizes_that_overflow_at_every_rank) {
  auto& ws = this->ws;
  {
    typename TypeParam::template scope<> scope{ws};
    for (int i = 0; i < 3; ++i)
      (void)acquire_from<double>(scope, 10), (void)scope.bits(10), (void)acquire_from<float>(scope, 10);
  }
  constexpr std::size_t root = std::size_t{1} << 32, third = std::size_t{1} << 22,
                        fourth = std::size_t{1} << 16;
  expect_refused(ws, "1", [](auto& s) { (void)acquire_from<double>(s, huge); });
  expect_refused(ws, "1, its bytes", [](auto& s) { (void)acquire_from<double>(s, huge / 8 / 2 + 1); });
  expect_refused(ws, "2", [](auto& s) { (void)acquire_from<double>(s, root, root); });
  expect_refused(ws, "2, by one", [](auto& s) { (void)acquire_from<char>(s, huge / 3 + 1, 3); });
  expect_refused(ws, "2, of signed extents",
                 [](auto& s) { (void)acquire_from<float>(s, PTRDIFF_MAX, PTRDIFF_MAX); });
  expect_refused(ws, "3", [](auto& s) { (void)acquire_from<double>(s, third, third, third); });
  expect_refused(ws, "4", [](auto& s) { (void)acquire_from<double>(s, fourth, fourth, fourth, fourth); });
  expect_refused(ws, "5", [](auto& s) { (void)acquire_from<double>(s, 1, root, 1, 2, root); });
  expect_refused(ws, "array",
                 [](auto& s) { (void)s.template acquire<float>(std::array<std::size_t, 3>{root, root, 1}); });
  expect_refused(ws, "zeros", [](auto& s) { (void)s.template zeros<float>(root, root); });
  expect_refused(ws, "ones", [](auto& s) { (void)s.ones(root, root, 3); });
  expect_refused(ws, "fill", [](auto& s) { (void)s.fill(1.5F, root, root); });
  expect_refused(ws, "rand", [](auto& s) {
    std::mt19937 random{1};
    (void)acquire_uniform(s, random, root, root);
    (void)random;
  });
  expect_refused(ws, "bits", [](auto& s) { (void)s.bits(root, root); });
  expect_refused(ws, "trues", [](auto& s) { (void)s.trues(root, root, root); });
  expect_refused(ws, "tensor", [](auto& s) { (void)acquire_tensor<double>(s, root, root); });
}

template <class Call>
std::string refused_text(Call call) {
  return test::message_of<std::invalid_argument>(call);
}

// S4.14
TYPED_TEST(acquisitions, reject_negative_extents) {
  typename TypeParam::template scope<> scope{this->ws};
  EXPECT_EQ(refused_text([&] { (void)acquire_from<double>(scope, -1); }), "extent -1 is negative");
  EXPECT_EQ(refused_text([&] { (void)acquire_from<double>(scope, 3, -2); }), "extent -2 is negative");
  EXPECT_EQ(refused_text([&] { (void)acquire_from<double>(scope, 0, 3, INT64_MIN); }),
            "extent -9223372036854775808 is negative");
  EXPECT_EQ(refused_text([&] { (void)scope.zeros(-3); }), "extent -3 is negative");
  EXPECT_EQ(refused_text([&] { (void)scope.bits(8, -4); }), "extent -4 is negative");
  EXPECT_EQ(refused_text([&] { (void)scope.falses(-5); }), "extent -5 is negative");
  EXPECT_EQ(refused_text([&] { (void)acquire_tensor<float>(scope, -6); }), "extent -6 is negative");
  std::mt19937 random{1};
  EXPECT_EQ(refused_text([&] { (void)acquire_uniform(scope, random, -7); }), "extent -7 is negative");
  EXPECT_EQ(random, std::mt19937{1});
  EXPECT_EQ(this->ws.stats().slot_count, 0u);
}

// S4.15
TYPED_TEST(acquisitions, warn_at_512_slots_of_a_type_and_at_each_doubling) {
  const warning_recorder warnings;
  std::vector<std::size_t> warned_at;
  for (std::size_t n = 1; n <= 3000; ++n) {
    const std::size_t before = warnings.reports().size();
    (void)acquire_from<float>(this->ws, 1);
    (void)acquire_from<double>(this->ws, 0);
    if (n < 512) this->ws.template reset<double>();
    if (warnings.reports().size() != before) warned_at.push_back(n);
  }
  EXPECT_EQ(warned_at, (std::vector<std::size_t>{512, 1023, 1024, 1535, 2048, 2559}))
      << "float32 by itself; float64, which has had one slot so far, is 511 behind";
  EXPECT_EQ(warnings.count(warning_kind::many_slots), 6u);
  EXPECT_EQ(warnings.reports()[4].resource, "test");
  EXPECT_EQ(warnings.reports()[4].message,
            "workspace 'test': 2048 slots of float32; is a scope missing around a loop that acquires them?");
  this->ws.reset();
  for (int i = 0; i < 600; ++i) (void)acquire_from<float>(this->ws, 1);
  EXPECT_EQ(warnings.reports().size(), 6u) << "these slots existed";
}

// ---- forms ----

// S4.16
TYPED_TEST(acquisitions, accept_extents_in_every_form) {
  auto view = acquire_from<double>(this->ws, 12);
  static_assert(std::is_same_v<typename decltype(view)::layout_type, row_major>);
  static_assert(view.rank() == 1);
  const std::span<double> elements = view;
  EXPECT_EQ(elements.data(), view.data());
  EXPECT_EQ(elements.size(), 12u);
  auto block = acquire_from<float>(this->ws, 2u, std::int8_t{3}, std::size_t{4}, 5L);
  EXPECT_EQ(block.extents(), (std::array<std::size_t, 4>{2, 3, 4, 5}));
  auto in_array = this->ws.template acquire<double>(std::array<std::size_t, 3>{2, 3, 4});
  EXPECT_EQ(in_array.extents(), (std::array<std::size_t, 3>{2, 3, 4}));
  auto columns = this->ws.template acquire<double, column_major>(3, 4);
  EXPECT_EQ(&columns(2, 1), columns.data() + 5);
  this->ws.template acquire<double>()() = 3;
  EXPECT_EQ(this->ws.stats().elements, 12u + 120 + 24 + 12 + 1);
}

// S4.16
TYPED_TEST(acquisitions, like_a_view_or_range_copy_its_extents_and_layout) {
  auto model = this->ws.template acquire<float, column_major>(3, 4);
  auto view = this->ws.acquire_like(model);
  static_assert(std::is_same_v<decltype(view), decltype(model)>);
  EXPECT_EQ(view.extents(), model.extents());
  EXPECT_NE(view.data(), model.data());
  const tensor_view<float const, 2> read_only{model.data(), {4, 3}};
  auto writable = this->ws.acquire_like(read_only);
  static_assert(std::is_same_v<typename decltype(writable)::element_type, float>);
  EXPECT_EQ(writable.extents(), read_only.extents());
  auto mask = this->ws.template acquire_like<bool>(model);
  static_assert(std::is_same_v<typename decltype(mask)::element_type, bool> && mask.rank() == 2);
  const std::array<double, 5> numbers{};
  auto span = this->ws.acquire_like(std::span{numbers}.first(3));
  static_assert(std::is_same_v<typename decltype(span)::element_type, double> && span.rank() == 1);
  EXPECT_EQ(span.size(), 3u);
  auto counts = this->ws.template acquire_like<std::int32_t>(std::vector<double>(9));
  static_assert(std::is_same_v<typename decltype(counts)::element_type, std::int32_t>);
  EXPECT_EQ(counts.size(), 9u);
}

// ---- contents ----

// S4.23
TYPED_TEST(acquisitions, zeros_ones_and_fill_write_each_element) {
  this->spoil(60);
  typename TypeParam::template scope<> scope{this->ws};
  EXPECT_TRUE(all_are(scope.zeros(60), 0.0));
  EXPECT_TRUE(all_are(scope.template zeros<float>(3, 4, 5), 0.0F));
  EXPECT_TRUE(all_are(scope.template zeros<std::int32_t>(6, 10), 0));
  EXPECT_TRUE(all_are(scope.template zeros<bool>(60), false));
  this->ws.rewind();
  EXPECT_TRUE(all_are(scope.ones(60), 1.0));
  EXPECT_TRUE(all_are(scope.template ones<float>(3, 4, 5), 1.0F));
  EXPECT_TRUE(all_are(scope.template ones<std::complex<double>>(6), std::complex<double>{1, 0}));
  this->ws.rewind();
  EXPECT_TRUE(all_are(scope.fill(2.5, 60), 2.5));
  EXPECT_TRUE(all_are(scope.template fill<float, column_major>(7, 3, 4, 5), 7.0F));
  EXPECT_TRUE(all_are(scope.fill(std::int32_t{-3}, 6, 10), -3));
  static_assert(std::is_same_v<typename decltype(scope.zeros(1))::element_type, double>);
  static_assert(std::is_same_v<typename decltype(scope.ones(1, 2))::element_type, double>);
}

template <class T>
std::vector<T> drawn(auto distribution, std::mt19937_64& random, std::size_t n) {
  std::vector<T> numbers(n);
  for (T& x : numbers) x = distribution(random);
  return numbers;
}

// S4.24
TYPED_TEST(acquisitions, random_numbers_match_the_standard_distributions) {
  std::mt19937_64 random{42}, same{42};
  typename TypeParam::template scope<> scope{this->ws};
  auto uniform = acquire_uniform(scope, random, 101);
  EXPECT_TRUE(
      std::ranges::equal(uniform, drawn<double>(std::uniform_real_distribution<double>{}, same, 101)));
  auto normal =
      acquire_normal<float>(scope, random, 101);  // an odd number: a distribution keeps every second
  EXPECT_TRUE(std::ranges::equal(normal, drawn<float>(std::normal_distribution<float>{}, same, 101)));
  auto floats = acquire_uniform<float>(scope, random, 5, 7);
  EXPECT_TRUE(
      std::ranges::equal(floats.elements(), drawn<float>(std::uniform_real_distribution<float>{}, same, 35)));
  auto doubles = acquire_normal(scope, random, 3, 5, 7);
  EXPECT_TRUE(
      std::ranges::equal(doubles.elements(), drawn<double>(std::normal_distribution<double>{}, same, 105)));
  EXPECT_EQ(random, same) << "no other number was drawn";
}

// S4.24
TYPED_TEST(acquisitions, never_change_the_state_of_std_rand) {
  std::srand(5);
  const int expected = std::rand();
  std::srand(5);
  {
    typename TypeParam::template scope<> scope{this->ws};
    this->spoil(10);
    this->ws.checkpoint();
    (void)acquire_from<numbered<8>>(this->ws, 100);
    this->ws.rewind();
    (void)scope.zeros(10);
  }
  this->ws.trim();
  this->ws.compact();
  EXPECT_EQ(std::rand(), expected);
}

// ---- bits ----

// S4.26
TYPED_TEST(acquisitions, trues_and_falses_write_each_bit) {
  this->spoil(60);
  typename TypeParam::template scope<> scope{this->ws};
  for (const std::size_t n : {1u, 63u, 64u, 65u, 1000u}) {
    auto trues = scope.trues(n);
    EXPECT_EQ(trues.count(), n);
    EXPECT_TRUE(trues.all());
    auto falses = scope.falses(n);
    EXPECT_EQ(falses.count(), 0u);
    EXPECT_FALSE(falses.any());
  }
}

// ---- texts ----

// S4.66 S4.67
TYPED_TEST(acquisitions, appear_in_report_and_describe) {
  const std::string level = TypeParam::checked ? "1" : "0";
  EXPECT_EQ(this->ws.report(), "workspace 'test': checks " + level + ", 0 types, 0 slots (0 active), 0 B");
  {
    typename TypeParam::template scope<> scope{this->ws};
    (void)acquire_from<float>(scope, 1024);
  }
  (void)acquire_from<double>(this->ws, 1);
  (void)acquire_from<double>(this->ws, 3, 64);
  (void)acquire_from<std::uint16_t>(this->ws, 3);
  const std::string line = "workspace 'test': checks " + level + ", 3 types, 4 slots (3 active), 5.5 KiB";
  EXPECT_EQ(this->ws.describe(), line);
  EXPECT_EQ(this->ws.report(), line +
                                   "\n  float64: 2 slots (2 active), 193 elements in use, 1.5 KiB"
                                   "\n  float32: 1 slot (0 active), 0 elements in use, 4.0 KiB"
                                   "\n  uint16: 1 slot (1 active), 3 elements in use, 6 B");
  std::ostringstream out;
  out << this->ws;
  EXPECT_EQ(out.str(), line);
}

// S4.67
TYPED_TEST(acquisitions, appear_in_the_report_of_an_unpooled_workspace) {
  const std::string level = TypeParam::checked ? "1" : "0";
  TypeParam ws{workspace_options{.pooling = false, .upstream = &this->upstream, .name = "plain"}};
  EXPECT_EQ(ws.describe(),
            "workspace 'plain': checks " + level + ", pooling off, 0 types, 0 slots (0 active), 0 B");
  typename TypeParam::template scope<> scope{ws};
  (void)scope.ones(1);
  EXPECT_EQ(ws.report(), "workspace 'plain': checks " + level +
                             ", pooling off, 1 type, 1 slot (1 active), 8 B"
                             "\n  float64: 1 slot (1 active), 1 element in use, 8 B");
}

// S4.66
TYPED_TEST(acquisitions, are_summed_in_the_statistics) {
  (void)acquire_from<double>(this->ws, 10);
  {
    typename TypeParam::template scope<> scope{this->ws};
    (void)acquire_from<double>(scope, 20);
    (void)acquire_from<float>(scope, 5);
    (void)scope.bits(65);
    const workspace_stats now = this->ws.stats();
    EXPECT_STREQ(now.name, "test");
    EXPECT_EQ(now.elements, 10u + 20 + 5 + 128) << "the sums besides are the model's";
  }
  const workspace_type_stats doubles = stats_of(this->ws, "float64");
  EXPECT_EQ(doubles.slot_count, 2u);
  EXPECT_EQ(doubles.active_slots, 1u);
  EXPECT_EQ(doubles.elements, 10u);
  EXPECT_EQ(doubles.used_bytes, 80u);
  EXPECT_EQ(doubles.held_bytes, 240u);
}

}  // namespace
}  // namespace tidemark::test
