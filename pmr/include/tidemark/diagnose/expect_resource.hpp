// SPDX-License-Identifier: Apache-2.0
/// @file
/// `expect_resource`: reports a scope's blocks that came from the heap instead of a resource. Owns its
/// records.
///
/// Not counted as missed:
/// - blocks of other threads;
/// - blocks of a default resource that is the expected resource itself;
/// - allocations inside the expected resource's `do_allocate`;
/// - blocks that a resource of tidemark or `std::pmr` takes from its upstream or allocates for its records.
///   The innermost function on the stack outside the standard library identifies such blocks. This needs
///   function names, so a program with stripped symbols reports these blocks as its own;
/// - allocations while an `allowance` lives.
///
/// A container made with the default resource before the scope does not use the watching resource, and its
/// allocations appear as `operator new`. The resources of such a container and of a container made inside the
/// scope compare equal in one direction only. A move assignment between the containers may therefore copy.
///
/// A missed block costs a stack walk, some microseconds, and no memory. The first block at a place also looks
/// up the names of its functions. Without an open scope on the thread, an allocation from the watching
/// resource or a watched `operator new` takes one extra comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <type_traits>

#include <tidemark/core/macros.hpp>

namespace tidemark {

namespace detail {
class missed_blocks;

/// The calling thread's innermost open scope, or null.
extern constinit thread_local missed_blocks* innermost_scope;

/// Counts a block of `operator new` in the open scopes. @param caller return address of `operator new`
TIDEMARK_COLD void on_operator_new(std::size_t bytes, void const* caller) noexcept;

}  // namespace detail

/// Detects blocks of this thread that should have come from one resource: from a container without an
/// allocator argument, a copy, a string of the wrong type.
///
/// ```cpp
/// arena step;
/// expect_resource expected{&step, "step"};
/// std::pmr::vector<float> gradient(1000);                       // forgot &step
/// EXPECT_EQ(expected.missed_blocks(), 0u) << expected.report();  // 1 block of 4000 bytes from the default …
/// ```
/// While a scope is open, a watching resource replaces the default resource and forwards every request.
/// `operator new` is watched too if one source of the program includes `<tidemark/diagnose/watched_new.hpp>`.
/// docs/containers.md shows which code misses its arena.
///
/// Blocks of a scope may be deallocated inside or after it.
///
/// Invariants: `missed_bytes()` is the sum over all missed blocks. Each block is counted at one of at most
/// `max_places` places, or in the remainder.
///
/// Thread-safety: any number of threads may have scopes; the thread that made a scope uses and ends it.
class [[nodiscard(TIDEMARK_NAME_SCOPE)]] expect_resource {
 public:
  /// Places that a report distinguishes; blocks of further places are counted together.
  static constexpr std::size_t max_places = 256;
  /// Functions that a report names per place: the innermost functions of the program itself.
  static constexpr std::size_t max_frames = 4;

  /// Begins a scope. Scopes nest: a missed block counts in every open scope of the thread.
  /// @param expected resource that the thread should use; must outlive this object
  /// @param name used in the report; must outlive this object
  /// @throws std::invalid_argument if `expected` is null; std::bad_alloc. Nothing has changed then.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] explicit expect_resource(std::pmr::memory_resource const* expected,
                                                              char const* name = "expect_resource");
  expect_resource(expect_resource const&) = delete;
  expect_resource& operator=(expect_resource const&) = delete;
  /// Ends the scope. Reports `violation_kind::missed_resource` if blocks were missed since the last call of
  /// `missed_blocks()`, `missed_bytes()` or `report()`, unless an exception ends the scope. Ending it on
  /// another thread reports `violation_kind::wrong_thread` and keeps the records, because the thread that
  /// began the scope may be writing to them.
  ~expect_resource();

  /// Blocks that came from the default resource so far, and from `operator new` if the program includes
  /// `watched_new.hpp`.
  [[nodiscard]] std::uint64_t missed_blocks() const noexcept;
  /// Bytes of these blocks, as requested.
  [[nodiscard]] std::uint64_t missed_bytes() const noexcept;

  /// Sources of the missed blocks, most bytes first: a line for each place and each function, with module and
  /// offset for `addr2line -e`, and the innermost `allocation_site`. Says if `operator new` was not watched.
  /// O(places · symbols).
  /// @throws std::bad_alloc.
  [[nodiscard]] std::string report() const;

  /// Marks this thread's allocations as intended while it lives. Allowances nest.
  class [[nodiscard(TIDEMARK_NAME_SCOPE)]] allowance {
   public:
    /// Begins the allowance; its destructor ends it.
    [[nodiscard(TIDEMARK_NAME_SCOPE)]] allowance() noexcept;
    allowance(allowance const&) = delete;
    allowance& operator=(allowance const&) = delete;
    ~allowance();
  };

 private:
  std::unique_ptr<detail::missed_blocks> missed_;
};

static_assert(!std::is_move_constructible_v<expect_resource>, "a thread's scopes are objects that stay");

}  // namespace tidemark
