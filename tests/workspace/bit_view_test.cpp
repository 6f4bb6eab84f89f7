// SPDX-License-Identifier: Apache-2.0
// Strategy: random operations at every length up to 200, compared with a std::vector<bool>, with garbage in
// the unused bits of the last word throughout; N-D bits against an index formula; a generation that rejects
// shows which members check it.
#include <tidemark/workspace/bit_view.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "ended_generation.hpp"

namespace tidemark {
namespace {

static_assert(noexcept(bit_view<>{}.count()) && noexcept(bit_view<>{}.words()) &&
              noexcept(bit_view<>{}.all()));
static_assert(bit_view<3>::rank() == 3);

constexpr std::uint64_t garbage = 0xA5A5'5A5A'C3C3'3C3C;

/// Sets the bits of the last word beyond the view's.
void spoil_unused_bits(bit_view<> bits, std::uint64_t with) {
  if (bits.size() % 64 == 0) return;
  std::uint64_t& last = bits.words().back();
  const std::uint64_t used = (std::uint64_t{1} << bits.size() % 64) - 1;
  last = (last & used) | (with & ~used);
}

/// Bits with memory of their own, all 0, and a word behind it that must not be written.
struct owned_bits {
  explicit owned_bits(std::size_t size)
      : words(bit_view<>::words_for(size) + 1, 0), view{words.data(), {size}} {
    words.back() = garbage;
  }
  [[nodiscard]] bool kept_to_its_words() const { return words.back() == garbage; }
  std::vector<std::uint64_t> words;
  bit_view<> view;
};

void expect_same(bit_view<> bits, std::vector<bool> const& model) {
  const std::size_t size = model.size();
  const auto set = static_cast<std::size_t>(std::count(model.begin(), model.end(), true));
  ASSERT_EQ(bits.size(), size);
  for (std::size_t i = 0; i != size; ++i) {
    ASSERT_EQ(static_cast<bool>(bits[i]), model[i]) << "bit " << i << " of " << size;
  }
  ASSERT_EQ(bits.count(), set) << "of " << size;
  ASSERT_EQ(bits.any(), set != 0) << "of " << size;
  ASSERT_EQ(bits.all(), set == size) << "of " << size;
}

// S4.26 S4.27
TEST(bit_view, agrees_with_a_vector_of_bool_at_every_length) {
  std::mt19937_64 random{1};
  for (std::size_t size = 0; size <= 200; ++size) {
    owned_bits bits{size};
    std::vector<bool> model(size);
    for (int step = 0; step != 60; ++step) {
      const std::size_t i = size == 0 ? 0 : random() % size;
      const bool value = random() % 2 != 0;
      switch (size == 0 ? 2 : random() % 3) {
        case 0:
          bits.view[i] = value, model[i] = value;
          break;
        case 1:
          bits.view(i) = bits.view(size - 1 - i), model[i] = model[size - 1 - i];
          break;
        default:
          bits.view.fill(value), std::fill(model.begin(), model.end(), value);
          if (size % 64 != 0) {
            const std::uint64_t used = (std::uint64_t{1} << size % 64) - 1;
            ASSERT_EQ(bits.view.words().back(), value ? used : 0) << "the unused bits are 0";
          }
      }
      spoil_unused_bits(bits.view, random());
      expect_same(bits.view, model);
      ASSERT_TRUE(bits.kept_to_its_words()) << size;
    }
  }
}

TEST(bit_view, empty_view_returns_true_for_all_and_false_for_any) {
  const bit_view<> none;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.all());
  EXPECT_FALSE(none.any());
  EXPECT_EQ(none.count(), 0u);
  EXPECT_TRUE(none.words().empty());
  none.fill(true);
}

TEST(bit_view, words_for_1000_bits_returns_16) {
  EXPECT_EQ(bit_view<>::words_for(1000), 16u);
  EXPECT_EQ(bit_view<>::words_for(0), 0u);
  EXPECT_EQ(bit_view<>::words_for(1), 1u);
  EXPECT_EQ(bit_view<>::words_for(64), 1u);
  EXPECT_EQ(bit_view<>::words_for(65), 2u);
  EXPECT_EQ(bit_view<>::words_for(~std::size_t{0}), std::size_t{1} << 58);
}

TEST(bit_view, higher_rank_view_is_row_major) {
  std::array<std::uint64_t, 2> words{};
  const bit_view<3> bits{words.data(), {3, 5, 7}};
  for (std::size_t i = 0; i != 3; ++i) {
    for (std::size_t j = 0; j != 5; ++j) {
      for (std::size_t k = 0; k != 7; ++k) {
        const std::size_t n = i * 35 + j * 7 + k;
        bits.fill(false);
        bits(i, j, k) = true;
        EXPECT_TRUE(bits(i, j, k));
        EXPECT_EQ(words[n / 64], std::uint64_t{1} << n % 64);
        EXPECT_EQ(bits.count(), 1u);
      }
    }
  }
}

TEST(bit_view, rank_0_view_has_one_bit) {
  std::uint64_t word = ~std::uint64_t{1};
  const bit_view<0> bit{&word, {}};
  EXPECT_EQ(bit.size(), 1u);
  EXPECT_FALSE(bit());
  bit() = true;
  EXPECT_TRUE(bit.all());
  EXPECT_TRUE(bit_view<0>{}.empty());
}

TEST(bit_view, assigning_a_bit_reference_copies_the_value) {
  const owned_bits bits{2};
  bits.view[1] = true;
  bit_view<>::reference first = bits.view[0];
  first = bits.view[1];
  EXPECT_TRUE(bits.view[0]);
  first = false;
  EXPECT_FALSE(bits.view[0]);
  EXPECT_TRUE(bits.view[1]);
}

TEST(bit_view, reshapes_to_any_extents_with_the_same_number_of_bits) {
  const owned_bits bits{30};
  const bit_view<2> table = bits.view.reshape(5, 6);
  table(2, 3) = true;
  EXPECT_TRUE(bits.view[15]);
  EXPECT_EQ(table.reshape(std::array{3, 10}).extents(), (std::array<std::size_t, 2>{3, 10}));
}

TEST(bit_view, converts_to_an_unchecked_view_while_its_memory_is_live) {
  std::uint64_t word = 5;
  const auto count = [](bit_view<> bits) { return bits.count(); };
  const bit_view<1, test::ended_generation> live{&word, {3}, {.over = false}};
  EXPECT_EQ(count(live), 2u);
  const bit_view<1, test::ended_generation> stale{&word, {3}, {.over = true}};
  EXPECT_THROW((void)count(stale), test::ended_generation::ended);
}

// S4.25
TEST(bit_view, checks_its_generation_before_each_access) {
  std::array<std::uint64_t, 2> words{};
  const bit_view<1, test::ended_generation> bits{words.data(), {100}};
  EXPECT_EQ(test::message_of_access([&] { (void)bits(0); }), "bit[100]");
  EXPECT_EQ(test::message_of_access([&] { (void)bits[0]; }), "bit[100]");
  EXPECT_EQ(test::message_of_access([&] { bits[0] = true; }), "bit[100]");
  EXPECT_EQ(test::message_of_access([&] { bits.fill(true); }), "bit[100]");
  EXPECT_EQ(test::message_of_access([&] { (void)bits.words(); }), "bit[100]");
  EXPECT_EQ(test::message_of_access([&] { (void)bits.count(); }), "bit[100]");
  EXPECT_EQ(test::message_of_access([&] { (void)bits.any(); }), "bit[100]");
  EXPECT_EQ(test::message_of_access([&] { (void)bits.all(); }), "bit[100]");
  EXPECT_EQ(test::message_of_access([&] { (void)bits.reshape(10, 10)(0, 0); }), "bit[10, 10]");
  EXPECT_EQ(words, (std::array<std::uint64_t, 2>{})) << "nothing may be written then";
}

TEST(bit_view, does_not_check_its_generation_for_its_shape) {
  std::array<std::uint64_t, 2> words{};
  const bit_view<1, test::ended_generation> bits{words.data(), {100}};
  EXPECT_EQ(bits.size(), 100u);
  EXPECT_EQ(bits.extent(0), 100u);
  EXPECT_EQ(bits.extents()[0], 100u);
  EXPECT_EQ(bits.word_count(), 2u);
  EXPECT_FALSE(bits.empty());
  const bit_view<3, test::ended_generation> block{words.data(), {3, 5, 7}};
  EXPECT_EQ(block.size(), 105u);
  EXPECT_EQ(block.extents(), (std::array<std::size_t, 3>{3, 5, 7}));
}

}  // namespace
}  // namespace tidemark
