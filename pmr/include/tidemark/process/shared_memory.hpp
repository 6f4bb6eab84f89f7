// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_memory`: memory that other processes can map at the same address. Owns the file behind it.
/// `shared_memory_error`: why such memory is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/file_descriptor.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

/// Why memory that processes share is refused.
enum class shared_memory_refusal {
  addresses_taken,  ///< something else lies at its addresses in this process
  not_sealed,       ///< the file could be made smaller under its views
  busy,             ///< its writer frees it at this moment: try again
  unpublished,      ///< no generation is published in it yet: try again later
  damaged,          ///< it is no process arena, or is truncated, or its header contradicts itself
  newer_version,    ///< its header is of a later version of tidemark
  other_layout,     ///< its writer lays types out differently, or has another layout version
  other_root,       ///< its root is of another type
};

/// Thrown where memory that processes share is refused. Nothing is mapped or locked then. A system call that
/// fails throws a `std::system_error` instead.
class shared_memory_error final : public std::runtime_error {
 public:
  /// With the reason, and a sentence that says it.
  shared_memory_error(shared_memory_refusal reason, std::string const& sentence)
      : std::runtime_error{sentence}, reason_{reason} {}

  /// Why, for a program that tries again or goes on without.
  [[nodiscard]] shared_memory_refusal reason() const noexcept { return reason_; }

 private:
  shared_memory_refusal reason_;
};

/// How a `shared_memory` is made.
struct shared_memory_options {
  /// Where it lies, a multiple of the page size; 0: at a random place that processes rarely use for anything
  /// else, so that the others have it free too.
  std::uintptr_t address = 0;
  std::string path{};                  ///< for `link()`; empty: the memory has no name
  char const* name = "shared memory";  ///< in messages and /proc/PID/maps; must outlive the object
};

/// An `address_space` in a file of its own, which lives in memory (`memfd_create`). Other processes map it at
/// the same address with a `shared_memory_view`, and pointers in it are valid there.
///
/// ```cpp
/// shared_memory space{{.path = "/dev/shm/prices"}};
/// byte_range range = space.reserve(1, 1 * GiB);  // no memory yet
/// if (!space.commit({range.begin, 64 * KiB})) throw std::bad_alloc{};
/// space.link();                                  // or send(socket, space.export_file().get())
/// space.release(range);                          // views keep the memory; the name is gone
/// ```
/// One range at a time, which is the whole file; a second one is refused with an empty range. The file is
/// sealed: no process can make it smaller, so that a view never loses memory that it has mapped, and other
/// processes can only ever read. The kernel then refuses to take single pages back, so memory goes with the
/// whole range. `commit` allocates the file's memory at once: where the system has none, that is a refusal
/// here and no SIGBUS at a first touch.
///
/// As all address spaces it frees nothing at its end: who reserves a range releases it. The kernel does, if
/// the process ends in whatever way: the memory goes when the last view of it has gone too.
///
/// A forked child has the memory as well, and could write to it: it must not use the object, except to
/// destroy it. It counts as the writer, for `shared_memory_view::writer_is_alive`, until it ends or executes
/// another program. Linux only, with /proc; elsewhere `reserve` throws.
///
/// Move-only. Thread-safety: one thread at a time.
class shared_memory {
 public:
  static constexpr space_traits traits{.fresh_is_zero = true, .commits = true, .seen_by_others = true};

  /// As `options` say; there is no file before the first `reserve`.
  explicit shared_memory(shared_memory_options options = {});

  /// Makes a file of the larger of the two, in whole pages, and maps it. If the system refuses the size, half
  /// as much each time, down to `least_bytes`, as `virtual_memory::reserve`.
  /// @return an empty range if there is one already, or no object is so large.
  /// @throws shared_memory_error (`addresses_taken`) if something lies at the address of the options;
  /// std::system_error if a call fails, which names the limit that refused it. Nothing has changed then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes);
  /// Allocates memory behind a part of the range or, if that is refused, behind its first `least_bytes`.
  /// @pre and @return as `virtual_memory::commit`.
  [[nodiscard]] std::size_t commit(
      byte_range part, std::size_t least_bytes = (std::numeric_limits<std::size_t>::max)()) noexcept;
  /// False: the kernel takes no pages out of a file whose writes are sealed.
  [[nodiscard]] static constexpr bool decommit(byte_range) noexcept { return false; }
  /// Unmaps the range and closes the file; its name goes too. Views keep the memory.
  void release(byte_range range) noexcept;
  /// 1 GiB.
  [[nodiscard]] static constexpr std::size_t chunk_bytes() noexcept { return 1 * GiB; }
  /// The page size.
  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }

  /// A read-only file descriptor for another process, which outlives this object. Only descriptors from here
  /// are for others: one that shared the open file description of this object would keep its locks.
  /// @pre a range is reserved. @throws std::system_error if it cannot be opened.
  [[nodiscard]] file_descriptor export_file() const;
  /// Makes the path of the options a symbolic link to the file, in one step: another process finds the whole
  /// memory there or nothing. An older link is replaced. When this process ends, in whatever way, the link
  /// leads nowhere, or to a file that a view refuses. Processes of the same user, with the same /proc, can
  /// open it.
  /// @pre a range is reserved. @throws std::logic_error without a path; std::system_error, with nothing
  /// changed, also if something other than a symbolic link has that name.
  void link() const;

  /// Keeps views out until `admit_views`. @return false, and nothing has changed, while there is a view.
  [[nodiscard]] bool try_exclude_views() const noexcept;
  /// The opposite.
  void admit_views() const noexcept;

 private:
  [[nodiscard]] byte_range map(int file, std::size_t bytes) const;
  [[noreturn]] void throw_refused(detail::refused_call const& refused) const;

  shared_memory_options options_;
  std::size_t granularity_;
  file_descriptor file_;   // of the range; empty: there is none
  byte_range range_ = {};  // meaningful with a file
};

static_assert(address_space<shared_memory>);

}  // namespace tidemark
