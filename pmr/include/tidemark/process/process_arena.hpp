// SPDX-License-Identifier: Apache-2.0
/// @file
/// `process_arena`: an arena whose containers other processes read in place. Owns its memory until it is
/// destroyed and all views of it have ended.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/file_descriptor.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/process/detail/process_format.hpp>
#include <tidemark/process/shared_memory.hpp>

namespace tidemark {

extern template class detail::arena_state<shared_memory>;

/// How a `process_arena` takes memory, and where others find it. All sizes in bytes.
struct process_arena_options {
  std::size_t reserve = 1 * GiB;       ///< address space in every process, and the most that it can hold
  std::size_t commit_step = 64 * KiB;  ///< memory is taken in multiples of this
  std::uintptr_t address = 0;          ///< as in `shared_memory_options`
  std::uint32_t layout_version = 0;    ///< change it when types that it holds change their members
  std::string path{};                  ///< for `link()`
  char const* name = "process arena";  ///< in messages; must outlive the arena and its exceptions
};

/// One process fills it with containers, others read them in place, by the same addresses, with a
/// `process_view`. A `std::pmr::memory_resource`.
///
/// ```cpp
/// process_arena memory{{.path = "/dev/shm/prices"}};
/// auto* prices = memory.push<std::pmr::map<int, std::pmr::string>>(&memory);
/// prices->emplace(1, "one");
/// memory.publish(*prices);  // generation 1: complete, and never changed from here on
/// memory.link();            // others: process_view{"/dev/shm/prices"}.root<std::pmr::map<…>>()
/// ```
/// A generation is what `publish` makes visible: its root, and all that it refers to. The next one takes
/// memory of its own behind it, so that views of older ones stay true, until `try_reset` frees all of them,
/// which it does only while there is no view. A published object must not be changed, and not be destroyed:
/// containers of a generation end with their memory.
///
/// What is published may have pointers to other objects in the arena, and the `memory_resource*` of
/// containers, which is meaningless to others: they have `const` access, which does not use it. It must have
/// no pointers to anything else: no virtual functions, no function pointers, no `std::string_view` of a
/// literal.
///
/// If the process ends, in whatever way and at whatever moment, views keep the newest generation that was
/// published. Readers that are killed hold nothing up. See docs/process.md. Linux only.
///
/// Invariants, checked by `check_invariants()`: those of an arena, and of the header:
/// - `newest == 0`, or it is the offset of the publication of `generation()`, below the position
///
/// Thread-safety: one thread at a time. A forked child may only destroy it.
class process_arena final : public detail::forwarding_resource<process_arena>,
                            public arena_push<process_arena, shared_memory> {
 public:
  /// @throws what `shared_memory::reserve` throws, std::system_error also where the system has no addresses
  /// for so large a file; out_of_memory.
  explicit process_arena(process_arena_options const& options = {});
  /// A wrong form: does not compile, and says which form is right.
  template <class Argument>
    requires std::integral<Argument> || std::convertible_to<Argument, std::pmr::memory_resource*>
  explicit process_arena(Argument) : process_arena{process_arena_options{}} {
    static_assert(detail::right_form<Argument>,
                  "a process_arena takes options: write process_arena a{{.reserve = 64 * MiB}}");
  }

  /// Uninitialised memory, as `basic_arena::allocate`.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND {
    return arena_.allocate(bytes, align);
  }
  /// Frees a block if it is the newest and nothing was published since; does nothing otherwise.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    arena_.deallocate(block, bytes, align);
  }
  /// Not here: a destructor would run over objects that others may be reading.
  template <class T, class... Arguments>
  T* make(Arguments&&...) = delete;

  /// Makes `root`, and all that it refers to, the newest generation. O(1).
  /// @param root lies in the arena
  /// @return the number of the generation, one more than that of the last.
  /// @throws std::invalid_argument if it does not lie in the arena; out_of_memory. Nothing is published then.
  template <class T>
  std::uint64_t publish(T const& root) {
    static_assert(std::is_object_v<T> && !std::is_polymorphic_v<T>,
                  "an object with virtual functions points into its own program, and not into shared memory");
    return publish(std::addressof(root), sizeof(T), detail::type_layout<T>());
  }
  /// The number of generations published so far, also by earlier resets.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

  /// A read-only descriptor of the memory, for `process_view` in another process. @throws std::system_error
  [[nodiscard]] file_descriptor export_file() const { return arena_.space().export_file(); }
  /// Gives the memory the path of the options, as `shared_memory::link` does, until the arena is destroyed.
  /// @throws std::logic_error if nothing is published: what has a name is complete; std::system_error.
  void link() const;

  /// Frees all generations, and keeps the memory for the next ones, if there is no view.
  /// @return whether it did; if not, nothing has changed.
  [[nodiscard]] bool try_reset() noexcept;
  /// Tries it again and again, for so long.
  [[nodiscard]] bool try_reset_for(std::chrono::nanoseconds patience) noexcept;

  /// A snapshot in numbers. O(1).
  [[nodiscard]] arena_stats stats() const noexcept { return arena_.stats(); }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return arena_.name(); }
  /// Whether `address` lies in allocated memory.
  [[nodiscard]] bool owns(void const* address) const noexcept { return arena_.owns(address); }
  /// The next thread to use the arena will own it.
  void release_thread_ownership() noexcept { arena_.release_thread_ownership(); }
  /// Reports a violation for every invariant of the class comment that does not hold.
  void check_invariants() const noexcept;

 private:
  friend class arena_push<process_arena, shared_memory>;
  basic_arena<shared_memory>& push_target() noexcept { return arena_; }
  std::uint64_t publish(void const* root, std::size_t bytes, std::uint64_t type);
  [[nodiscard]] std::uint64_t offset_of(void const* address) const noexcept;

  static constexpr std::size_t default_alignment = shared_memory::traits.block_alignment;

  basic_arena<shared_memory> arena_;
  detail::process_header* header_;  // the arena's first block
  arena_mark begin_;                // behind the header
  std::uint64_t generation_ = 0;    // newest published
};

}  // namespace tidemark
