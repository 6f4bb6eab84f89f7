// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/live_frames.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/block_report.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {
namespace {

struct live_frame {
  live_block block;
  std::pmr::memory_resource const* memory;
};

using frame_map = std::pmr::map<std::uintptr_t, live_frame>;

struct frame_table {
  fork_safe<> mutex;
  std::pmr::unsynchronized_pool_resource nodes{std::pmr::new_delete_resource()};
  frame_map live{&nodes};
  std::uint64_t frames = 0;  // so far
};

// `table().live.size()`, so that programs without coroutines take no lock, and have no table. Relaxed: that a
// frame is in memory that is freed, the freeing thread knows by the order that makes freeing it right.
std::atomic<std::size_t> live_count{0};

// Frames may be destroyed after all static objects.
frame_table& table() {
  static auto& made = *new until_unload<frame_table>;
  return made.value;
}

// A frame that begins or ends in this range. One that only lies around it is not of it: a local of a
// coroutine may be a buffer, with frames or an arena on it. Of frames that reach into the range from
// before, and lie in each other, only the innermost is seen.
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

template <class Find>
void forget_each(frame_map& live, Find find) noexcept {
  for (auto found = find(live); found != live.end(); found = find(live)) live.erase(found);
}

// Without a report.
template <class Find>
void forget_stale(Find find) noexcept {
  if (live_count.load(std::memory_order_relaxed) == 0) return;
  frame_table& frames = table();
  const std::scoped_lock lock{frames.mutex};
  forget_each(frames.live, find);
  live_count.store(frames.live.size(), std::memory_order_relaxed);
}

// Reports without the lock, because the handler may destroy coroutines. `find` says which frame is next.
// @return how many
template <class Find>
std::size_t report_each(Find find, char const* kind, char const* resource) noexcept {
  std::size_t reported = 0;
  for (; live_count.load(std::memory_order_relaxed) != 0; ++reported) {
    frame_table& frames = table();
    live_block block;
    {
      const std::scoped_lock lock{frames.mutex};
      const auto found = find(frames.live);
      if (found == frames.live.end()) break;
      block = found->second.block;
      frames.live.erase(found);
      live_count.store(frames.live.size(), std::memory_order_relaxed);
    }
    report_violation(violation_kind::frame_outlived, resource,
                     "%s '%s': memory of a coroutine is freed that was not destroyed: its frame of %s", kind,
                     resource, detail::describe(block).text);
  }
  return reported;
}

}  // namespace

void* allocate_recorded(std::pmr::memory_resource& memory, std::size_t bytes, std::size_t align,
                        std::source_location where) {
  std::optional<allocation_site> here;  // for the reports of resources that know their blocks
  if (where.line() != 0) here.emplace("a coroutine's frame", where);
  frame_table& frames = table();  // first, because making it may throw
  void* const frame = memory.allocate(bytes, align);
  try {
    const std::uintptr_t first = address_of(frame), last = first + bytes;
    const std::scoped_lock lock{frames.mutex};
    forget_each(frames.live, [=](frame_map& live) { return find_in(live, first, last); });
    frames.live.emplace(first,
                        live_frame{block_here(frame, bytes, align, ++frames.frames, std::nullopt), &memory});
    live_count.store(frames.live.size(), std::memory_order_relaxed);
  } catch (...) {
    memory.deallocate(frame, bytes, align);
    throw;
  }
  return frame;
}

bool forget_frame(void const* frame) noexcept {
  frame_table& frames = table();
  const std::scoped_lock lock{frames.mutex};
  const bool was_live = frames.live.erase(address_of(frame)) == 1;
  live_count.store(frames.live.size(), std::memory_order_relaxed);
  return was_live;
}

void report_frames_in(std::uintptr_t first, std::uintptr_t last, char const* kind,
                      char const* resource) noexcept {
  report_each([=](frame_map& live) { return find_in(live, first, last); }, kind, resource);
}

std::size_t report_frames_of(std::pmr::memory_resource const& memory, char const* kind,
                             char const* resource) noexcept {
  return report_each([&](frame_map& live) { return find_of(live, memory); }, kind, resource);
}

void forget_frames_in(std::uintptr_t first, std::uintptr_t last) noexcept {
  forget_stale([=](frame_map& live) { return find_in(live, first, last); });
}

void forget_frames_of(std::pmr::memory_resource const& memory) noexcept {
  forget_stale([&](frame_map& live) { return find_of(live, memory); });
}

}  // namespace tidemark::detail
