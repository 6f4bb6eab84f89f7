// SPDX-License-Identifier: Apache-2.0
#include <tidemark/arena/detail/arena_traps.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include <tidemark/core/detail/align.hpp>

#include "../diagnose/call_stack.hpp"
#include "../diagnose/trap_log.hpp"

namespace tidemark::detail {

namespace {

// The log last: a constructor that throws gives no log back.
trap_log& open_log(trap_options const& options, char const* name) {
  if (options.handle_signals) handle_faults();
  return take_trap_log(name);
}

}  // namespace

rewind_trap::rewind_trap(trap_options const& options, char const* name)
    : options_{options}, log_{&open_log(options, name)} {
  // Another one in each process and arena, so that together they look everywhere.
  random_ = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
            (reinterpret_cast<std::uintptr_t>(this) << 20);
  draw();
}

rewind_trap::~rewind_trap() { give_trap_log_back(*log_); }

// Uniform in [1, 2 n - 1], so n on average. By SplitMix64 (Steele, Lea, Flood 2014). A forked process goes
// on with other numbers than its parent, and than what else that forks.
void rewind_trap::draw() noexcept {
  if (options_.one_in <= 1) return;
  std::uint64_t mixed = random_ += 0x9e3779b97f4a7c15;
  mixed ^= static_cast<std::uint64_t>(::getpid()) << 32;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  rewinds_to_go_ = 1 + mixed % (2 * std::uint64_t{options_.one_in} - 1);
}

void rewind_trap::reserve(virtual_memory& space) noexcept {
  ++system_calls_;
  region_ = space.reserve(1, options_.reserve);
  next_ = highest_ = region_.begin;
  log_->set_region(region_);
}

byte_range rewind_trap::take(virtual_memory& space, std::size_t bytes) noexcept {
  if (bytes > region_.size) return {};
  const std::size_t size = align_up(bytes, space.granularity());
  if (size > region_.end() - next_) {
    if (slices_ != 0) return {};
    next_ = region_.begin;
    ++reuses_;
  }
  const byte_range slice{next_, size};
  next_ = slice.end();
  highest_ = std::max(highest_, next_);
  ++slices_;
  return slice;
}

void rewind_trap::give_back(byte_range slice) noexcept {
  --slices_;
  next_ = slice.begin;
}

bool rewind_trap::retire(virtual_memory& space, byte_range slice, std::uintptr_t used,
                         std::uintptr_t committed) noexcept {
  const std::size_t granularity = space.granularity();  // a slice that is bounded need not end with a page
  const std::uintptr_t last = align_up(used, granularity);
  ++system_calls_;
  if (!space.decommit({slice.begin, align_up(committed - slice.begin, granularity)})) {
    lost_bytes_ += committed - slice.begin;
    return false;  // and the slice stays in use, because its bytes are not zero
  }
  --slices_;
  if (next_ == align_up(slice.end(), granularity))
    next_ = last;  // the newest: what it did not touch is fresh still
  rewind_place by{};
  const call_stack stack{__builtin_return_address(0), by.size()};
  std::ranges::transform(stack.frames(), by.begin(), &stack_frame::call);
  log_->rewinds.add(slice.begin, last, by);
  if (options_.handle_signals)
    handle_faults();  // a fault that was not a late use has put the earlier action back
  return true;
}

byte_range rewind_trap::release(virtual_memory& space) noexcept {
  const byte_range used{region_.begin, highest_ - region_.begin};
  if (!region_.empty()) {
    log_->set_region({});
    ++system_calls_;
    space.release(region_);
  }
  region_ = {};
  next_ = highest_ = slices_ = lost_bytes_ = 0;
  return used;
}

void rewind_trap::add_to(arena_stats& stats) const noexcept {
  stats.reserved_bytes += region_.size;
  stats.committed_bytes += lost_bytes_;
  stats.system_calls += system_calls_;
  stats.trapped_scopes = trapped_;
  stats.untrapped_scopes = untrapped_;
  stats.trap_reuses = reuses_;
}

char const* rewind_trap::broken_invariant() const noexcept {
  if (next_ < region_.begin || next_ > region_.end()) return "region.begin <= next <= region.end";
  if (lost_bytes_ > next_ - region_.begin) return "lost <= next - region.begin";
  return nullptr;
}

}  // namespace tidemark::detail
