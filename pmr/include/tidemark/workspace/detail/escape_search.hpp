// SPDX-License-Identifier: Apache-2.0
/// @file
/// `escape_search`: finds memory of a workspace's scope in a result. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <ranges>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include <tidemark/core/detail/leads_to_memory.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>

namespace tidemark::detail {

/// `tensor_view` and `bit_view`.
template <class T>
concept is_view = requires(T const& view) { view.generation().checks; };
/// Views that detect that their memory was freed, and throw.
template <class T>
concept checks_itself = is_view<T> && std::remove_cvref_t<decltype(std::declval<T>().generation())>::checks;

/// Structures with a member `data` that points to memory: `dl_tensor`.
template <class T>
inline constexpr bool is_tensor_header = false;

template <class T>
concept is_reference_wrapper = std::is_same_v<T, std::reference_wrapper<typename T::type>>;

/// Values that refer to nothing.
template <class T>
concept refers_to_nothing = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_null_pointer_v<T> ||
                            std::is_member_pointer_v<T> || std::is_same_v<T, std::monostate>;

/// Searches one value for memory that was acquired in one scope.
///
/// Finds the members of a user's class through a function found by argument-dependent lookup:
/// `template <class Visit> void visit_memory(fit const& f, Visit&& visit) { visit(f.slopes); }`. Assumes that
/// a class without a branch below refers to nothing.
class escape_search {
 public:
  escape_search(workspace_core const& core, std::uint64_t frame, std::source_location where)
      : core_{&core}, frame_{frame}, where_{where} {}

  /// @throws workspace_escape
  template <class T>
  void operator()(T const& value) {
    constexpr bool has_pointer = requires { search_pointer(value.get()); };
    if constexpr (refers_to_nothing<T>) {
      return;
    } else if constexpr (requires { visit_memory(value, *this); }) {
      visit_memory(value, *this);
    } else if constexpr (is_tensor_header<T>) {
      search_bytes(value.data, 1);
    } else if constexpr (raw_pointer<T>) {
      search_pointer(value);
    } else if constexpr (is_view<T>) {
      search_view(value);
    } else if constexpr (is_reference_wrapper<T>) {
      search_pointer(&value.get());
    } else if constexpr (requires { value.valueless_by_exception(); }) {
      if (!value.valueless_by_exception()) std::visit(*this, value);
    } else if constexpr (std::ranges::input_range<T const>) {
      search_range(value);
    } else if constexpr (tuple_like<T>) {
      std::apply([this](auto const&... parts) { ((*this)(parts), ...); }, value);
    } else if constexpr (has_pointer || points_to_one<T>) {
      if constexpr (has_pointer) search_pointer(value.get());
      if constexpr (points_to_one<T>) {
        if (static_cast<bool>(value)) (*this)(*value);
      }
    } else if constexpr (std::contiguous_iterator<T>) {
      search_pointer(std::to_address(value));
    } else if constexpr (requires {
                           search_bytes(value.data_handle(), value.mapping().required_span_size());
                         }) {
      search_bytes(value.data_handle(), value.mapping().required_span_size() * sizeof(*value.data_handle()));
    }
  }

 private:
  template <class T>
  void search_pointer(T* pointer) {
    if (pointer == nullptr) return;
    if constexpr (is_tensor_header<std::remove_cv_t<T>>) {
      (*this)(*pointer);
    } else if constexpr (!std::is_function_v<T>) {  // one byte, because T may be incomplete
      search_bytes(const_cast<std::remove_cv_t<T>*>(pointer), 1);
    }
  }

  template <class View>
  void search_view(View const& view) {
    if constexpr (checks_itself<View>) {
      if (!view.generation().live()) return;  // freed before: the use of the view throws
    }
    if constexpr (requires { view.words(); }) search_bytes(view.words().data(), view.words().size_bytes());
    else search_bytes(view.elements().data(), view.elements().size_bytes());
  }

  template <class Range>
  void search_range(Range const& range) {
    using element = std::ranges::range_value_t<Range const>;
    if constexpr (std::ranges::contiguous_range<Range const> && std::ranges::sized_range<Range const>) {
      search_bytes(std::ranges::data(range), std::ranges::size(range) * sizeof(element));
    }
    // A filesystem path is skipped: it is a range of paths, so the search would never end. A single-pass
    // range is skipped, because its elements can be read only once.
    if constexpr (std::ranges::forward_range<Range const> && !refers_to_nothing<element> &&
                  !std::is_same_v<element, Range>) {
      for (auto const& one : range) (*this)(one);
    }
  }

  void search_bytes(void const* first, std::size_t bytes) {
    if (first != nullptr && bytes > 0) core_->reject_escape(frame_, first, bytes, where_);
  }

  workspace_core const* core_;
  std::uint64_t frame_;         // number of the scope
  std::source_location where_;  // of the return
};

}  // namespace tidemark::detail
