// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace`: typed temporary arrays that are reused in each run. Owns their memory, which comes from a
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

/// Element type of bits: `workspace::scope<double, packed_bits>`, `trim<packed_bits>()`.
using packed_bits = detail::bit_word;

/// A workspace at the configured level: level 1 if `check_level` is at least 2, else level 0.
using workspace = basic_workspace<>;
/// A workspace at level 1 in every configuration. It fills freed memory with values that read as
/// not-a-number. A view that outlives its scope throws `stale_view`; `with_workspace` and `scope::returning`
/// throw `workspace_escape`. It reports the use of a scope while an inner scope is open, and use by a second
/// thread.
using checked_workspace = basic_workspace<1>;

}  // namespace tidemark

#include <tidemark/workspace/workspace_scope.hpp>
