// SPDX-License-Identifier: Apache-2.0
// Runs one program on one memory in its own process, so that peak memory, page faults and system calls are
// those of this memory. Prints a JSON object; run_programs_bench starts it for each pair.
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "memories.hpp"
#include "program.hpp"

namespace tidemark::bench {

std::vector<program> const& programs() {
  static const std::vector<program> all{
      {"json", "a JSON document is parsed, queried and dropped, by 4 threads", "arena", "synchronized_pool",
       4, 2, 60, start_json},
#if defined(TIDEMARK_BENCH_GMP)
      {"rational", "the inverse of a Hilbert matrix in GMP's rationals", "pool", "arena", 1, 1, 12,
       start_rational},
#endif
      {"kd_tree", "particles move, and a k-d tree of them is built anew", "arena", "pool", 1, 2, 25,
       start_kd_tree},
      {"gradients", "conjugate gradients on arrays of 42 MB", "pool", "arena", 1, 1, 3, start_gradients},
      {"tape", "automatic differentiation of small expressions", "arena", "pool", 1, 2, 300, start_tape},
      {"join", "a hash join, grouped and sorted", "arena", "pool", 1, 2, 12, start_join},
      {"syntax", "a syntax tree with scopes, folded and dropped", "arena", "pool", 1, 2, 40, start_syntax},
      {"cache", "least recently used answers are replaced", "pool", "arena", 1, 6, 80, start_cache},
  };
  return all;
}

namespace {

// ---- the share of allocation in the time -----------------------------------------------------------------

std::atomic<std::uint64_t> samples{0}, allocating_samples{0};

void take_sample(int) {
  samples.fetch_add(1, std::memory_order_relaxed);
  if (allocating::is_now != 0) allocating_samples.fetch_add(1, std::memory_order_relaxed);
}

/// Marks the time of calls of a resource.
class sampled_resource final : public std::pmr::memory_resource {
 public:
  explicit sampled_resource(std::pmr::memory_resource* upstream) : upstream_{upstream} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    const allocating now;
    return upstream_->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    const allocating now;
    upstream_->deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource* upstream_;
};

class sampled_memory final : public step_memory {
 public:
  explicit sampled_memory(std::unique_ptr<step_memory> memory)
      : memory_{std::move(memory)}, resource_{memory_->resource()} {}
  std::pmr::memory_resource* resource() override { return &resource_; }
  void begin_step() override { memory_->begin_step(); }
  void end_step() override {
    const allocating now;
    memory_->end_step();
  }
  [[nodiscard]] bool is_malloc() const override { return memory_->is_malloc(); }
  [[nodiscard]] bool end_frees_all() const override { return memory_->end_frees_all(); }

 private:
  std::unique_ptr<step_memory> memory_;
  sampled_resource resource_;
};

/// Samples only user time: the system's work for these programs is for their memory.
void sample_user_time(bool is_on) {
  std::signal(SIGVTALRM, take_sample);
  const timeval interval{0, is_on ? 1000 : 0};
  const itimerval timer{interval, interval};
  setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

// ---- running ----------------------------------------------------------------------------------------------

double seconds_of(timeval const& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

/// Resources used by all threads of the process so far.
struct usage {
  usage() {
    rusage of{};
    getrusage(RUSAGE_SELF, &of);
    user = seconds_of(of.ru_utime);
    system = seconds_of(of.ru_stime);
    faults = static_cast<double>(of.ru_minflt);
  }
  std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
  double user, system, faults;
};

/// Maximum memory of this program, without pages of files: other processes share these, and code that lies in
/// many pages is not memory of an allocator. getrusage would include the peak of the parent process.
std::uint64_t peak_bytes() {
  std::ifstream status{"/proc/self/status"};
  std::uint64_t all = 0, of_files = 0;  // pages of files stay resident until the system needs them
  for (std::string line; std::getline(status, line);) {
    const std::string_view text = line;
    const auto kib_after = [&](std::string_view key) {
      return text.starts_with(key) ? std::strtoull(text.data() + key.size(), nullptr, 10) : 0;
    };
    all += kib_after("VmHWM:");
    of_files += kib_after("RssFile:");
  }
  return (all - of_files) * 1024;
}

/// A system call that strace shows, and that programs do not make otherwise.
void call_marker() { syscall(SYS_getppid); }

/// The threads of a program. Their measured steps begin and end together.
class team_run {
 public:
  team_run(program const& runs, std::vector<std::unique_ptr<step_memory>> const& memories, extent size,
           unsigned steps, bool samples_share)
      : runs_{runs},
        memories_{memories},
        size_{size},
        steps_{steps},
        samples_share_{samples_share},
        sums_(memories.size()),
        barrier_{static_cast<std::ptrdiff_t>(memories.size())} {}

  void run() {
    {
      std::vector<std::jthread> others;  // empty for a program of one thread
      for (unsigned thread = 1; thread < memories_.size(); ++thread) {
        others.emplace_back([this, thread] { run_thread(thread); });
      }
      run_thread(0);
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  [[nodiscard]] std::uint64_t checksum() const {
    std::uint64_t sum = 0;
    for (std::uint64_t each : sums_) sum = mixed(sum, each);
    return sum;
  }
  usage before, after;

 private:
  void run_thread(unsigned thread) {
    std::uint64_t sum = 0;
    std::unique_ptr<worker> works;
    or_keep_exception([&] {
      works = runs_.start(*memories_[thread], thread, size_);
      for (unsigned i = 0; i < runs_.warm_up; ++i) sum = mixed(sum, works->step(i));
    });
    barrier_.arrive_and_wait();
    if (thread == 0) begin_measuring();
    barrier_.arrive_and_wait();
    or_keep_exception([&] {
      for (unsigned i = 0; works != nullptr && i < steps_; ++i)
        sum = mixed(sum, works->step(runs_.warm_up + i));
    });
    barrier_.arrive_and_wait();
    if (thread == 0) end_measuring();
    barrier_.arrive_and_wait();  // the end of a thread unmaps its stack
    sums_[thread] = sum;
  }
  void begin_measuring() {
    if (samples_share_) sample_user_time(true);
    before = usage{};
    call_marker();
  }
  void end_measuring() {
    call_marker();
    after = usage{};
    if (samples_share_) sample_user_time(false);
  }
  /// Keeps the first exception, so that no thread waits for another that has ended.
  template <class Work>
  void or_keep_exception(Work const& work) {
    try {
      work();
    } catch (...) {
      if (!has_failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  program const& runs_;
  std::vector<std::unique_ptr<step_memory>> const& memories_;
  extent size_;
  unsigned steps_;
  bool samples_share_;
  std::vector<std::uint64_t> sums_;
  std::barrier<> barrier_;
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;
};

/// Returns the library that defines malloc, to check that a preloaded library replaced it.
std::string_view file_of_malloc() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<void*>(&std::malloc), &found) == 0 || found.dli_fname == nullptr) return "";
  const std::string_view path = found.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

struct settings {
  extent size = extent::full;
  bool is_short = false;       ///< a few steps
  bool samples_share = false;  ///< longer, with samples of whether the program allocates
};

void measure(program const& runs, std::string_view memory, settings const& wanted) {
  auto memories = make_memories(memory, runs.threads);
  unsigned steps = wanted.size == extent::small ? 2 : wanted.is_short ? (runs.steps + 3) / 4 : runs.steps;
  if (wanted.samples_share) {
    for (auto& each : memories) each = std::make_unique<sampled_memory>(std::move(each));
    steps *= 3;
  }
  team_run measured{runs, memories, wanted.size, steps, wanted.samples_share};
  measured.run();
  const double seconds = std::chrono::duration<double>(measured.after.at - measured.before.at).count();
  const double user = measured.after.user - measured.before.user,
               system = measured.after.system - measured.before.system;
  std::printf(
      R"({"program": "%.*s", "memory": "%.*s", "malloc": "%.*s", "checksum": "%016llx", "steps": %u, )"
      R"("seconds_per_step": %.9g, "faults_per_step": %.9g, "peak_bytes": %llu)",
      static_cast<int>(runs.name.size()), runs.name.data(), static_cast<int>(memory.size()), memory.data(),
      static_cast<int>(file_of_malloc().size()), file_of_malloc().data(),
      static_cast<unsigned long long>(measured.checksum()), steps, seconds / steps,
      (measured.after.faults - measured.before.faults) / steps,
      static_cast<unsigned long long>(peak_bytes()));
  if (wanted.samples_share) {
    const double of_user =
        static_cast<double>(allocating_samples) / static_cast<double>(std::max<std::uint64_t>(1, samples));
    std::printf(R"(, "allocation_share": %.4g)", (user * of_user + system) / (user + system));
  }
  std::puts("}");
}

void list() {
  for (program const& each : programs()) {
    std::printf("{\"program\": \"%s\", \"work\": \"%s\", \"ours\": \"%s\", \"other\": \"%s\"}\n",
                each.name.data(), each.work.data(), each.ours.data(), each.other.data());
  }
}

}  // namespace

int run(int argc, char** argv) {
  CLI::App app{"Runs a program on a memory, and prints time, faults and peak memory of its steps"};
  std::vector<std::string> names;
  for (program const& each : programs()) names.emplace_back(each.name);
  std::string name, memory;
  settings wanted;
  bool is_small = false, lists = false;
  app.add_option("program", name, "what runs")->check(CLI::IsMember(names));
  app.add_option("memory", memory, "on what")
      ->check(CLI::IsMember(std::vector<std::string>(memory_names().begin(), memory_names().end())));
  app.add_flag("--small", is_small, "with little input and two steps");
  app.add_flag("--short", wanted.is_short, "a few steps");
  app.add_flag("--share", wanted.samples_share, "sample how much of the time is allocation");
  app.add_flag("--list", lists, "print the programs");
  CLI11_PARSE(app, argc, argv);
  if (lists) return list(), 0;
  if (memory.empty()) return std::fputs("name a program and a memory; --help lists them\n", stderr), 2;
  const auto chosen = std::ranges::find(programs(), name, &program::name);
  if (is_small) wanted.size = extent::small;
  measure(*chosen, memory, wanted);
  return 0;
}

}  // namespace tidemark::bench

int main(int argc, char** argv) {
  try {
    return tidemark::bench::run(argc, argv);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
