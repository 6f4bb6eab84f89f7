// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace::scope`: what is acquired between its opening and its end is free again afterwards. Owns
/// nothing.
#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <tidemark/detail/escape.hpp>
#include <tidemark/detail/named_range.hpp>
#include <tidemark/detail/sanitizers.hpp>
#include <tidemark/reuse_fence.hpp>
#include <tidemark/violation.hpp>
#include <tidemark/workspace.hpp>
#include <tidemark/workspace_acquisition.hpp>
#include <tidemark/workspace_errors.hpp>

namespace tidemark {

/// Takes back, when it is destroyed, what was acquired of its workspace since it was made: through it, or
/// through the workspace by a function that was called.
///
/// ```cpp
/// workspace::scope scope{ws};                  // any types
/// workspace::scope<double, int> scope{ws};     // the same, and the counts of these two are saved at once
/// ```
/// It has all forms of acquisition that the workspace has, and clang warns where what they return leaves the
/// function of the scope. Scopes nest. One that ends while others inside it are open, or checkpoints, ends
/// those too, and tells the warning handler; they do nothing at their own ends then. It stays where it is
/// made: it is neither copied nor moved. Level 1 reports acquisition through a scope that is not the
/// innermost, or inside which a checkpoint is open: the memory would vanish with that; at level 0 it vanishes
/// with either.
///
/// Complexity: opening O(types named), the end O(types used), at level 1 O(bytes). Thread-safety: the
/// workspace's.
template <workspace_policy Policy, class... Types>
class [[nodiscard]] basic_workspace_scope
    : public workspace_acquisition<basic_workspace_scope<Policy, Types...>, (Policy.checks >= 1)> {
 public:
  using workspace_type = basic_workspace<Policy>;
  /// Whether level 1 holds.
  static constexpr bool checked = workspace_type::checked;

  /// Opens it. An outermost one first does what the background sweeper has asked for.
  /// @throws std::bad_alloc if its record finds no memory, which can happen only while scopes nest deeper, or
  /// save more counts, than ever since `release`; or a named type's list. Nothing is open then.
  // Inlined whatever the compiler thinks of its size, which is that of its cold parts: measured, 3 ns of 10.
  [[gnu::always_inline]] explicit basic_workspace_scope(
      workspace_type& ws TIDEMARK_LIFETIMEBOUND,
      [[maybe_unused]] std::source_location where = std::source_location::current())
      : workspace_{&ws},
        frame_{ws.template open<Types...>(0, "opening of a scope")},
        range_{detail::range_kind::workspace_scope, ws.name()} {
    if constexpr (checked) where_ = where;
  }
  basic_workspace_scope(basic_workspace_scope const&) = delete;
  basic_workspace_scope& operator=(basic_workspace_scope const&) = delete;
  [[gnu::always_inline]] ~basic_workspace_scope() { end(); }

  /// Ends it now.
  [[gnu::always_inline]] void end() noexcept {
    if (workspace_ == nullptr) return;
    workspace_type& ws = *std::exchange(workspace_, nullptr);
    ws.before_use("end of a scope");
    constexpr bool always_retires = checked || detail::tools_are_told || !Policy.pooling;
    if (always_retires || !ws.core_.pooling()) [[unlikely]] {
      ws.core_.template close<true>(frame_, where());
    } else {
      ws.core_.template close<false>(frame_, where());
    }
    range_ = {};
  }
  /// Ends it now, though work elsewhere still uses its memory: who needs a slot of it again before the fence
  /// is done waits for that. For work that a device's streams still have to do. Level 1 must not fill this
  /// memory, and does not. Who gives such a slot back waits too: trims, compactions and sweeps, releases.
  /// Waits here if there is no memory to remember the fence, if memory is not kept, or if the scope has
  /// ended.
  void end_after(reuse_fence fence) noexcept {
    if (workspace_ == nullptr) {
      fence.wait();
      return;
    }
    workspace_->before_use("end of a scope");
    workspace_->core_.put_behind(frame_, std::move(fence));
    end();
  }

  /// `value`, as it is; level 1 looks into it first. To be returned: `return scope.returning(sum);`
  ///
  /// Looked into are pointers, spans and other contiguous ranges, views, tensor headers, and through tuples,
  /// optionals, variants, unique pointers and ranges of such, at any depth; `detail/escape.hpp` has the list.
  /// A class of your own, and what a lambda has captured, is not looked through, unless a function says how:
  /// ```cpp
  /// template <class Visit>
  /// void visit_memory(fit const& f, Visit&& visit) { visit(f.slopes); }  // found by its argument
  /// ```
  /// @throws workspace_escape if it refers to memory that this scope will take back.
  template <class T>
  [[nodiscard]] T&& returning(T&& value,
                              [[maybe_unused]] std::source_location where = std::source_location::current()) {
    if constexpr (checked) {
      if (workspace_ != nullptr) detail::require_no_escape(workspace_->core_, frame_, value, where);
    }
    return std::forward<T>(value);
  }

  /// Whether it is open.
  [[nodiscard]] explicit operator bool() const noexcept { return workspace_ != nullptr; }
  /// The workspace, to be handed to functions. @pre it is open.
  [[nodiscard]] workspace_type& workspace() const noexcept { return *workspace_; }

 private:
  friend workspace_acquisition<basic_workspace_scope, checked>;
  struct nowhere {};

  template <class T>
  [[nodiscard]] detail::slot_list& list() {
    if constexpr (checked) require_open();
    return workspace_->template list<T>();
  }
  template <class T>
  detail::slot& claim(std::size_t n, std::source_location where) {
    if constexpr (checked) {
      require_innermost();
      return workspace_->template claim<T>(n, where);
    } else if constexpr ((std::is_same_v<T, Types> || ...)) {
      return workspace_->core_.take_saved(list<T>(), n);
    } else {
      return workspace_->core_.take(list<T>(), n);
    }
  }
  [[nodiscard]] detail::workspace_core& core() {
    if constexpr (checked) require_open();
    return workspace_->core_;
  }
  void require_open() const {
    if (workspace_ == nullptr)
      throw std::logic_error{"a workspace's scope that has ended is asked for memory"};
  }
  void require_innermost() const {
    require_open();
    if (workspace_->core_.frame() == frame_) return;
    detail::report_violation(
        violation_kind::outer_scope_use, workspace_->name(),
        "workspace '%s': acquiring through an outer scope while a scope or checkpoint inside it is "
        "open; the memory would vanish when the inner one ends",
        workspace_->name());
  }
  [[nodiscard]] std::source_location where() const noexcept {
    if constexpr (checked) return where_;
    else return {};
  }

  workspace_type* workspace_;  // null: it has ended
  std::uint64_t frame_;        // its number
  [[no_unique_address]] std::conditional_t<checked, std::source_location, nowhere>
      where_;  // where it was opened
  [[no_unique_address]] detail::named_range range_;
};

}  // namespace tidemark
