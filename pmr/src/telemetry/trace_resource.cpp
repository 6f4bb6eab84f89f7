// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/trace_resource.hpp>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>

#include "trace_recorder.hpp"

namespace tidemark {

trace_resource::trace_resource(std::pmr::memory_resource* upstream, trace_log& log, std::string name)
    : observing_adaptor{"trace_resource", upstream, name.c_str()},
      log_{log},
      track_{&log.recorder_->add_track(std::move(name), counter_)} {
  name_ = track_->name.c_str();
}

trace_resource::~trace_resource() { log_.recorder_->remove_track(*track_); }

void trace_resource::allocated(void* block, std::size_t bytes, std::size_t) {
  log_.recorder_->record_allocation(*track_, block, bytes);
}

void trace_resource::released(void* block, std::size_t) noexcept {
  log_.recorder_->record_deallocation(*track_, block);
}

void trace_resource::step_began(std::uint64_t kind) noexcept {
  try {
    step_ = &log_.recorder_->begin_slice(track_->name + ' ' + std::to_string(kind));
  } catch (std::bad_alloc const&) {
    step_ = nullptr;  // the step is not written
  }
}

void trace_resource::step_ended() noexcept {
  if (trace_log::thread* const on = std::exchange(step_, nullptr)) log_.recorder_->end_slice(*on);
}

void trace_resource::check_invariants() const noexcept {
  const detail::invariant_check expect{kind_, name()};
  std::size_t bytes = 0, blocks = 0, used_bytes = 0, used_blocks = 0;
  bool apart = true;
  {
    const std::scoped_lock lock{log_.recorder_->mutex_};
    std::uintptr_t end = 0;
    for (auto const& [begin, block] : track_->live) {
      apart &= begin >= end;
      end = begin + std::max<std::size_t>(block.bytes, 1);
      bytes += block.bytes;
    }
    blocks = track_->live.size();
    used_bytes = counter_.used_bytes();
    used_blocks = counter_.used_blocks();
  }
  expect(apart, "live blocks do not overlap");
  expect(bytes == used_bytes, "used_bytes is the sum of the live blocks");
  expect(blocks == used_blocks, "used_blocks is the number of live blocks");
}

}  // namespace tidemark
