// SPDX-License-Identifier: Apache-2.0
// trace_footprint: the maximum memory of a process while an allocator plays a recorded trace, relative to the
// program's maximum live bytes. Each process runs one allocator and one trace, so that it contains nothing
// else.
//
// The count is of resident pages without a file, from /proc/self/smaps_rollup. This count is exact and does
// not depend on the resource that mapped the page. (VmHWM and VmRSS are off by some 64 pages and include
// pages of programs.) Each page of each block is written, as its user would do eventually. Memory from before
// the allocator was made is not counted. Another process reads the trace and passes it in pages that exist
// before the measurement. Reading frees large blocks, after which the C library's malloc would keep large
// blocks instead of mapping each one. Huge pages are off for all, because a figure would otherwise depend on
// the number that the kernel found. A trace of several threads is played on one thread.
//
// Taking samples takes most of the time. An allocator that returns memory after a delay has therefore
// returned more at a place in the trace than in the real program.
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "recorded_trace.hpp"
#include "trace_subjects.hpp"

namespace {

using namespace tidemark;
using tools::trace_event;

const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

[[noreturn]] void fail_to(std::string const& what) {
  throw std::system_error{errno, std::generic_category(), what};
}

// ---- the memory of the process ----------------------------------------------------------------------------

/// Resident pages without the contents of a file. Reading them allocates nothing.
class resident_pages {
 public:
  resident_pages() : file_{open(path, O_RDONLY | O_CLOEXEC)} {
    if (file_ < 0) fail_to(path);
  }
  resident_pages(resident_pages const&) = delete;
  resident_pages& operator=(resident_pages const&) = delete;
  ~resident_pages() { close(file_); }

  [[nodiscard]] std::size_t bytes() const {
    std::array<char, 4096> buffer;
    const ssize_t length = pread(file_, buffer.data(), buffer.size(), 0);
    if (length < 0) fail_to(path);
    const std::string_view text{buffer.data(), static_cast<std::size_t>(length)};
    return kibibytes(text, "\nPss_Anon:") * KiB + kibibytes(text, "\nPss_Shmem:") * KiB;
  }

 private:
  static constexpr char const* path = "/proc/self/smaps_rollup";

  static std::size_t kibibytes(std::string_view text, std::string_view label) {
    const std::size_t place = text.find(label);
    const std::size_t digits = place == text.npos ? place : text.find_first_not_of(' ', place + label.size());
    std::size_t value = 0;
    if (digits == text.npos ||
        std::from_chars(text.data() + digits, text.data() + text.size(), value).ec != std::errc{}) {
      throw std::runtime_error{std::string{path} + " does not tell pages of files from others"};
    }
    return value;
  }

  int file_;
};

/// Returns the free and easily freed memory of the machine.
std::size_t available_bytes() {
  std::ifstream file{"/proc/meminfo"};
  std::string label;
  std::size_t value = 0;
  while (file >> label) {
    if (label == "MemAvailable:" && file >> value) return value * KiB;
  }
  return std::numeric_limits<std::size_t>::max();
}

// ---- a trace that another process read --------------------------------------------------------------------

class handed_trace {
 public:
  explicit handed_trace(std::string const& path) {
    const int file = memfd_create("trace", MFD_CLOEXEC);
    if (file < 0) fail_to("memfd_create");
    const pid_t child = fork();
    if (child < 0) fail_to("fork");
    if (child == 0) read_and_leave(path, file);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status)) throw std::runtime_error{path + ": the process that read it was killed"};
    if (WEXITSTATUS(status) != 0) std::exit(WEXITSTATUS(status));  // the child has printed the reason
    const auto bytes = static_cast<std::size_t>(lseek(file, 0, SEEK_END));
    void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (memory == MAP_FAILED) fail_to("mmap");
    close(file);
    memory_ = static_cast<std::byte const*>(memory);
  }

  [[nodiscard]] std::size_t blocks() const { return head().blocks; }
  [[nodiscard]] std::size_t peak_live_bytes() const { return head().peak_live_bytes; }
  [[nodiscard]] std::span<trace_event const> events() const { return array<trace_event>(0, head().events); }
  [[nodiscard]] std::span<trace_event const> left() const {
    return array<trace_event>(events().size_bytes(), head().left);
  }
  [[nodiscard]] std::span<std::size_t const> classes() const {
    return array<std::size_t>(events().size_bytes() + left().size_bytes(), head().classes);
  }

 private:
  struct counts {
    std::size_t events, left, classes, blocks, peak_live_bytes;
  };
  static_assert(std::is_trivially_copyable_v<trace_event> && sizeof(trace_event) % sizeof(std::size_t) == 0);

  [[noreturn]] static void read_and_leave(std::string const& path, int file) {
    try {
      const tools::recorded_trace trace = tools::read_trace(path);
      const std::vector<std::size_t> classes = bench::fitted_classes(trace);
      const counts head{trace.events.size(), trace.left.size(), classes.size(), trace.blocks,
                        trace.peak_live_bytes};
      write_all(file, std::as_bytes(std::span{&head, 1}));
      write_all(file, std::as_bytes(std::span{trace.events}));
      write_all(file, std::as_bytes(std::span{trace.left}));
      write_all(file, std::as_bytes(std::span{classes}));
    } catch (std::exception const& error) {
      std::fprintf(stderr, "trace_footprint: %s\n", error.what());
      std::_Exit(2);
    }
    std::_Exit(0);
  }
  static void write_all(int file, std::span<std::byte const> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(file, bytes.data(), bytes.size());
      if (written < 0) fail_to("write");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  [[nodiscard]] counts const& head() const { return *reinterpret_cast<counts const*>(memory_); }
  template <class Item>
  [[nodiscard]] std::span<Item const> array(std::size_t offset, std::size_t size) const {
    return {reinterpret_cast<Item const*>(memory_ + sizeof(counts) + offset), size};
  }

  std::byte const* memory_;  // until the process ends
};

// ---- the measurement --------------------------------------------------------------------------------------

/// Samples the memory of the process after allocations. Reading all page tables takes milliseconds. A sample
/// is therefore taken only if enough pages were touched since the last sample to exceed the peak by the
/// tolerance. No peak is missed by more than that. A sample is also taken after each k-th allocation, because
/// pages may appear without being touched.
class footprint_samples {
 public:
  explicit footprint_samples(handed_trace const& trace)
      : every_{trace.blocks() / 100 + 1}, base_bytes_{pages_.bytes()}, touched_at_sample_{pages_touched()} {
    // 0.2 % of 128 MiB; coarser for larger peaks, because a sample then reads more.
    const std::size_t peak = std::max<std::size_t>(trace.peak_live_bytes(), 1);
    tolerance_bytes_ = peak / std::clamp<std::size_t>(64 * GiB / peak, 50, 500);
  }

  void after_allocation() {
    const std::size_t new_bytes = (pages_touched() - touched_at_sample_) * page_bytes;
    const bool may_be_peak = new_bytes > 0 && last_bytes_ + new_bytes > peak_bytes_ + tolerance_bytes_;
    if (++allocations_ % every_ != 0 && !may_be_peak) return;
    touched_at_sample_ = pages_touched();
    const std::size_t now = pages_.bytes();
    last_bytes_ = now - std::min(now, base_bytes_);
    peak_bytes_ = std::max(peak_bytes_, last_bytes_);
    if (++samples_ % 1000 == 0) tolerance_bytes_ = 2 * std::max(tolerance_bytes_, page_bytes);
  }
  [[nodiscard]] std::size_t peak_bytes() const { return peak_bytes_; }
  [[nodiscard]] std::size_t samples() const { return samples_; }

 private:
  static std::size_t pages_touched() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::size_t>(usage.ru_minflt);
  }

  resident_pages pages_;
  std::size_t every_, base_bytes_, touched_at_sample_, tolerance_bytes_;
  std::size_t allocations_ = 0, last_bytes_ = 0, peak_bytes_ = 0, samples_ = 0;
};

void write_to_pages(void* block, std::size_t bytes) {
  auto* const begin = static_cast<char volatile*>(block);
  for (std::size_t at = 0; at < bytes; at += page_bytes) begin[at] = 1;
  if (bytes > 0) begin[bytes - 1] = 1;  // a block may begin within a page
}

void play(handed_trace const& trace, std::pmr::memory_resource& resource, std::vector<void*>& blocks,
          footprint_samples& samples) {
  for (trace_event const& event : trace.events()) {
    if (event.allocates) {
      void* const block = resource.allocate(event.bytes, tools::replay_alignment);
      write_to_pages(block, event.bytes);
      blocks[event.block] = block;
      samples.after_allocation();
    } else {
      resource.deallocate(blocks[event.block], event.bytes, tools::replay_alignment);
    }
  }
  for (trace_event const& event : trace.left()) {
    resource.deallocate(blocks[event.block], event.bytes, tools::replay_alignment);
  }
}

// ---- allocators of known footprint ------------------------------------------------------------------------

/// Maps each block separately: the live bytes in whole pages.
class own_pages final : public std::pmr::memory_resource {
  static std::size_t rounded(std::size_t bytes) {
    return (std::max<std::size_t>(bytes, 1) + page_bytes - 1) / page_bytes * page_bytes;
  }
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* const block =
        mmap(nullptr, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc{};
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t) override { munmap(block, rounded(bytes)); }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

/// Finds an allocator by name. Two unlisted allocators check the measurement: one maps each block, and one
/// never reuses memory and thus holds all bytes ever requested.
bench::trace_subject find_subject(std::string const& name) {
  using classes = std::vector<std::size_t> const&;
  if (name == "own_pages") return {name, false, [](classes) { return std::make_shared<own_pages>(); }};
  if (name == "no_reuse") {
    return {name, false, [](classes) { return std::make_shared<std::pmr::monotonic_buffer_resource>(); }};
  }
  for (bench::trace_subject const& subject : bench::trace_subjects()) {
    if (subject.name == name) return subject;
  }
  std::string names;
  for (bench::trace_subject const& subject : bench::trace_subjects()) names += ' ' + subject.name;
  throw std::invalid_argument{"there is no allocator '" + name + "'; there are" + names};
}

/// Finds a trace by name, or takes the name as a file.
bench::trace_file find_file(std::string const& name) {
  for (bench::trace_file const& file : bench::trace_files()) {
    if (file.name == name) return file;
  }
  return {.name = bench::trace_name(name), .path = name, .many_threads = true, .has_steps = true};
}

void measure(std::string const& allocator, std::string const& trace_name) {
  const bench::trace_subject subject = find_subject(allocator);
  const bench::trace_file file = find_file(trace_name);
  const handed_trace trace{file.path};
  const std::size_t peak_live_bytes = trace.peak_live_bytes(), available = available_bytes();
  if (peak_live_bytes > available / 2) {
    throw std::runtime_error{file.path + ": " + std::to_string(peak_live_bytes) +
                             " bytes are live at once, more than half of the " + std::to_string(available) +
                             " that are available"};
  }
  const std::vector<std::size_t> classes{trace.classes().begin(), trace.classes().end()};
  std::vector<void*> blocks(trace.blocks());
  malloc_trim(0);
  footprint_samples samples{trace};
  const auto resource = subject.make(classes);
  play(trace, *resource, blocks, samples);
  const std::string over_peak =
      peak_live_bytes == 0
          ? "null"
          : std::to_string(static_cast<double>(samples.peak_bytes()) / static_cast<double>(peak_live_bytes));
  std::printf(R"({"allocator": "%s", "trace": "%s", "peak_live_bytes": %zu, "peak_footprint_bytes": %zu, )"
              R"("over_peak": %s, "samples": %zu})"
              "\n",
              subject.name.c_str(), file.name.c_str(), peak_live_bytes, samples.peak_bytes(),
              over_peak.c_str(), samples.samples());
}

/// Reads each trace, so that a malformed trace is reported.
void list_traces() {
  for (bench::trace_file const& file : bench::trace_files()) {
    const tools::recorded_trace trace = tools::read_trace(file.path);
    std::printf(R"({"name": "%s", "threads": %zu, "operations": %zu, "steps": %zu, "peak_live_bytes": %zu})"
                "\n",
                file.name.c_str(), trace.threads, trace.events.size() + trace.left.size(), trace.steps.size(),
                trace.peak_live_bytes);
  }
}

constexpr char const* usage =
    R"(usage: trace_footprint ALLOCATOR TRACE
       trace_footprint --list | --traces

Plays a trace through an allocator, and prints the most memory that the process had for it, and the most that
was live. TRACE is a name or a file. --list tells the allocators, --traces the traces that have names: the
recorded ones, and those whose paths, between colons, are the value of TIDEMARK_BENCH_TRACES. To check the
measurement there are two further allocators: own_pages maps each block by itself, no_reuse never uses memory
again.
)";

int run(std::span<char*> arguments) {
  const auto is_option = [&](char const* name) {
    return arguments.size() == 1 && arguments[0] == std::string_view{name};
  };
  if (is_option("--help")) {
    std::fputs(usage, stdout);
  } else if (is_option("--list")) {
    for (bench::trace_subject const& subject : bench::trace_subjects()) std::puts(subject.name.c_str());
  } else if (is_option("--traces")) {
    list_traces();
  } else if (arguments.size() == 2) {
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) fail_to("prctl");
    measure(arguments[0], arguments[1]);
  } else {
    std::fputs(usage, stderr);
    return 2;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (std::exception const& error) {
    std::fprintf(stderr, "trace_footprint: %s\n", error.what());
    return 2;
  }
}
