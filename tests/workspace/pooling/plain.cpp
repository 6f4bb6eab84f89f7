// SPDX-License-Identifier: Apache-2.0
// One source, compiled twice: as workspaces are, and with TIDEMARK_WORKSPACE_POOLING off. Prints what was
// computed and what was allocated, for check.py to compare; with arguments, runs a loop for
// bench/instructions.
#include <cstddef>
#include <cstdio>
#include <memory_resource>
#include <numeric>
#include <string_view>

#include <tidemark/core/config.hpp>
#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/extras/this_thread_workspace.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

namespace {

using namespace tidemark;

class counting_resource final : public std::pmr::memory_resource {
 public:
  std::size_t allocations = 0, live = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    ++allocations;
    ++live;
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    --live;
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

struct pair_of_numbers {
  double first;
  float second;
};

constexpr std::size_t turns = 10;
constexpr std::size_t acquired_per_turn = 8;

/// A turn of some program: 8 acquisitions, of several types and forms, in nested scopes.
double turn(workspace& ws, std::size_t n) {
  workspace::scope<double> scope{ws};
  const auto a = scope.acquire<double>(n);
  std::iota(a.begin(), a.end(), 0.0);
  const auto matrix = scope.zeros<float>(n, 3);
  const auto seen = scope.trues(n);
  const double inner = with_workspace(ws, [&](auto& scope_of_inner) {
    const auto b = scope_of_inner.acquire_like(a);
    const auto pairs = scope_of_inner.template acquire<pair_of_numbers>(n);
    pairs[n - 1] = {1.5, 2.5F};
    std::iota(b.begin(), b.end(), 1.0);
    return std::accumulate(b.begin(), b.end(), pairs[n - 1].first);
  });
  ws.checkpoint();
  const auto c = ws.ones<int>(n);
  const int count = std::accumulate(c.begin(), c.end(), 0);
  ws.rewind();
  dl_tensor const* const tensor = acquire_tensor<double>(scope, n, 2);
  static_cast<double*>(tensor->data)[0] = 0.25;
  const double more = scope.fill(0.125, 4)[3];
  return std::accumulate(a.begin(), a.end(), 0.0) + inner + count + static_cast<double>(seen.count()) +
         matrix(n - 1, 2) + static_cast<double*>(tensor->data)[0] + more;
}

void print_turns() {
  counting_resource memory;
  workspace ws{&memory};
  std::size_t live_between = 0;
  for (std::size_t i = 0; i < turns; ++i) {
    std::printf("result %.17g\n", turn(ws, 100 - i));
    live_between += memory.live;
  }
  std::printf("pooling %d\n", ws.pooling_enabled() ? 1 : 0);
  std::printf("acquisitions %zu\nallocations %zu\nlive_between_turns %zu\n", turns * acquired_per_turn,
              memory.allocations, live_between);
  std::printf("records_between_turns %zu\n", ws.stats().slot_count);
  ws.release();
  std::printf("live_at_end %zu\n", memory.live);
}

void print_this_threads() {
  (void)turn(this_thread_workspace(), 100);
  std::printf("slots_of_this_thread %zu\n", this_thread_workspace().stats().slot_count);
}

/// A workspace whose options say that it keeps memory, in both programs.
void print_swept() {
  counting_resource memory;
  workspace ws{workspace_options{.pooling = true, .upstream = &memory}};
  const auto use = [&](std::size_t n) {
    const workspace::scope<> scope{ws};
    (void)ws.acquire<double>(n);
  };
  use(1'000'000);
  for (int i = 0; i < 4; ++i) {
    use(10);
    tick_workspace_sweeps();
  }
  use(10);
  std::printf("kept_bytes_after_ticks %zu\n", ws.stats().held_bytes);
  std::printf("sweeper_by_itself %d\n", workspace_sweeps_enabled() ? 1 : 0);
}

/// Empty scopes at level 0, or nothing, so often.
int loop(std::string_view what, unsigned long long n) {
  basic_workspace<0> ws;
  basic_workspace<0>* volatile hidden = &ws;
  basic_workspace<0>& unknown = *hidden;
  const bool opens = what == "workspace_empty_scope_pooling_off";
  if (!opens && what != "empty") return std::fprintf(stderr, "there is no case\n"), 2;
  for (unsigned long long i = 0; i < n; ++i) {
    if (opens) {
      basic_workspace<0>::scope<> scope{unknown};
      asm volatile("" : : "r"(&scope) : "memory");
    } else {
      asm volatile("" : : : "memory");
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3) return loop(arguments[1], std::strtoull(arguments[2], nullptr, 10));
  print_turns();
  print_this_threads();
  print_swept();
}
