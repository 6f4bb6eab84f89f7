// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_resource`: writes down what is allocated and given back. Memory is the upstream's.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <string>

#include <tidemark/resource_stats.hpp>
#include <tidemark/trace_log.hpp>

namespace tidemark {

/// An adaptor over any resource that writes each allocation and deallocation to a `trace_log`.
///
/// Put it between a program and the resource that the program uses, to see or to replay what it asks for; or
/// between an arena or pool and its upstream, to see what that takes.
///
/// ```cpp
/// trace_log log{{.csv = "run.csv"}};
/// trace_resource traced{log, std::pmr::new_delete_resource(), "heap"};
/// std::pmr::vector<int> numbers({1, 2, 3}, &traced);  // run.csv: a,0,12,0 and, at its end, f,0,0,0
/// ```
/// The upstream gets the same requests in the same order, and back exactly the (pointer, bytes, alignment)
/// that it gave; its exceptions pass through unchanged. A block is written down as gone before the upstream
/// gets it back, and as there after the upstream gave it: so in the file, too, a block's end comes before the
/// next block at its address.
///
/// The resource shows and does not judge. A pointer that it does not know is passed on, and neither written
/// nor counted. Where the upstream takes memory back by itself, as an arena does that is rewound, the
/// resource learns of it when that memory is handed out again: the blocks that were there are then written
/// down as given back by the thread that allocates.
///
/// Invariants, checked by `check_invariants()`: `stats().used_blocks` blocks are live, they do not overlap,
/// and their sizes sum up to `stats().used_bytes`. Complexity: O(log live blocks), under the log's mutex,
/// besides the upstream's. Thread-safe if the upstream is. Upstream and log must outlive it; blocks that are
/// live at its end stay live in the trace.
class trace_resource final : public std::pmr::memory_resource {
 public:
  /// Traces what goes to `upstream`.
  /// @param name of the counter in the Chrome trace and of the statistics; any text.
  /// @throws std::invalid_argument if `upstream` is null; std::bad_alloc.
  explicit trace_resource(trace_log& log,
                          std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                          std::string name = "trace_resource");
  trace_resource(trace_resource const&) = delete;
  trace_resource& operator=(trace_resource const&) = delete;
  ~trace_resource() override;

  /// Memory from the upstream.
  /// @throws what the upstream throws, or std::bad_alloc if there is no memory to keep account of the block.
  /// The block was not handed out then, nothing was written, and the statistics count one refusal.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// Gives a block back to the upstream.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// A snapshot in numbers. O(1).
  [[nodiscard]] resource_stats stats() const noexcept;

  /// The name in the trace and in statistics.
  [[nodiscard]] char const* name() const noexcept { return track_->name.c_str(); }

  /// Where memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }

  /// Reports a violation for every invariant of the class comment that does not hold. O(live blocks).
  void check_invariants() const noexcept;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  trace_log* log_;
  std::pmr::memory_resource* upstream_;
  detail::trace_track* track_;  // the log's
};

}  // namespace tidemark
