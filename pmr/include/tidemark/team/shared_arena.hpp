// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_arena`: bump allocation for a team of threads, with one rewind for all of them. `local_arena`: one
/// thread's part. The arena owns its memory until it is destroyed. Its scopes own no memory.
///
/// Each thread claims extents of whole pages under a lock, and bumps inside them without one. The
/// thread's first touch places the pages near it. At most one extent of each thread, and a quarter of the
/// bytes in all other extents, are unused (`detail::extent_memory`).
#pragma once

#include <concepts>
#include <cstddef>
#include <memory_resource>
#include <source_location>
#include <utility>

#include <tidemark/arena/arena.hpp>
#include <tidemark/arena/arena_options.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/team/detail/extent_memory.hpp>
#include <tidemark/team/detail/shared_arena_rewind.hpp>
#include <tidemark/team/detail/shared_arena_state.hpp>
#include <tidemark/team/shared_arena_options.hpp>

namespace tidemark {

/// `shared_arena::scope`: records the position of all threads, and rewinds to it when it is destroyed.
///
/// ```cpp
/// shared_arena::scope step{team};
/// std::vector<std::jthread> threads = ...;   // allocate on `team`
/// threads.clear();                           // they have ended before the brace
/// ```
/// Open and end the scope at a quiescent point: no other thread uses the arena then. Scopes of an arena end
/// in the reverse order of their opening. The arena reports an outer scope that ends first, and keeps its
/// memory until the inner scope ends. It also reports an end if a thread holds a newer thread scope or has
/// rewound past the beginning. The memory then stays until the arena rewinds past the beginning.
///
/// The arena must outlive the scope. It can be moved, but not assigned; a moved-from or ended scope is inert.
/// O(threads + extents freed).
template <class AddressSpace>
class [[nodiscard(TIDEMARK_NAME_SCOPE)]] basic_shared_arena_scope {
 public:
  using arena_type = basic_shared_arena<AddressSpace>;

  /// Opens a scope on `arena`. @throws std::bad_alloc if the position cannot be recorded.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] explicit basic_shared_arena_scope(
      arena_type& arena TIDEMARK_LIFETIMEBOUND, detail::call_site where = std::source_location::current())
      : arena_{&arena}, begin_{arena.mark()}, outer_{std::exchange(arena.innermost_, this)}, where_{where} {}
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] basic_shared_arena_scope(basic_shared_arena_scope&& other) noexcept
      : arena_{std::exchange(other.arena_, nullptr)},
        begin_{other.begin_},
        outer_{other.outer_},
        where_{other.where_} {
    if (arena_ == nullptr) return;
    basic_shared_arena_scope** link = &arena_->innermost_;
    while (*link != &other) link = &(*link)->outer_;
    *link = this;
  }
  basic_shared_arena_scope& operator=(basic_shared_arena_scope const&) = delete;
  ~basic_shared_arena_scope() { end(); }

  /// Ends the scope now. Does nothing for an inert scope.
  void end() noexcept {
    if (arena_ != nullptr) std::exchange(arena_, nullptr)->close(*this);
  }
  /// Returns true if the scope is open.
  [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
  /// Returns the arena, for `std::pmr` containers. @pre The scope is open; otherwise level 2 reports a
  /// violation and throws std::logic_error.
  [[nodiscard]] arena_type& arena() const noexcept(check_level < 2) {
    if constexpr (check_level >= 2)
      if (arena_ == nullptr) detail::throw_not_open("shared_arena", where_);
    return *arena_;
  }
  /// Rejected: a container takes a resource, and its own error for a scope is long.
  template <class T TIDEMARK_SENTENCE("a container takes a resource: write &scope.arena()")>
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator std::pmr::polymorphic_allocator<T>() const
      TIDEMARK_DELETED("a container takes a resource: write &scope.arena()");

 private:
  friend detail::shared_arena_state<AddressSpace>;

  arena_type* arena_ = nullptr;  // null: inert
  shared_arena_mark begin_;
  basic_shared_arena_scope* outer_ = nullptr;      // previous innermost scope
  [[no_unique_address]] detail::call_site where_;  // level 2 only
};

/// One thread's part of a shared arena, the result of `shared_arena::local()`: an arena that only this thread
/// uses, and not during a rewind of the shared arena. Level 2 reports both violations.
///
/// ```cpp
/// local_arena& local = team.local();
/// std::pmr::vector<int> indices{&local};
/// {
///   local_arena::scope scope{local};   // a thread scope: frees what this thread allocates in it
///   auto row = local.push_array<double>(n);
/// }
/// ```
/// Rewinds of the shared arena or of this thread free its blocks. A thread scope must end before the
/// shared arena is rewound to a point before the beginning of the scope. The part stays valid after a rewind,
/// reset, trim or release of the shared arena. It ends with the shared arena, and another thread may get it
/// when its thread ends or leaves. Positions, `pop` and `stats` do not count blocks that have their own
/// extents. `deallocate` does nothing for blocks of other threads.
template <class AddressSpace>
using basic_local_arena = basic_arena<detail::extent_memory<AddressSpace>>;

/// An arena on which many threads allocate at once and which one call rewinds for all. Use it for a parallel
/// step of OpenMP, TBB or std::thread.
///
/// ```cpp
/// shared_arena team{{.reserve = 8 * GiB, .name = "step"}};
/// for (int i = 0; i < 1000; ++i) {
///   shared_arena::scope scope{team};                // what all threads allocate below vanishes at the brace
/// #pragma omp parallel
///   {
///     local_arena& local = team.local();            // this thread's part
///     std::span<float> x = local.push_array<float>(4096);
///     std::pmr::vector<int> indices{&local};        // or {&team}: a resource for any thread
///   }
/// }
/// ```
/// `mark`, `rewind`, `reset`, `release`, `trim`, the statistics, and the opening and end of a scope need a
/// *quiescent point*: no other thread uses the arena, and a barrier or the end of a parallel region orders
/// earlier uses.
///
/// Invariants: those of `arena` for each thread's part, those of `detail::extent_region`, and `sum of what
/// threads hold + free == claimed` for the bytes in extents.
///
/// Thread-safety: any thread may call `allocate`, `deallocate`, `local` and `leave`, except at a quiescent
/// point. docs/reference/fork.md describes forks.
/// @tparam AddressSpace source of memory that the host can access
template <class AddressSpace>
class basic_shared_arena final : public detail::shared_arena_state<AddressSpace> {
  using state = detail::shared_arena_state<AddressSpace>;

 public:
  using scope = basic_shared_arena_scope<AddressSpace>;
  using local_type = basic_local_arena<AddressSpace>;

  static constexpr std::size_t default_alignment = state::default_alignment;
  /// Maximum places of `local(index)` if `team_options` does not set the number of threads.
  static constexpr std::size_t max_places = state::max_places;

  /// Makes a shared arena on virtual memory. With `team.threads` each thread reserves its share of
  /// `options.reserve`.
  /// @throws out_of_memory if the reservation fails; std::bad_alloc.
  template <class Options = arena_options>
    requires std::same_as<Options, arena_options> && std::same_as<AddressSpace, virtual_memory>
  explicit basic_shared_arena(Options options = {}, team_options team = {})
      : basic_shared_arena(virtual_memory{{options.huge_pages, options.prefault}}, options, team) {}
  /// Makes a shared arena on `space`, with the space's own options for huge pages and prefaulting. @throws as
  /// above.
  explicit basic_shared_arena(AddressSpace space, arena_options options = {}, team_options team = {})
      : state{std::move(space), options, team} {}
  /// Rejects a size or a resource: does not compile, and the message has the right form.
  template <class Argument>
    requires std::integral<Argument> || std::convertible_to<Argument, std::pmr::memory_resource*>
  explicit basic_shared_arena(Argument) : basic_shared_arena() {
    static_assert(
        detail::right_form<Argument>,
        "a shared arena takes options: write shared_arena team{{.reserve = 64 * MiB}, {.threads = 4}}");
  }
  /// Runs the destructors of `make`. Reports a violation if a scope is still open, and makes the scope inert.
  ~basic_shared_arena() override { this->end(); }

  /// As `basic_arena::allocate` for the calling thread, which is found through thread-local storage.
  /// @throws also std::bad_alloc if there is no memory for a new thread's record; std::logic_error if all
  /// `team_options::threads` places are taken.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND {
    if (const auto slot = this->threads_.own_slot(); slot.owner == this->threads_.number()) [[likely]]
      return slot.part->arena.allocate(bytes, align);
    return this->part_of_this_thread().arena.allocate(bytes, align);
  }
  /// As `basic_arena::deallocate` for the newest block of the calling thread and its recent blocks with their
  /// own extents. Does nothing for blocks of other threads.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if (auto* const own = this->threads_.find()) own->arena.deallocate(block, bytes, align);
  }

  /// Returns the calling thread's part, which is only for this thread. Give `&team` to containers that
  /// outlive the thread. @throws as `allocate` for a new thread.
  [[nodiscard]] local_type& local(detail::call_site where = std::source_location::current()) {
    return state::local(where);
  }
  /// Returns the part of place `index`, such as `omp_get_thread_num()`. With `team_options::threads` the
  /// addresses are then the same in each run of a program, in any order of the threads.
  /// @throws std::invalid_argument if `index` is not below `team_options::threads`, or `max_places` without
  /// them; std::logic_error if another thread holds the place, or the calling thread has another place.
  /// Nothing has changed then.
  [[nodiscard]] local_type& local(std::size_t index,
                                  detail::call_site where = std::source_location::current()) {
    return state::local(index, where);
  }
  /// Ends the calling thread's place, as if the thread ended. Its blocks stay, and another
  /// thread continues in its extents. Does nothing for a thread without a place. Reports a violation if the
  /// thread holds a thread scope; no other thread gets the place then.
  void leave() noexcept { state::leave(); }

  /// Returns the position of all threads. At a quiescent point. O(threads). @throws std::bad_alloc if the
  /// position cannot be recorded; nothing has changed then.
  [[nodiscard]] shared_arena_mark mark() { return state::mark(); }
  /// Frees all threads' blocks that are newer than `mark`, and ends later marks. The mark stays valid. Every
  /// thread keeps its current extent, and all other free memory is available to any thread. The calling
  /// thread runs the destructors of `make`, in reverse order of each thread's constructions, one thread after
  /// another. At a quiescent point. Complexity: O(threads + n log n) for n freed extents, plus the
  /// destructors.
  /// @throws std::invalid_argument, with nothing changed, if the mark is of another arena, has ended, or is
  /// older than an open scope of the arena; also if a thread holds a newer thread scope or has rewound to a
  /// point before the mark.
  void rewind(shared_arena_mark const& mark, detail::call_site where = std::source_location::current()) {
    this->rewind_to(mark, "rewind", where);
  }
  /// Frees all blocks, ends all marks, and keeps the memory. At a quiescent point. @throws std::logic_error,
  /// with nothing changed, if a scope of the arena or of a thread is open.
  void reset(detail::call_site where = std::source_location::current()) { (void)this->free_all(where); }
  /// Frees all blocks and returns all memory. The arena stays usable. At a quiescent point. @throws as
  /// `reset`.
  void release(detail::call_site where = std::source_location::current()) { state::release(where); }
  /// Returns the extents of threads without blocks, and committed memory beyond `keep_bytes` above the last
  /// extents. At a quiescent point. @return bytes returned
  std::size_t trim(std::size_t keep_bytes = 0) noexcept { return state::trim(keep_bytes); }

  /// Returns a snapshot in numbers. At a quiescent point. O(threads + chunks).
  [[nodiscard]] shared_arena_stats stats() const noexcept { return state::stats(); }
  /// Returns the name in messages.
  [[nodiscard]] char const* name() const noexcept { return state::name(); }
  /// Returns the address space. At a quiescent point.
  [[nodiscard]] AddressSpace const& space() const noexcept { return this->space_; }
  /// Reports a violation for every invariant of the class comment that does not hold.
  void check_invariants() const noexcept { state::check_invariants(); }
};

static_assert(reporting_space<detail::extent_memory<virtual_memory>>);

/// A shared arena on virtual memory; the default choice.
using shared_arena = basic_shared_arena<virtual_memory>;
/// A thread's part of a `shared_arena`.
using local_arena = basic_local_arena<virtual_memory>;

extern template class detail::arena_state<detail::extent_memory<virtual_memory>>;
extern template class detail::arena_state<detail::region_memory<virtual_memory>>;
extern template class detail::shared_arena_state<virtual_memory>;
extern template class basic_shared_arena<virtual_memory>;
}  // namespace tidemark
