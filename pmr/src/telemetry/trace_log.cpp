// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/trace_log.hpp>

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/violation.hpp>

#include "../diagnose/call_stack.hpp"
#include "../diagnose/code_symbols.hpp"
#include "trace_recorder.hpp"

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

// ---- files ------------------------------------------------------------------------------------------------

detail::trace_file::trace_file(std::string path) : path_{std::move(path)} {
  if (path_.empty()) return;
  buffer_ = std::make_unique_for_overwrite<char[]>(buffer_bytes);
  errno = 0;
  file_.reset(std::fopen(path_.c_str(), "we"));  // "e": child processes do not inherit it
  if (file_ == nullptr) throw std::system_error(last_error(), "trace_log: cannot open " + path_);
  // Disables the C library's buffer, which would be written in the middle of a record.
  std::setvbuf(file_.get(), nullptr, _IONBF, 0);
}

void detail::trace_file::append(std::initializer_list<std::string_view> parts) noexcept {
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

void detail::trace_file::flush() noexcept { write(buffer_.get(), std::exchange(used_, 0)); }

void detail::trace_file::close() noexcept {
  flush();
  if (file_ == nullptr) return;
  errno = 0;
  if (std::fclose(file_.release()) != 0 && !error_) error_ = last_error();
}

void detail::trace_file::abandon() noexcept {
  used_ = 0;
  file_.reset();
}

void detail::trace_file::fail(std::errc reason) noexcept {
  if (is_open()) error_ = std::make_error_code(reason);
}

void detail::trace_file::write(char const* text, std::size_t bytes) noexcept {
  if (!is_open() || bytes == 0) return;
  errno = 0;
  if (std::fwrite(text, 1, bytes, file_.get()) != bytes) error_ = last_error();
}

// ---- the log ----------------------------------------------------------------------------------------------

trace_log::recorder::recorder(trace_log_options const& options)
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

trace_log::recorder::~recorder() {
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

void trace_log::recorder::close() {
  const std::scoped_lock lock{mutex_};
  if (std::exchange(closed_, true)) return;
  finish();
  error_reported_ = true;
  throw_if_failed();
}

std::error_code trace_log::recorder::error() const noexcept {
  const std::scoped_lock lock{mutex_};
  detail::trace_file const* const failed = failed_file();
  if (failed == nullptr) return {};
  error_reported_ = true;
  return failed->error();
}

// ---- resources ------------------------------------------------------------------------------------------

trace_log::track& trace_log::recorder::add_track(std::string name, detail::usage_counter& counter) {
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

void trace_log::recorder::remove_track(track& from) noexcept {
  const std::scoped_lock lock{mutex_};
  write_pending(from);
  std::erase_if(tracks_, [&](track const& other) { return &other == &from; });
}

void trace_log::recorder::record_allocation(track& on, void const* block, std::size_t bytes) {
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

void trace_log::recorder::record_deallocation(track& on, void const* block) noexcept {
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

trace_log::recorder::live_blocks::iterator trace_log::recorder::record_end(track& on,
                                                                           live_blocks::iterator block,
                                                                           thread const& by) noexcept {
  on.counter.on_deallocate(block->second.bytes);
  csv_.append({"f,", digits_of{block->second.id}, ",0,", digits_of{by.number}, "\n"});
  const auto next = on.live.erase(block);
  count_live_bytes(on);
  return next;
}

std::string detail::trace_place::text() const {
  if (file != nullptr)
    return std::string{file} + ':' + std::to_string(line) +
           (*label != '\0' ? std::string{" ("} + label + ')' : "");
  return call != 0 ? code_text(find_code(call)) : "";
}

detail::trace_place trace_log::recorder::place_here() noexcept {
  if (allocation_site const* const site = allocation_site::innermost())
    return {.file = site->where().file_name(), .line = site->where().line(), .label = site->label()};
  if (!finds_callers_) return {};
  const detail::call_stack stack{__builtin_return_address(0), 24};
  return {.call = owners_.calls_of_program(stack.frames()).front().call};
}

// Writes the resource and the place of the next `a` row, if they differ from those of the last one. A name
// is written once.
void trace_log::recorder::write_context(track& on, thread const& by) {
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

// ---- threads and slices ---------------------------------------------------------------------------------

trace_log::thread& trace_log::recorder::this_thread() {
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

trace_log::thread& trace_log::recorder::begin_slice(std::string_view name) {
  const std::string quoted = json_string(name), field = csv_text(name);
  const std::scoped_lock lock{mutex_};
  thread& on = this_thread();
  on.open_slices.push_back(next_slice_);
  csv_.append({"s,", digits_of{next_slice_++}, ",", field, ",", digits_of{on.number}, "\n"});
  chrome_.append({",\n", R"({"ph":"B","pid":)", process_id_, R"(,"tid":)", digits_of{on.number}, R"(,"ts":)",
                  digits_of{now()}, R"(,"name":)", quoted, "}"});
  return on;
}

void trace_log::recorder::end_slice(thread& on) noexcept {
  const std::scoped_lock lock{mutex_};
  // 0 if the closing of the log has ended the slice.
  if (!on.open_slices.empty()) write_slice_end(on);
}

void trace_log::recorder::write_slice_end(thread& on) noexcept {
  csv_.append({"e,", digits_of{on.open_slices.back()}, ",0,", digits_of{on.number}, "\n"});
  on.open_slices.pop_back();
  chrome_.append({",\n", R"({"ph":"E","pid":)", process_id_, R"(,"tid":)", digits_of{on.number}, R"(,"ts":)",
                  digits_of{now()}, "}"});
}

// ---- writing ------------------------------------------------------------------------------------

trace_log::recorder::duration trace_log::recorder::now() const noexcept {
  return std::chrono::steady_clock::now() - begin_;
}

void trace_log::recorder::count_live_bytes(track& on) noexcept {
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

void trace_log::recorder::write_pending(track& on) noexcept {
  if (!std::exchange(on.has_pending, false)) return;
  if (on.highest.bytes > on.last.bytes) write_counter(on, on.highest);
  write_counter(on, on.last);
}

void trace_log::recorder::write_counter(track& on, detail::trace_point const& at) noexcept {
  chrome_.append({",\n", R"({"ph":"C","pid":)", process_id_, R"(,"tid":0,"ts":)", digits_of{at.time},
                  R"(,"name":)", on.json_name, R"(,"args":{"live bytes":)", digits_of{at.bytes}, "}}"});
}

void trace_log::recorder::finish() noexcept {
  for (track& on : tracks_) write_pending(on);
  for (auto& [identity, on] : threads_) {
    while (!on.open_slices.empty()) write_slice_end(on);
  }
  chrome_.append({"\n]\n"});
  csv_.close();
  chrome_.close();
}

void trace_log::recorder::adapt_to_child() noexcept {
  closed_ = true;
  csv_.abandon();
  chrome_.abandon();
}

detail::trace_file const* trace_log::recorder::failed_file() const noexcept {
  if (csv_.error()) return &csv_;
  return chrome_.error() ? &chrome_ : nullptr;
}

void trace_log::recorder::throw_if_failed() const {
  detail::trace_file const* const failed = failed_file();
  if (failed != nullptr)
    throw std::system_error(failed->error(), "trace_log: cannot write " + failed->path());
}

// ---- public functions -------------------------------------------------------------------------------------

trace_log::trace_log(trace_log_options options) : recorder_{std::make_unique<recorder>(options)} {}

trace_log::~trace_log() = default;

void trace_log::close() { recorder_->close(); }

std::error_code trace_log::error() const noexcept { return recorder_->error(); }

trace_slice::trace_slice(trace_log& log, std::string_view name)
    : log_{&log}, thread_{&log.recorder_->begin_slice(name)} {}

trace_slice::~trace_slice() { log_->recorder_->end_slice(*thread_); }

}  // namespace tidemark
