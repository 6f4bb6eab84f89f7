// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_resource`: writes allocations and deallocations to a log. The upstream owns the memory.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <string>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/telemetry/detail/resource_adaptor.hpp>
#include <tidemark/telemetry/trace_log.hpp>

namespace tidemark {

/// An adaptor over any resource that writes each allocation and deallocation to a `trace_log`.
///
/// Put it between a program and its resource, to see or replay the program's requests; or between an arena
/// or pool and its upstream.
///
/// ```cpp
/// trace_log log{{.csv = "run.csv"}};
/// trace_resource traced{log, std::pmr::new_delete_resource(), "heap"};
/// std::pmr::vector<int> numbers({1, 2, 3}, &traced);  // run.csv: a,0,12,0 and, at its end, f,0,0,0
/// ```
/// The upstream gets the same requests in the same order; its exceptions pass through unchanged. A
/// deallocation is written before the upstream gets the block, an allocation after the upstream has
/// returned it: so in the file, too, a block ends before the next one at its address begins.
///
/// The resource checks nothing. An unknown pointer is passed on, and neither written nor counted. If the
/// upstream reclaims memory itself, such as a rewound arena, the resource sees that when the memory is
/// allocated again: the old blocks are then written as deallocated by the allocating thread.
///
/// Invariants, checked by `check_invariants()`: `stats().used_blocks` blocks are live, they do not
/// overlap, and their sizes sum up to `stats().used_bytes`. Complexity: O(log live blocks), under the
/// log's mutex, besides the upstream's. Thread-safe if the upstream is. Upstream and log must outlive it;
/// blocks that are live at its end stay live in the trace.
class trace_resource final : public detail::resource_adaptor<trace_resource> {
 public:
  /// Traces the requests to `upstream`.
  /// @param name of the counter in the Chrome trace and of the statistics; any text.
  /// @throws std::invalid_argument if `upstream` is null; std::bad_alloc.
  explicit trace_resource(trace_log& log,
                          std::pmr::memory_resource* upstream = std::pmr::get_default_resource(),
                          std::string name = "trace_resource");
  /// The same; a null name is the default one.
  explicit trace_resource(trace_log& log, std::pmr::memory_resource* upstream, char const* name)
      : trace_resource{log, upstream, std::string{detail::name_or(name, "trace_resource")}} {}
  ~trace_resource() override;

  /// Memory from the upstream.
  /// @throws what the upstream throws, or std::bad_alloc if there is no memory for the record. Nothing was
  /// written then, and only `refused` has changed.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// Returns a block to the upstream. Null: nothing happens.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// Reports a violation for every invariant of the class comment that does not hold. O(live blocks).
  void check_invariants() const noexcept;

 private:
  trace_log& log_;
  trace_log::track* track_;  // the log's
};

}  // namespace tidemark
