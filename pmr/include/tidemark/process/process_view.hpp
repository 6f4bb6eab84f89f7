// SPDX-License-Identifier: Apache-2.0
/// @file
/// `process_view`: reads a generation that another process has published in a `process_arena`. Owns the
/// mapping.
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

/// A generation of another process's `process_arena`, mapped read-only at the writer's address.
///
/// ```cpp
/// process_view view{"/dev/shm/prices"};
/// auto const& prices = view.root<std::pmr::map<int, std::pmr::string>>();
/// std::puts(prices.at(1).c_str());       // one
/// if (!view.is_newest()) view.update();  // prices stays valid: it is of the older generation
/// ```
/// The generation does not change while the view exists. The writer frees no memory meanwhile, and the memory
/// remains if the writer is killed. A long-lived view therefore keeps the writer from reusing memory.
///
/// The view checks the header before it uses it, and refuses a file that is not a process arena, is damaged,
/// or has another layout. It cannot check the containers: a view of an untrusted writer is not safe
/// (docs/process.md).
///
/// Linux only. Move-only; a moved-from object may be destroyed and assigned to. Thread-safety: one thread at
/// a time for the view object; any thread may read the generation's objects.
class process_view {
 public:
  /// Maps the newest generation.
  /// @param file a descriptor from `process_arena::export_file`, which stays the caller's and may be closed
  /// @param layout_version must equal the writer's `process_arena_options::layout_version`
  /// @throws shared_memory_error with the reason of a refusal; std::system_error if a call fails. Nothing is
  /// mapped then.
  explicit process_view(int file, std::uint32_t layout_version = 0);
  /// The same, by the path of `process_arena::link`.
  explicit process_view(std::string const& path, std::uint32_t layout_version = 0);

  /// The root of the generation, in place. Valid while this object lives, also after `update`.
  /// @tparam T the published type. @throws shared_memory_error (`other_root`) if the type differs.
  template <class T>
  [[nodiscard]] T const& root() const TIDEMARK_LIFETIMEBOUND {
    return *static_cast<T const*>(root(sizeof(T), alignof(T), detail::type_layout<std::remove_cv_t<T>>()));
  }
  /// Number of the generation, from 1 on.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_.generation; }
  /// True if the writer has published no newer generation, also if the writer has ended. One load.
  [[nodiscard]] bool is_newest() const noexcept;
  /// Moves to the newest generation. @return true if the generation has changed.
  /// @throws shared_memory_error (`damaged`) if the newest is invalid; the view then stays at the older
  /// generation.
  bool update();
  /// True if newer generations are possible: the writer, or a forked child of it, has not ended. One call.
  [[nodiscard]] bool writer_is_alive() const noexcept { return memory_.writer_is_alive(); }
  /// Range of the memory, the same in this process and in the writer.
  [[nodiscard]] byte_range range() const noexcept { return memory_.range(); }

 private:
  process_view(int file, std::string const& name, std::uint32_t layout_version);
  [[nodiscard]] detail::publication newest_publication() const;
  [[nodiscard]] void const* root(std::size_t bytes, std::size_t align, std::uint64_t type) const;
  [[nodiscard]] detail::process_header const& header() const noexcept;

  std::string name_;
  shared_memory_view memory_;
  detail::publication generation_;  // a checked copy
};

}  // namespace tidemark
