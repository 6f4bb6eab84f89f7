// SPDX-License-Identifier: Apache-2.0
// Every kind of arena as a subject of the conformance suite and of the model test.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <system_error>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/registered_memory.hpp>
#include <tidemark/process.hpp>
#include <tidemark/team/shared_arena.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>

#include "file_call_faults.hpp"
#include "recording_registrar.hpp"
#include "recording_supply.hpp"
#include "subject_traits.hpp"

namespace tidemark::test {

/// Statistics of an arena that a failed request must not change.
inline std::vector<std::size_t> visible(arena_stats const& stats) {
  return {stats.used_bytes, stats.peak_bytes, stats.committed_bytes, stats.reserved_bytes, stats.chunks};
}

/// Common base of the arenas' subjects.
template <class Arena>
class arena_subject {
 public:
  using arena_type = Arena;
  static constexpr std::size_t largest = 64 * MiB, capacity = 0;

  template <class... Arguments>
  explicit arena_subject(Arguments&&... arguments) : arena_{std::forward<Arguments>(arguments)...} {}

  Arena& resource() { return arena_; }
  void recycle() { arena_.reset(); }
  void check() const { arena_.check_invariants(); }
  [[nodiscard]] std::vector<std::size_t> state() const { return visible(arena_.stats()); }

 private:
  Arena arena_;
};

/// Virtual memory in one range.
struct virtual_arena_subject : arena_subject<arena> {
  using supply_type = recording_os;
  explicit virtual_arena_subject(supply_type& os)
      : arena_subject{virtual_memory{{}, os}, arena_options{.reserve = 256 * MiB, .commit_step = 4 * KiB}} {}
};

/// Virtual memory in chunks so small that most allocations of the tests cross one.
struct chunked_arena_subject : arena_subject<arena> {
  using supply_type = recording_os;
  explicit chunked_arena_subject(supply_type& os)
      : arena_subject{virtual_memory{{}, os}, arena_options{.reserve = 16 * KiB, .commit_step = 4 * KiB}} {}
};

/// Scopes are trapped, so that they return their memory.
struct trapped_subject : arena_subject<arena> {
  using supply_type = recording_os;
  static constexpr std::size_t max_reused_bytes = 0, max_reused_align = 0;
  static constexpr bool returns_all_memory = true;
  using arena_subject::arena_subject;
};

/// Every scope is trapped while addresses are available.
struct trapping_arena_subject : trapped_subject {
  explicit trapping_arena_subject(supply_type& os)
      : trapped_subject{virtual_memory{{}, os}, arena_options{.reserve = 256 * MiB,
                                                              .commit_step = 4 * KiB,
                                                              .trap = {.one_in = 1, .reserve = 64 * MiB}}} {}
};

/// About every third scope is trapped. Addresses are so few and chunks so small that often no address is left
/// or the scope needs more.
struct sampling_arena_subject : trapped_subject {
  explicit sampling_arena_subject(supply_type& os)
      : trapped_subject{virtual_memory{{}, os}, arena_options{.reserve = 16 * KiB,
                                                              .commit_step = 4 * KiB,
                                                              .trap = {.one_in = 3, .reserve = 2 * MiB}}} {}
};

/// The same in one chunk that does not grow.
struct bounded_sampling_arena_subject : trapped_subject {
  static constexpr std::size_t capacity = 8 * MiB, largest = 4 * MiB;
  explicit bounded_sampling_arena_subject(supply_type& os)
      : trapped_subject{virtual_memory{{}, os}, arena_options{.reserve = capacity,
                                                              .commit_step = 4 * KiB,
                                                              .growable = false,
                                                              .trap = {.one_in = 3, .reserve = 256 * KiB}}} {}
};

/// An observer that a base class holds, so that it outlives the arena that it observes.
struct statistics_holder {
  statistics_resource counted{std::pmr::null_memory_resource()};
};

/// Small chunks whose blocks are counted: each allocation and release takes a slow path.
struct observed_arena_subject : private statistics_holder, public arena_subject<arena> {
  using supply_type = recording_os;
  explicit observed_arena_subject(supply_type& os)
      : arena_subject{virtual_memory{{}, os},
                      arena_options{.reserve = 16 * KiB, .commit_step = 4 * KiB, .observer = &counted}} {}
  void check() const {
    arena_subject::check();
    const std::size_t position = state()[0];
    EXPECT_EQ(position == 0, counted.stats().used_blocks == 0);
    EXPECT_LE(counted.stats().used_bytes, position);
  }
};

/// Chunks from a resource.
struct upstream_arena_subject : arena_subject<upstream_arena> {
  using supply_type = recording_resource;
  explicit upstream_arena_subject(supply_type& upstream) : arena_subject{&upstream} {}
};

/// The same, as if the host might not touch them.
struct upstream_device_arena_subject : arena_subject<upstream_device_arena> {
  using supply_type = recording_resource;
  explicit upstream_device_arena_subject(supply_type& upstream)
      : arena_subject{std::size_t{4 * KiB}, &upstream} {}
};

/// A buffer that a base class holds, so that it outlives the arena on it.
struct buffer_holder {
  std::unique_ptr<std::array<std::byte, 10'000>> buffer = std::make_unique<std::array<std::byte, 10'000>>();
};

/// A first buffer, then chunks from a resource.
struct buffered_upstream_arena_subject : private buffer_holder, public arena_subject<upstream_arena> {
  using supply_type = recording_resource;
  explicit buffered_upstream_arena_subject(supply_type& upstream)
      : arena_subject{buffer->data(), buffer->size(), &upstream} {}
};

/// Chunks that a registrar knows from when they come until they go.
struct registered_os {
  recording_os os;
  registrations known;
};
using registered_virtual_memory = registered_memory<virtual_memory, recording_registrar<>>;
class registered_arena_subject : public arena_subject<basic_arena<registered_virtual_memory>> {
 public:
  using supply_type = registered_os;
  explicit registered_arena_subject(supply_type& supply)
      : arena_subject{
            registered_virtual_memory{virtual_memory{{}, supply.os}, recording_registrar<>{supply.known}},
            arena_options{.reserve = 16 * KiB}},
        known_{supply.known} {}
  void check() const {
    arena_subject::check();
    EXPECT_EQ(known_.registered - known_.deregistered, arena_subject::state()[4])
        << "one registration per chunk";
  }

 private:
  registrations const& known_;
};

/// A range of fixed size.
class borrowed_arena_subject {
 public:
  using supply_type = supply;
  using arena_type = borrowed_arena;
  static constexpr std::size_t capacity = 8 * MiB, largest = 4 * MiB;

  explicit borrowed_arena_subject(supply&)
      : buffer_{new std::byte[capacity]}, arena_{borrowed_memory{buffer_.get(), capacity}, {}} {}

  borrowed_arena& resource() { return arena_; }
  void recycle() { arena_.reset(); }
  void check() const { arena_.check_invariants(); }
  [[nodiscard]] std::vector<std::size_t> state() const {
    const arena_stats stats = arena_.stats();
    return {stats.used_bytes, stats.peak_bytes, stats.chunks};
  }

 private:
  std::unique_ptr<std::byte[]> buffer_;
  borrowed_arena arena_;
};

/// A file of fixed size in memory, whose every system call may fail.
struct shared_memory_arena_subject : arena_subject<basic_arena<shared_memory>> {
  using supply_type = file_call_faults;
  static constexpr std::size_t capacity = 8 * MiB, largest = 4 * MiB;
  explicit shared_memory_arena_subject(supply_type&) try
      : arena_subject{shared_memory{}, arena_options{.reserve = capacity, .commit_step = 4 * KiB}} {
  } catch (std::system_error const&) {
    throw std::bad_alloc{};  // as other arenas say it
  }
};

/// The calls of a process arena for memory, without the calls that search for views.
struct file_calls_for_memory : file_call_faults {
  file_calls_for_memory() { ignored = "F_OFD_SETLK"; }
};

/// The same with a header in front, where other processes could see it.
class process_arena_subject {
 public:
  using supply_type = file_calls_for_memory;
  static constexpr std::size_t capacity = 8 * MiB, largest = 4 * MiB;

  explicit process_arena_subject(supply_type&) try
      : arena_{process_arena_options{.reserve = capacity, .commit_step = 4 * KiB}} {
  } catch (std::system_error const&) {
    throw std::bad_alloc{};
  }

  process_arena& resource() { return arena_; }
  void recycle() { EXPECT_TRUE(arena_.try_reset()); }
  void check() const { arena_.check_invariants(); }
  [[nodiscard]] std::vector<std::size_t> state() const { return visible(arena_.stats()); }

 private:
  process_arena arena_;
};

/// An arena for a team of one thread. Chunks and extents are small, so that most allocations of the tests
/// cross one and many blocks are set aside.
class shared_arena_subject : public subject_traits<64 * MiB, 0, recording_os> {
 public:
  explicit shared_arena_subject(supply_type& os) : shared_arena_subject{os, {}} {}

  shared_arena& resource() { return arena_; }
  void recycle() { arena_.reset(); }
  void check() const { arena_.check_invariants(); }
  [[nodiscard]] std::vector<std::size_t> state() const {
    const shared_arena_stats stats = arena_.stats();
    return {stats.used_bytes, stats.peak_bytes, stats.waste_bytes, stats.reserved_bytes, stats.chunks};
  }

 protected:
  shared_arena_subject(supply_type& os, std::size_t threads)
      : arena_{virtual_memory{{}, os},
               {.reserve = 128 * KiB, .commit_step = 4 * KiB},
               {.threads = threads, .min_extent_bytes = 4 * KiB, .max_extent_bytes = 16 * KiB}} {}

 private:
  shared_arena arena_;
};

/// The same through the handle of the thread.
class local_arena_subject : public shared_arena_subject {
 public:
  using shared_arena_subject::shared_arena_subject;
  local_arena& resource() { return local_; }

 private:
  local_arena& local_{shared_arena_subject::resource().local()};
};

/// Each thread has its own region.
struct placed_arena_subject : shared_arena_subject {
  explicit placed_arena_subject(supply_type& os) : shared_arena_subject{os, 2} {}
};

}  // namespace tidemark::test
