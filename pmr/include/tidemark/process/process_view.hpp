// SPDX-License-Identifier: Apache-2.0
/// @file
/// `process_view`: what another process has published in a `process_arena`, read in place. Owns the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/process/detail/process_format.hpp>
#include <tidemark/process/shared_memory_view.hpp>

namespace tidemark {

/// What a reader expects of a process arena.
struct process_view_options {
  std::uint32_t layout_version = 0;  ///< must be the writer's
};

/// A generation of another process's `process_arena`, mapped read-only at the writer's address.
///
/// ```cpp
/// process_view view{"/dev/shm/prices"};
/// auto const& prices = view.root<std::pmr::map<int, std::pmr::string>>();
/// std::puts(prices.at(1).c_str());       // one
/// if (!view.is_newest()) view.update();  // prices stays valid: it is of the older generation
/// ```
/// The generation stays as it is while the view exists: the writer frees no memory meanwhile, and if it is
/// killed, the memory stays. So a view that is kept for long keeps the writer from reusing memory.
///
/// All that the header says is checked before it is used: a file that is no process arena, or damaged, or of
/// another layout is refused with a sentence. The contents of the containers are the writer's word: a view of
/// a writer that you do not trust is not safe. docs/process.md says what is proved.
///
/// Linux only. Move-only; a moved-from object may be destroyed and assigned to. Thread-safety: one thread at
/// a time for the object; the objects of a generation can be read by any.
class process_view {
 public:
  /// The newest generation.
  /// @param file a descriptor from `process_arena::export_file`, which stays the caller's and may be closed
  /// @throws shared_memory_error with the reason why it is refused; std::system_error if a call fails.
  /// Nothing is mapped then.
  explicit process_view(int file, process_view_options options = {});
  /// The same by the name that `process_arena::link` made.
  explicit process_view(std::string const& path, process_view_options options = {});

  /// The root of the generation, in place. Valid as long as this object, also after `update`.
  /// @tparam T the type that was published. @throws shared_memory_error (`other_root`) if it is another one.
  template <class T>
  [[nodiscard]] T const& root() const TIDEMARK_LIFETIMEBOUND {
    return *static_cast<T const*>(root(sizeof(T), alignof(T), detail::type_layout<std::remove_cv_t<T>>()));
  }
  /// The number of the generation, from 1 on.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_.generation; }
  /// Whether the writer has published no newer one. A load; true also if the writer has ended.
  [[nodiscard]] bool is_newest() const noexcept;
  /// Goes on to the newest generation. @return whether it is another one than before.
  /// @throws shared_memory_error (`damaged`) if it is none; the view stays at the older one then.
  bool update();
  /// Whether there may be newer generations: the writer, or a forked child of it, has not ended. One call.
  [[nodiscard]] bool writer_is_alive() const noexcept { return memory_.writer_is_alive(); }
  /// Where the memory lies, in this process and in the writer's.
  [[nodiscard]] byte_range range() const noexcept { return memory_.range(); }

 private:
  process_view(int file, std::string const& name, process_view_options options);
  [[nodiscard]] detail::publication newest_publication() const;
  [[nodiscard]] void const* root(std::size_t bytes, std::size_t align, std::uint64_t type) const;
  [[nodiscard]] detail::process_header const& header() const noexcept;

  std::string name_;
  shared_memory_view memory_;
  detail::publication generation_;  // a copy, which was checked
};

}  // namespace tidemark
