// SPDX-License-Identifier: Apache-2.0
#include <tidemark/trace_log.hpp>

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include <tidemark/detail/align.hpp>
#include <tidemark/detail/identity.hpp>
#include <tidemark/violation.hpp>

namespace tidemark {
namespace {

using namespace std::string_view_literals;
using detail::address_of;

/// A number as text, in place.
class digits_of {
 public:
  explicit digits_of(std::uint64_t number) noexcept
      : end_{std::to_chars(text_, text_ + sizeof text_, number).ptr} {}
  operator std::string_view() const noexcept { return {text_, end_}; }

 private:
  char text_[20];
  char* end_;
};

/// Nanoseconds as microseconds with three decimals, in place.
class microseconds_of {
 public:
  explicit microseconds_of(detail::trace_time time) noexcept {
    const auto nanoseconds = static_cast<std::uint64_t>(time.count());
    char* const point = std::to_chars(text_, text_ + 20, nanoseconds / 1000).ptr;
    point[0] = '.';
    for (std::uint64_t i = 3, rest = nanoseconds % 1000; i > 0; --i, rest /= 10) {
      point[i] = static_cast<char>('0' + rest % 10);
    }
    end_ = point + 4;
  }
  operator std::string_view() const noexcept { return {text_, end_}; }

 private:
  char text_[24];
  char* end_;
};

/// Length of the UTF-8 sequence that `text` begins with; 0 if it begins with none (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      if (byte(i) < 0x80 || byte(i) > 0xBF) return false;
    }
    return true;
  };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1, 2) ? 2 : 0;
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second > 0x9F;
  const bool too_high = lead == 0xF4 && second > 0x8F;
  if (overlong || surrogate || too_high) return 0;
  if (lead >= 0xE0 && lead <= 0xEF) return continues(1, 3) ? 3 : 0;
  if (lead >= 0xF0 && lead <= 0xF4) return continues(1, 4) ? 4 : 0;
  return 0;
}

/// Any text as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD, because JSON has to be
/// UTF-8.
std::string json_string(std::string_view text) {
  constexpr auto hexadecimal = "0123456789abcdef"sv;
  std::string quoted = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      quoted += "\xEF\xBF\xBD";
    } else if (first < 0x20 || first == 0x7F) {
      quoted += "\\u00";
      quoted += hexadecimal[first / 16];
      quoted += hexadecimal[first % 16];
    } else {
      if (first == '"' || first == '\\') quoted += '\\';
      quoted += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return quoted += '"';
}

// Addresses of threads are used again after they ended; this number is not.
unsigned long long this_thread_identity() noexcept {
  thread_local const unsigned long long identity = detail::next_identity();
  return identity;
}

/// What the operating system calls this thread; most often the program's name. Empty if it says nothing.
std::string system_thread_name() {
  char name[64] = "";
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 ? name : std::string{};
}

/// One past the last byte of a block. One of 0 bytes has an address of its own, as if it were one of 1 byte.
std::uintptr_t end_of(std::uintptr_t begin, std::size_t bytes) noexcept {
  return begin + std::max<std::size_t>(bytes, 1);
}

detail::trace_file opened(std::string path) {
  return path.empty() ? detail::trace_file{} : detail::trace_file{std::move(path)};
}

std::string sentence_about(detail::trace_file const& file) {
  return "trace_log: cannot write " + file.path();
}

}  // namespace

trace_log::trace_log(trace_log_options options)
    : counter_interval_{options.counter_interval},
      process_id_{digits_of{static_cast<std::uint64_t>(getpid())}} {
  if (options.csv.empty() && options.chrome.empty()) {
    throw std::invalid_argument("trace_log: neither a CSV file nor a Chrome trace is named");
  }
  const auto refuse_one_for_both = [&] {
    throw std::invalid_argument("trace_log: CSV and Chrome trace are both to be written to " + options.csv);
  };
  if (options.csv == options.chrome) refuse_one_for_both();
  csv_ = opened(options.csv);
  chrome_ = opened(options.chrome);
  // One file may have two names, which is not known before it is there. A device may well be given twice.
  std::error_code none;
  if (std::filesystem::is_regular_file(options.csv, none) &&
      std::filesystem::equivalent(options.csv, options.chrome, none)) {
    refuse_one_for_both();
  }
  csv_.append({"op,id,bytes,thread\n"});
  // The first event of the array is one that is always there, so that all others can begin with a comma.
  chrome_.append(
      {R"([{"ph":"M","name":"process_name","pid":)", process_id_, R"(,"args":{"name":"tidemark"}})"});
  // Written at once: who cannot write at all is told here.
  csv_.flush();
  chrome_.flush();
  if (detail::trace_file const* const failed = failed_file(); failed != nullptr) {
    throw std::system_error(failed->error(), sentence_about(*failed));
  }
}

trace_log::~trace_log() {
  const std::scoped_lock lock{mutex_};
  if (!closed_) finish();
  if (detail::trace_file const* const failed = failed_file(); failed != nullptr && !told_) {
    detail::report_violation(violation_kind::lost_output, "trace_log",
                             "trace_log: cannot write %s: %s; the trace is incomplete",
                             failed->path().c_str(), std::strerror(failed->error().value()));
  }
}

void trace_log::close() {
  const std::scoped_lock lock{mutex_};
  if (std::exchange(closed_, true)) return;
  finish();
  told_ = true;
  if (detail::trace_file const* const failed = failed_file(); failed != nullptr) {
    throw std::system_error(failed->error(), sentence_about(*failed));
  }
}

std::error_code trace_log::error() const noexcept {
  const std::scoped_lock lock{mutex_};
  detail::trace_file const* const failed = failed_file();
  if (failed == nullptr) return {};
  told_ = true;
  return failed->error();
}

// ---- resources ------------------------------------------------------------------------------------------

trace_log::track& trace_log::add_track(std::string name) {
  const std::scoped_lock lock{mutex_};
  track added;
  added.json_name = unique_json_name(name);
  track& on = tracks_.emplace_back(std::move(added));
  on.name = std::move(name);
  on.stats.name = on.name.c_str();
  count_live_bytes(on);
  return on;
}

std::string trace_log::unique_json_name(std::string const& name) const {
  std::string quoted = json_string(name);
  const auto is_taken = [&](track const& other) { return other.json_name == quoted; };
  for (std::uint64_t i = 2; std::ranges::any_of(tracks_, is_taken); ++i) {
    quoted = json_string(name + " (" + std::to_string(i) + ")");
  }
  return quoted;
}

void trace_log::remove_track(track& from) noexcept {
  const std::scoped_lock lock{mutex_};
  write_held_back(from);
  std::erase_if(tracks_, [&](track const& other) { return &other == &from; });
}

void trace_log::record_allocation(track& on, void const* block, std::size_t bytes) {
  const std::scoped_lock lock{mutex_};
  thread const& by = this_thread();
  const std::uintptr_t begin = address_of(block);
  // Blocks whose memory is handed out again are gone, although nobody gave them back: an arena was rewound.
  auto next = on.live.lower_bound(begin);
  if (next != on.live.begin()) {
    const auto below = std::prev(next);
    if (end_of(below->first, below->second.bytes) > begin) next = record_end(on, below, by);
  }
  while (next != on.live.end() && next->first < end_of(begin, bytes)) next = record_end(on, next, by);

  on.live.emplace_hint(next, begin, detail::trace_block{next_id_, bytes});
  resource_stats& stats = on.stats;
  ++stats.allocations;
  stats.peak_blocks = std::max(stats.peak_blocks, ++stats.used_blocks);
  stats.used_bytes += bytes;
  stats.peak_bytes = std::max(stats.peak_bytes, stats.used_bytes);
  stats.total_bytes += bytes;
  write_row('a', next_id_++, bytes, by);
  count_live_bytes(on);
}

void trace_log::record_deallocation(track& on, void const* block) noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = on.live.find(address_of(block));
  if (found == on.live.end()) return;
  try {
    record_end(on, found, this_thread());
  } catch (std::bad_alloc const&) {
    // The thread is new, and there is no memory to number it: the block is gone all the same, and the files
    // would be wrong from here on.
    csv_.fail(std::errc::not_enough_memory);
    chrome_.fail(std::errc::not_enough_memory);
    record_end(on, found, thread{});
  }
}

void trace_log::record_refusal(track& on) noexcept {
  const std::scoped_lock lock{mutex_};
  ++on.stats.refused;
}

trace_log::live_block trace_log::record_end(track& on, live_block block, thread const& by) noexcept {
  ++on.stats.deallocations;
  --on.stats.used_blocks;
  on.stats.used_bytes -= block->second.bytes;
  write_row('f', block->second.id, 0, by);
  const auto next = on.live.erase(block);
  count_live_bytes(on);
  return next;
}

// ---- threads and slices ---------------------------------------------------------------------------------

trace_log::thread& trace_log::this_thread() {
  const auto [found, is_new] = threads_.try_emplace(this_thread_identity(), thread{threads_.size(), 0});
  thread& calling = found->second;
  if (is_new && chrome_.is_open()) {
    const digits_of number{calling.number};
    try {
      const std::string name =
          json_string("thread " + std::string{std::string_view{number}} + ": " + system_thread_name());
      chrome_.append({",\n", R"({"ph":"M","name":"thread_name","pid":)", process_id_, R"(,"tid":)", number,
                      R"(,"args":{"name":)", name, "}}"});
    } catch (...) {
      threads_.erase(found);
      throw;
    }
  }
  return calling;
}

trace_log::thread& trace_log::begin_slice(std::string_view name) {
  const std::string quoted = json_string(name);
  const std::scoped_lock lock{mutex_};
  thread& on = this_thread();
  ++on.open_slices;
  chrome_.append({",\n", R"({"ph":"B","pid":)", process_id_, R"(,"tid":)", digits_of{on.number}, R"(,"ts":)",
                  microseconds_of{now()}, R"(,"name":)", quoted, "}"});
  return on;
}

void trace_log::end_slice(thread& on) noexcept {
  const std::scoped_lock lock{mutex_};
  // 0: the log was closed, which ended it.
  if (on.open_slices != 0) write_slice_end(on);
}

void trace_log::write_slice_end(thread& on) noexcept {
  --on.open_slices;
  chrome_.append({",\n", R"({"ph":"E","pid":)", process_id_, R"(,"tid":)", digits_of{on.number}, R"(,"ts":)",
                  microseconds_of{now()}, "}"});
}

// ---- what is written ------------------------------------------------------------------------------------

void trace_log::write_row(char op, std::uint64_t id, std::size_t bytes, thread const& by) noexcept {
  csv_.append({{&op, 1}, ",", digits_of{id}, ",", digits_of{bytes}, ",", digits_of{by.number}, "\n"});
}

detail::trace_time trace_log::now() const noexcept { return std::chrono::steady_clock::now() - begin_; }

void trace_log::count_live_bytes(track& on) noexcept {
  if (!chrome_.is_open()) return;
  const detail::trace_point point{now(), on.stats.used_bytes};
  const bool first = on.stats.allocations == 0;
  if (first || point.time - on.written >= counter_interval_) {
    write_held_back(on);
    write_counter(on, point);
    on.written = point.time;
    return;
  }
  if (!on.holds_back || point.bytes > on.highest.bytes) on.highest = point;
  on.last = point;
  on.holds_back = true;
}

void trace_log::write_held_back(track& on) noexcept {
  if (!std::exchange(on.holds_back, false)) return;
  if (on.highest.bytes > on.last.bytes) write_counter(on, on.highest);
  write_counter(on, on.last);
}

void trace_log::write_counter(track& on, detail::trace_point const& at) noexcept {
  chrome_.append({",\n", R"({"ph":"C","pid":)", process_id_, R"(,"tid":0,"ts":)", microseconds_of{at.time},
                  R"(,"name":)", on.json_name, R"(,"args":{"live bytes":)", digits_of{at.bytes}, "}}"});
}

void trace_log::finish() noexcept {
  for (track& on : tracks_) write_held_back(on);
  for (auto& [identity, on] : threads_) {
    while (on.open_slices != 0) write_slice_end(on);
  }
  chrome_.append({"\n]\n"});
  csv_.close();
  chrome_.close();
}

detail::trace_file const* trace_log::failed_file() const noexcept {
  if (csv_.error()) return &csv_;
  return chrome_.error() ? &chrome_ : nullptr;
}

}  // namespace tidemark
