// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace::scope` and `with_workspace`: free at their end the memory that was acquired in them.
/// `escape_search`: finds memory of a scope in a result. They own nothing.
#pragma once

#include <concepts>
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
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_acquisition.hpp>

namespace tidemark {
namespace detail {

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

/// @throws std::logic_error with a message. @param opened place of the scope's opening
[[noreturn]] TIDEMARK_COLD void throw_ended_scope(std::source_location opened);
}  // namespace detail

/// Frees at its end the memory that was acquired in it: through the scope, or by called functions through the
/// workspace.
///
/// ```cpp
/// workspace::scope scope{ws};                  // any types
/// workspace::scope<double, int> scope{ws};     // the same, and the counts of these two are saved at once
/// ```
/// A scope has all forms of acquisition of the workspace. Clang warns if a returned view leaves the function
/// of the scope. Scopes nest, and are neither copied nor moved. A scope that ends before inner scopes or
/// checkpoints ends them too, with a warning; their own ends do nothing then. Level 1 reports acquisition
/// through a scope while an inner scope or a checkpoint is open. At both levels the end of the inner scope
/// frees that memory.
///
/// Complexity: the opening is O(types named), the end O(types used), at level 1 O(bytes). Thread-safety: the
/// workspace's.
template <int Checks>
template <class... Types>
class [[nodiscard(TIDEMARK_NAME_SCOPE)]] basic_workspace<Checks>::scope
    : public workspace_acquisition<typename basic_workspace<Checks>::template scope<Types...>,
                                   (Checks >= 1)> {
 public:
  using workspace_type = basic_workspace<Checks>;
  /// True at level 1.
  static constexpr bool checked = workspace_type::checked;

  /// Opens the scope. An outermost scope first serves the requests of the background sweeper.
  /// @throws std::bad_alloc if there is no memory for the list of a named type, or for the scope's record.
  /// The record needs memory only if scopes nest deeper, or save more counts, than at any time since
  /// `release`. The scope is not open then.
  // Inlined against the compiler's estimate of the cold parts: saves 3 of 10 ns, measured.
  [[nodiscard(TIDEMARK_NAME_SCOPE), gnu::always_inline]] explicit scope(
      workspace_type& ws TIDEMARK_LIFETIMEBOUND,
      [[maybe_unused]] std::source_location where = std::source_location::current())
      : workspace_{&ws}, frame_{ws.template open<Types...>(0, "opening of a scope")} {
    if constexpr (checked) where_ = where;
  }
  scope(scope const&) = delete;
  scope& operator=(scope const&) = delete;
  [[gnu::always_inline]] ~scope() { end(); }

  /// Ends the scope now.
  [[gnu::always_inline]] void end() noexcept {
    if (workspace_ == nullptr) return;
    workspace_type& ws = *std::exchange(workspace_, nullptr);
    ws.before_use("end of a scope");
    constexpr bool always_retires = checked || detail::tools_are_notified || !detail::pooling_is_compiled_in;
    if (always_retires || ws.core_.retires()) [[unlikely]] {
      ws.core_.template close<true>(frame_, where());
    } else {
      ws.core_.template close<false>(frame_, where());
    }
  }
  /// Ends the scope now, while work elsewhere, such as on a device's stream, still uses its memory. The next
  /// use of each of its slots waits for the fence, and so does freeing a slot. Level 1 does not fill this
  /// memory. Waits here if there is no memory to store the fence, if memory is not kept, or if the scope has
  /// ended.
  void end_after(reuse_fence fence) noexcept {
    if (workspace_ == nullptr) return fence.wait();
    workspace_->before_use("end of a scope");
    workspace_->core_.put_behind(frame_, std::move(fence));
    end();
  }

  /// Returns `value` unchanged; level 1 searches it first. Write `return scope.returning(sum);`.
  ///
  /// The search finds pointers, contiguous ranges such as spans, views and tensor headers. It finds them in
  /// tuples, optionals, variants, unique pointers and ranges at any depth; `detail::escape_search` has the
  /// list. It does not search captures of a lambda, or a user's class unless a function shows its members:
  /// ```cpp
  /// template <class Visit>
  /// void visit_memory(fit const& f, Visit&& visit) { visit(f.slopes); }  // found by its argument
  /// ```
  /// @throws workspace_escape if the value refers to memory that the end of this scope frees.
  template <class T>
  [[nodiscard]] T&& returning(T&& value,
                              [[maybe_unused]] std::source_location where = std::source_location::current()) {
    if constexpr (checked) {
      if (workspace_ != nullptr) detail::escape_search{workspace_->core_, frame_, where}(value);
    }
    return std::forward<T>(value);
  }

  /// Returns true if the scope is open.
  [[nodiscard]] explicit operator bool() const noexcept { return workspace_ != nullptr; }
  /// Returns the workspace, to pass it to functions. @pre The scope is open. @throws std::logic_error at
  /// level 1 if the scope has ended.
  [[nodiscard]] workspace_type& workspace() const noexcept(!checked) {
    if constexpr (checked) require_open();
    return *workspace_;
  }

 private:
  friend detail::workspace_access;

  template <class T>
  detail::slot& claim(std::size_t n, std::source_location where) {
    if constexpr (checked) {
      require_innermost();
      return workspace_->template claim<T>(n, where);
    } else {
      detail::slot_list& list = workspace_->core_.template list<T>();
      if constexpr (!(std::is_same_v<T, Types> || ...)) workspace_->core_.save(list);
      return workspace_->core_.acquire_saved(list, n);
    }
  }
  [[nodiscard]] detail::workspace_core& core() {
    if constexpr (checked) require_open();
    return workspace_->core_;
  }
  void require_open() const {
    if (workspace_ == nullptr) detail::throw_ended_scope(where());
  }
  void require_innermost() const {
    require_open();
    if (workspace_->core_.frame() == frame_) return;
    detail::report_violation(
        violation_kind::outer_scope_use, workspace_->name(),
        "workspace '%s': acquiring through an outer scope while a scope or checkpoint inside it is "
        "open; the end of the inner scope would free the memory; the outer scope was opened at %s:%u",
        workspace_->name(), where().file_name(), static_cast<unsigned>(where().line()));
  }
  [[nodiscard]] std::source_location where() const noexcept {
    if constexpr (checked) return where_;
    else return {};
  }

  workspace_type* workspace_;  // null: the scope has ended
  std::uint64_t frame_;        // number of the scope
  [[no_unique_address]] std::conditional_t<checked, std::source_location, std::monostate>
      where_;  // place of the opening
};

/// Calls `body(scope)` or `body()` in a scope and returns its result. Saves the counts of the named element
/// types at once, as `workspace::scope<double, int>` does.
///
/// ```cpp
/// double norm = with_workspace(ws, [&](auto& scope) {
///   auto r = scope.template acquire<double>(n);
///   ...
///   return sum;
/// });
/// ```
/// Level 1 searches the result, as `scope::returning` does. Messages give `where`, the place of this call, as
/// the place of the return. A result that is itself a view is no error: the caller may discard it, and its
/// use throws `stale_view`. A result that cannot be moved is not searched.
/// @throws the exceptions of `body`; workspace_escape at level 1. The scope has ended then. Thread-safety:
/// the workspace's.
template <class... Types, int Checks, class Body>
decltype(auto) with_workspace(basic_workspace<Checks>& ws, Body&& body,
                              std::source_location where = std::source_location::current()) {
  typename basic_workspace<Checks>::template scope<Types...> scope{ws, where};
  using result_type = decltype(detail::call_in(scope, std::forward<Body>(body)));
  constexpr bool arrives = std::is_reference_v<result_type> || std::move_constructible<result_type>;
  constexpr bool searched =
      basic_workspace<Checks>::checked && arrives && !detail::checks_itself<std::remove_cvref_t<result_type>>;
  if constexpr (searched) {
    result_type result = detail::call_in(scope, std::forward<Body>(body));
    if constexpr (std::is_reference_v<result_type>) (void)scope.returning(std::addressof(result), where);
    return static_cast<result_type>(scope.returning(std::forward<result_type>(result), where));
  } else {
    return detail::call_in(scope, std::forward<Body>(body));
  }
}

}  // namespace tidemark
