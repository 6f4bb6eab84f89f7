// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pressure_monitor.hpp>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/magic.h>
#include <sys/vfs.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <tidemark/memory_pressure.hpp>

namespace tidemark {
namespace {

class descriptor {
 public:
  explicit descriptor(int number = -1) noexcept : number_{number} {}
  descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

// Such files are a few lines, and read from their beginning each time.
std::optional<std::string> read_all(std::string const& path) {
  const descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number() < 0) return std::nullopt;
  std::string text(4096, '\0');
  const ssize_t length = ::read(file.number(), text.data(), text.size());
  if (length < 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(length));
  return text;
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  char const* const first = text.data() + at + key.size();
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  return error == std::errc{} ? std::optional{value} : std::nullopt;
}

// Microseconds for which some task was stalled: "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345".
std::optional<std::uint64_t> stalled_microseconds(std::string_view text) {
  const std::size_t some = text.find("some ");
  if (some == std::string_view::npos) return std::nullopt;
  return number_after(text.substr(some, text.find('\n', some) - some), " total=");
}

// Events that say the group reached a limit: lines "high 0", "max 0", "oom 0", "oom_kill 0".
std::optional<std::uint64_t> limit_events(std::string_view text) {
  std::optional<std::uint64_t> sum;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    for (std::string_view const key : {"high ", "max ", "oom ", "oom_kill "}) {
      if (!line.starts_with(key)) continue;
      if (const auto count = number_after(line, key)) sum = sum.value_or(0) + *count;
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return sum;
}

// "0::/user.slice/session" is the group's folder below where the hierarchy is mounted by convention.
std::string events_path_of_this_process() {
  const std::string text = read_all("/proc/self/cgroup").value_or("");
  const std::size_t at = text.find("0::/");
  if (at == std::string::npos) return "";
  const std::size_t first = at + 3;
  return "/sys/fs/cgroup" + text.substr(first, text.find('\n', first) - first) + "/memory.events";
}

// A trigger may only be written to the kernel's own files: anything else would be overwritten.
bool is_kernel_file([[maybe_unused]] int file) {
#if defined(__linux__)
  struct statfs where{};
  return ::fstatfs(file, &where) == 0 &&
         (where.f_type == PROC_SUPER_MAGIC || where.f_type == CGROUP2_SUPER_MAGIC);
#else
  return false;
#endif
}

descriptor open_trigger(pressure_monitor_options const& options) {
  descriptor file{::open(options.psi_path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)};
  if (file.number() < 0 || !is_kernel_file(file.number())) return descriptor{};
  const std::string trigger =
      "some " + std::to_string(options.stall.count()) + " " + std::to_string(options.window.count());
  if (::write(file.number(), trigger.c_str(), trigger.size() + 1) < 0) return descriptor{};
  return file;
}

descriptor open_events(std::string const& path) {
  descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number() < 0 || !is_kernel_file(file.number())) return descriptor{};
  return file;
}

}  // namespace

class pressure_monitor::listener {
 public:
  explicit listener(pressure_monitor_options options) : options_{std::move(options)} {
    if (options_.events_path == "self") options_.events_path = events_path_of_this_process();
    stalled_ = stalled_microseconds(read_all(options_.psi_path).value_or(""));
    events_ = limit_events(read_all(options_.events_path).value_or(""));
    sources_.psi = stalled_.has_value();
    sources_.cgroup = events_.has_value();
    if (!options_.background || sources_.manual()) return;
    if (sources_.psi) trigger_ = open_trigger(options_);
    if (sources_.cgroup) events_file_ = open_events(options_.events_path);
    sources_.psi_trigger = trigger_.number() >= 0;
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0)
      throw std::system_error(errno, std::generic_category(), "pressure_monitor: pipe");
    stop_read_ = descriptor{ends[0]};
    stop_write_ = descriptor{ends[1]};
    thread_ = std::thread{[this] { listen(); }};
  }
  listener(listener const&) = delete;
  listener& operator=(listener const&) = delete;
  ~listener() {
    if (!thread_.joinable()) return;
    stop_write_ = descriptor{};  // the other end sees that it is closed
    thread_.join();
  }

  [[nodiscard]] source_set sources() const noexcept { return sources_; }
  [[nodiscard]] std::uint64_t signals() const noexcept { return signals_; }

  bool check() { return check(false); }

 private:
  void listen() {
    std::array<pollfd, 3> files{{{stop_read_.number(), POLLIN, 0},
                                 {trigger_.number(), POLLPRI, 0},
                                 {events_file_.number(), POLLPRI, 0}}};
    while (true) {
      // The kernel reports a change until this very descriptor has been read.
      if (files[2].fd >= 0) {
        char discarded[4096];
        if (::pread(files[2].fd, discarded, sizeof discarded, 0) < 0) files[2].fd = -1;
      }
      const int ready = ::poll(files.data(), files.size(), static_cast<int>(options_.interval.count()));
      if (ready < 0 && errno != EINTR) return;
      if (ready > 0 && files[0].revents != 0) return;
      if (ready > 0 && (files[1].revents & POLLERR) != 0) files[1].fd = -1;  // the group is gone
      (void)check(ready > 0 && (files[1].revents & POLLPRI) != 0);
    }
  }

  bool check(bool triggered) {
    const auto stalled = stalled_microseconds(read_all(options_.psi_path).value_or(""));
    const auto events = limit_events(read_all(options_.events_path).value_or(""));
    const std::scoped_lock lock{mutex_};
    const auto threshold = static_cast<std::uint64_t>(options_.stall.count());
    const bool pressure = triggered || (stalled && stalled_ && *stalled >= *stalled_ + threshold) ||
                          (events && events_ && *events > *events_);
    // Of two readers at once the later one may come first here: counts only rise.
    if (stalled) stalled_ = std::max(*stalled, stalled_.value_or(0));
    if (events) events_ = std::max(*events, events_.value_or(0));
    if (!pressure) return false;
    ++signals_;
    (void)signal_memory_pressure();
    return true;
  }

  pressure_monitor_options options_;
  source_set sources_;
  std::mutex mutex_;                      // for the next two
  std::optional<std::uint64_t> stalled_;  // as last read
  std::optional<std::uint64_t> events_;
  std::atomic<std::uint64_t> signals_{0};
  descriptor trigger_, events_file_, stop_read_, stop_write_;
  std::thread thread_;
};

pressure_monitor::pressure_monitor(pressure_monitor_options options)
    : listener_{std::make_unique<listener>(std::move(options))} {}
pressure_monitor::~pressure_monitor() = default;

pressure_monitor::source_set pressure_monitor::sources() const noexcept { return listener_->sources(); }
bool pressure_monitor::check() { return listener_->check(); }
std::uint64_t pressure_monitor::signals() const noexcept { return listener_->signals(); }

}  // namespace tidemark
