// SPDX-License-Identifier: Apache-2.0
#include <tidemark/trace_resource.hpp>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <utility>

#include <tidemark/violation.hpp>

namespace tidemark {

trace_resource::trace_resource(trace_log& log, std::pmr::memory_resource* upstream, std::string name)
    : log_{&log}, upstream_{upstream} {
  if (upstream == nullptr) {
    throw std::invalid_argument("trace_resource '" + name + "': there is no upstream, it is null");
  }
  track_ = &log.add_track(std::move(name));
}

trace_resource::~trace_resource() { log_->remove_track(*track_); }

void* trace_resource::allocate(std::size_t bytes, std::size_t align) {
  void* block = nullptr;
  try {
    block = upstream_->allocate(bytes, align);
    log_->record_allocation(*track_, block, bytes);
  } catch (...) {
    log_->record_refusal(*track_);
    if (block != nullptr) upstream_->deallocate(block, bytes, align);
    throw;
  }
  return block;
}

void trace_resource::deallocate(void* block, std::size_t bytes, std::size_t align) {
  log_->record_deallocation(*track_, block);
  upstream_->deallocate(block, bytes, align);
}

resource_stats trace_resource::stats() const noexcept {
  const std::scoped_lock lock{log_->mutex_};
  return track_->stats;
}

void trace_resource::check_invariants() const noexcept {
  const std::scoped_lock lock{log_->mutex_};
  resource_stats const& stats = track_->stats;
  const auto expect = [&](bool holds, char const* what) {
    if (!holds) {
      detail::report_violation(violation_kind::invariant, stats.name, "trace_resource '%s': invariant: %s",
                               stats.name, what);
    }
  };
  std::size_t bytes = 0;
  std::uintptr_t end = 0;
  bool apart = true;
  for (auto const& [begin, block] : track_->live) {
    apart &= begin >= end;
    end = begin + std::max<std::size_t>(block.bytes, 1);
    bytes += block.bytes;
  }
  expect(apart, "live blocks do not overlap");
  expect(bytes == stats.used_bytes, "used_bytes is the sum of the live blocks");
  expect(track_->live.size() == stats.used_blocks, "used_blocks is the number of live blocks");
  expect(stats.allocations - stats.deallocations == stats.used_blocks,
         "allocations - deallocations == used_blocks");
  expect(stats.used_bytes <= stats.peak_bytes && stats.used_blocks <= stats.peak_blocks,
         "used does not exceed peak");
}

}  // namespace tidemark
