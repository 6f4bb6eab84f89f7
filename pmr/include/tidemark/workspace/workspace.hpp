// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace`: typed temporary arrays that are reused in each run, and its scopes. Owns their memory, from a
/// `std::pmr::memory_resource`.
///
/// A workspace has a stack of *slots* for each trivially copyable element type. An acquisition returns the
/// next slot of its type and grows a slot that is too small. The end of a scope makes its slots free again.
/// Slots never shrink by themselves: `trim` frees unused slots, and `compact` shrinks slots that are too
/// large.
///
/// The warning handler is called if the end of a scope is skipped. It is also called when a type reaches 512,
/// 1024, … slots, which hints at a loop without a scope.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <tidemark/core/detail/leads_to_memory.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/workspace/detail/escape_search.hpp>
#include <tidemark/workspace/detail/slot_list.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>
#include <tidemark/workspace/workspace_acquisition.hpp>
#include <tidemark/workspace/workspace_options.hpp>

namespace tidemark {
/// Thrown if a view is used after its memory was freed. The message has the elements, the place of the
/// acquisition and the place of the scope that freed the memory. Nothing was read or written. An installed
/// violation handler gets the same text first (`violation_kind::stale_view`), and the exception follows if it
/// returns.
class stale_view final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Thrown if a value that refers to memory of a scope would leave the scope. The message has the elements,
/// the place of the acquisition, the place of the return and the remedy. The scope ends as usual.
class workspace_escape final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
/// @throws std::logic_error with a message. @param opened place of the scope's opening
[[noreturn]] TIDEMARK_COLD void throw_ended_scope(std::source_location opened);
}  // namespace detail

/// Temporary arrays of a function that runs again: the first run allocates them, and later runs reuse them.
///
/// Use it for arrays of numbers with shapes that repeat and lifetimes that nest as calls do. Use an `arena`
/// for objects of any type, and a `pool` if lifetimes do not nest.
///
/// ```cpp
/// double residual(workspace& ws, std::span<double const> x) {
///   workspace::scope scope{ws};
///   std::span<double> r = scope.acquire<double>(x.size());   // the same memory in each call
///   auto hessian = scope.zeros<float>(x.size(), x.size());   // hessian(i, j)
///   auto converged = scope.falses(x.size());                 // packed bits
///   ...
/// }                                                          // and here they are free again
/// ```
/// `workspace_acquisition` declares the forms of acquisition. Memory acquired through the workspace belongs
/// to the innermost open scope; outside scopes it stays until `reset` or `release`.
///
/// Invariants: those of `detail::workspace_core`.
///
/// Complexity: acquiring and opening a scope O(1); the end O(types used), at level 1 O(bytes). Thread-safety:
/// one thread at a time; the first thread owns the workspace until `release_thread_ownership()`.
/// @tparam Checks level: 0 checks nothing (decision 14), 1 is `checked_workspace`
template <int Checks = (check_level >= 2 ? 1 : 0)>
class basic_workspace : public workspace_acquisition<basic_workspace<Checks>, (Checks >= 1)> {
 public:
  /// True at level 1.
  static constexpr bool checked = Checks >= 1;

  /// A scope of the workspace: `workspace::scope scope{ws}`.
  template <class... Types>
  class scope;

  /// Makes a workspace with `default_workspace_options()`. @throws std::bad_alloc.
  basic_workspace() : basic_workspace{default_workspace_options()} {}
  /// Makes a workspace with the default options over `upstream`; null means `global_pool()`.
  explicit basic_workspace(std::pmr::memory_resource* upstream) : basic_workspace{over(upstream)} {}
  /// Makes a workspace with `options`. @throws std::invalid_argument if the alignment is not a power of two.
  explicit basic_workspace(workspace_options const& options) : core_{options, checked} {}
  /// Rejects a size: does not compile, and the message has the right form.
  explicit basic_workspace(std::integral auto bytes) : basic_workspace{} {
    static_assert(
        detail::right_form<decltype(bytes)>,
        "a workspace takes its limit as an option: write workspace ws{{.max_held_bytes = 64 * MiB}}");
  }
  basic_workspace(basic_workspace const&) = delete;
  basic_workspace& operator=(basic_workspace const&) = delete;
  /// Frees all memory. Reports a violation if a scope is still open, because its end would use freed memory.
  ~basic_workspace() = default;

  /// Begins a scope that no object represents; `rewind` ends it. Saves the counts of the named types now, and
  /// the count of another type at its first acquisition. An outermost checkpoint first serves the requests of
  /// the background sweeper, as an outermost scope does.
  /// @throws std::bad_alloc if there is no memory for the record of the checkpoint.
  template <class... Types>
  void checkpoint() {
    (void)open<Types...>(1, "checkpoint");
  }
  /// Ends the innermost checkpoint. Without a checkpoint in the innermost scope, frees the memory that was
  /// acquired in the scope; without a scope, frees all acquired memory. The workspace keeps the slots.
  void rewind(std::source_location where = std::source_location::current()) noexcept { core_.rewind(where); }

  /// Ends all acquisitions and checkpoints, and keeps the memory.
  /// @throws std::logic_error if a scope is open; nothing has changed then.
  void reset(std::source_location where = std::source_location::current()) { core_.reset(where); }
  /// Ends all acquisitions of one type, and keeps their memory. @throws std::logic_error also if a checkpoint
  /// is open.
  template <class T>
  void reset(std::source_location where = std::source_location::current()) {
    if (detail::slot_list* const one = core_.find<T>()) core_.reset(*one, where);
  }
  /// Ends all acquisitions and frees the memory and all records. The workspace is as new.
  /// @throws std::logic_error if a scope is open; nothing has changed then.
  void release(std::source_location where = std::source_location::current()) { core_.release(where); }

  /// Frees the slots that are not in use. Slots in use do not move. Scopes may be open.
  trim_summary trim() noexcept { return core_.trim(); }
  /// Frees the slots of one type that are not in use.
  template <class T>
  trim_summary trim() noexcept {
    detail::slot_list* const one = core_.find<T>();
    return one != nullptr ? core_.trim(one) : trim_summary{};
  }
  /// Frees the slots that were not used since the last call, and starts a new count.
  trim_summary trim_to_recent_peak() noexcept { return core_.trim_to_recent_peak(); }
  /// Shrinks slots that are much larger than their newest request. Slots in use keep their size, because
  /// callers know their addresses. Copies nothing.
  /// @param options any values are valid: no slot gets smaller than its newest request
  compact_summary compact(compact_options const& options = {}) noexcept { return core_.compact(options); }

  /// Returns true if the workspace keeps memory for reuse.
  [[nodiscard]] bool pooling_enabled() const noexcept { return core_.pooling(); }
  /// Returns the number of open scopes and checkpoints. O(slots and saved counts).
  [[nodiscard]] std::size_t depth() const noexcept { return stats().depth; }
  /// Returns a snapshot in numbers. O(slots).
  [[nodiscard]] workspace_stats stats() const noexcept { return core_.stats(); }
  /// Calls `visitor(workspace_type_stats)` for each element type that has slots. O(slots).
  template <class Visitor>
  void for_each_type(Visitor&& visitor) const {
    core_.for_each_type(visitor);
  }
  /// Returns one line: name, check level, types, slots, bytes. @throws std::bad_alloc.
  [[nodiscard]] std::string describe() const { return core_.describe(); }
  /// Returns `describe()` and a line for each element type. @throws std::bad_alloc.
  [[nodiscard]] std::string report() const { return core_.report(); }
  /// Writes `describe()`.
  template <class Stream>
    requires requires(Stream& out, std::string const& text) { out << text; }
  friend Stream& operator<<(Stream& out, basic_workspace const& ws) {
    out << ws.describe();
    return out;
  }

  /// Ends the ownership of the current thread. The next thread that uses the workspace becomes the owner.
  void release_thread_ownership() noexcept { core_.release_thread_ownership(); }
  /// Returns the options in effect, with default resources in place of null.
  [[nodiscard]] workspace_options const& options() const noexcept { return core_.options(); }
  /// Returns the upstream of the slots.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options().upstream; }
  /// Returns the name in messages.
  [[nodiscard]] char const* name() const noexcept { return options().name; }
  /// Reports a violation if an invariant does not hold. O(slots).
  void check_invariants() const noexcept { core_.check_invariants(); }

 private:
  friend detail::workspace_access;

  static workspace_options over(std::pmr::memory_resource* upstream) {
    workspace_options options = default_workspace_options();
    options.upstream = upstream;
    return options;
  }

  // Begins a scope (parity 0) or a checkpoint (1), saves the counts of these types and returns its number.
  template <class... Types>
  [[gnu::always_inline]] std::uint64_t open(std::uint64_t parity, char const* doing) {
    before_use(doing);
    if constexpr (detail::pooling_is_compiled_in) {
      if (core_.is_to_sweep()) [[unlikely]]
        core_.sweep();
    }
    ((void)core_.list<Types>(), ...);  // the calls that may fail come first
    return core_.open(parity, core_.list<Types>()...);
  }
  template <class T>
  detail::slot& claim(std::size_t n, [[maybe_unused]] std::source_location where) {
    before_use("acquisition");
    detail::slot& memory = core_.acquire(core_.list<T>(), n);
    if constexpr (checked) memory.generation->acquired = where;
    return memory;
  }
  [[nodiscard]] detail::workspace_core& core() noexcept { return core_; }
  void before_use([[maybe_unused]] char const* doing) noexcept {
    if constexpr (checked) core_.require_thread(doing);
  }

  detail::workspace_core core_;
};

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

/// Element type of bits: `workspace::scope<double, packed_bits>`, `trim<packed_bits>()`.
using packed_bits = detail::bit_word;

/// A workspace at the configured level: level 1 if `check_level` is at least 2, else level 0.
using workspace = basic_workspace<>;
/// A workspace at level 1 in every configuration. It fills freed memory with values that read as
/// not-a-number. A view that outlives its scope throws `stale_view`; `with_workspace` and `scope::returning`
/// throw `workspace_escape`. It reports the use of a scope while an inner scope is open, and use by a second
/// thread.
using checked_workspace = basic_workspace<1>;

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
