// SPDX-License-Identifier: Apache-2.0
/// @file
/// `expect_resource`: reports blocks of a scope that came from the heap instead. Owns its records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <type_traits>

namespace tidemark {

namespace detail {
class missed_blocks;
}  // namespace detail

/// Finds the blocks that this thread should have allocated from one resource and did not: a container
/// without an allocator argument, a copy, a string of the wrong type.
///
/// ```cpp
/// arena step;
/// expect_resource expected{&step, "step"};
/// std::pmr::vector<float> gradient(1000);                       // forgot &step
/// EXPECT_EQ(expected.missed_blocks(), 0u) << expected.report();  // 1 block of 4000 bytes from the default …
/// ```
/// While a scope is open, a resource that watches stands in the place of the default resource, and passes
/// every request on. `operator new` is watched too where one source of the program includes
/// `<tidemark/diagnose/watched_new.hpp>`; the report says if it is not. docs/containers.md shows which code
/// misses its arena, and what the report says of it.
///
/// Not missed, and not counted:
/// - blocks of other threads;
/// - what a default resource serves that is the expected one itself;
/// - what is allocated inside the expected resource's `do_allocate`;
/// - what any resource of tidemark or of `std::pmr` takes from its upstream, and what they allocate for their
///   records: the innermost function on the stack that is not of the standard library is theirs. That takes
///   the names of functions, so a program whose symbols are stripped shows such blocks as its own;
/// - what is allocated while an `allowance` lives.
///
/// A container that was made with the default resource before the scope does not use the one that watches:
/// what it allocates shows as `operator new`. Such a container and one made inside compare as equal in one
/// direction only, so that a move assignment between them may copy.
///
/// At its end a scope reports `violation_kind::missed_resource` if blocks were missed since
/// `missed_blocks()`, `missed_bytes()` or `report()` was last called, unless an exception is ending it.
///
/// Scopes nest: a missed block counts in every open scope of the thread. Blocks that the scope saw may be
/// deallocated at any time, inside or after it.
///
/// Invariants: `missed_bytes()` is the sum over all missed blocks; each is counted at one of at most
/// `max_places` places, or among the further ones.
///
/// Complexity: a missed block takes a walk of the stack, some microseconds, and no memory; the first at a
/// place also the search for its functions' names. Where no scope is open on the thread an allocation from
/// the resource that watches, or from a watched `operator new`, takes one comparison more. Thread-safety: any
/// number of threads may have scopes; one is used by the thread that made it, and ended by it.
class [[nodiscard]] expect_resource {
 public:
  /// Places that a report tells apart; blocks of further ones are counted together.
  static constexpr std::size_t max_places = 256;
  /// Functions that a report names for each place: the innermost that are the program's own.
  static constexpr std::size_t max_frames = 4;

  /// Begins a scope.
  /// @param expected where the thread's memory should come from; must outlive this object
  /// @param name in the report; must outlive this object
  /// @throws std::invalid_argument if `expected` is null; std::bad_alloc. Nothing has changed then.
  [[nodiscard]] explicit expect_resource(std::pmr::memory_resource const* expected,
                                         char const* name = "expect_resource");
  expect_resource(expect_resource const&) = delete;
  expect_resource& operator=(expect_resource const&) = delete;
  /// Ends the scope. On another thread `violation_kind::wrong_thread` is reported, and the records stay in
  /// memory, because the thread that began it may be writing to them.
  ~expect_resource();

  /// Blocks that came from the default resource or `operator new` so far.
  [[nodiscard]] std::uint64_t missed_blocks() const noexcept;
  /// Their bytes, as requested.
  [[nodiscard]] std::uint64_t missed_bytes() const noexcept;

  /// Where they came from, the most bytes first, a line for each place and each function: with module and
  /// offset, as `addr2line -e` takes them, and the innermost `allocation_site`. O(places · symbols).
  /// @throws std::bad_alloc.
  [[nodiscard]] std::string report() const;

  /// What this thread allocates is meant to come from elsewhere as long as one lives. They nest.
  class [[nodiscard]] allowance {
   public:
    /// From here on, until it is destroyed.
    [[nodiscard]] allowance() noexcept;
    allowance(allowance const&) = delete;
    allowance& operator=(allowance const&) = delete;
    ~allowance();
  };

 private:
  std::unique_ptr<detail::missed_blocks> missed_;
};

static_assert(!std::is_move_constructible_v<expect_resource>, "a thread's scopes are objects that stay");

}  // namespace tidemark
