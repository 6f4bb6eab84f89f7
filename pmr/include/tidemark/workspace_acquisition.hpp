// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace_acquisition`: all the ways to ask a workspace or its scope for memory. Owns nothing.
#pragma once

#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <random>
#include <ranges>
#include <source_location>
#include <span>
#include <type_traits>

#include <tidemark/bit_view.hpp>
#include <tidemark/detail/extents.hpp>
#include <tidemark/detail/slot_life.hpp>
#include <tidemark/detail/slot_list.hpp>
#include <tidemark/detail/view_life.hpp>
#include <tidemark/detail/workspace_core.hpp>
#include <tidemark/dlpack.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/tensor_view.hpp>

namespace tidemark {

/// What `workspace` and `workspace::scope` have in common: the forms of asking for memory. Each returns
/// memory of the next slot of its element type, uninitialised where it does not say otherwise, that is the
/// caller's until the innermost scope ends.
///
/// ```cpp
/// auto x = scope.acquire<double>(n);                        // x[i]
/// auto a = scope.zeros<float>(rows, columns);               // a(i, j)
/// auto b = scope.acquire<float, column_major>(rows, columns);
/// auto like_a = scope.acquire_like(a);
/// auto mask = scope.falses(n);                              // packed bits: mask[i] = true
/// DLTensor* t = scope.acquire_tensor<float>(rows, columns);
/// ```
/// For all of them:
/// - Extents are integers: `(n)`, `(rows, columns)`, `(a, b, c)`, …; where an overload takes it, also one
///   `std::array<std::size_t, Rank>`, of which an empty one makes a view of rank 0, with one element. Any may
///   be 0. `Layout` is `row_major` or `column_major`.
/// - `T` is trivially copyable.
/// - @throws std::invalid_argument for a negative extent; out_of_memory where the product of extents or its
///   bytes overflow, or the workspace's limit is reached; what the upstream throws. Nothing is handed out
///   then.
/// - Complexity: O(1) once the slot has memory for as many elements, plus what is written. Thread-safety:
///   that of the workspace.
/// - They want an lvalue, because a temporary scope would have ended before its memory is used.
/// @tparam Source who derives from this, with `claim<T>(n, where)`, `list<T>()` and `core()`, which do the
/// work
/// @tparam Checked whether views know when their memory was taken back
template <class Source, bool Checked>
class workspace_acquisition {
 public:
  /// Whether a view's memory is still its own: known at level 1.
  using life_type = std::conditional_t<Checked, detail::checked_life, detail::unchecked_life>;
  /// What acquisitions return: converts to `std::span<T>` where it has one dimension.
  template <class T, std::size_t Rank = 1, class Layout = row_major>
  using view = tensor_view<T, Rank, Layout, life_type>;
  /// … of packed bits.
  template <std::size_t Rank = 1>
  using bits_view = bit_view<Rank, life_type>;

  /// A view of these extents: `acquire<double>(rows, columns)`.
  template <class T, class Layout = row_major, std::integral... Extents>
  // These are inlined whatever the compiler thinks of the size of their cold parts: 1 ns each, measured.
  [[nodiscard, gnu::always_inline]] view<T, 1 + sizeof...(Extents), Layout> acquire(
      detail::located_extent first, Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return acquire<T, Layout>(std::array{first.value, detail::checked_extent(rest)...}, first.where);
  }
  template <class T, class Layout = row_major, std::size_t Rank>
  [[nodiscard, gnu::always_inline]] view<T, Rank, Layout> acquire(
      std::array<std::size_t, Rank> const& extents,
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    detail::slot& memory = source().template claim<T>(detail::elements_of(extents), where);
    return {static_cast<T*>(memory.data), extents, life_of(memory, where)};
  }
  template <class T>
  [[nodiscard]] view<T, 0> acquire(
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    return acquire<T>(std::array<std::size_t, 0>{}, where);
  }

  /// A view with the extents, the layout and, unless another is named, the element type of `x`.
  template <class T = void, class X, std::size_t Rank, class Layout, class Life>
  [[nodiscard]] auto acquire_like(
      tensor_view<X, Rank, Layout, Life> const& x,
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    using element = std::conditional_t<std::is_void_v<T>, std::remove_cv_t<X>, T>;
    return acquire<element, Layout>(x.extents(), where);
  }
  /// … of a vector, an array, a span.
  template <class T = void, std::ranges::sized_range Range>
    requires(!requires(Range const& r) { r.extents(); })
  [[nodiscard]] auto acquire_like(
      Range const& x, std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    using element = std::conditional_t<std::is_void_v<T>, std::ranges::range_value_t<Range>, T>;
    return acquire<element>(std::array{static_cast<std::size_t>(std::ranges::size(x))}, where);
  }

  /// `acquire`, and every element is 0.
  template <class T = double, class Layout = row_major, std::integral... Extents>
  [[nodiscard]] view<T, 1 + sizeof...(Extents), Layout> zeros(detail::located_extent first,
                                                              Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("zeros", T{}, std::array{first.value, detail::checked_extent(rest)...},
                             first.where);
  }
  template <class T = double, class Layout = row_major, std::size_t Rank>
  [[nodiscard]] view<T, Rank, Layout> zeros(
      std::array<std::size_t, Rank> const& extents,
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("zeros", T{}, extents, where);
  }
  /// `acquire`, and every element is 1.
  template <class T = double, class Layout = row_major, std::integral... Extents>
  [[nodiscard]] view<T, 1 + sizeof...(Extents), Layout> ones(detail::located_extent first,
                                                             Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("ones", T(1), std::array{first.value, detail::checked_extent(rest)...},
                             first.where);
  }
  template <class T = double, class Layout = row_major, std::size_t Rank>
  [[nodiscard]] view<T, Rank, Layout> ones(
      std::array<std::size_t, Rank> const& extents,
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("ones", T(1), extents, where);
  }
  /// `acquire`, and every element is `value`.
  template <class T, class Layout = row_major, std::integral... Extents>
  [[nodiscard]] view<T, 1 + sizeof...(Extents), Layout> fill(T value, detail::located_extent first,
                                                             Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("fill", value, std::array{first.value, detail::checked_extent(rest)...},
                             first.where);
  }
  template <class T, class Layout = row_major, std::size_t Rank>
  [[nodiscard]] view<T, Rank, Layout> fill(
      T value, std::array<std::size_t, Rank> const& extents,
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    return filled<T, Layout>("fill", value, extents, where);
  }

  /// `acquire`, and the elements in order are `std::uniform_real_distribution<T>{}(generator)`: from 0 up to,
  /// not including, 1. The generator is asked for nothing else. @throws std::logic_error where memory is not
  /// the host's.
  template <std::floating_point T = double, class Layout = row_major,
            std::uniform_random_bit_generator Generator, std::integral... Extents>
  [[nodiscard]] view<T, 1 + sizeof...(Extents), Layout> rand(Generator& generator,
                                                             detail::located_extent first,
                                                             Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return drawn<T, Layout>("rand", std::uniform_real_distribution<T>{}, generator, first, rest...);
  }
  /// The same of `std::normal_distribution<T>`: mean 0, standard deviation 1.
  template <std::floating_point T = double, class Layout = row_major,
            std::uniform_random_bit_generator Generator, std::integral... Extents>
  [[nodiscard]] view<T, 1 + sizeof...(Extents), Layout> randn(Generator& generator,
                                                              detail::located_extent first,
                                                              Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return drawn<T, Layout>("randn", std::normal_distribution<T>{}, generator, first, rest...);
  }

  /// Packed bits, 64 to a word, in row-major order.
  template <std::integral... Extents>
  [[nodiscard, gnu::always_inline]] bits_view<1 + sizeof...(Extents)> bits(
      detail::located_extent first, Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    const std::array extents{first.value, detail::checked_extent(rest)...};
    detail::slot& memory = claim_words(extents, first.where);
    return {static_cast<std::uint64_t*>(memory.data), extents, life_of(memory, first.where)};
  }
  /// … all of them set.
  template <std::integral... Extents>
  [[nodiscard]] bits_view<1 + sizeof...(Extents)> trues(detail::located_extent first,
                                                        Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled_bits("trues", true, first, rest...);
  }
  /// … none of them set.
  template <std::integral... Extents>
  [[nodiscard]] bits_view<1 + sizeof...(Extents)> falses(detail::located_extent first,
                                                         Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return filled_bits("falses", false, first, rest...);
  }

  /// A tensor for code in C and other languages: DLPack's header, which stays where it is as long as the slot
  /// does, and is the same one whenever the slot is asked for the same extents. At most 8 extents; DLPack's
  /// strides count elements, and its data is aligned as the options say, to 64 bytes unless they say less.
  /// The workspace owns it and its arrays: nobody has to free, and nobody may change them.
  ///
  /// Headers are kept for `workspace_options::cache_ways` shapes of each slot; a further one replaces the
  /// oldest, and neither allocates once warm. O(headers of the slot). @throws std::bad_alloc also for memory
  /// for headers.
  template <class T, class Layout = row_major, std::integral... Extents>
  [[nodiscard]] dl_tensor* acquire_tensor(detail::located_extent first,
                                          Extents... rest) & TIDEMARK_LIFETIMEBOUND {
    return acquire_tensor<T, Layout>(std::array{first.value, detail::checked_extent(rest)...}, first.where);
  }
  template <class T, class Layout = row_major, std::size_t Rank>
  [[nodiscard]] dl_tensor* acquire_tensor(
      std::array<std::size_t, Rank> const& extents,
      std::source_location where = std::source_location::current()) & TIDEMARK_LIFETIMEBOUND {
    static_assert(Rank <= detail::tensor_rank_max, "a tensor header has room for 8 extents");
    detail::slot& memory = source().template claim<T>(detail::elements_of(extents), where);
    return &source().core().header(source().template list<T>(), memory, extents.data(), Rank,
                                   std::is_same_v<Layout, column_major>, dl_data_type_of<T>);
  }

 private:
  friend Source;
  workspace_acquisition() = default;  // only for who derives from it

  Source& source() noexcept { return static_cast<Source&>(*this); }

  static life_type life_of(detail::slot const& memory, std::source_location where) noexcept {
    if constexpr (Checked) return {*memory.life, where};
    else return {};
  }

  template <class T, class Layout, std::size_t Rank>
  view<T, Rank, Layout> filled(char const* call, T value, std::array<std::size_t, Rank> const& extents,
                               std::source_location where) & {
    detail::workspace_core& core = source().core();
    core.require_fill(call);
    detail::slot& memory = source().template claim<T>(detail::elements_of(extents), where);
    view<T, Rank, Layout> result{static_cast<T*>(memory.data), extents, life_of(memory, where)};
    if (core.options().host_memory) std::ranges::fill(result.elements(), value);
    else core.fill(source().template list<T>(), memory, &value, sizeof value);
    return result;
  }

  template <class T, class Layout, class Distribution, class Generator, class... Extents>
  auto drawn(char const* call, Distribution distribution, Generator& generator, detail::located_extent first,
             Extents... rest) & {
    source().core().require_host_memory(call);
    auto result = acquire<T, Layout>(std::array{first.value, detail::checked_extent(rest)...}, first.where);
    for (T& element : result.elements()) element = distribution(generator);
    return result;
  }

  template <std::size_t Rank>
  detail::slot& claim_words(std::array<std::size_t, Rank> const& extents, std::source_location where) {
    const std::size_t n = detail::elements_of(extents);
    return source().template claim<detail::bit_word>(n != SIZE_MAX ? bits_view<>::words_for(n) : n, where);
  }

  template <class... Extents>
  bits_view<1 + sizeof...(Extents)> filled_bits(char const* call, bool value, detail::located_extent first,
                                                Extents... rest) & {
    detail::workspace_core& core = source().core();
    core.require_fill(call);
    const std::array extents{first.value, detail::checked_extent(rest)...};
    detail::slot& memory = claim_words(extents, first.where);
    const detail::bit_word pattern{value ? ~std::uint64_t{0} : 0};
    core.fill(source().template list<detail::bit_word>(), memory, &pattern, sizeof pattern);
    return {static_cast<std::uint64_t*>(memory.data), extents, life_of(memory, first.where)};
  }
};

}  // namespace tidemark
