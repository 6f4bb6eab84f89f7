// SPDX-License-Identifier: Apache-2.0
/// @file
/// `bit_view`: packed bits that somebody else owns, as an array of some rank. Owns nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tidemark/detail/extents.hpp>
#include <tidemark/detail/view_life.hpp>
#include <tidemark/macros.hpp>

namespace tidemark {

/// Bits in words of 64, as an array of `Rank` dimensions, without owning them: a pointer and the extents.
///
/// ```cpp
/// std::array<std::uint64_t, bit_view<>::words_for(1000)> words{};
/// bit_view<> const seen{words.data(), {1000}};
/// seen[7] = true;
/// std::cout << seen.count() << '\n';  // 1
/// ```
/// An eighth of the memory of as many `bool`, and whole words at a time where all bits are looked at. Index
/// order is row major, without padding: bit `n` is bit `n % 64`, counted from the least, of word `n / 64`.
///
/// What the last word holds beyond `size()` has no meaning: nothing here reads it, and what writes all bits
/// leaves it 0. Bits of one word must not be written by two threads at once.
///
/// Invariant: the words are `[words_, words_ + words_for(size()))`; `words_` may be null only where `size()`
/// is 0.
///
/// An access to bits or memory first asks the view's life, and throws what that throws; questions about the
/// shape do not. Without checks only `reshape` throws. Constness is that of a pointer. Complexity: O(rank)
/// for a bit, O(words) for all, no allocation. Thread-safety: that of a pointer to a word.
///
/// @tparam Rank number of dimensions; a view of rank 0 is of one bit
/// @tparam Life what knows whether the memory is still there
template <std::size_t Rank = 1, detail::view_life Life = detail::unchecked_life>
class TIDEMARK_POINTER bit_view {
 public:
  using value_type = bool;
  using size_type = std::size_t;
  using index_type = std::size_t;
  using rank_type = std::size_t;
  using word_type = std::uint64_t;

  static constexpr std::size_t bits_per_word = 64;

  /// One bit, to be read and written. Refers to the memory as a `bool&` would, and does not ask for its life.
  class reference {
   public:
    constexpr reference(reference const&) noexcept = default;
    [[nodiscard]] constexpr operator bool() const noexcept { return (*word_ & mask_) != 0; }
    /// Writes the bit; that this is const is what algorithms on proxies want (P2321).
    // NOLINTNEXTLINE(misc-unconventional-assign-operator)
    constexpr reference const& operator=(bool value) const noexcept {
      *word_ = value ? *word_ | mask_ : *word_ & ~mask_;
      return *this;
    }
    /// Writes the other's value, and does not become a reference to the other.
    // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): a bit that is read and then written is handled
    constexpr reference& operator=(reference const& other) noexcept {
      static_cast<reference const&>(*this) = static_cast<bool>(other);
      return *this;
    }
    constexpr void flip() const noexcept { *word_ ^= mask_; }
    /// Shows the search for escapes (`workspace::scope::returning`) where the bit is.
    template <class Visit>
    friend constexpr void visit_memory(reference const& bit, Visit&& visit) {
      visit(bit.word_);
    }

   private:
    friend class bit_view;
    constexpr reference(word_type* word, word_type mask) noexcept : word_{word}, mask_{mask} {}

    word_type* word_;  // the word that the bit is in
    word_type mask_;   // the bit alone
  };

  /// Words that so many bits take. O(1).
  [[nodiscard]] static constexpr std::size_t words_for(std::size_t bits) noexcept {
    return bits / bits_per_word + (bits % bits_per_word != 0 ? 1 : 0);
  }

  /// Of nothing: all extents are 0. One of rank 0 is null, and has no bit either.
  constexpr bit_view() noexcept = default;
  /// @param words the first of `words_for` as many bits as the extents have; may be null if that is none
  /// @param extents bits along each dimension; their product must fit into a std::size_t
  /// @param life of the memory
  constexpr bit_view(word_type* words, std::array<std::size_t, Rank> const& extents,
                     Life life = {}) noexcept(std::is_nothrow_move_constructible_v<Life>)
      : words_{words}, extents_{extents}, life_{static_cast<Life&&>(life)} {}
  /// The same bits, without a look at whether they are still there from now on. @throws what `OtherLife`
  /// throws.
  template <class OtherLife>
    requires(OtherLife::checks && !Life::checks)
  constexpr bit_view(bit_view<Rank, OtherLife> const& other)
      : words_{other.words().data()}, extents_{other.extents()} {}

  /// Number of dimensions.
  [[nodiscard]] static constexpr std::size_t rank() noexcept { return Rank; }
  /// Bits along dimension `r`. @pre `r < Rank`.
  [[nodiscard]] constexpr std::size_t extent(std::size_t r) const noexcept { return extents_[r]; }
  /// Bits along each dimension.
  [[nodiscard]] constexpr std::array<std::size_t, Rank> const& extents() const noexcept { return extents_; }
  /// All bits: the product of the extents; at rank 0 it is 1, or 0 if the view is of nothing.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    if constexpr (Rank == 0) return words_ != nullptr ? 1 : 0;
    std::size_t bits = 1;
    for (std::size_t const extent : extents_) bits *= extent;
    return bits;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return size() == 0; }
  /// Words that the bits are in.
  [[nodiscard]] constexpr std::size_t word_count() const noexcept { return words_for(size()); }
  /// What knows whether the memory is still there.
  [[nodiscard]] constexpr Life const& life() const noexcept { return life_; }

  /// The words that the bits are in, the unused bits of the last among them.
  /// @throws what `Life` throws; the view stays as it is
  [[nodiscard]] constexpr std::span<word_type> words() const noexcept(!Life::checks) {
    return {access(), word_count()};
  }

  /// A bit, to be read and written. @param index one for each dimension, of any integral types
  /// @pre Each is in its extent: `0 <= index < extent(r)`. @throws as `words`.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr reference operator()(Index... index) const noexcept(!Life::checks) {
    return at({static_cast<std::size_t>(index)...});
  }
#ifdef __cpp_multidimensional_subscript
  /// The same. @pre, @throws as there.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr reference operator[](Index... index) const noexcept(!Life::checks) {
    return at({static_cast<std::size_t>(index)...});
  }
#else
  /// The same, with the one index that such an operator takes in C++20. @pre, @throws as there.
  template <std::integral Index>
    requires(Rank == 1)
  [[nodiscard]] constexpr reference operator[](Index index) const noexcept(!Life::checks) {
    return at({static_cast<std::size_t>(index)});
  }
#endif
  /// The same, with all indices in one array. @pre, @throws as there.
  template <std::integral Index>
  [[nodiscard]] constexpr reference operator[](std::array<Index, Rank> const& index) const
      noexcept(!Life::checks) {
    std::array<std::size_t, Rank> unsigned_index{};
    for (std::size_t r = 0; r != Rank; ++r) unsigned_index[r] = static_cast<std::size_t>(index[r]);
    return at(unsigned_index);
  }
  /// Whether a bit is set. @pre, @throws as `operator()`.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr bool test(Index... index) const noexcept(!Life::checks) {
    return at({static_cast<std::size_t>(index)...});
  }
  /// Writes a bit; one of a higher rank by `view(i, j) = value`. @pre, @throws as `operator()`.
  template <std::integral Index>
    requires(Rank == 1)
  constexpr void set(Index index, bool value = true) const noexcept(!Life::checks) {
    at({static_cast<std::size_t>(index)}) = value;
  }
  /// Turns a bit over; one of a higher rank by `view(i, j).flip()`. @pre, @throws as `operator()`.
  template <std::integral Index>
    requires(Rank == 1)
  constexpr void flip(Index index) const noexcept(!Life::checks) {
    at({static_cast<std::size_t>(index)}).flip();
  }

  /// Writes all bits; the unused ones of the last word become 0. @throws as `words`, and has written nothing.
  constexpr void fill(bool value) const noexcept(!Life::checks) {
    std::span<word_type> const all_words = words();
    std::ranges::fill(all_words, value ? ~word_type{0} : word_type{0});
    clear_unused(all_words);
  }
  /// Turns all bits over; the unused ones of the last word become 0. @throws as `fill`.
  constexpr void flip() const noexcept(!Life::checks) {
    std::span<word_type> const all_words = words();
    for (word_type& word : all_words) word = ~word;
    clear_unused(all_words);
  }

  /// How many bits are set. @throws as `words`.
  [[nodiscard]] constexpr std::size_t count() const noexcept(!Life::checks) {
    std::size_t bits = 0;
    for (word_type const word : whole_words()) bits += static_cast<std::size_t>(std::popcount(word));
    return bits + static_cast<std::size_t>(std::popcount(last_bits()));
  }
  /// Whether at least one bit is set; of no bits, none is. @throws as `words`.
  [[nodiscard]] constexpr bool any() const noexcept(!Life::checks) {
    for (word_type const word : whole_words()) {
      if (word != 0) return true;
    }
    return last_bits() != 0;
  }
  /// Whether no bit is set. @throws as `words`.
  [[nodiscard]] constexpr bool none() const noexcept(!Life::checks) { return !any(); }
  /// Whether every bit is set; of no bits, every one is. @throws as `words`.
  [[nodiscard]] constexpr bool all() const noexcept(!Life::checks) {
    for (word_type const word : whole_words()) {
      if (word != ~word_type{0}) return false;
    }
    return last_bits() == used_mask();
  }
  /// Whether both have the same extents and the same bits. @throws as `words` of either.
  [[nodiscard]] friend constexpr bool operator==(bit_view const& a,
                                                 bit_view const& b) noexcept(!Life::checks) {
    std::span<word_type> const words_a = a.whole_words();
    std::span<word_type> const words_b = b.whole_words();
    return a.extents_ == b.extents_ && a.size() == b.size() &&
           std::equal(words_a.begin(), words_a.end(), words_b.begin()) && a.last_bits() == b.last_bits();
  }

  /// The same bits with other extents; same life, which is asked at the new view's first access only.
  ///
  /// @param extents bits along each dimension, of any integral types; without any the new rank is 0
  /// @throws std::invalid_argument if one is negative, or if that is another number of bits, with a sentence
  /// that says which; the view stays as it is
  template <std::integral... Extent>
  [[nodiscard]] constexpr bit_view<sizeof...(Extent), Life> reshape(Extent... extents) const {
    return reshaped(detail::checked_extents(extents...));
  }
  /// The same with all extents in one array. @throws as there.
  template <std::integral Extent, std::size_t NewRank>
  [[nodiscard]] constexpr bit_view<NewRank, Life> reshape(std::array<Extent, NewRank> const& extents) const {
    return reshaped(detail::checked_extents(extents));
  }

 private:
  static constexpr char const* element = "bit";  // what messages call one

  [[nodiscard]] constexpr word_type* access() const noexcept(!Life::checks) {
    if constexpr (Life::checks) life_.require_live(element, extents_.data(), Rank);
    return words_;
  }
  [[nodiscard]] constexpr reference at(std::array<std::size_t, Rank> const& index) const
      noexcept(!Life::checks) {
    std::size_t bit = 0;
    for (std::size_t r = 0; r != Rank; ++r) bit = bit * extents_[r] + index[r];
    return {access() + bit / bits_per_word, word_type{1} << bit % bits_per_word};
  }
  template <std::size_t NewRank>
  [[nodiscard]] constexpr bit_view<NewRank, Life> reshaped(
      std::array<std::size_t, NewRank> const& extents) const {
    detail::require_same_count(element, extents_.data(), Rank, size(), extents.data(), NewRank);
    return {words_, extents, life_};
  }

  // The words of which all bits are used; the bits after them are in one more word, if there are any.
  [[nodiscard]] constexpr std::span<word_type> whole_words() const noexcept(!Life::checks) {
    return {access(), size() / bits_per_word};
  }
  // Ones where that word is used, none if there is no such word.
  [[nodiscard]] constexpr word_type used_mask() const noexcept {
    return (word_type{1} << size() % bits_per_word) - 1;
  }
  [[nodiscard]] constexpr word_type last_bits() const noexcept {
    return used_mask() == 0 ? 0 : words_[size() / bits_per_word] & used_mask();
  }
  constexpr void clear_unused(std::span<word_type> all_words) const noexcept {
    if (used_mask() != 0) all_words.back() &= used_mask();
  }

  word_type* words_ = nullptr;
  std::array<std::size_t, Rank> extents_{};  // bits along each dimension, the outermost first
  [[no_unique_address]] Life life_;
};

static_assert(sizeof(bit_view<>) == 2 * sizeof(void*), "a view is a pointer and its extents");
static_assert(std::is_trivially_copyable_v<bit_view<2>>);
static_assert(bit_view<>::words_for(1000) * sizeof(std::uint64_t) <= 128);

}  // namespace tidemark
