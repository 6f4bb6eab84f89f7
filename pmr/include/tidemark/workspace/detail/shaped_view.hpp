// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shaped_view`: what `tensor_view` and `bit_view` have in common: the elements' names, extents, the
/// generation of the memory, and the shape. Records of generations belong to the process.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// The compiler's text on this function, in which the name of `T` is the only part that varies.
template <class T>
constexpr std::string_view text_with_type() noexcept {
  return static_cast<char const*>(__PRETTY_FUNCTION__);
}

// Where the name is in that text differs from compiler to compiler, and is found with a type whose name is
// known.
inline constexpr std::size_t before_type = text_with_type<double>().rfind("double");
static_assert(before_type != std::string_view::npos,
              "this compiler's __PRETTY_FUNCTION__ must name the type");
inline constexpr std::size_t around_type =
    text_with_type<double>().size() - std::string_view{"double"}.size();

/// The C++ name of a type as a text that ends with 0, which a part of the compiler's own text does not.
template <class T>
inline constexpr auto spelled_name = [] {
  constexpr std::string_view text = text_with_type<T>();
  std::array<char, text.size() - around_type + 1> name{};
  for (std::size_t i = 0; i + 1 < name.size(); ++i) name[i] = text[before_type + i];
  return name;
}();

template <class T>
constexpr char const* integer_name() noexcept {
  constexpr std::array names{"uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"};
  return names[static_cast<std::size_t>(std::countr_zero(sizeof(T))) + (std::is_signed_v<T> ? 4 : 0)];
}

template <class T>
constexpr char const* name_of_element() noexcept {
  if constexpr (std::same_as<T, bool>) return "bool";
  else if constexpr (std::same_as<T, float>) return "float32";
  else if constexpr (std::same_as<T, double>) return "float64";
  else if constexpr (std::same_as<T, std::complex<float>>) return "complex64";
  else if constexpr (std::same_as<T, std::complex<double>>) return "complex128";
  else if constexpr (std::integral<T> && sizeof(T) <= 8) return integer_name<T>();
  else return spelled_name<T>.data();
}

/// The name of `T`, const and volatile aside, as numerical users say it: `float64`, `float32`, `int64` to
/// `int8`, `uint64` to `uint8`, `complex64`, `complex128`, `bool`. Any other type goes by its C++ name as the
/// compiler spells it. Ends with 0. Complexity: none, it is made while compiling. Thread-safe.
template <class T>
inline constexpr char const* element_name = name_of_element<std::remove_cv_t<T>>();

[[noreturn]] TIDEMARK_COLD void reject_extent(long long extent);
[[noreturn]] TIDEMARK_COLD void reject_reshape(char const* element, std::span<std::size_t const> from,
                                               std::size_t count, std::span<std::size_t const> to);

/// An extent, from any integral type. O(1); compiles to nothing for unsigned types. Thread-safe.
/// @throws std::invalid_argument if it is negative, with a sentence that names it.
template <std::integral Integer>
[[nodiscard]] constexpr std::size_t checked_extent(Integer extent) {
  if constexpr (std::signed_integral<Integer>) {
    if (extent < 0) [[unlikely]]
      reject_extent(static_cast<long long>(extent));
  }
  return static_cast<std::size_t>(extent);
}

/// The extents of an array. @throws as `checked_extent`, on the first that is negative. O(rank).
template <std::integral... Integers>
[[nodiscard]] constexpr std::array<std::size_t, sizeof...(Integers)> checked_extents(Integers... extents) {
  return {checked_extent(extents)...};
}
template <std::integral Integer, std::size_t Rank>
[[nodiscard]] constexpr std::array<std::size_t, Rank> checked_extents(
    std::array<Integer, Rank> const& extents) {
  return std::apply([](auto... each) { return checked_extents(each...); }, extents);
}
/// What `checked_extents` takes: integers, or one array of them.
template <class... Extents>
concept shape_extents = requires(Extents const&... extents) { checked_extents(extents...); };

/// How many elements an array has: the product of its extents, 1 without any.
///
/// @return the product; `uncountable`, which no memory can hold, where it overflows. With an extent of 0 it
/// is 0, whatever the others are. O(rank). Thread-safe.
inline constexpr std::size_t uncountable = (std::numeric_limits<std::size_t>::max)();
[[nodiscard]] constexpr std::size_t element_count(std::span<std::size_t const> extents) noexcept {
  std::size_t count = 1;
  bool overflows = false;
  for (std::size_t const extent : extents) {
    if (extent == 0) return 0;
    overflows |= __builtin_mul_overflow(count, extent, &count);
  }
  return overflows ? uncountable : count;
}

/// An extent, and the place in the source where it was written: the place of the acquisition.
struct located_extent {
  std::size_t value;
  std::source_location where;
  template <std::integral Index>
  constexpr located_extent(Index extent, std::source_location place = std::source_location::current())
      : value{checked_extent(extent)}, where{place} {}
};
/// All extents of an acquisition.
template <std::integral... Extents>
[[nodiscard]] constexpr std::array<std::size_t, 1 + sizeof...(Extents)> all_extents(
    located_extent const& first, Extents... rest) {
  return {first.value, checked_extent(rest)...};
}

/// A place in the source as messages give it: `file:line`. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] std::string place_text(std::source_location where);
/// A shape as messages give it: `float64[3, 4]`, and `float64[]` for a single element of rank 0.
/// @param element the elements' name; "" leaves `[3, 4]`
/// @throws std::bad_alloc. O(rank). Thread-safe.
[[nodiscard]] std::string shape_text(char const* element, std::span<std::size_t const> extents);

/// What a `tensor_view` or `bit_view` holds, copies along, and calls before it returns an element or memory.
///
/// - `Generation::checks`: whether it can reject at all; where it is false the view never calls it and is
///   `noexcept`.
/// - `generation.require_live(element, extents)`: returns if the memory is still the view's, else throws. The
///   arguments are for the message: the elements' name (`element_name`) and the view's extents.
template <class Generation>
concept view_generation =
    std::is_nothrow_copy_constructible_v<Generation> && std::is_nothrow_default_constructible_v<Generation> &&
    requires(Generation const generation, char const* element, std::span<std::size_t const> extents) {
      { std::bool_constant<Generation::checks>::value } -> std::convertible_to<bool>;
      generation.require_live(element, extents);
    };

/// Of memory that is not watched: the view is a pointer and its extents.
struct unchecked_generation {
  static constexpr bool checks = false;
  constexpr void require_live(char const* /*element*/, std::span<std::size_t const>) const noexcept {}
};

static_assert(view_generation<unchecked_generation>);
static_assert(std::is_empty_v<unchecked_generation>, "a view without checks pays nothing for them");

/// What a checked workspace knows of the memory in one slot.
///
/// Views read it after the slot, and even the workspace, is gone: records are never freed, but reused by
/// other slots, and a number never returns. Thread-safety: a view may read it on any thread.
struct slot_generation {
  std::atomic<std::uint64_t> number{0};     // goes up each time the memory is taken back
  std::atomic<std::source_location> ended;  // where the scope was opened that ended the number before
  std::source_location acquired;            // where the newest view was acquired
  // One lock for all records protects what follows.
  std::uint64_t first = 0;  // the number at which the record became the present slot's
  char workspace[32] = "";  // its name, cut short; a copy, because views may outlive the text
  slot_generation* next_free = nullptr;
};

/// A record for a new slot. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] slot_generation* take_slot_generation(char const* workspace);
/// Ends the record's generation, and lets other slots use it. Thread-safe.
void return_slot_generation(slot_generation* record) noexcept;

/// Of memory of a checked workspace.
///
/// Invariant: live as long as `slot_->number` is the one that it was made with. Without a slot always live.
class checked_generation {
 public:
  static constexpr bool checks = true;

  constexpr checked_generation() noexcept = default;
  checked_generation(slot_generation const& slot, std::source_location acquired) noexcept
      : slot_{&slot}, number_{slot.number.load(std::memory_order_relaxed)}, acquired_{acquired} {}

  /// Whether the memory is still the view's.
  [[nodiscard]] bool live() const noexcept {
    return slot_ == nullptr || slot_->number.load(std::memory_order_relaxed) == number_;
  }
  /// @throws stale_view if it is not, with a sentence on a view of these elements and extents. A violation
  /// handler that the program has installed is called with this sentence before.
  void require_live(char const* element, std::span<std::size_t const> extents) const {
    if (!live()) [[unlikely]]
      throw_stale(element, extents);
  }

 private:
  [[noreturn]] TIDEMARK_COLD void throw_stale(char const* element,
                                              std::span<std::size_t const> extents) const;

  slot_generation const* slot_ = nullptr;
  std::uint64_t number_ = 0;
  std::source_location acquired_;
};

/// A pointer to the first word, and the extents: shape, indices and reshaping of a view.
///
/// An access to elements or memory first calls the view's generation, and throws what that throws; questions
/// about the shape do not. Complexity: O(rank), no allocation.
/// @tparam View derives from this, and has `element_name`, `element_at(offset)` and `with_rank<Rank>`
/// @tparam Word what the pointer is to
template <class View, class Word, std::size_t Rank, class Layout, view_generation Generation>
class shaped_view {
 public:
  using size_type = std::size_t;
  using index_type = std::size_t;
  using rank_type = std::size_t;

  /// Number of dimensions.
  [[nodiscard]] static constexpr std::size_t rank() noexcept { return Rank; }
  /// Elements along dimension `r`. @pre `r < Rank`.
  [[nodiscard]] constexpr std::size_t extent(std::size_t r) const noexcept { return extents_[r]; }
  /// Elements along each dimension.
  [[nodiscard]] constexpr std::array<std::size_t, Rank> const& extents() const noexcept { return extents_; }
  /// All elements: the product of the extents; at rank 0 it is 1, or 0 if the view is of nothing.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    if constexpr (Rank == 0) return first_ != nullptr ? 1 : 0;
    std::size_t elements = 1;
    for (std::size_t const extent : extents_) elements *= extent;
    return elements;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return size() == 0; }
  /// What knows whether the memory is still there.
  [[nodiscard]] constexpr Generation const& generation() const noexcept { return generation_; }

  /// An element. @param index one for each dimension, of any integral types
  /// @pre Each is in its extent: `0 <= index < extent(r)`.
  /// @throws what `Generation` throws; the view stays as it is.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr decltype(auto) operator()(Index... index) const noexcept(!Generation::checks) {
    return static_cast<View const&>(*this).element_at(
        Layout::offset(extents_, {static_cast<std::size_t>(index)...}));
  }
#ifdef __cpp_multidimensional_subscript
  /// The same. @pre, @throws as there.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr decltype(auto) operator[](Index... index) const noexcept(!Generation::checks) {
    return (*this)(index...);
  }
#else
  /// The same, with the one index that such an operator takes in C++20. @pre, @throws as there.
  template <std::integral Index>
    requires(Rank == 1)
  [[nodiscard]] constexpr decltype(auto) operator[](Index index) const noexcept(!Generation::checks) {
    return (*this)(index);
  }
#endif
  /// The same, with all indices in one array. @pre, @throws as there.
  template <std::integral Index>
  [[nodiscard]] constexpr decltype(auto) operator[](std::array<Index, Rank> const& index) const
      noexcept(!Generation::checks) {
    return std::apply([this](auto... each) -> decltype(auto) { return (*this)(each...); }, index);
  }

  /// The same elements in the order of memory, with other extents: same layout and generation, which is
  /// checked at the new view's first access only.
  ///
  /// @param extents elements along each dimension, of any integral types, or all in one array; without any
  /// the new rank is 0
  /// @throws std::invalid_argument if one is negative, or if that is another number of elements, with a
  /// sentence that says which; the view stays as it is
  template <class... Extents>
    requires shape_extents<Extents...>
  [[nodiscard]] constexpr auto reshape(Extents const&... extents) const {
    auto const shape = checked_extents(extents...);
    if (element_count(shape) != size()) [[unlikely]]
      reject_reshape(View::element_name, extents_, size(), shape);
    return typename View::template with_rank<shape.size()>{first_, shape, generation_};
  }

 protected:
  constexpr shaped_view() noexcept = default;
  constexpr shaped_view(Word* first, std::array<std::size_t, Rank> const& extents,
                        Generation generation) noexcept
      : first_{first}, extents_{extents}, generation_{generation} {}

  /// The first word, if it is still there.
  [[nodiscard]] constexpr Word* access() const noexcept(!Generation::checks) {
    if constexpr (Generation::checks) generation_.require_live(View::element_name, extents_);
    return first_;
  }

  Word* first_ = nullptr;                    // null only where size() is 0
  std::array<std::size_t, Rank> extents_{};  // elements along each dimension, the outermost first
  [[no_unique_address]] Generation generation_;
};

}  // namespace tidemark::detail
