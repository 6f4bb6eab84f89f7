// SPDX-License-Identifier: Apache-2.0
// A plugin that links the static library and that a program loads late. It uses every part that reads
// thread-local variables, and every part that leaves something behind in the process: memory, keys of
// threads, signal handlers, threads.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <memory_resource>
#include <mutex>
#include <thread>
#include <vector>

#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>

namespace {

bool allocates_on_this_thread() {
  tidemark::synchronized_pool blocks;
  tidemark::epoch_resource memory{&blocks};
  tidemark::workspace& numbers = tidemark::this_thread_workspace();
  std::size_t sum = 0;
  for (int step = 0; step < 3; ++step) {
    tidemark::epoch e{memory, "step"};
    tidemark::expect_resource expected{&memory};
    std::pmr::vector<std::size_t> values({1, 2, 3}, &memory);
    tidemark::arena::scope temporary = tidemark::scratch(tidemark::no_conflicts);
    tidemark::workspace::scope<> scope{numbers};
    temporary.push_array<double>(100)[99] = 1.0;
    numbers.acquire<double>(100)[99] = 1.0;
    for (const std::size_t value : values) sum += value;
  }
  void* const block = tidemark::pooled_alloc(100);
  tidemark::pooled_free(block, 100);
  return sum == 18 && memory.depth() == 0;
}

bool fills(std::pmr::memory_resource& memory) {
  std::pmr::vector<int> values{&memory};
  for (int i = 0; i < 1000; ++i) values.push_back(i);
  return values[999] == 999;
}

// Objects in static storage, and objects that the program never destroys.
std::mutex one_at_a_time;  // for objects that one thread owns

bool uses_a_pool() {
  static tidemark::pool blocks;
  const std::scoped_lock lock{one_at_a_time};
  blocks.release_thread_ownership();
  const bool works = fills(blocks);
  blocks.release_thread_ownership();
  return works;
}
bool uses_a_synchronized_pool() {
  static tidemark::synchronized_pool blocks;
  return fills(blocks);
}
bool uses_the_global_pool() {
  (void)tidemark::pooled_alloc(100);  // never freed
  return fills(tidemark::global_pool());
}
bool uses_scratch() {
  tidemark::arena::scope scope = tidemark::scratch(tidemark::no_conflicts);
  scope.push_array<int>(1000)[999] = 1;
  return tidemark::scratch_arena_count() == 1;
}
bool uses_workspaces() {
  tidemark::workspace::scope<> scope{tidemark::this_thread_workspace()};
  scope.acquire<double>(1000)[999] = 1.0;
  static tidemark::workspace kept;
  const std::scoped_lock lock{one_at_a_time};
  tidemark::workspace_binding bound{kept};
  tidemark::workspace::scope<> other{kept};
  other.acquire<double>(10)[9] = 1.0;
  return true;
}
bool uses_a_team() {
  static tidemark::shared_arena team;
  tidemark::local_arena& local = team.local();
  local.push_array<int>(100)[99] = 1;
  return true;
}
bool uses_epochs() {
  static tidemark::synchronized_pool blocks;
  static tidemark::epoch_resource memory{&blocks};
  const std::scoped_lock lock{one_at_a_time};
  tidemark::epoch step{memory, "step"};
  return fills(memory);
}
bool uses_a_reuse_cache() {
  static tidemark::reuse_cache blocks;
  const std::scoped_lock lock{one_at_a_time};
  return fills(blocks);
}
bool traps() {
  static tidemark::arena trapping{{.name = "plugin", .trap = {.one_in = 1, .reserve = 64 * tidemark::MiB}}};
  const std::scoped_lock lock{one_at_a_time};
  for (int i = 0; i < 3; ++i) {
    tidemark::arena::scope scope{trapping};
    scope.push_array<int>(100)[99] = 1;
  }
  trapping.release_thread_ownership();
  return trapping.stats().trapped_scopes > 0;
}
bool tracks() {
  static tidemark::statistics_resource counted{std::pmr::new_delete_resource()};
  static tidemark::tracking_resource tracked{&counted};
  return fills(tracked);
}
// The host writes the file.
tidemark::pressure_monitor_options monitored() {
  return {.psi_path = std::getenv("UNLOAD_PSI"), .events_path = "", .interval = std::chrono::milliseconds{1}};
}
bool monitors_pressure() {
  static tidemark::pressure_monitor monitor{monitored()};
  return monitor.is_listening();
}
bool never_destroys_a_monitor() {
  static auto* const monitor = new tidemark::pressure_monitor{monitored()};
  return monitor->is_listening();
}
bool sweeps() {
  tidemark::enable_workspace_sweeps({.interval = std::chrono::milliseconds{1}});  // never disabled
  return tidemark::workspace_sweeps_enabled();
}

constexpr bool (*parts[])() = {uses_a_pool,
                               uses_a_synchronized_pool,
                               uses_the_global_pool,
                               uses_scratch,
                               uses_workspaces,
                               uses_a_team,
                               uses_epochs,
                               uses_a_reuse_cache,
                               traps,
                               tracks,
                               allocates_on_this_thread,
                               sweeps,
                               monitors_pressure,
                               never_destroys_a_monitor};

}  // namespace

/// 1 if all parts work, on this thread and on a new one.
extern "C" [[gnu::visibility("default")]] int use_tidemark() {
  bool works = false;
  std::thread{[&] { works = allocates_on_this_thread(); }}.join();
  return works && allocates_on_this_thread() ? 1 : 0;
}

/// Uses the parts whose bits are set, on this thread. 1 if they work.
extern "C" [[gnu::visibility("default")]] int use_parts(unsigned which) {
  for (std::size_t i = 0; i < std::size(parts); ++i)
    if ((which >> i & 1U) != 0 && !parts[i]()) return 0;
  return 1;
}
extern "C" [[gnu::visibility("default")]] unsigned count_parts() { return std::size(parts); }

/// Uses the features that a thread may use at its end, after a destructor of another key has been called.
extern "C" [[gnu::visibility("default")]] void use_at_the_end() {
  tidemark::pooled_free(tidemark::pooled_alloc(100), 100);
  (void)uses_scratch();
}
/// Threads that have a part of the global pool.
extern "C" [[gnu::visibility("default")]] std::size_t count_threads() {
  return tidemark::global_pool().thread_count();
}
