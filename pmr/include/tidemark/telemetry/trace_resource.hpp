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
/// Put it between a program and its resource, to see or replay the program's requests, or below an arena or
/// pool.
///
/// ```cpp
/// trace_log log{{.csv = "run.csv"}};
/// trace_resource traced{std::pmr::new_delete_resource(), log, "heap"};
/// std::pmr::vector<int> numbers({1, 2, 3}, &traced);  // run.csv: a,0,12,0 and, at its end, f,0,0,0
/// ```
/// The upstream gets the same requests in the same order. A deallocation is written before the upstream gets
/// the block, and an allocation after the upstream has returned it; so blocks at one address never overlap in
/// the file. The resource checks nothing; it forwards unknown pointers without writing them.
///
/// Invariants, checked by `check_invariants()`: `stats().used_blocks` blocks are live and disjoint, and their
/// sizes sum to `stats().used_bytes`. Complexity: O(log live blocks) under the log's mutex, plus the
/// upstream's. Thread-safe if the upstream is. Upstream and log must outlive the resource.
class trace_resource final : public detail::resource_adaptor<trace_resource> {
 public:
  /// Traces the requests to `upstream`.
  /// @param name name in the Chrome trace and in statistics; any text.
  /// @throws std::invalid_argument if `upstream` is null; std::bad_alloc.
  trace_resource(std::pmr::memory_resource* upstream, trace_log& log, std::string name = "trace_resource");
  /// The same; null selects the default name.
  trace_resource(std::pmr::memory_resource* upstream, trace_log& log, char const* name)
      : trace_resource{upstream, log, std::string{detail::name_or(name, "trace_resource")}} {}
  /// The same on the default resource.
  explicit trace_resource(trace_log& log) : trace_resource{std::pmr::get_default_resource(), log} {}
  ~trace_resource() override;

  /// Allocates memory from the upstream. An upstream such as a rewound arena may have reclaimed the memory of
  /// old blocks; these are then written as deallocated by the calling thread.
  /// @throws the upstream's exception, or std::bad_alloc without memory for the record. Nothing is written
  /// then, and only `refused` has changed.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// Returns a block to the upstream. Ignores null.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t));

  /// Reports a violation for every broken invariant of the class comment. O(live blocks).
  void check_invariants() const noexcept;

 private:
  trace_log& log_;
  trace_log::track* track_;  // owned by the log
};

}  // namespace tidemark
