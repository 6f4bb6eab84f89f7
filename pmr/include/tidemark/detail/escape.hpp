// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds whether a value refers to memory that a scope will take back: by address, whatever the value's type
/// says.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <ranges>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include <tidemark/bit_view.hpp>
#include <tidemark/detail/leads_to_memory.hpp>
#include <tidemark/detail/workspace_core.hpp>
#include <tidemark/dlpack.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/tensor_view.hpp>

namespace tidemark::detail {

template <class T>
inline constexpr bool is_view = false;
template <class T, std::size_t Rank, class Layout, class Life>
inline constexpr bool is_view<tensor_view<T, Rank, Layout, Life>> = true;
template <std::size_t Rank, class Life>
inline constexpr bool is_view<bit_view<Rank, Life>> = true;

/// Views that know when their memory was taken back, and say so.
template <class T>
inline constexpr bool guards_itself = false;
template <class T, std::size_t Rank, class Layout, class Life>
inline constexpr bool guards_itself<tensor_view<T, Rank, Layout, Life>> = Life::checks;
template <std::size_t Rank, class Life>
inline constexpr bool guards_itself<bit_view<Rank, Life>> = Life::checks;

template <class T>
inline constexpr bool is_variant = false;
template <class... Types>
inline constexpr bool is_variant<std::variant<Types...>> = true;

template <class T>
inline constexpr bool is_reference_wrapper = false;
template <class T>
inline constexpr bool is_reference_wrapper<std::reference_wrapper<T>> = true;

/// Values that are what they are, and refer to nothing.
template <class T>
concept refers_to_nothing = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_null_pointer_v<T> ||
                            std::is_member_pointer_v<T> || std::is_same_v<T, std::monostate>;

/// Looks through one value for what one scope has handed out.
///
/// A class of a user's own is looked through where a function that is found by its argument says what to look
/// at: `template <class Visit> void visit_memory(fit const& f, Visit&& visit) { visit(f.slopes); }`. The rest
/// of classes that are none of the below are taken to refer to nothing.
class escape_search {
 public:
  escape_search(workspace_core const& core, std::uint64_t frame) : core_{&core}, frame_{frame} {}

  template <class T>
  void operator()(T const& value) {
    if constexpr (refers_to_nothing<T>) {
      return;
    } else if constexpr (requires { visit_memory(value, *this); }) {
      visit_memory(value, *this);
    } else if constexpr (std::is_same_v<T, dl_tensor>) {
      look_at(value.data, 1);
    } else if constexpr (raw_pointer<T>) {
      look_at_pointer(value);
    } else if constexpr (is_view<T>) {
      look_at_view(value);
    } else if constexpr (is_reference_wrapper<T>) {
      look_at_pointer(&value.get());
    } else if constexpr (is_variant<T>) {
      if (!value.valueless_by_exception()) std::visit(*this, value);
    } else if constexpr (std::ranges::input_range<T const>) {
      look_at_range(value);
    } else if constexpr (tuple_like<T>) {
      std::apply([this](auto const&... parts) { ((*this)(parts), ...); }, value);
    } else if constexpr (requires { look_at_pointer(value.get()); }) {
      look_at_pointer(value.get());
      if constexpr (points_to_one<T>) {
        if (static_cast<bool>(value)) (*this)(*value);
      }
    } else if constexpr (points_to_one<T>) {
      if (static_cast<bool>(value)) (*this)(*value);
    } else if constexpr (std::contiguous_iterator<T>) {
      look_at_pointer(std::to_address(value));
    } else if constexpr (requires { look_at(value.data_handle(), value.mapping().required_span_size()); }) {
      look_at(value.data_handle(), value.mapping().required_span_size() * sizeof(*value.data_handle()));
    }
  }

  [[nodiscard]] workspace_core::overlap found() const noexcept { return found_; }

 private:
  template <class T>
  void look_at_pointer(T* pointer) {
    if (pointer == nullptr) return;
    if constexpr (std::is_same_v<std::remove_cv_t<T>, dl_tensor>) {
      (*this)(*pointer);
    } else if constexpr (!std::is_function_v<T>) {  // one byte, because T may be incomplete
      look_at(const_cast<std::remove_cv_t<T>*>(pointer), 1);
    }
  }

  template <class View>
  void look_at_view(View const& view) {
    if constexpr (std::remove_cvref_t<decltype(view.life())>::checks) {
      if (!view.life().live()) return;  // it was taken back before, and says so itself
    }
    if constexpr (requires { view.words(); }) look_at(view.words().data(), view.words().size_bytes());
    else look_at(view.elements().data(), view.elements().size_bytes());
  }

  template <class Range>
  void look_at_range(Range const& range) {
    using element = std::ranges::range_value_t<Range const>;
    if constexpr (std::ranges::contiguous_range<Range const> && std::ranges::sized_range<Range const>) {
      look_at(std::ranges::data(range), std::ranges::size(range) * sizeof(element));
    }
    // A path is a range of paths, and one of a single name a range of itself.
    // What can be gone through once only is left to who gets it.
    if constexpr (std::ranges::forward_range<Range const> && !refers_to_nothing<element> &&
                  !std::is_same_v<element, Range>) {
      for (auto const& one : range) (*this)(one);
    }
  }

  void look_at(void const* first, std::size_t bytes) {
    if (found_.taken == nullptr && first != nullptr && bytes > 0)
      found_ = core_->find_overlap(frame_, first, bytes);
  }

  workspace_core const* core_;
  std::uint64_t frame_;  // the scope's number
  workspace_core::overlap found_{nullptr, nullptr};
};

/// @throws workspace_escape
[[noreturn]] TIDEMARK_COLD void throw_escape(workspace_core const& core, workspace_core::overlap escaping,
                                             std::source_location where);

/// @throws workspace_escape if `value` refers to memory that was handed out since the scope of this number
/// began.
template <class T>
void require_no_escape(workspace_core const& core, std::uint64_t frame, T const& value,
                       std::source_location where) {
  escape_search search{core, frame};
  search(value);
  if (search.found().taken != nullptr) throw_escape(core, search.found(), where);
}

}  // namespace tidemark::detail
