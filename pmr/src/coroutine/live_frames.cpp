// SPDX-License-Identifier: Apache-2.0
#include <tidemark/coroutine/pmr_promise.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {
namespace {

struct live_frame {
  live_block block;
  std::pmr::memory_resource const* memory;
};

using frame_map = std::pmr::map<std::uintptr_t, live_frame>;

// `records().live.size()`: resources take no lock while it is 0. Relaxed, because a thread that frees memory
// correctly is already ordered after the frames in it.
std::atomic<std::size_t> live_count{0};

// Finds a frame that begins or ends in this range. A frame that only surrounds the range does not count: a
// local of a coroutine may be a buffer with frames or an arena in it. It finds only
// the innermost of nested frames that reach into the range from below.
frame_map::iterator find_in(frame_map& live, std::uintptr_t first, std::uintptr_t last) {
  const auto found = live.lower_bound(first);
  if (found != live.begin()) {
    const auto before = std::prev(found);
    const std::uintptr_t end = before->first + before->second.block.bytes;
    if (end > first && end <= last) return before;
  }
  return found != live.end() && found->first < last ? found : live.end();
}

auto find_of(frame_map& live, std::pmr::memory_resource const& memory) {
  return std::ranges::find(live, &memory, [](auto const& entry) { return entry.second.memory; });
}

struct frame_records {
  // @pre the lock is held, here and in `count_live`.
  template <class Find>
  void untrack_each(Find find) noexcept {
    for (auto found = find(live); found != live.end(); found = find(live)) live.erase(found);
    count_live();
  }
  void count_live() noexcept { live_count.store(live.size(), std::memory_order_relaxed); }

  fork_safe<> mutex;
  std::pmr::unsynchronized_pool_resource nodes{std::pmr::new_delete_resource()};
  frame_map live{&nodes};
  std::uint64_t frames = 0;  // number recorded so far
};

// Never destroyed, because frames may be destroyed after all static objects.
frame_records& records() {
  static auto& made = *new until_unload<frame_records>;
  return made.value;
}

// Reports without the lock, because the handler may destroy coroutines. `find` returns the next frame.
template <class Find>
std::size_t report_each(Find find, char const* kind, char const* resource) noexcept {
  std::size_t reported = 0;
  for (; live_count.load(std::memory_order_relaxed) != 0; ++reported) {
    live_block block;
    {
      const std::scoped_lock lock{records().mutex};
      const auto found = find(records().live);
      if (found == records().live.end()) break;
      block = found->second.block;
      records().live.erase(found);
      records().count_live();
    }
    report_violation(violation_kind::frame_outlived, resource,
                     "%s '%s': memory of a live coroutine is freed: its frame of %s", kind, resource,
                     detail::describe(block).data());
  }
  return reported;
}

template <class Find>
void untrack(Find find) noexcept {
  if (live_count.load(std::memory_order_relaxed) == 0) return;
  const std::scoped_lock lock{records().mutex};
  records().untrack_each(find);
}

}  // namespace

void report_frames_in(std::uintptr_t first, std::uintptr_t last, char const* kind,
                      char const* resource) noexcept {
  (void)report_each([=](frame_map& live) { return find_in(live, first, last); }, kind, resource);
}

std::size_t report_frames_of(std::pmr::memory_resource const& memory, char const* kind,
                             char const* resource) noexcept {
  return report_each([&](frame_map& live) { return find_of(live, memory); }, kind, resource);
}

void untrack_frames_in(std::uintptr_t first, std::uintptr_t last) noexcept {
  untrack([=](frame_map& live) { return find_in(live, first, last); });
}

void untrack_frames_of(std::pmr::memory_resource const& memory) noexcept {
  untrack([&](frame_map& live) { return find_of(live, memory); });
}

void* allocate_recorded(std::pmr::memory_resource& memory, std::size_t bytes, std::size_t align,
                        std::source_location where) {
  std::optional<allocation_site> here;  // for reports of resources that record their blocks
  if (where.line() != 0) here.emplace("a coroutine's frame", where);
  frame_records& frames = records();  // first, because making it may throw
  void* const frame = memory.allocate(bytes, align);
  try {
    const std::uintptr_t first = address_of(frame), last = first + bytes;
    const std::scoped_lock lock{frames.mutex};
    frames.untrack_each([=](frame_map& live) { return find_in(live, first, last); });
    frames.live.emplace(first,
                        live_frame{block_here(frame, bytes, align, ++frames.frames, std::nullopt), &memory});
    frames.count_live();
  } catch (...) {
    memory.deallocate(frame, bytes, align);
    throw;
  }
  return frame;
}

bool untrack_frame(void const* frame) noexcept {
  frame_records& frames = records();
  const std::scoped_lock lock{frames.mutex};
  const bool was_live = frames.live.erase(address_of(frame)) == 1;
  frames.count_live();
  return was_live;
}

}  // namespace tidemark::detail
