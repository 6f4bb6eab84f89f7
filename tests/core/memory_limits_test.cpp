// SPDX-License-Identifier: Apache-2.0
// Every resource under the system's limits on a process's memory. Each works in small sizes if its wanted
// size is refused, and the final error names the limit. The limits are set in child processes.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/compat.hpp>
#include <tidemark/core/registered_memory.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/tidemark.hpp>

#include "caught.hpp"
#include "fake_device.hpp"
#include "memory_limits.hpp"
#include "recording_registrar.hpp"
#include "recording_supply.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

// Blocks of up to 100 kB, each written to.
std::string use(std::pmr::memory_resource& memory) {
  for (const std::size_t bytes : {1u, 1000u, 20'000u, 100'000u}) {
    void* const block = memory.allocate(bytes);
    std::memset(block, 1, bytes);
    memory.deallocate(block, bytes);
  }
  return "";
}

template <class Resource>
std::string use_default() {
  Resource memory;
  return use(memory);
}

std::string use_planned() {
  planned_arena memory;
  for (int i = 0; i < 20; ++i) {
    const planned_arena::step step{memory};
    use(memory);
  }
  return memory.stats().planned_steps > 10 ? "" : "no step is planned";
}

std::string use_scratch() {
  arena::scope scope = scratch(no_conflicts);
  std::memset(scope.allocate(100'000), 1, 100'000);
  return "";
}

std::string use_trapped() {
  arena memory{{.trap = {.one_in = 1}}};
  for (int i = 0; i < 3; ++i) {
    const arena::scope scope{memory};
    use(memory);
  }
  return "";
}

std::string use_shared() {
  shared_arena memory;
  std::string wrong;
  const auto work = [&] { wrong += use(memory); };
  work();
  return wrong;
}

std::string use_registered() {
  registrations known;
  basic_arena<registered_memory<virtual_memory, recording_registrar<>>> memory{
      {}, virtual_memory{}, recording_registrar<>{known}};
  return use(memory);
}

std::string use_workspace() {
  workspace memory;
  workspace::scope scope{memory};
  scope.acquire<double>(1000)[0] = 1;
  return this_thread_workspace().acquire<double>(1000).size() == 1000 ? "" : "it has another size";
}

std::string use_device() {
  fake_device device{{.capacity_bytes = 16 * GiB}};
  device_arena memory{gpu::stream_handle{}, device};
  (void)memory.allocate(1 * MiB);
  return "";
}

std::string use_graph() {
  std::vector<std::byte> buffer(1 * MiB);
  std::pmr::monotonic_buffer_resource upstream{buffer.data(), buffer.size()};
  graph_arena memory{64 * KiB, &upstream};
  (void)memory.allocate(1000);
  return "";
}

using use_of = std::pair<char const*, std::function<std::string()>>;
std::vector<use_of> const& all_resources() {
  static const std::vector<use_of> all{
      {"arena", use_default<arena>},
      {"huge pages",
       [] { return use(*std::make_unique<arena>(arena_options{.huge_pages = huge_page_policy::advise})); }},
      {"prefault", [] { return use(*std::make_unique<arena>(arena_options{.prefault = true})); }},
      {"trapped arena", use_trapped},
      {"scratch", use_scratch},
      {"shared_arena", use_shared},
      {"team",
       [] { return use(*std::make_unique<shared_arena>(arena_options{}, team_options{.threads = 4})); }},
      {"process_arena", use_default<process_arena>},
      {"planned_arena", use_planned},
      {"registered_memory", use_registered},
      {"upstream_arena", use_default<upstream_arena>},
      {"pool", use_default<pool>},
      {"synchronized_pool", use_default<synchronized_pool>},
      {"global_pool", [] { return use(global_pool()); }},
      {"epoch_resource", use_default<epoch_resource>},
      {"reuse_cache", use_default<reuse_cache>},
      {"workspace", use_workspace},
      {"graph_arena", use_graph},
      {"device_arena", use_device},
      {"compat monotonic", use_default<compat::monotonic_buffer_resource>},
      {"compat pool", use_default<compat::unsynchronized_pool_resource>},
      {"compat synchronized pool", use_default<compat::synchronized_pool_resource>},
  };
  return all;
}

// Returns the message of a call that must throw.
template <class Call>
std::string error_of(Call call) {
  return test::message_of<std::exception>(call);
}

std::string require_words(std::string const& text, std::initializer_list<std::string_view> words) {
  for (std::string_view word : words)
    if (text.find(word) == text.npos) return "'" + std::string{word} + "' is not in: " + text;
  return "";
}

class limited_process : public testing::Test {
 protected:
  void SetUp() override {
    if (sanitizers_need_addresses) GTEST_SKIP() << "sanitizers need more than a limit leaves them";
  }
};
using address_limits = limited_process;
using data_limits = limited_process;
using locked_memory = limited_process;
using mappings = limited_process;

TEST_F(address_limits, leave_every_resource_working_in_small_sizes) {
  for (const std::size_t limit : {200 * MiB, 300 * MiB, 900 * MiB, 1040 * MiB}) {
    for (auto const& [name, work] : all_resources())
      EXPECT_EQ(under_limits({.address_bytes = limit}, work), "")
          << name << " under " << limit / MiB << " MiB";
  }
}

TEST_F(address_limits, are_shared_by_arenas_threads_and_malloc) {
  const auto use_many = []() -> std::string {
    std::list<arena> arenas;
    std::string wrong;
    for (int i = 0; i < 16; ++i) wrong += use(arenas.emplace_back());
    for (int i = 0; i < 4; ++i) std::thread{[&] { wrong += use_scratch(); }}.join();
    const std::vector<char> large(8 * MiB);
    return wrong;
  };
  EXPECT_EQ(under_limits({.address_bytes = 300 * MiB}, use_many), "");
}

TEST_F(address_limits, are_used_by_an_arena_that_grows) {
  const auto fill = []() -> std::string {
    arena memory;
    std::size_t bytes = 0;
    while (memory.try_allocate(100 * KiB) != nullptr) bytes += 100 * KiB;
    std::size_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    rlimit limit{};
    (void)::getrlimit(RLIMIT_AS, &limit);
    const std::size_t left = limit.rlim_cur - pages * system_memory().page_size();
    return left < 16 * MiB ? ""
                           : std::to_string(left) + " bytes are left, " + std::to_string(bytes) + " served";
  };
  EXPECT_EQ(under_limits({.address_bytes = 300 * MiB}, fill), "");
}

// A request for more than a limit leaves is refused with these words.
template <class Request>
void expect_words(memory_limits const& limits, Request request,
                  std::initializer_list<std::string_view> words) {
  EXPECT_EQ(under_limits(limits, [&] { return require_words(error_of(request), words); }), "");
}

TEST_F(address_limits, are_named_by_the_error) {
  const memory_limits limits{.address_bytes = 300 * MiB};
  expect_words(limits, [] { (void)arena{{.name = "step"}}.allocate(1 * GiB); },
               {"step: out of memory", "RLIMIT_AS", "ulimit -v"});
  expect_words(limits, [] { (void)shared_arena{}.allocate(1 * GiB); }, {"RLIMIT_AS"});
  expect_words(limits, [] { (void)shared_memory{}.reserve(1 * GiB, 1); },
               {"shared_memory", "1073741824 bytes", "RLIMIT_AS"});
  expect_words(limits,
               [] {
                 registrations known;
                 basic_arena<registered_memory<virtual_memory, recording_registrar<>>> memory{
                     {}, virtual_memory{}, recording_registrar<>{known}};
                 (void)memory.allocate(1 * GiB);
               },
               {"RLIMIT_AS"});
}

TEST_F(data_limits, are_named_by_the_error) {
  EXPECT_EQ(under_limits({.data_bytes = 200 * MiB},
                         [] {
                           for (auto const& [name, work] : all_resources())
                             if (const std::string text = work(); !text.empty()) return name + (": " + text);
                           arena memory;
                           return require_words(error_of([&] { (void)memory.allocate(900 * MiB); }),
                                                {"RLIMIT_DATA", "ulimit -d"});
                         }),
            "");
}

// ---- locked memory

TEST_F(locked_memory, leaves_every_resource_working_in_small_sizes) {
  for (auto const& [name, work] : all_resources())
    EXPECT_EQ(under_limits({.locked_bytes = 8 * MiB}, work), "") << name;
}

TEST_F(locked_memory, is_named_by_the_error) {
  expect_words({.locked_bytes = 8 * MiB}, [] { (void)arena{}.allocate(64 * MiB); },
               {"RLIMIT_MEMLOCK", "ulimit -l"});
}

// docs/realtime.md
TEST_F(locked_memory, holds_the_arena_of_the_real_time_recipe) {
  EXPECT_EQ(under_limits({.locked_bytes = 8 * MiB},
                         []() -> std::string {
                           arena memory{{.reserve = 64 * MiB, .commit_step = 4 * MiB, .prefault = true}};
                           (void)memory.push_bytes(1, uninitialized);
                           const std::size_t committed = memory.stats().committed_bytes;
                           if (committed != 4 * MiB)
                             return std::to_string(committed) + " bytes are committed";
                           for (int i = 0; i < 100; ++i) {
                             const arena::scope block{memory};
                             std::memset(memory.allocate(3 * MiB), 1, 3 * MiB);
                           }
                           return memory.stats().committed_bytes == committed ? ""
                                                                              : "a step committed memory";
                         }),
            "");
}

// ---- mappings

TEST_F(mappings, are_named_by_the_error_if_the_process_has_used_them_up) {
  EXPECT_EQ(under_limits({},
                         []() -> std::string {
                           std::list<arena> arenas;
                           const std::string text = error_of([&] {
                             while (arenas.size() < 100'000)
                               (void)arenas.emplace_back(arena_options{.reserve = 64 * KiB}).allocate(1);
                           });
                           if (arenas.size() == 100'000) return "";  // a machine that permits more
                           if (arenas.size() < 1000) return std::to_string(arenas.size()) + " arenas";
                           return require_words(text, {"vm.max_map_count", "sysctl"});
                         }),
            "");
}

// ---- a planned arena without a range

TEST(planned_arena_without_a_range, warns_once_and_serves_from_its_fallback) {
  recording_os os;
  os.fail_from = 0;
  os.fail_count = recording_os::never;
  warning_recorder warnings;
  planned_arena memory{{.name = "steps"}, virtual_memory{{}, os}};
  for (int i = 0; i < 50; ++i) {
    const planned_arena::step step{memory};
    use(memory);
  }
  EXPECT_EQ(memory.stats().planned_steps, 0u);
  ASSERT_EQ(warnings.reports().size(), 1u);
  EXPECT_EQ(warnings.reports()[0].kind, warning_kind::refused_memory);
  EXPECT_EQ(
      require_words(warnings.reports()[0].message, {"planned_arena 'steps'", "fallback", "can be reserved"}),
      "");
}

}  // namespace
}  // namespace tidemark::test
