// SPDX-License-Identifier: Apache-2.0
/// @file
/// `process_arena`: an arena whose containers other processes read in place. Its memory lives until the arena
/// is destroyed and all views have ended.
#pragma once

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

/// How a `process_arena` takes memory, and where other processes find it. All sizes are in bytes.
struct process_arena_options {
  std::size_t reserve = 1 * GiB;       ///< address space in every process, and the arena's capacity
  std::size_t commit_step = 64 * KiB;  ///< memory is taken in multiples of this
  std::uintptr_t address = 0;          ///< as in `shared_memory_options`
  std::uint32_t layout_version = 0;    ///< change it when stored types change their members
  std::string path{};                  ///< for `link()`
  char const* name = "process arena";  ///< used in messages; must outlive the arena and its exceptions
};

/// An arena that one process fills with containers. Other processes read them in place, at the same
/// addresses, by a `process_view`. It is a `std::pmr::memory_resource`.
///
/// ```cpp
/// process_arena memory{{.path = "/dev/shm/prices"}};
/// auto* prices = memory.push<std::pmr::map<int, std::pmr::string>>(&memory);
/// prices->emplace(1, "one");
/// memory.publish(*prices);  // generation 1: complete, and never changed from here on
/// memory.link();            // others: process_view{"/dev/shm/prices"}.root<std::pmr::map<…>>()
/// ```
/// `publish` makes a generation visible: its root and all that the root refers to. Views of older generations
/// stay valid. A published object must not be changed or destroyed.
///
/// docs/process.md lists the contents that a generation may have. Views keep the newest published generation,
/// however and whenever the writer ends. Linux only.
///
/// Invariants, checked by `check_invariants()`: those of an arena, and of the header
/// - `newest == 0`, or it is the offset of the publication of `generation()`, below the position
///
/// Not thread-safe: one thread at a time. A forked child may only destroy it.
class process_arena final : public detail::forwarding_resource<process_arena>,
                            public arena_push<process_arena, shared_memory> {
 public:
  /// @throws the exceptions of `shared_memory::reserve`, including std::system_error if the system lacks
  /// addresses for the file; out_of_memory.
  explicit process_arena(process_arena_options const& options = {});
  /// Rejects a wrong form at compile time; the message names the right form.
  template <class Argument>
    requires std::integral<Argument> || std::convertible_to<Argument, std::pmr::memory_resource*>
  explicit process_arena(Argument) : process_arena{process_arena_options{}} {
    static_assert(detail::right_form<Argument>,
                  "a process_arena takes options: write process_arena a{{.reserve = 64 * MiB}}");
  }

  /// Allocates uninitialised memory, as `basic_arena::allocate`.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND {
    return arena_.allocate(bytes, align);
  }
  /// Frees a block if it is the newest and nothing was published since. Does nothing otherwise.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    arena_.deallocate(block, bytes, align);
  }
  /// Deleted, because a destructor could run over objects that other processes are reading.
  template <class T, class... Arguments>
  T* make(Arguments&&...) = delete;

  /// Makes `root`, and all that it refers to, the newest generation. O(1).
  /// @param root an object in the arena
  /// @return number of the generation, one more than the last.
  /// @throws std::invalid_argument if `root` is not in the arena; out_of_memory. Nothing is published then.
  template <class T>
  std::uint64_t publish(T const& root) {
    static_assert(std::is_object_v<T> && !std::is_polymorphic_v<T>,
                  "an object with virtual functions points into its own program, and not into shared memory");
    return publish(std::addressof(root), sizeof(T), detail::type_layout<T>());
  }
  /// Number of generations published so far, including before resets.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

  /// A read-only descriptor of the memory, for `process_view` in another process. @throws std::system_error
  [[nodiscard]] file_descriptor export_file() const { return arena_.space().export_file(); }
  /// Links the path of the options to the memory, as `shared_memory::link` does, until the arena is
  /// destroyed.
  /// @throws std::logic_error if nothing is published, because linked memory must be complete;
  /// std::system_error.
  void link() const;

  /// Frees all generations and keeps the memory for the next ones, if there is no view.
  /// @return true on success; otherwise nothing has changed.
  [[nodiscard]] bool try_reset() noexcept;

  /// A snapshot of the counters. O(1).
  [[nodiscard]] arena_stats stats() const noexcept { return arena_.stats(); }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return arena_.name(); }
  /// True if `address` lies in allocated memory.
  [[nodiscard]] bool owns(void const* address) const noexcept { return arena_.owns(address); }
  /// Releases ownership: the next thread to use the arena owns it.
  void release_thread_ownership() noexcept { arena_.release_thread_ownership(); }
  /// Reports a violation for every broken invariant of the class comment.
  void check_invariants() const noexcept;

 private:
  friend class arena_push<process_arena, shared_memory>;
  basic_arena<shared_memory>& push_target() noexcept { return arena_; }
  std::uint64_t publish(void const* root, std::size_t bytes, std::uint64_t type);
  [[nodiscard]] std::uint64_t offset_of(void const* address) const noexcept;

  static constexpr std::size_t default_alignment = shared_memory::traits.block_alignment;

  basic_arena<shared_memory> arena_;
  detail::process_header* header_;  // the arena's first block
  arena_mark begin_;                // after the header
  std::uint64_t generation_ = 0;    // newest published generation
};

}  // namespace tidemark
