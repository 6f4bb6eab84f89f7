// SPDX-License-Identifier: Apache-2.0
// Repeated steps under RealtimeSanitizer. `warm_steps RESOURCE warm` runs a step until all memory exists, and
// then once in a function that must not block. `cold` runs the first step there. The sanitizer reports a
// system call, a call of malloc or a lock there with its place, and ends the program.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

namespace {

/// A step of a resource that frees block by block.
void use(std::pmr::memory_resource& memory, std::size_t large_bytes = 100'000) {
  std::pmr::vector<double> values(500, 1.0, &memory);
  std::pmr::map<int, double> table{&memory};
  for (int i = 0; i < 20; ++i) table[i] = values[static_cast<std::size_t>(i)];
  void* const large = memory.allocate(large_bytes);
  std::memset(large, 1, large_bytes);
  memory.deallocate(large, large_bytes);
}

/// Additional work of a step of an arena: blocks that are never deallocated, and objects with destructors.
template <class Arena>
void fill(Arena& memory, std::size_t large_bytes = 100'000) {
  std::span<double> values = memory.template push_array<double>(500);
  values[499] = 1;
  memory.template make<std::pmr::string>("a text that does not fit into the string itself", &memory);
  use(memory, large_bytes);
}

using step = std::function<void()>;

// The resource is part of the function, and therefore exists from before the first step until after the last.
std::pair<std::string_view, std::function<void(std::function<void(step const&)> const&)>> const resources[] = {
    {"arena_scope", [](auto const& run) {
       arena memory;
       run([&] {
         arena::scope scope{memory};
         fill(memory);
       });
     }},
    {"arena_rewind", [](auto const& run) {
       arena memory;
       run([&] {
         const arena_mark mark = memory.mark();
         fill(memory);
         memory.rewind(mark);
       });
     }},
    {"arena_in_chunks", [](auto const& run) {
       arena memory{{.reserve = 64 * KiB}};
       run([&] {
         arena::scope scope{memory};
         for (int i = 0; i < 4; ++i) fill(memory);
       });
     }},
    {"scratch", [](auto const& run) {
       run([] {
         arena::scope temporary = scratch(no_conflicts);
         (void)temporary.push_array<double>(500);
       });
     }},
    {"shared_arena_thread_scope", [](auto const& run) {
       shared_arena team;
       local_arena& local = team.local();
       run([&] {
         local_arena::scope scope{local};
         fill(local, 10'000);
       });
     }},
    {"shared_arena_block_beyond_an_extent", [](auto const& run) {
       shared_arena team;
       local_arena& local = team.local();
       run([&] {
         local_arena::scope scope{local};
         fill(local, 100'000);
       });
     }},
    {"pool", [](auto const& run) {
       pool memory;
       run([&] { use(memory); });
     }},
    {"synchronized_pool", [](auto const& run) {
       synchronized_pool memory;
       run([&] { use(memory); });
     }},
    {"planned_arena", [](auto const& run) {
       pool fallback;
       planned_arena memory{{.fallback = &fallback}};
       run([&] {
         planned_arena::step planned{memory};
         use(memory);
       });
     }},
    {"workspace", [](auto const& run) {
       workspace memory;
       run([&] {
         workspace::scope scope{memory};
         auto values = scope.zeros<double>(500);
         values(499) = 1;
         (void)scope.falses(1000);
       });
     }},
    {"epoch", [](auto const& run) {
       pool blocks;
       epoch_resource memory{&blocks};
       run([&] {
         epoch phase{memory};
         buffer<double> values{memory, 500, 1.0};
         use(memory);
       });
     }},
    {"prefaulted_arena", [](auto const& run) {
       arena memory{{.commit_step = 4 * MiB, .prefault = true}};
       (void)memory.push_bytes(1, uninitialized);  // commits, and so faults in
       run([&] {
         arena::scope scope{memory};
         fill(memory);
       });
     }},
    {"graph_arena_reset", [](auto const& run) {
       graph_arena memory{1 * MiB, std::pmr::new_delete_resource()};
       run([&] {
         use(memory);
         memory.reset();
       });
     }},
    {"compat_monotonic", [](auto const& run) {
       std::vector<std::byte> storage(1 * MiB);
       compat::monotonic_buffer_resource memory{storage.data(), storage.size(), std::pmr::null_memory_resource()};
       run([&] {
         use(memory);
         memory.release();
       });
     }},
    {"malloc", [](auto const& run) { run([] { use(*std::pmr::new_delete_resource()); }); }},
};

void without_blocking(step const& once) [[clang::nonblocking]] { once(); }

int misuse() {
  std::fputs("usage: warm_steps RESOURCE warm|cold, with RESOURCE one of:", stderr);
  for (auto const& [name, runs] : resources)
    std::fprintf(stderr, " %.*s", static_cast<int>(name.size()), name.data());
  std::fputs("\n", stderr);
  return 2;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return misuse();
  const int warm_up = std::string_view{arguments[2]} == "warm" ? 30 : 0;
  for (auto const& [name, runs] : resources) {
    if (name != arguments[1]) continue;
    runs([&](step const& once) {
      for (int i = 0; i < warm_up; ++i) once();
      without_blocking(once);
    });
    std::puts("no call blocked");
    return 0;
  }
  return misuse();
}
