// SPDX-License-Identifier: Apache-2.0
/// @file
/// `bit_view`: a view of packed bits as an array of some rank. Does not own the memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tidemark/core/macros.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>
#include <tidemark/workspace/tensor_view.hpp>

namespace tidemark {

/// Bits in words of 64 as an array of `Rank` dimensions: a pointer and the extents, without ownership. Takes
/// an eighth of the memory of `bool`.
///
/// ```cpp
/// std::array<std::uint64_t, bit_view<>::words_for(1000)> words{};
/// bit_view<> const seen{words.data(), {1000}};
/// seen[7] = true;
/// std::cout << seen.count() << '\n';  // 1
/// ```
/// The order is row major, without padding: bit `n` is bit `n % 64` of word `n / 64`, counted from the least.
///
/// Invariant: the words are `[first_, first_ + words_for(size()))`.
///
/// Access calls the view's generation and throws its exceptions; without checks only `reshape` throws.
/// Constness is as for a pointer. Complexity: O(rank) for a bit, O(words) for all bits. Thread-safety: two
/// threads must not write bits of one word at once.
/// @tparam Rank number of dimensions; a view of rank 0 has one bit
/// @tparam Generation detects that the memory was freed
template <std::size_t Rank = 1, detail::view_generation Generation = detail::unchecked_generation>
class TIDEMARK_POINTER bit_view
    : public detail::shaped_view<bit_view<Rank, Generation>, std::uint64_t, Rank, row_major, Generation> {
  using base = detail::shaped_view<bit_view, std::uint64_t, Rank, row_major, Generation>;

 public:
  using value_type = bool;
  using word_type = std::uint64_t;

  /// Bits of a word.
  static constexpr std::size_t bits_per_word = 64;

  /// Reference to one bit. Refers to the memory as a `bool&` does, without checks.
  class reference {
   public:
    constexpr reference(reference const&) noexcept = default;
    [[nodiscard]] constexpr operator bool() const noexcept { return (*word_ & mask_) != 0; }
    /// Writes the bit. Const, because algorithms on proxies require it (P2321).
    // NOLINTNEXTLINE(misc-unconventional-assign-operator)
    constexpr reference const& operator=(bool value) const noexcept {
      *word_ = value ? *word_ | mask_ : *word_ & ~mask_;
      return *this;
    }
    /// Writes the other bit's value, and keeps the bit it refers to.
    // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): a bit that is read and then written is handled
    constexpr reference& operator=(reference const& other) noexcept {
      static_cast<reference const&>(*this) = static_cast<bool>(other);
      return *this;
    }
    /// Shows the location of the bit to the search for escapes (`workspace::scope::returning`).
    template <class Visit>
    friend constexpr void visit_memory(reference const& bit, Visit&& visit) {
      visit(bit.word_);
    }

   private:
    friend class bit_view;
    constexpr reference(word_type* word, word_type mask) noexcept : word_{word}, mask_{mask} {}

    word_type* word_;  // word of the bit
    word_type mask_;   // mask of the bit
  };

  /// Returns the number of words for `bits` bits. O(1).
  [[nodiscard]] static constexpr std::size_t words_for(std::size_t bits) noexcept {
    return bits / bits_per_word + (bits % bits_per_word != 0 ? 1 : 0);
  }

  /// Makes an empty view: all extents are 0. An empty view of rank 0 is null and has no bit.
  constexpr bit_view() noexcept = default;
  /// @param words the first of `words_for(product of the extents)` words; may be null if the product is 0
  /// @param extents bits along each dimension; their product must fit into a std::size_t
  /// @param generation generation of the memory
  constexpr bit_view(word_type* words, std::array<std::size_t, Rank> const& extents,
                     Generation generation = {}) noexcept
      : base{words, extents, generation} {}
  /// Makes a view of the same bits without further checks. @throws the exceptions of `OtherGeneration`.
  template <class OtherGeneration>
    requires(OtherGeneration::checks && !Generation::checks)
  constexpr bit_view(bit_view<Rank, OtherGeneration> const& other)
      : base{other.words().data(), other.extents(), {}} {}

  /// Returns the number of words.
  [[nodiscard]] constexpr std::size_t word_count() const noexcept { return words_for(this->size()); }
  /// Returns the words, including the unused bits of the last word, which have no meaning.
  /// @throws the exceptions of `Generation`; the view does not change then.
  [[nodiscard]] constexpr std::span<word_type> words() const noexcept(!Generation::checks) {
    return {this->access(), word_count()};
  }

  /// Writes all bits and clears the unused bits of the last word. @throws as `words`; has written nothing
  /// then.
  constexpr void fill(bool value) const noexcept(!Generation::checks) {
    std::span<word_type> const all_words = words();
    for (word_type& word : all_words) word = value ? ~word_type{0} : word_type{0};
    if (value && used_mask() != 0) all_words.back() = used_mask();
  }

  /// Returns the number of set bits. @throws as `words`.
  [[nodiscard]] constexpr std::size_t count() const noexcept(!Generation::checks) {
    std::size_t bits = 0;
    for (word_type const word : whole_words()) bits += static_cast<std::size_t>(std::popcount(word));
    return bits + static_cast<std::size_t>(std::popcount(last_bits()));
  }
  /// Returns true if at least one bit is set; false for an empty view. @throws as `words`.
  [[nodiscard]] constexpr bool any() const noexcept(!Generation::checks) {
    return std::ranges::any_of(whole_words(), [](word_type word) { return word != 0; }) || last_bits() != 0;
  }
  /// Returns true if every bit is set; true for an empty view. @throws as `words`.
  [[nodiscard]] constexpr bool all() const noexcept(!Generation::checks) {
    return std::ranges::all_of(whole_words(), [](word_type word) { return word == ~word_type{0}; }) &&
           last_bits() == used_mask();
  }

 private:
  friend base;

  static constexpr char const* element_name = "bit";
  template <std::size_t NewRank>
  using with_rank = bit_view<NewRank, Generation>;
  [[nodiscard]] constexpr reference element_at(std::size_t bit) const noexcept(!Generation::checks) {
    return {this->access() + bit / bits_per_word, word_type{1} << bit % bits_per_word};
  }

  // Words of which all bits are used. Further bits are in one more word.
  [[nodiscard]] constexpr std::span<word_type> whole_words() const noexcept(!Generation::checks) {
    return {this->access(), this->size() / bits_per_word};
  }
  // Mask of the used bits of that last word; 0 if there is no such word.
  [[nodiscard]] constexpr word_type used_mask() const noexcept {
    return (word_type{1} << this->size() % bits_per_word) - 1;
  }
  [[nodiscard]] constexpr word_type last_bits() const noexcept {
    return used_mask() == 0 ? 0 : this->first_[this->size() / bits_per_word] & used_mask();
  }
};

static_assert(sizeof(bit_view<>) == 2 * sizeof(void*), "a view is a pointer and its extents");
static_assert(std::is_trivially_copyable_v<bit_view<2>>);
static_assert(bit_view<>::words_for(1000) * sizeof(std::uint64_t) <= 128);

}  // namespace tidemark
