// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_resource`: writes allocations and deallocations to a log. The upstream owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <utility>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/telemetry/detail/resource_adaptor.hpp>
#include <tidemark/telemetry/trace_log.hpp>

namespace tidemark {

/// An adaptor that writes each allocation and deallocation to a `trace_log`.
///
/// Put it between a program and its resource, or below an arena or pool. Or set it as the `observer` of an
/// arena, a workspace or one planned arena, whose steps are then written too.
///
/// ```cpp
/// trace_log log{{.csv = "run.csv"}};
/// trace_resource traced{std::pmr::new_delete_resource(), log, "heap"};
/// std::pmr::vector<int> numbers({1, 2, 3}, &traced);  // run.csv: a,0,12,0 and, at its end, f,0,0,0
/// ```
/// The upstream gets the same requests in the same order. A deallocation is written before the upstream's
/// call, and an allocation after it, so blocks at one address never overlap in the file. Unknown pointers are
/// not written.
///
/// Invariants: `stats().used_blocks` blocks are live and disjoint, and their sizes sum to
/// `stats().used_bytes`. Complexity: O(log live blocks) under the log's mutex, plus the upstream's.
/// Thread-safe if the upstream is. Upstream and log must outlive the resource.
class trace_resource final : public detail::observing_adaptor<trace_resource> {
 public:
  /// Traces the requests to `upstream`.
  /// @param name name in the Chrome trace and in statistics; any text.
  /// @throws std::invalid_argument if `upstream` is null; std::bad_alloc.
  trace_resource(std::pmr::memory_resource* upstream, trace_log& log, std::string name = "trace_resource");
  /// The same; null selects the default name.
  trace_resource(std::pmr::memory_resource* upstream, trace_log& log, char const* name)
      : trace_resource{upstream, log, std::string{detail::name_or(name, "trace_resource")}} {}
  /// The same on the default resource: `trace_resource nodes{log, "nodes"}`.
  explicit trace_resource(trace_log& log, char const* name = nullptr)
      : trace_resource{std::pmr::get_default_resource(), log, name} {}
  /// The same with any text as name.
  trace_resource(trace_log& log, std::string name)
      : trace_resource{std::pmr::get_default_resource(), log, std::move(name)} {}
  /// Rejected: the upstream is the first argument.
  template <class... Name TIDEMARK_SENTENCE("the upstream is first: write trace_resource{&upstream, log, name}")>
  trace_resource(trace_log&, std::pmr::memory_resource*, Name const&...)
      TIDEMARK_DELETED("the upstream is first: write trace_resource{&upstream, log, name}");
  ~trace_resource() override;

  /// Writes the block. An upstream such as a rewound arena may have reclaimed the memory of old blocks; these
  /// are then written as deallocated by the calling thread. @throws std::bad_alloc without memory for the
  /// record. Nothing is written then, and only `refused` has changed.
  void allocated(void* block, std::size_t bytes, std::size_t align) override;
  /// Writes the end of the block, if the log knows the block.
  void released(void* block, std::size_t bytes) noexcept override;
  /// Begins a slice with the name of this resource and the kind, such as "nodes kind 128".
  void step_began(std::uint64_t kind) noexcept override;
  /// Ends the slice.
  void step_ended() noexcept override;

  /// Reports a violation for every broken invariant of the class comment. O(live blocks).
  void check_invariants() const noexcept;

 private:
  trace_log& log_;
  trace_log::track* track_;            // owned by the log
  trace_log::thread* step_ = nullptr;  // thread where the open step began; owned by the log
};

}  // namespace tidemark
