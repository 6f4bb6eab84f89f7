// SPDX-License-Identifier: Apache-2.0
/// @file
/// `compat::monotonic_buffer_resource`: the standard's class of that name. It owns the memory it took from
/// its upstream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include <tidemark/compat/detail/upstream_chunks.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>

namespace tidemark::compat {

/// `std::pmr::monotonic_buffer_resource` by the rules of [mem.res.monotonic.buffer], with tidemark's
/// annotations for sanitizers.
///
/// Use it where a program relies on what those rules say to the byte; `upstream_arena` takes chunks from an
/// upstream too, and has marks, scopes and reuse besides.
///
/// ```cpp
/// std::byte buffer[4096];
/// compat::monotonic_buffer_resource lines{buffer, sizeof buffer, std::pmr::null_memory_resource()};
/// std::pmr::vector<int> line{&lines};
/// ```
/// Blocks lie one behind the other, as near as their alignments allow. When the buffer is full, the upstream
/// is called once for a chunk that holds the block, of the alignment of the block at least, and of the next size
/// at least: half as much again as the buffer, then as the size before, however large a block made a chunk.
/// If the upstream throws `std::bad_alloc` for that size, half of it is tried each time, down to the block's. The
/// record of a chunk lies at its end. Construction allocates nothing. The upstream gets back exactly the (pointer, bytes, alignment) that it gave.
///
/// Sanitizers report use of chunks outside of blocks. The caller's buffer stays open to them, because it is
/// the caller's.
///
/// Invariants: `cursor_ <= end_`; `[cursor_, end_)` lies in the newest chunk, or in the buffer while there is
/// no chunk.
///
/// Complexity: allocate O(1), deallocate does nothing, release O(chunks). Thread-safety: one thread at a
/// time.
class monotonic_buffer_resource : public detail::distinct_resource {
 public:
  /// Chunks from the default resource of now.
  monotonic_buffer_resource() noexcept : monotonic_buffer_resource{std::pmr::get_default_resource()} {}
  /// Chunks from `upstream`. @pre `upstream` is not null and outlives the resource, here and below.
  explicit monotonic_buffer_resource(std::pmr::memory_resource* upstream) noexcept
      : monotonic_buffer_resource{first_bytes_default, upstream} {}
  /// The first chunk of `first_bytes` at least.
  explicit monotonic_buffer_resource(std::size_t first_bytes) noexcept
      : monotonic_buffer_resource{first_bytes, std::pmr::get_default_resource()} {}
  /// The first chunk of `first_bytes` at least, all from `upstream`.
  monotonic_buffer_resource(std::size_t first_bytes, std::pmr::memory_resource* upstream) noexcept
      : monotonic_buffer_resource{nullptr, 0, first_bytes, upstream} {}
  /// First `bytes` bytes at `buffer`, which stay the caller's, then chunks from `upstream`. Null: no buffer,
  /// and a first chunk as large as behind a buffer of that size.
  monotonic_buffer_resource(void* buffer, std::size_t bytes,
                            std::pmr::memory_resource* upstream = std::pmr::get_default_resource()) noexcept
      : monotonic_buffer_resource{buffer, bytes, grown(bytes), upstream} {}
  /// Returns all chunks to the upstream.
  ~monotonic_buffer_resource() override = default;

  /// Returns all chunks to the upstream and begins anew: in the buffer, or with a chunk of the first size.
  /// O(chunks).
  void release() noexcept;

  /// The resource that chunks come from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return chunks_.upstream(); }

 protected:
  /// A block; one of 0 bytes is as good as one of 1, and differs from all others. @throws what the upstream
  /// throws, and nothing else, also where it cannot have so much; nothing has changed then.
  [[nodiscard]] void* do_allocate(std::size_t bytes, std::size_t align) override;
  /// Does nothing.
  void do_deallocate(void*, std::size_t, std::size_t) override {}

 private:
  static constexpr std::size_t first_bytes_default = 1024;
  // The size after this one. By a half, as libstdc++'s grow: less is unused than in chunks that double.
  static constexpr std::size_t grown(std::size_t bytes) noexcept {
    return detail::add_saturating(bytes, bytes / 2 + 1);
  }

  monotonic_buffer_resource(void* buffer, std::size_t bytes, std::size_t first_bytes,
                            std::pmr::memory_resource* upstream) noexcept
      : buffer_{detail::address_of(buffer)},
        buffer_bytes_{buffer != nullptr ? bytes : 0},
        first_bytes_{(std::min)(first_bytes, detail::upstream_chunks::max_bytes)},
        chunks_{upstream} {
    begin_anew();
  }
  void begin_anew() noexcept {
    cursor_ = buffer_;
    end_ = buffer_ + buffer_bytes_;
    next_bytes_ = first_bytes_;
  }
  void add_chunk(std::size_t least_bytes, std::size_t align);

  std::uintptr_t cursor_ = 0;   // the next block begins there or above
  std::uintptr_t end_ = 0;      // of the newest chunk, or of the buffer
  std::size_t next_bytes_ = 0;  // of the next chunk, if the upstream has that much
  std::uintptr_t buffer_;       // the caller's
  std::size_t buffer_bytes_;
  std::size_t first_bytes_;  // of the first chunk, at least
  detail::upstream_chunks chunks_;
};

}  // namespace tidemark::compat
