// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace`: typed temporaries that are there again the next time. Owns their memory, which comes from a
/// `std::pmr::memory_resource`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/workspace/detail/slot_list.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>
#include <tidemark/workspace/workspace_acquisition.hpp>
#include <tidemark/workspace/workspace_options.hpp>

namespace tidemark {
namespace detail {

[[nodiscard]] std::string describe(workspace_core const& core);
[[nodiscard]] std::string report(workspace_core const& core);

}  // namespace detail

/// Thrown by a view that is used after its memory was freed: names the elements, where they were
/// acquired and what ended them. Nothing was read or written. A violation handler that the program has
/// installed gets the same text first (`violation_kind::stale_view`); the exception is thrown if it returns.
class stale_view final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Thrown where a value would leave a scope that refers to memory of that scope: names the elements, where
/// they were acquired, where they would have left, and what to do instead. The scope ends as it would have.
class workspace_escape final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Temporaries of a function that runs again: the first run allocates them, and later ones find them.
///
/// Use it for arrays of numbers whose shapes repeat, or nearly, and whose lifetimes nest as calls do. Where
/// sizes differ each time an `arena` wastes less, and it takes objects of all types; where lifetimes do not
/// nest there is `pool`.
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
/// A workspace has a stack of *slots*, pieces of memory, for each element type. An acquisition returns the
/// next one of its type, after growing it if it is too small; the end of a scope takes back those that were
/// acquired in it. float64, float32, int64, int32, complex64, complex128, bool and bits have their lists at
/// fixed places; any other trivially copyable type gets one at its first acquisition. A scope costs nothing
/// for types it does not use.
///
/// `workspace_acquisition` has all forms of acquisition; a workspace and its scopes share them. Memory that
/// is acquired of the workspace belongs to the innermost scope that is open.
///
/// Slots grow, by half at least when they grow again, and never shrink by themselves: `trim` frees those that
/// are not in use, `compact` makes those smaller that are much too large. What is acquired outside all scopes
/// is there until `reset` or `release`.
///
/// At `Checks` 0 nothing is checked (decision 15). At 1, `checked_workspace`, memory is filled when a scope
/// ends with a value that reads as not-a-number, a view that outlives its scope throws `stale_view` when it
/// is used, and `with_workspace` and `scope::returning` throw `workspace_escape`. Use of a scope while one
/// inside it is open, and use by a second thread, are reported.
///
/// The warning handler (`set_warning_handler`) is called for scopes whose end was skipped, and for 512, 1024,
/// … slots of a type, which is what a loop without a scope makes.
///
/// Invariants, checked by `check_invariants()`: `detail/workspace_core.hpp`.
///
/// Complexity: acquisition and the opening of a scope O(1); its end O(1) for each type used in it, and at
/// level 1 for each byte. Thread-safety: one thread at a time, the first to use it until
/// `release_thread_ownership()`; level 1 reports use by another. `this_thread_workspace()` is one for each
/// thread.
template <int Checks = (check_level >= 2 ? 1 : 0)>
class basic_workspace : public workspace_acquisition<basic_workspace<Checks>, (Checks >= 1)> {
 public:
  /// Whether level 1 holds.
  static constexpr bool checked = Checks >= 1;

  /// A scope on it: `workspace::scope scope{ws}`.
  template <class... Types>
  class scope;

  /// With `default_workspace_options()`. @throws std::bad_alloc.
  basic_workspace() : basic_workspace{default_workspace_options()} {}
  /// The same over `upstream`; null: `global_pool()`.
  explicit basic_workspace(std::pmr::memory_resource* upstream) : basic_workspace{over(upstream)} {}
  /// As `options` say. @throws std::invalid_argument if the alignment is not a power of two.
  explicit basic_workspace(workspace_options const& options) : core_{options, checked} {}
  /// A wrong form: does not compile, and says which form is right.
  explicit basic_workspace(std::integral auto bytes) : basic_workspace{} {
    static_assert(
        detail::right_form<decltype(bytes)>,
        "a workspace takes its limit as an option: write workspace ws{{.max_held_bytes = 64 * MiB}}");
  }
  basic_workspace(basic_workspace const&) = delete;
  basic_workspace& operator=(basic_workspace const&) = delete;
  /// Frees all memory. Reports a violation if a scope is still open, whose end would use freed memory.
  ~basic_workspace() = default;

  /// Begins a scope by hand, where no object can represent it; `rewind` ends it. The counts of types that are
  /// named are saved now, of others when they are first acquired. As with scopes, an outermost one first does
  /// what the background sweeper has requested. @throws std::bad_alloc if there is no memory for its record.
  template <class... Types>
  void checkpoint() {
    (void)open<Types...>(1, "checkpoint");
  }
  /// Ends the innermost checkpoint. Where there is no checkpoint in the innermost scope, takes back what was
  /// acquired in that scope, and where there is no scope either, everything.
  void rewind(std::source_location where = std::source_location::current()) noexcept {
    before_use("rewind");
    core_.rewind(where);
  }

  /// Takes everything back and keeps the memory; forgets checkpoints.
  /// @throws std::logic_error if a scope is open; nothing has changed then.
  void reset(std::source_location where = std::source_location::current()) {
    before_use("reset");
    core_.reset(where);
  }
  /// The same for one type. @throws std::logic_error also if a checkpoint is open.
  template <class T>
  void reset(std::source_location where = std::source_location::current()) {
    before_use("reset");
    if (detail::slot_list* const one = find<T>()) core_.reset(*one, where);
  }
  /// Takes everything back and frees it, with all records. The workspace is as new.
  /// @throws std::logic_error if a scope is open; nothing has changed then.
  void release(std::source_location where = std::source_location::current()) {
    before_use("release");
    core_.release(where);
  }

  /// Frees the slots that are not in use. What is in use stays where it is; scopes may be open.
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
  /// Frees the slots that were not used since the last call, and begins to count anew.
  trim_summary trim_to_recent_peak() noexcept {
    before_use("trim");
    return core_.trim_to_recent_peak();
  }
  /// Makes slots smaller that are much larger than their newest request. Those in use stay, because their
  /// addresses are known outside; nothing is copied.
  /// @param options any values will do: no slot gets smaller than its newest request
  compact_summary compact(compact_options const& options = {}) noexcept {
    before_use("compact");
    return core_.compact(options);
  }

  /// Whether memory is kept for the next time.
  [[nodiscard]] bool pooling_enabled() const noexcept { return core_.pooling(); }
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
  void release_thread_ownership() noexcept { core_.release_thread_ownership(); }
  /// The options that hold, with the resources that null stood for.
  [[nodiscard]] workspace_options const& options() const noexcept { return core_.options(); }
  /// The resource that the memory of slots comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options().upstream; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options().name; }
  /// Reports a violation if an invariant does not hold. O(slots).
  void check_invariants() const noexcept {
    detail::invariant_check{"workspace", name()}.report(core_.broken_invariant());
  }

 private:
  friend detail::workspace_access;

  static workspace_options over(std::pmr::memory_resource* upstream) {
    workspace_options options = default_workspace_options();
    options.upstream = upstream;
    return options;
  }

  template <class T>
  [[nodiscard]] detail::slot_list& list() {
    static_assert(std::is_trivially_copyable_v<T>,
                  "a workspace reuses memory as it is: its elements must be trivially copyable");
    static_assert(!std::is_const_v<T>,
                  "memory of a workspace is still to be written: its elements cannot be const");
    if (detail::slot_list* const found = find<T>()) [[likely]]
      return *found;
    return core_.add_other(detail::other_type<T>(), detail::element_of<T>);
  }
  template <class T>
  [[nodiscard]] detail::slot_list* find() noexcept {
    constexpr std::size_t place = detail::fixed_elements::place<T>;
    if constexpr (place < detail::fixed_elements::infos.size()) return &core_.fixed(place);
    else return core_.find_other(detail::other_type<T>());
  }

  // Begins a scope (parity 0) or a checkpoint (1) that saves the counts of these types; returns its number.
  template <class... Types>
  [[gnu::always_inline]] std::uint64_t open(std::uint64_t parity, char const* doing) {
    before_use(doing);
    if constexpr (detail::pooling_is_compiled_in) {
      if (core_.is_to_sweep()) [[unlikely]]
        core_.sweep();
    }
    ((void)list<Types>(), ...);  // what may fail comes first
    const std::uint64_t frame = core_.open(parity, sizeof...(Types));
    core_.save_in_room(frame, list<Types>()...);
    return frame;
  }
  template <class T>
  detail::slot& claim(std::size_t n, [[maybe_unused]] std::source_location where) {
    before_use("acquisition");
    detail::slot& memory = core_.take_anywhere(list<T>(), n);
    if constexpr (checked) memory.generation->acquired = where;
    return memory;
  }
  [[nodiscard]] detail::workspace_core& core() noexcept { return core_; }
  void before_use([[maybe_unused]] char const* doing) noexcept {
    if constexpr (checked) core_.require_thread(doing);
  }

  detail::workspace_core core_;
};

/// Bits as an element type: `workspace::scope<double, packed_bits>`, `trim<packed_bits>()`.
using packed_bits = detail::bit_word;

/// A workspace as tidemark was configured: level 0, and level 1 where `check_level` is 2.
using workspace = basic_workspace<>;
/// A workspace at level 1, whatever the configuration.
using checked_workspace = basic_workspace<1>;

}  // namespace tidemark

#include <tidemark/workspace/workspace_scope.hpp>
