// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace`: typed temporaries that are there again the next time. Owns their memory, which comes from a
/// `std::pmr::memory_resource`.
#pragma once

#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <memory_resource>
#include <source_location>
#include <string>
#include <type_traits>

#include <tidemark/detail/slot_list.hpp>
#include <tidemark/detail/workspace_core.hpp>
#include <tidemark/workspace_acquisition.hpp>
#include <tidemark/workspace_compaction.hpp>
#include <tidemark/workspace_options.hpp>
#include <tidemark/workspace_stats.hpp>

namespace tidemark {
namespace detail {

/// The types that have a list in every workspace, in order; any other is looked up by a number.
template <class T>
inline constexpr std::size_t fixed_type = workspace_core::fixed_types;  // none
template <>
inline constexpr std::size_t fixed_type<double> = 0;
template <>
inline constexpr std::size_t fixed_type<float> = 1;
template <>
inline constexpr std::size_t fixed_type<std::int64_t> = 2;
template <>
inline constexpr std::size_t fixed_type<std::int32_t> = 3;
template <>
inline constexpr std::size_t fixed_type<std::complex<float>> = 4;
template <>
inline constexpr std::size_t fixed_type<std::complex<double>> = 5;
template <>
inline constexpr std::size_t fixed_type<bool> = 6;
template <>
inline constexpr std::size_t fixed_type<bit_word> = 7;

inline constexpr std::array<element_info const*, workspace_core::fixed_types> fixed_elements{
    &element_of<double>,
    &element_of<float>,
    &element_of<std::int64_t>,
    &element_of<std::int32_t>,
    &element_of<std::complex<float>>,
    &element_of<std::complex<double>>,
    &element_of<bool>,
    &element_of<bit_word>};

[[nodiscard]] std::string describe(workspace_core const& core);
[[nodiscard]] std::string report(workspace_core const& core);

}  // namespace detail

template <workspace_policy Policy, class... Types>
class basic_workspace_scope;

/// Temporaries of a function that runs again: the first run allocates them, every later one finds them.
///
/// Use it for arrays of numbers whose shapes repeat, or nearly, and whose lives nest as calls do. Where sizes
/// differ each time an `arena` wastes less, and it takes objects of all types; where lives do not nest there
/// is `pool`.
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
/// A workspace has a stack of *slots*, pieces of memory, for each element type. An acquisition hands out the
/// next one of its type, after growing it if it is too small; the end of a scope takes those back that were
/// handed out in it. float64, float32, int64, int32, complex64, complex128, bool and bits have their lists at
/// fixed places; any other trivially copyable type gets one when it is first asked for. A scope costs nothing
/// for types it does not use.
///
/// `workspace_acquisition` has all forms of asking; a workspace and its scopes share them. Memory that is
/// acquired of the workspace, by a function that knows no scope, belongs to the innermost scope that is open.
///
/// Slots grow, by half at least when they grow again, and never shrink by themselves: `trim` gives back those
/// that are not handed out, `compact` makes those smaller that are much too large. What is acquired outside
/// all scopes is there until `reset` or `release`.
///
/// At `checks` 0 (`workspace_policy`) nothing is checked. At 1, `checked_workspace`, a view that outlives its
/// scope throws `stale_view` when it is used, its memory reads as not-a-number until somebody else writes it,
/// and `with_workspace` and `scope::returning` throw `workspace_escape`.
///
/// What is no misuse but worth a word goes to the warning handler, which is nobody until
/// `set_warning_handler`: scopes whose end was skipped, and 512, 1024, … slots of a type, which is what a
/// loop without a scope makes.
///
/// Invariants, checked by `check_invariants()`: `detail/workspace_core.hpp`.
///
/// Complexity: acquisition and the opening of a scope O(1); its end O(1) for each type used in it, and at
/// level 1 for each byte. Thread-safety: one thread at a time, the first to use it until `hand_over()`; level
/// 1 reports use by another. `this_thread_workspace()` gives each thread its own.
template <workspace_policy Policy = workspace_policy{}>
class basic_workspace : public workspace_acquisition<basic_workspace<Policy>, (Policy.checks >= 1)> {
 public:
  static constexpr workspace_policy policy = Policy;
  /// Whether level 1 holds.
  static constexpr bool checked = Policy.checks >= 1;

  /// A scope on it: `workspace::scope scope{ws}`.
  template <class... Types>
  using scope = basic_workspace_scope<Policy, Types...>;

  /// With `default_workspace_options()`. @throws std::bad_alloc.
  basic_workspace() : basic_workspace{default_workspace_options()} {}
  /// The same over `upstream`; null: `global_pool()`.
  explicit basic_workspace(std::pmr::memory_resource* upstream) : basic_workspace{over(upstream)} {}
  /// As `options` say. @throws std::invalid_argument if the alignment is not a power of two.
  explicit basic_workspace(workspace_options const& options)
      : core_{options, Policy, detail::fixed_elements} {}
  basic_workspace(basic_workspace const&) = delete;
  basic_workspace& operator=(basic_workspace const&) = delete;
  /// Gives all memory back. Reports a violation if a scope is still open, whose end would touch what is gone.
  ~basic_workspace() = default;

  /// Begins a scope by hand, for code in which no object can stand for it; `rewind` ends it. Types that are
  /// named are saved now, others when they are first acquired. As with scopes, an outermost one first does
  /// what the background sweeper has asked for. @throws std::bad_alloc if its record finds no memory.
  template <class... Types>
  void checkpoint() {
    (void)open<Types...>(1, "checkpoint");
  }
  /// Ends the innermost checkpoint. Where none is open in the innermost scope, takes back what that scope
  /// handed out, and where there is no scope either, everything.
  void rewind(std::source_location where = std::source_location::current()) noexcept {
    before_use("rewind");
    core_.rewind(where);
  }

  /// Takes everything back and keeps the memory; forgets checkpoints.
  /// @throws std::logic_error if a scope is open; nothing has changed then.
  void reset(std::source_location where = std::source_location::current()) {
    before_use("reset");
    core_.require_closed("reset");
    if (unpooled_ != nullptr) unpooled_->reset(where);
    core_.reset(where);
  }
  /// The same for one type. @throws std::logic_error also if a checkpoint is open.
  template <class T>
  void reset(std::source_location where = std::source_location::current()) {
    before_use("reset");
    if (detail::slot_list* const one = find<T>()) core_.reset(*one, where);
  }
  /// Takes everything back and gives it to the upstream, with all records. The workspace is as new.
  /// @throws std::logic_error if a scope is open; nothing has changed then.
  void release(std::source_location where = std::source_location::current()) {
    before_use("release");
    core_.require_closed("release");
    if (unpooled_ != nullptr) unpooled_->release(where);
    unpooled_ = nullptr;
    core_.release(where);
  }

  /// Gives back the slots that are not handed out. What is handed out stays where it is; scopes may be open.
  trim_summary trim() noexcept {
    before_use("trim");
    return core_.trim();
  }
  /// The same for one type.
  template <class T>
  trim_summary trim() noexcept {
    before_use("trim");
    detail::slot_list* const one = find<T>();
    return one != nullptr ? core_.trim(*one) : trim_summary{};
  }
  /// Gives back the slots that were not handed out since the last call, and begins to count anew.
  trim_summary trim_to_recent_peak() noexcept {
    before_use("trim");
    return core_.trim_to_recent_peak();
  }
  /// Makes slots smaller that are much larger than their newest request. Those that are handed out stay,
  /// because nobody can tell who knows their address; nothing is copied.
  /// @param options any values will do: no slot gets smaller than its newest request
  compact_summary compact(compact_options const& options = {}) noexcept {
    before_use("compact");
    return core_.compact(options, detail::workspace_core::measure::newest);
  }

  /// Whether memory is kept for the next time.
  [[nodiscard]] bool pooling_enabled() const noexcept { return core_.pooling(); }
  /// A workspace of the same options that keeps no memory: each acquisition is one allocation of the
  /// upstream, given back when its scope ends. Made at the first call. @throws std::bad_alloc.
  [[nodiscard]] basic_workspace& unpooled() {
    if (!pooling_enabled()) return *this;
    if (unpooled_ == nullptr) {
      workspace_options options = core_.options();
      options.pooling = false;
      unpooled_ = std::make_unique<basic_workspace>(options);
    }
    return *unpooled_;
  }

  /// Number of scopes and checkpoints that are open. O(slots and saved counts).
  [[nodiscard]] std::size_t depth() const noexcept { return stats().depth; }
  /// A snapshot in numbers. O(slots).
  [[nodiscard]] workspace_stats stats() const noexcept { return core_.stats(); }
  /// Calls `visitor(workspace_type_stats)` for each element type that has slots. O(slots).
  template <class Visitor>
  void for_each_type(Visitor&& visitor) const {
    core_.for_each_type(visitor);
  }
  /// One line: name, check level, types, slots, bytes. @throws std::bad_alloc.
  [[nodiscard]] std::string describe() const { return detail::describe(core_); }
  /// The same, and a line for each element type. @throws std::bad_alloc.
  [[nodiscard]] std::string report() const { return detail::report(core_); }
  /// Writes `describe()`.
  template <class Stream>
    requires requires(Stream& out, std::string const& text) { out << text; }
  friend Stream& operator<<(Stream& out, basic_workspace const& ws) {
    out << ws.describe();
    return out;
  }

  /// Lets another thread be the one that uses it: the next one that does.
  void hand_over() noexcept {
    core_.hand_over();
    if (unpooled_ != nullptr) unpooled_->hand_over();
  }
  /// The options that hold, with the resources that null stood for.
  [[nodiscard]] workspace_options const& options() const noexcept { return core_.options(); }
  /// The resource that the memory of slots comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options().upstream; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options().name; }
  /// Reports a violation if an invariant does not hold. O(slots).
  void check_invariants() const noexcept {
    if (char const* const broken = core_.broken_invariant()) {
      detail::report_violation(violation_kind::invariant, name(), "workspace '%s': invariant broken: %s",
                               name(), broken);
    }
  }

 private:
  friend workspace_acquisition<basic_workspace, checked>;
  template <workspace_policy, class...>
  friend class basic_workspace_scope;

  static workspace_options over(std::pmr::memory_resource* upstream) {
    workspace_options options = default_workspace_options();
    options.upstream = upstream;
    return options;
  }

  template <class T>
  [[nodiscard]] detail::slot_list& list() {
    static_assert(std::is_trivially_copyable_v<T>,
                  "a workspace hands memory out again as it is: its elements must be trivially copyable");
    static_assert(!std::is_const_v<T>,
                  "a workspace hands out memory that is still to be written: its elements cannot be const");
    if constexpr (detail::fixed_type<T> < detail::workspace_core::fixed_types) {
      return core_.fixed(detail::fixed_type<T>);
    } else {
      return core_.other(detail::other_type<T>(), detail::element_of<T>);
    }
  }
  template <class T>
  [[nodiscard]] detail::slot_list* find() noexcept {
    if constexpr (detail::fixed_type<T> < detail::workspace_core::fixed_types) {
      return &core_.fixed(detail::fixed_type<T>);
    } else {
      return core_.find_other(detail::other_type<T>());
    }
  }

  // Begins a scope (parity 0) or a checkpoint (1) that saves the counts of these types; returns its number.
  template <class... Types>
  [[gnu::always_inline]] std::uint64_t open(std::uint64_t parity, char const* doing) {
    before_use(doing);
    if constexpr (Policy.sweeps) {
      if (core_.is_to_sweep()) [[unlikely]]
        core_.sweep();
    }
    ((void)list<Types>(), ...);  // what may fail comes first
    const std::uint64_t frame = core_.open(parity, sizeof...(Types));
    core_.save_in_room(list<Types>()...);
    return frame;
  }
  template <class T>
  detail::slot& claim(std::size_t n, [[maybe_unused]] std::source_location where) {
    before_use("acquisition");
    detail::slot& memory = core_.take(list<T>(), n);
    if constexpr (checked) memory.life->acquired = where;
    return memory;
  }
  [[nodiscard]] detail::workspace_core& core() noexcept { return core_; }
  void before_use([[maybe_unused]] char const* doing) noexcept {
    if constexpr (checked) core_.require_thread(doing);
  }

  detail::workspace_core core_;
  std::unique_ptr<basic_workspace> unpooled_;
};

/// Names bits where an element type is asked for: `workspace::scope<double, packed_bits>`,
/// `trim<packed_bits>()`.
using packed_bits = detail::bit_word;

/// A workspace as tidemark was configured: level 0, and level 1 where `check_level` is 2.
using workspace = basic_workspace<>;
/// A workspace at level 1, whatever the configuration.
using checked_workspace = basic_workspace<workspace_policy{.checks = 1}>;

}  // namespace tidemark

#include <tidemark/workspace_scope.hpp>
