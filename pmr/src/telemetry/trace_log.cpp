// SPDX-License-Identifier: Apache-2.0
// A trace_log, with its files, tracks and threads; and the resources and slices that write to it.
#include <tidemark/telemetry/trace_log.hpp>

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <compare>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

#include "../diagnose/code_symbols.hpp"

namespace tidemark {
namespace {

using detail::address_of;

std::error_code last_error() noexcept { return {errno != 0 ? errno : EIO, std::generic_category()}; }

/// A number as text, stored inside the object.
class digits_of {
 public:
  explicit digits_of(std::uint64_t number) noexcept
      : end_{std::to_chars(text_, text_ + sizeof text_, number).ptr} {}
  /// Microseconds with three decimals.
  explicit digits_of(std::chrono::nanoseconds time) noexcept
      : digits_of{static_cast<std::uint64_t>(time.count() / 1000)} {
    char* const point = end_;
    end_ = std::to_chars(point, text_ + sizeof text_, 1000 + time.count() % 1000).ptr;
    *point = '.';  // replaces the leading 1
  }
  operator std::string_view() const noexcept { return {text_, end_}; }

 private:
  char text_[24];
  char* end_;
};

/// Length of the first UTF-8 sequence of `text`; 0 if it is invalid (Unicode 15, section 3.9).
std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto length = static_cast<std::size_t>(std::countl_one(static_cast<unsigned char>(text[0])));
  if (length == 0) return 1;
  if (length == 1 || length > 4) return 0;
  std::uint32_t code = byte(0) & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::uint32_t least[] = {0x80, 0x800, 0x1'0000};  // smaller codes have a shorter sequence
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < least[length - 2] || code > 0x10'FFFF || surrogate ? 0 : length;
}

/// Visits the characters of a text, each with its first byte. Invalid UTF-8 becomes U+FFFD.
template <class Visit>
void each_character(std::string_view text, Visit const& visit) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = length != 0 ? text.substr(0, length) : "\xEF\xBF\xBD";
    visit(character, static_cast<unsigned char>(character[0]));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
}

bool is_control(unsigned char c) noexcept { return c < 0x20 || c == 0x7F; }

/// Text as a JSON string with quotes, in UTF-8.
std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  each_character(text, [&](std::string_view character, unsigned char first) {
    char escape[8];
    if (is_control(first)) {
      std::snprintf(escape, sizeof escape, "\\u%04x", first);
      character = escape;
    }
    if (first == '"' || first == '\\') quoted += '\\';
    quoted += character;
  });
  return quoted += '"';
}

/// Text as a field of the CSV file, which has no quotes. Commas become semicolons, as in names of functions.
std::string csv_text(std::string_view text) {
  std::string field;
  each_character(text, [&](std::string_view character, unsigned char first) {
    field += is_control(first) ? "?" : first == ',' ? ";" : first == '"' ? "'" : character;
  });
  return field;
}

/// One past the last byte of a block. A block of 0 bytes counts as 1, because it has its own address.
std::uintptr_t end_of(std::uintptr_t begin, std::size_t bytes) noexcept {
  return begin + std::max<std::size_t>(bytes, 1);
}

}  // namespace

namespace detail {

/// One file of a trace. Its functions neither throw nor allocate, except the constructor.
///
/// The parts of one call are never split, so the file ends with a whole record at any time, even if the
/// program is killed. Nothing is written after an error. Not thread-safe: one thread at a time.
class trace_file {
 public:
  /// Creates or truncates the file. An empty path means no file: all calls do nothing, without an error.
  /// @throws std::system_error with a sentence that names the file.
  explicit trace_file(std::string path = {}) : path_{std::move(path)} {
    if (path_.empty()) return;
    buffer_ = std::make_unique_for_overwrite<char[]>(buffer_bytes);
    errno = 0;
    file_.reset(std::fopen(path_.c_str(), "we"));  // "e": child processes do not inherit it
    if (file_ == nullptr) throw std::system_error(last_error(), "trace_log: cannot open " + path_);
    // Disables the C library's buffer, which would be written in the middle of a record.
    std::setvbuf(file_.get(), nullptr, _IONBF, 0);
  }

  /// True while records are written.
  [[nodiscard]] bool is_open() const noexcept { return file_ != nullptr && !error_; }
  /// Appends the parts as one record. Allocates nothing. O(bytes).
  void append(std::initializer_list<std::string_view> parts) noexcept {
    std::size_t bytes = 0;
    for (std::string_view part : parts) bytes += part.size();
    if (bytes > buffer_bytes - used_) flush();
    if (!is_open()) return;
    for (std::string_view part : parts) {
      if (bytes > buffer_bytes) {
        write(part.data(), part.size());  // a name longer than the buffer: the record is split
      } else if (!part.empty()) {
        std::memcpy(buffer_.get() + used_, part.data(), part.size());
        used_ += part.size();
      }
    }
  }
  /// Writes the buffer to the operating system.
  void flush() noexcept { write(buffer_.get(), std::exchange(used_, 0)); }
  /// Flushes and closes the file.
  void close() noexcept {
    flush();
    if (file_ == nullptr) return;
    errno = 0;
    if (std::fclose(file_.release()) != 0 && !error_) error_ = last_error();
  }
  /// Closes the file without writing the buffer. For a child, because the parent writes the buffer.
  void abandon() noexcept {
    used_ = 0;
    file_.reset();
  }
  /// Sets the error unless an earlier error is set.
  void fail(std::errc reason) noexcept {
    if (is_open()) error_ = std::make_error_code(reason);
  }

  /// The first error, if any.
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 16;

  struct closes {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  void write(char const* text, std::size_t bytes) noexcept {
    if (!is_open() || bytes == 0) return;
    errno = 0;
    if (std::fwrite(text, 1, bytes, file_.get()) != bytes) error_ = last_error();
  }

  std::string path_;
  std::unique_ptr<std::FILE, closes> file_;  // null: no file, or closed
  std::unique_ptr<char[]> buffer_;
  std::size_t used_ = 0;  // bytes in the buffer, <= buffer_bytes
  std::error_code error_;
};

struct traced_block {
  std::uint64_t id;
  std::size_t bytes;  // as requested
};

/// The place of an allocation: that of the innermost `allocation_site`, or a calling function. Compared by
/// address, because equal places have equal addresses.
struct trace_place {
  char const* file = nullptr;  // null: no `allocation_site`
  std::uint_least32_t line = 0;
  char const* label = nullptr;
  std::uintptr_t call = 0;  // an address inside the call; 0: unknown

  friend auto operator<=>(trace_place const&, trace_place const&) = default;
  /// "model.cpp:12 (weights)" or "load(model&) at trainer(+0x1a2b)"; empty if the place is unknown.
  /// @throws std::bad_alloc
  [[nodiscard]] std::string text() const {
    if (file == nullptr) return call != 0 ? code_text(find_code(call)) : "";
    const std::string place = std::string{file} + ':' + std::to_string(line);
    return *label != '\0' ? place + " (" + label + ')' : place;
  }
};

// A value of a counter at a time.
struct trace_point {
  std::chrono::nanoseconds time{};  // since the log was made
  std::size_t bytes = 0;
};

}  // namespace detail

// A traced resource.
struct trace_log::track {
  using live_blocks = std::map<std::uintptr_t, detail::traced_block>;

  std::string name;                // as given
  std::string json_name;           // quoted, and unique in the log
  detail::usage_counter& counter;  // counter of the resource
  std::uint64_t number;            // from 0, unique in the log
  bool is_named = false;           // the CSV file has the name
  live_blocks live{};              // by address; disjoint

  // State of the counter in the Chrome trace: at most one window of points is pending.
  std::chrono::nanoseconds written{};  // time of the last point written immediately
  detail::trace_point highest{};       // highest pending point
  detail::trace_point last{};          // last pending point
  bool has_pending = false;
};

struct trace_log::thread {
  std::uint64_t number = 0;                // from 0, by first appearance
  std::vector<std::uint64_t> open_slices;  // their numbers; the newest is last
};

/// Writes events to the files. Thread-safe.
class trace_log::recorder {
 public:
  explicit recorder(trace_log_options const& options)
      : counter_interval_{options.counter_interval},
        process_id_{digits_of{static_cast<std::uint64_t>(getpid())}},
        finds_callers_{options.finds_callers},
        last_track_{~std::uint64_t{0}} {
    if (options.csv.empty() && options.chrome.empty()) {
      throw std::invalid_argument("trace_log: neither a CSV file nor a Chrome trace is named");
    }
    csv_ = detail::trace_file{options.csv};
    chrome_ = detail::trace_file{options.chrome};
    // Two names may be one file, which is known only once it exists. A device may be named twice.
    std::error_code none;
    if (options.csv == options.chrome || (std::filesystem::is_regular_file(options.csv, none) &&
                                          std::filesystem::equivalent(options.csv, options.chrome, none))) {
      throw std::invalid_argument("trace_log: CSV and Chrome trace have the same path, " + options.csv);
    }
    csv_.append({"op,id,bytes,thread\n"});
    // Always the first event, so that all others can begin with a comma.
    chrome_.append(
        {R"([{"ph":"M","name":"process_name","pid":)", process_id_, R"(,"args":{"name":"tidemark"}})"});
    // Flushes now, so that the constructor reports files that cannot be written.
    csv_.flush();
    chrome_.flush();
    throw_if_failed();
    const std::scoped_lock lock{mutex_};
    mutex_.adapt_with(*this);
  }
  recorder(recorder const&) = delete;
  recorder& operator=(recorder const&) = delete;
  ~recorder() {
    mutex_.deregister();
    detail::late_reports late;
    const std::scoped_lock lock{mutex_};
    if (!closed_) finish();
    if (detail::trace_file const* const failed = failed_file(); failed != nullptr && !error_reported_) {
      detail::report_violation(violation_kind::lost_output, "trace_log",
                               "trace_log: cannot write %s: %s; the trace is incomplete",
                               failed->path().c_str(), std::strerror(failed->error().value()));
    }
  }
  void close() {
    const std::scoped_lock lock{mutex_};
    if (std::exchange(closed_, true)) return;
    finish();
    error_reported_ = true;
    throw_if_failed();
  }
  [[nodiscard]] std::error_code error() const noexcept {
    const std::scoped_lock lock{mutex_};
    detail::trace_file const* const failed = failed_file();
    if (failed == nullptr) return {};
    error_reported_ = true;
    return failed->error();
  }

  track& add_track(std::string name, detail::usage_counter& counter) {
    const std::scoped_lock lock{mutex_};
    std::string quoted = json_string(name);
    const auto is_taken = [&](track const& other) { return other.json_name == quoted; };
    for (std::uint64_t i = 2; std::ranges::any_of(tracks_, is_taken); ++i) {
      quoted = json_string(name + " (" + std::to_string(i) + ")");
    }
    track& on = tracks_.emplace_back(std::move(name), std::move(quoted), counter, next_track_++);
    on.written = now();
    write_counter(on, {on.written, 0});
    return on;
  }
  void remove_track(track& from) noexcept {
    const std::scoped_lock lock{mutex_};
    write_pending(from);
    std::erase_if(tracks_, [&](track const& other) { return &other == &from; });
  }
  void record_allocation(track& on, void const* block, std::size_t bytes) {
    const std::scoped_lock lock{mutex_};
    thread const& by = this_thread();
    write_context(on, by);
    const std::uintptr_t begin = address_of(block);
    // Ends overlapped blocks: an upstream such as a rewound arena has reclaimed them.
    auto next = on.live.lower_bound(begin);
    if (next != on.live.begin()) {
      const auto below = std::prev(next);
      if (end_of(below->first, below->second.bytes) > begin) next = record_end(on, below, by);
    }
    while (next != on.live.end() && next->first < end_of(begin, bytes)) next = record_end(on, next, by);

    on.live.emplace_hint(next, begin, detail::traced_block{next_id_, bytes});
    on.counter.on_allocate(bytes);
    csv_.append({"a,", digits_of{next_id_++}, ",", digits_of{bytes}, ",", digits_of{by.number}, "\n"});
    count_live_bytes(on);
  }
  void record_deallocation(track& on, void const* block) noexcept {
    const std::scoped_lock lock{mutex_};
    const auto found = on.live.find(address_of(block));
    if (found == on.live.end()) return;
    try {
      record_end(on, found, this_thread());
    } catch (std::bad_alloc const&) {
      // Without memory to number a new thread, the files would be wrong from here on.
      csv_.fail(std::errc::not_enough_memory);
      chrome_.fail(std::errc::not_enough_memory);
      record_end(on, found, thread{});
    }
  }
  thread& begin_slice(std::string_view name) {
    const std::string quoted = json_string(name), field = csv_text(name);
    const std::scoped_lock lock{mutex_};
    thread& on = this_thread();
    on.open_slices.push_back(next_slice_);
    csv_.append({"s,", digits_of{next_slice_++}, ",", field, ",", digits_of{on.number}, "\n"});
    chrome_.append({",\n", R"({"ph":"B","pid":)", process_id_, R"(,"tid":)", digits_of{on.number},
                    R"(,"ts":)", digits_of{now()}, R"(,"name":)", quoted, "}"});
    return on;
  }
  void end_slice(thread& on) noexcept {
    const std::scoped_lock lock{mutex_};
    // 0 if the closing of the log has ended the slice.
    if (!on.open_slices.empty()) write_slice_end(on);
  }

 private:
  friend detail::fork_safe<>;
  friend trace_resource;
  using duration = std::chrono::nanoseconds;  // since the log was made
  using live_blocks = track::live_blocks;

  // @pre of the following functions: the mutex is held.

  [[nodiscard]] duration now() const noexcept { return std::chrono::steady_clock::now() - begin_; }
  thread& this_thread() {
    const unsigned long long identity = detail::this_thread_number();
    if (const auto found = threads_.find(identity); found != threads_.end()) return found->second;
    std::string name;
    if (chrome_.is_open()) {
      char system_name[64] = "";  // usually the program's name; may be empty
      (void)pthread_getname_np(pthread_self(), system_name, sizeof system_name);
      name = json_string("thread " + std::to_string(threads_.size()) + ": " + system_name);
    }
    thread& added = threads_.try_emplace(identity, thread{threads_.size(), {}}).first->second;
    chrome_.append({",\n", R"({"ph":"M","name":"thread_name","pid":)", process_id_, R"(,"tid":)",
                    digits_of{added.number}, R"(,"args":{"name":)", name, "}}"});
    return added;
  }
  [[nodiscard]] detail::trace_place place_here() noexcept {
    if (allocation_site const* const site = allocation_site::innermost())
      return {.file = site->where().file_name(), .line = site->where().line(), .label = site->label()};
    if (!finds_callers_) return {};
    const detail::call_stack stack{__builtin_return_address(0), 24};
    return {.call = owners_.calls_of_program(stack.frames()).front().call};
  }
  // Writes the resource and the place of the next `a` row, if they differ from those of the last one. A name
  // is written once.
  void write_context(track& on, thread const& by) {
    if (!csv_.is_open()) return;
    const detail::trace_place place = place_here();
    auto known = places_.find(place);
    std::string text;
    if (known == places_.end()) {
      text = csv_text(place.text());
      known = places_.emplace(place, places_.size()).first;
    }
    if (known->second != last_place_)
      csv_.append({"p,", digits_of{last_place_ = known->second}, ",", text, ",", digits_of{by.number}, "\n"});
    if (on.number == last_track_) return;
    text = on.is_named ? "" : csv_text(on.name);
    csv_.append({"r,", digits_of{last_track_ = on.number}, ",", text, ",", digits_of{by.number}, "\n"});
    on.is_named = true;
  }
  live_blocks::iterator record_end(track& on, live_blocks::iterator block, thread const& by) noexcept {
    on.counter.on_deallocate(block->second.bytes);
    csv_.append({"f,", digits_of{block->second.id}, ",0,", digits_of{by.number}, "\n"});
    const auto next = on.live.erase(block);
    count_live_bytes(on);
    return next;
  }
  void count_live_bytes(track& on) noexcept {
    if (!chrome_.is_open()) return;
    const detail::trace_point current{now(), on.counter.used_bytes()};
    if (current.time - on.written >= counter_interval_) {
      write_pending(on);
      write_counter(on, current);
      on.written = current.time;
      return;
    }
    if (!on.has_pending || current.bytes > on.highest.bytes) on.highest = current;
    on.last = current;
    on.has_pending = true;
  }
  void write_pending(track& on) noexcept {
    if (!std::exchange(on.has_pending, false)) return;
    if (on.highest.bytes > on.last.bytes) write_counter(on, on.highest);
    write_counter(on, on.last);
  }
  void write_counter(track& on, detail::trace_point const& at) noexcept {
    chrome_.append({",\n", R"({"ph":"C","pid":)", process_id_, R"(,"tid":0,"ts":)", digits_of{at.time},
                    R"(,"name":)", on.json_name, R"(,"args":{"live bytes":)", digits_of{at.bytes}, "}}"});
  }
  void write_slice_end(thread& on) noexcept {
    csv_.append({"e,", digits_of{on.open_slices.back()}, ",0,", digits_of{on.number}, "\n"});
    on.open_slices.pop_back();
    chrome_.append({",\n", R"({"ph":"E","pid":)", process_id_, R"(,"tid":)", digits_of{on.number},
                    R"(,"ts":)", digits_of{now()}, "}"});
  }
  void finish() noexcept {
    for (track& on : tracks_) write_pending(on);
    for (auto& [identity, on] : threads_) {
      while (!on.open_slices.empty()) write_slice_end(on);
    }
    chrome_.append({"\n]\n"});
    csv_.close();
    chrome_.close();
  }
  void adapt_to_child() noexcept {
    closed_ = true;
    csv_.abandon();
    chrome_.abandon();
  }
  [[nodiscard]] detail::trace_file const* failed_file() const noexcept {
    if (csv_.error()) return &csv_;
    return chrome_.error() ? &chrome_ : nullptr;
  }
  void throw_if_failed() const {
    detail::trace_file const* const failed = failed_file();
    if (failed != nullptr)
      throw std::system_error(failed->error(), "trace_log: cannot write " + failed->path());
  }

  mutable detail::fork_safe<> mutex_;  // guards all fields below
  detail::trace_file csv_;
  detail::trace_file chrome_;
  duration counter_interval_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string process_id_;  // as text, because every Chrome event has it
  bool finds_callers_;
  std::uint64_t next_id_ = 0;                                     // id of the next block
  std::uint64_t next_track_ = 0;                                  // number of the next resource
  std::uint64_t next_slice_ = 0;                                  // number of the next slice
  std::uint64_t last_track_;                                      // resource of the last `a` row
  std::uint64_t last_place_ = 0;                                  // place of the last `a` row
  std::map<detail::trace_place, std::uint64_t> places_{{{}, 0}};  // their numbers; 0: unknown
  detail::code_owner_cache<4096> owners_;                         // of calling functions
  std::list<track> tracks_;                       // a list, because resources point to elements
  std::map<unsigned long long, thread> threads_;  // by number; a map, because slices point to elements
  bool closed_ = false;                           // set by `close`
  mutable bool error_reported_ = false;           // set by `close` or `error`
};

// ---- public functions -------------------------------------------------------------------------------------

trace_log::trace_log(trace_log_options const& options) : recorder_{std::make_unique<recorder>(options)} {}

trace_log::~trace_log() = default;

void trace_log::close() { recorder_->close(); }

std::error_code trace_log::error() const noexcept { return recorder_->error(); }

trace_slice::trace_slice(trace_log& log, std::string_view name)
    : log_{&log}, thread_{&log.recorder_->begin_slice(name)} {}

trace_slice::~trace_slice() { log_->recorder_->end_slice(*thread_); }

trace_resource::trace_resource(std::pmr::memory_resource* upstream, trace_log& log, std::string name)
    : observing_adaptor{"trace_resource", upstream, name.c_str()},
      log_{log},
      track_{&log.recorder_->add_track(std::move(name), counter_)} {
  name_ = track_->name.c_str();
}

trace_resource::~trace_resource() { log_.recorder_->remove_track(*track_); }

void trace_resource::allocated(void* block, std::size_t bytes, std::size_t) {
  try {
    log_.recorder_->record_allocation(*track_, block, bytes);
  } catch (...) {
    failed(bytes);
    throw;
  }
}

void trace_resource::released(void* block, std::size_t) noexcept {
  log_.recorder_->record_deallocation(*track_, block);
}

void trace_resource::step_began(std::uint64_t kind) noexcept {
  try {
    step_ = &log_.recorder_->begin_slice(track_->name + " kind " + std::to_string(kind));
  } catch (std::bad_alloc const&) {
    step_ = nullptr;  // the step is not written
  }
}

void trace_resource::step_ended() noexcept {
  if (trace_log::thread* const on = std::exchange(step_, nullptr)) log_.recorder_->end_slice(*on);
}

void trace_resource::check_invariants() const noexcept {
  const detail::invariant_check expect{kind_, name()};
  std::size_t bytes = 0, blocks = 0, used_bytes = 0, used_blocks = 0;
  bool apart = true;
  {
    const std::scoped_lock lock{log_.recorder_->mutex_};
    std::uintptr_t end = 0;
    for (auto const& [begin, block] : track_->live) {
      apart &= begin >= end;
      end = begin + std::max<std::size_t>(block.bytes, 1);
      bytes += block.bytes;
    }
    blocks = track_->live.size();
    used_bytes = counter_.used_bytes();
    used_blocks = counter_.used_blocks();
  }
  expect(apart, "live blocks do not overlap");
  expect(bytes == used_bytes, "used_bytes is the sum of the live blocks");
  expect(blocks == used_blocks, "used_blocks is the number of live blocks");
}

}  // namespace tidemark
