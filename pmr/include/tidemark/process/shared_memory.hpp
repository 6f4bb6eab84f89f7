// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_memory`: memory that other processes can map at the same address. Owns the file behind it.
/// `shared_memory_error`: the reason why such memory is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/file_descriptor.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

/// Reason why shared memory is refused.
enum class shared_memory_refusal {
  addresses_taken,  ///< something else lies at its addresses in this process
  not_sealed,       ///< the file could be made smaller under its views
  busy,             ///< its writer is freeing it: try again
  unpublished,      ///< it has no published generation yet: try again later
  damaged,          ///< it is not a process arena, is truncated, or has an inconsistent header
  newer_version,    ///< its header is of a later version of tidemark
  other_layout,     ///< its writer has another layout of types, or another layout version
  other_root,       ///< its root is of another type
};

/// Thrown if shared memory is refused. Nothing is mapped or locked then. A failed system call throws a
/// `std::system_error` instead.
class shared_memory_error final : public std::runtime_error {
 public:
  /// Stores the reason, and a sentence that explains it.
  shared_memory_error(shared_memory_refusal reason, std::string const& sentence)
      : std::runtime_error{sentence}, reason_{reason} {}

  /// The reason, for a program that retries or continues without the memory.
  [[nodiscard]] shared_memory_refusal reason() const noexcept { return reason_; }

 private:
  shared_memory_refusal reason_;
};

/// How a `shared_memory` is made.
struct shared_memory_options {
  /// Address, a multiple of the page size. 0 selects a random address in a region that processes rarely use,
  /// so that it is free in other processes too.
  std::uintptr_t address = 0;
  std::string path{};                  ///< for `link()`; empty: no name
  char const* name = "shared memory";  ///< used in messages and /proc/PID/maps; must outlive the object
};

/// An `address_space` in its own memory file (`memfd_create`). Other processes map it at the same
/// address by a `shared_memory_view`; pointers in it are valid there.
///
/// ```cpp
/// shared_memory space{{.path = "/dev/shm/prices"}};
/// byte_range range = space.reserve(1, 1 * GiB);  // no memory yet
/// if (!space.commit({range.begin, 64 * KiB})) throw std::bad_alloc{};
/// space.link();                                  // or send(socket, space.export_file().get())
/// space.release(range);                          // views keep the memory; the name is gone
/// ```
/// Holds one range at a time, which is the whole file; a second range is refused as empty. The file is
/// sealed: no process can shrink it, so a view never loses mapped memory, and other processes can only read.
///
/// The destructor frees nothing, as in all address spaces: the caller releases each range. However the
/// process ends, the kernel frees the memory after the last view.
///
/// A forked child must not use the object, except to destroy it. Linux only, with /proc. Move-only. Not
/// thread-safe.
class shared_memory {
 public:
  static constexpr space_traits traits{.fresh_is_zero = true, .commits = true, .seen_by_others = true};

  /// Stores the options; the first `reserve` creates the file.
  explicit shared_memory(shared_memory_options options = {});

  /// Creates and maps a file of the larger size, in whole pages. Halves the size on each refusal, down to
  /// `least_bytes`, as `virtual_memory::reserve`.
  /// @return an empty range if a range exists already, or if no object can be that large.
  /// @throws shared_memory_error (`addresses_taken`) if the address of the options is taken;
  /// std::system_error if a call fails, with the limit that refused it. Nothing has changed then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes);
  /// Allocates memory behind a part of the range; if refused, behind its first `least_bytes`. Lack of memory
  /// is a refusal here, and not a SIGBUS at first touch.
  /// @pre and @return as `virtual_memory::commit`.
  [[nodiscard]] std::size_t commit(
      byte_range part, std::size_t least_bytes = (std::numeric_limits<std::size_t>::max)()) noexcept;
  /// Returns false: the kernel takes no pages out of a file whose writes are sealed.
  [[nodiscard]] static constexpr bool decommit(byte_range) noexcept { return false; }
  /// Unmaps the range, closes the file and removes its link. Views keep the memory.
  void release(byte_range range) noexcept;
  /// 1 GiB.
  [[nodiscard]] static constexpr std::size_t chunk_bytes() noexcept { return 1 * GiB; }
  /// The page size.
  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }

  /// A read-only descriptor for another process, which outlives this object. Give others only such
  /// descriptors: a descriptor that shares this object's open file description would keep its locks.
  /// @pre a range is reserved. @throws std::system_error if the file cannot be opened.
  [[nodiscard]] file_descriptor export_file() const;
  /// Makes the path of the options a symbolic link to the file, in one step: another process finds the whole
  /// memory there or nothing. Replaces an older link. When this process has ended, the link leads nowhere, or
  /// to a file that a view refuses. Processes of the same user with the same /proc can open it.
  /// @pre a range is reserved. @throws std::logic_error without a path; std::system_error, with nothing
  /// changed, also if something other than a symbolic link has that name.
  void link() const;

  /// Keeps views out until `admit_views`. @return false, with nothing changed, while there is a view.
  [[nodiscard]] bool try_exclude_views() const noexcept;
  /// Admits views again.
  void admit_views() const noexcept;

 private:
  [[nodiscard]] byte_range map(int file, std::size_t bytes) const;

  shared_memory_options options_;
  std::size_t granularity_;
  file_descriptor file_;   // file of the range; empty without a range
  byte_range range_ = {};  // valid while there is a file
};

static_assert(address_space<shared_memory>);

}  // namespace tidemark
