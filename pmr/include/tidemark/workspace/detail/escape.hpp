// SPDX-License-Identifier: Apache-2.0
/// @file
/// `escape_search`: finds by address whether a value refers to memory that a scope will take back.
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
#include <tidemark/core/macros.hpp>
#include <tidemark/workspace/detail/generation.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>

namespace tidemark::detail {

template <class T>
using generation_of = std::remove_cvref_t<decltype(std::declval<T>().generation())>;
/// `tensor_view` and `bit_view`.
template <class T>
concept is_view = view_generation<generation_of<T>>;
/// Views that know when their memory was freed, and throw then.
template <class T>
concept checks_itself = is_view<T> && generation_of<T>::checks;

/// Structures with a member `data` that points to memory: `dl_tensor`.
template <class T>
inline constexpr bool is_tensor_header = false;

template <class T>
concept is_variant = requires(T const& value) { value.valueless_by_exception(); };

template <class T>
concept is_reference_wrapper = std::is_same_v<T, std::reference_wrapper<typename T::type>>;

/// Values that refer to nothing.
template <class T>
concept refers_to_nothing = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_null_pointer_v<T> ||
                            std::is_member_pointer_v<T> || std::is_same_v<T, std::monostate>;

/// Searches one value for what was acquired in one scope.
///
/// A class of a user's own is searched where a function that is found by its argument shows the members:
/// `template <class Visit> void visit_memory(fit const& f, Visit&& visit) { visit(f.slopes); }`. Other
/// classes that are not below are taken to refer to nothing.
class escape_search {
 public:
  escape_search(workspace_core const& core, std::uint64_t frame) : core_{&core}, frame_{frame} {}

  template <class T>
  void operator()(T const& value) {
    constexpr bool has_pointer = requires { look_at_pointer(value.get()); };
    if constexpr (refers_to_nothing<T>) {
      return;
    } else if constexpr (requires { visit_memory(value, *this); }) {
      visit_memory(value, *this);
    } else if constexpr (is_tensor_header<T>) {
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
    } else if constexpr (has_pointer || points_to_one<T>) {
      if constexpr (has_pointer) look_at_pointer(value.get());
      if constexpr (points_to_one<T>) {
        if (static_cast<bool>(value)) (*this)(*value);
      }
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
    if constexpr (is_tensor_header<std::remove_cv_t<T>>) {
      (*this)(*pointer);
    } else if constexpr (!std::is_function_v<T>) {  // one byte, because T may be incomplete
      look_at(const_cast<std::remove_cv_t<T>*>(pointer), 1);
    }
  }

  template <class View>
  void look_at_view(View const& view) {
    if constexpr (checks_itself<View>) {
      if (!view.generation().live()) return;  // it was taken back before, and its use throws
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
    // A path is a range of paths, and one of a single name a range of itself. A range that can be read once
    // only is not read here.
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
  workspace_core::overlap found_;
};

/// @throws std::logic_error with a sentence. @param opened where the scope was opened
[[noreturn]] TIDEMARK_COLD void throw_ended_scope(std::source_location opened);
/// @throws workspace_escape
[[noreturn]] TIDEMARK_COLD void throw_escape(workspace_core const& core, workspace_core::overlap escaping,
                                             std::source_location where);

}  // namespace tidemark::detail
