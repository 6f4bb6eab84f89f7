// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shaped_view`: the common base of `tensor_view` and `bit_view`, with the names of element types, extents,
/// the generation of the memory, and the shape. The process owns the records of generations.
#pragma once

#include <array>
#include <atomic>
#include <bit>
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

/// Returns the compiler's text for this function; only the name of `T` varies in it.
template <class T>
constexpr std::string_view text_with_type() noexcept {
  return static_cast<char const*>(__PRETTY_FUNCTION__);
}

// Compilers put the name at different places in the text. The place is found with a type of known name.
inline constexpr std::size_t before_type = text_with_type<double>().rfind("double");
static_assert(before_type != std::string_view::npos,
              "this compiler's __PRETTY_FUNCTION__ must name the type");
inline constexpr std::size_t around_type =
    text_with_type<double>().size() - std::string_view{"double"}.size();

/// C++ name of a type as a text with a terminating 0, which a part of the compiler's own text lacks.
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

/// Type of the real part of a complex number.
template <class T>
using part_of = decltype(std::declval<T const&>().real());
/// `std::complex<float>`, `std::complex<double>`, and classes of the same layout. The concept does not name
/// `std::complex`, because `<complex>` includes `<sstream>` and `<cmath>`.
template <class T>
concept complex_number = (std::same_as<part_of<T>, float> || std::same_as<part_of<T>, double>) &&
                         std::same_as<decltype(std::declval<T const&>().imag()), part_of<T>> &&
                         sizeof(T) == 2 * sizeof(part_of<T>) && alignof(T) == alignof(part_of<T>);

template <class T>
constexpr char const* name_of_element() noexcept {
  if constexpr (std::same_as<T, bool>) return "bool";
  else if constexpr (std::same_as<T, float>) return "float32";
  else if constexpr (std::same_as<T, double>) return "float64";
  else if constexpr (complex_number<T>) return sizeof(T) == 8 ? "complex64" : "complex128";
  else if constexpr (std::integral<T> && sizeof(T) <= 8) return integer_name<T>();
  else return spelled_name<T>.data();
}

/// Name of `T` without const and volatile, as in NumPy: `float64`, `float32`, `int64` to `int8`, `uint64` to
/// `uint8`, `complex64`, `complex128`, `bool`. Any other type has its C++ name in the compiler's spelling.
/// Ends with 0. Computed during compilation. Thread-safe.
template <class T>
inline constexpr char const* element_name = name_of_element<std::remove_cv_t<T>>();

[[noreturn]] TIDEMARK_COLD void reject_extent(long long extent);
[[noreturn]] TIDEMARK_COLD void reject_reshape(char const* element, std::span<std::size_t const> from,
                                               std::size_t count, std::span<std::size_t const> to);

/// Converts an extent from any integral type. O(1); compiles to nothing for unsigned types. Thread-safe.
/// @throws std::invalid_argument if the extent is negative; the message has the extent.
template <std::integral Integer>
[[nodiscard]] constexpr std::size_t checked_extent(Integer extent) {
  if constexpr (std::signed_integral<Integer>) {
    if (extent < 0) [[unlikely]]
      reject_extent(static_cast<long long>(extent));
  }
  return static_cast<std::size_t>(extent);
}

/// Converts the extents of an array. @throws as `checked_extent`, for the first negative extent. O(rank).
template <std::integral... Integers>
[[nodiscard]] constexpr std::array<std::size_t, sizeof...(Integers)> checked_extents(Integers... extents) {
  return {checked_extent(extents)...};
}
template <std::integral Integer, std::size_t Rank>
[[nodiscard]] constexpr std::array<std::size_t, Rank> checked_extents(
    std::array<Integer, Rank> const& extents) {
  return std::apply([](auto... each) { return checked_extents(each...); }, extents);
}
/// Arguments of `checked_extents`: integers, or one array of integers.
template <class... Extents>
concept shape_extents = requires(Extents const&... extents) { checked_extents(extents...); };

/// Returns the number of elements of an array: the product of its extents, 1 without extents.
///
/// @return the product; 0 if any extent is 0; `uncountable`, which no memory can hold, if the product
/// overflows. O(rank). Thread-safe.
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

/// An extent and its place in the source, which is the place of the acquisition.
struct located_extent {
  std::size_t value;
  std::source_location where;
  template <std::integral Index>
  constexpr located_extent(Index extent, std::source_location place = std::source_location::current())
      : value{checked_extent(extent)}, where{place} {}
};
/// Returns a place in the source as messages print it: `file:line`. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] std::string place_text(std::source_location where);
/// Returns a shape as messages print it: `float64[3, 4]`, and `float64[]` for rank 0.
/// @param element name of the elements; "" gives `[3, 4]`
/// @throws std::bad_alloc. O(rank). Thread-safe.
[[nodiscard]] std::string shape_text(char const* element, std::span<std::size_t const> extents);

/// A member of `tensor_view` and `bit_view` that the view calls before it returns an element or memory.
///
/// - `Generation::checks`: false if the generation rejects nothing. The view is then `noexcept` and never
///   calls it.
/// - `generation.require_live(element, extents)`: returns if the view still owns the memory, and otherwise
///   throws. The arguments are for the message: the name (`element_name`) and the view's extents.
template <class Generation>
concept view_generation = requires { std::bool_constant<Generation::checks>::value; };

/// Generation of memory without checks: the view is a pointer and its extents.
struct unchecked_generation {
  static constexpr bool checks = false;
  constexpr void require_live(char const* /*element*/, std::span<std::size_t const>) const noexcept {}
};

static_assert(std::is_empty_v<unchecked_generation>, "a view without checks pays nothing for them");

/// A checked workspace's record of the memory in one slot.
///
/// Views read a record after the slot, and even the workspace, is destroyed. Records are therefore never
/// freed: other slots reuse them, and numbers never repeat. Thread-safety: a view may read a record on any
/// thread.
struct slot_generation {
  std::atomic<std::uint64_t> number{0};     // incremented at each end of an acquisition
  std::atomic<std::source_location> ended;  // where the scope that ended the previous number was opened
  std::source_location acquired;            // where the newest view was acquired
  char const* workspace = "";               // name of the slot's workspace: a text that is never freed
  slot_generation* next_free = nullptr;
};

/// Returns a record for a new slot of a workspace with this name. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] slot_generation* acquire_slot_generation(char const* workspace);
/// Ends the record's generation and makes the record available to other slots. Thread-safe.
void return_slot_generation(slot_generation& record) noexcept;

/// Generation of memory of a checked workspace.
///
/// Invariant: live while `slot_->number == number_`. Always live if `slot_` is null.
class checked_generation {
 public:
  static constexpr bool checks = true;

  constexpr checked_generation() noexcept = default;
  checked_generation(slot_generation const& slot, std::source_location acquired) noexcept
      : slot_{&slot},
        number_{slot.number.load(std::memory_order_relaxed)},
        acquired_{acquired},
        workspace_{slot.workspace} {}

  /// Returns true if the view still owns the memory.
  [[nodiscard]] bool live() const noexcept {
    return slot_ == nullptr || slot_->number.load(std::memory_order_relaxed) == number_;
  }
  /// @throws stale_view if the view does not own the memory; the message has the elements and extents. An
  /// installed violation handler gets the message first.
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
  char const* workspace_ = "";
};

/// A pointer to the first word, and the extents: shape, indices and reshaping of a view.
///
/// Access to elements or memory first calls the view's generation and throws its exceptions; functions on the
/// shape do not. Complexity: O(rank), no allocation.
/// @tparam View the derived class; has `element_name`, `element_at(offset)` and `with_rank<Rank>`
/// @tparam Word type that the pointer points to
template <class View, class Word, std::size_t Rank, class Layout, view_generation Generation>
class shaped_view {
 public:
  using size_type = std::size_t;
  using index_type = std::size_t;
  using rank_type = std::size_t;

  /// Returns the number of dimensions.
  [[nodiscard]] static constexpr std::size_t rank() noexcept { return Rank; }
  /// Returns the elements along dimension `r`. @pre `r < Rank`.
  [[nodiscard]] constexpr std::size_t extent(std::size_t r) const noexcept { return extents_[r]; }
  /// Returns the elements along each dimension.
  [[nodiscard]] constexpr std::array<std::size_t, Rank> const& extents() const noexcept { return extents_; }
  /// Returns the product of the extents. A view of rank 0 has 1 element, or 0 if it is empty.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    if constexpr (Rank == 0) return first_ != nullptr ? 1 : 0;
    std::size_t elements = 1;
    for (std::size_t const extent : extents_) elements *= extent;
    return elements;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return size() == 0; }
  /// Returns the generation of the memory.
  [[nodiscard]] constexpr Generation const& generation() const noexcept { return generation_; }

  /// Returns an element. @param index one index of any integral type for each dimension
  /// @pre `0 <= index < extent(r)` for each dimension.
  /// @throws the exceptions of `Generation`; the view does not change then.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr decltype(auto) operator()(Index... index) const noexcept(!Generation::checks) {
    return static_cast<View const&>(*this).element_at(
        Layout::offset(extents_, {static_cast<std::size_t>(index)...}));
  }
#ifdef __cpp_multidimensional_subscript
  /// Calls `operator()`. @pre, @throws as `operator()`.
  template <std::integral... Index>
    requires(sizeof...(Index) == Rank)
  [[nodiscard]] constexpr decltype(auto) operator[](Index... index) const noexcept(!Generation::checks) {
    return (*this)(index...);
  }
#else
  /// Calls `operator()` with the only index that C++20 permits. @pre, @throws as `operator()`.
  template <std::integral Index>
    requires(Rank == 1)
  [[nodiscard]] constexpr decltype(auto) operator[](Index index) const noexcept(!Generation::checks) {
    return (*this)(index);
  }
#endif
  /// Returns a view of the same elements in the order of memory, with other extents. The layout and the
  /// generation stay the same. The first access of the new view checks the generation.
  ///
  /// @param extents elements along each dimension, of any integral types or in one array; no extents mean
  /// rank 0
  /// @throws std::invalid_argument if an extent is negative or if the number of elements differs; the message
  /// has the shapes. The view does not change then.
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

  /// Returns the first word. @throws the exceptions of `Generation` if the memory was freed.
  [[nodiscard]] constexpr Word* access() const noexcept(!Generation::checks) {
    if constexpr (Generation::checks) generation_.require_live(View::element_name, extents_);
    return first_;
  }

  Word* first_ = nullptr;                    // null only if size() is 0
  std::array<std::size_t, Rank> extents_{};  // elements along each dimension, outermost first
  [[no_unique_address]] Generation generation_;
};

}  // namespace tidemark::detail
