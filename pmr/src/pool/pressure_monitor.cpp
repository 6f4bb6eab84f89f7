// SPDX-License-Identifier: Apache-2.0
// Reads Linux's reports of memory pressure.

#include <tidemark/pool/pressure_monitor.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/file_descriptor.hpp>
#include <tidemark/core/memory_pressure.hpp>

namespace tidemark {
namespace {

// Reads a file of a few lines from its beginning. Returns an empty text if that fails.
std::string read_all(std::string const& path) {
  const file_descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text(4096, '\0');
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, length)));
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

// Returns microseconds for which some task was stalled: "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345".
std::optional<std::uint64_t> stalled_microseconds(std::string_view text) {
  const std::size_t some = text.find("some ");
  if (some == std::string_view::npos) return std::nullopt;
  return number_after(text.substr(some, text.find('\n', some) - some), " total=");
}

// Returns the number of times that the group reached a limit: lines "high 0", "max 0", "oom 0", "oom_kill 0".
std::optional<std::uint64_t> limit_events(std::string const& text) {
  std::optional<std::uint64_t> sum;
  for (std::string_view const key : {"\nhigh ", "\nmax ", "\noom ", "\noom_kill "}) {
    if (const auto count = number_after("\n" + text, key)) sum = sum.value_or(0) + *count;
  }
  return sum;
}

// "0::/user.slice/session" names the group's folder below the usual mount point of the hierarchy.
std::string events_path_of_this_process() {
  const std::string text = read_all("/proc/self/cgroup");
  const std::size_t at = text.find("0::/");
  if (at == std::string::npos) return "";
  const std::size_t first = at + 3;
  return "/sys/fs/cgroup" + text.substr(first, text.find('\n', first) - first) + "/memory.events";
}

}  // namespace

// The monitor and its thread share ownership, because a callback on that thread may destroy the monitor.
struct pressure_monitor::listener final : std::enable_shared_from_this<pressure_monitor::listener>,
                                          detail::unload_participant {
  explicit listener(pressure_monitor_options options) : options_{std::move(options)} {
    if (options_.events_path == "self") options_.events_path = events_path_of_this_process();
    (void)is_pressure();
  }
  ~listener() override {
    deregister();
    mutex_.deregister();
  }

  [[nodiscard]] bool has_source() noexcept {
    const std::scoped_lock lock{mutex_};
    return stalled_.has_value() || events_.has_value();
  }
  void start() {
    if (!options_.background || !has_source()) return;
    stop_ = file_descriptor{::eventfd(0, EFD_CLOEXEC)};
    if (stop_.get() < 0) throw std::system_error(errno, std::generic_category(), "pressure_monitor: eventfd");
    const std::scoped_lock lock{mutex_};
    join();
    thread_ = std::thread{[self = shared_from_this()] { self->listen(); }};
    mutex_.adapt_with(*this);
  }

  // A program may never destroy a monitor; the thread must still end when the library is unloaded.
  void stop_threads() noexcept override { stop(); }
  void detach() noexcept override { stop_ = {}; }
  // Waits for the thread. The listening thread itself does not wait; it ends after the callback returns.
  void stop() noexcept {
    if (!thread_.joinable()) return;
    (void)::eventfd_write(stop_.get(), 1);
    if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
    else thread_.join();
  }
  // The child has no thread to wait for, and the file is shared with the parent.
  void adapt_to_child() noexcept {
    std::construct_at(&thread_);
    stop_ = {};
  }

  bool check() {
    if (!is_pressure()) return false;
    ++signals_;
    (void)signal_memory_pressure();
    return true;
  }
  // Reads the files. @return true if there was pressure since the previous call
  [[nodiscard]] bool is_pressure() {
    const auto stalled = stalled_microseconds(read_all(options_.psi_path));
    const auto events = limit_events(read_all(options_.events_path));
    const std::scoped_lock lock{mutex_};
    const auto threshold = static_cast<std::uint64_t>(options_.stall.count());
    const bool pressure = (stalled && stalled_ && *stalled >= *stalled_ + threshold) ||
                          (events && events_ && *events > *events_);
    // The later of two concurrent reads may come first here; counts only rise. An empty optional is the
    // smallest.
    stalled_ = std::max(stalled, stalled_);
    events_ = std::max(events, events_);
    return pressure;
  }
  void listen() {
    pollfd stop{stop_.get(), POLLIN, 0};
    for (;;) {
      const int ready = ::poll(&stop, 1, static_cast<int>(options_.interval.count()));
      if (ready > 0 || (ready < 0 && errno != EINTR)) return;
      (void)check();
    }
  }

  pressure_monitor_options options_;
  detail::fork_safe<> mutex_;             // guards the next two members
  std::optional<std::uint64_t> stalled_;  // last value read; empty without the source
  std::optional<std::uint64_t> events_;
  std::atomic<std::uint64_t> signals_{0};
  file_descriptor stop_;
  std::thread thread_;
};

pressure_monitor::pressure_monitor(pressure_monitor_options options)
    : listener_{std::make_shared<listener>(std::move(options))} {
  listener_->start();
}
pressure_monitor::~pressure_monitor() { listener_->stop(); }

bool pressure_monitor::has_source() const noexcept { return listener_->has_source(); }
bool pressure_monitor::is_listening() const noexcept { return listener_->thread_.joinable(); }
bool pressure_monitor::poll() {
  const std::shared_ptr<listener> own = listener_;  // survives a callback that destroys the monitor
  return own->check();
}
std::uint64_t pressure_monitor::signal_count() const noexcept { return listener_->signals_; }

}  // namespace tidemark
