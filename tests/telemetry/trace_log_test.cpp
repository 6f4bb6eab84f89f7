// SPDX-License-Identifier: Apache-2.0
// Strategy: the life of the files: their begin and end, and every way in which writing can fail. A limit on
// the size of files represents a full disk.
#include <tidemark/telemetry/trace_log.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <system_error>

#include <tidemark/telemetry/trace_log.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

#include "caught.hpp"
#include "trace_files.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// As long as it lives, files that this process writes do not grow beyond a size.
class full_disk {
 public:
  explicit full_disk(rlim_t max_bytes) : signal_before_{std::signal(SIGXFSZ, SIG_IGN)} {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{max_bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  full_disk(full_disk const&) = delete;
  full_disk& operator=(full_disk const&) = delete;
  ~full_disk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_before_);
  }

 private:
  void (*signal_before_)(int);
  rlimit before_{};
};

/// Returns the descriptor by which this process holds a file open, or -1.
int descriptor_of(std::string const& path) {
  for (int i = 0; i < 1024; ++i) {
    std::error_code none;
    if (std::filesystem::equivalent("/proc/self/fd/" + std::to_string(i), path, none)) return i;
  }
  return -1;
}

void use(trace_resource& traced, int times) {
  for (int i = 0; i < times; ++i) traced.deallocate(traced.allocate(8), 8);
}

template <class Error>
std::string sentence_of(trace_log_options const& options) {
  return test::message_of<Error>([&] { trace_log{options}; });
}

struct trace_log_files : ::testing::Test {
  trace_files files;
};

TEST_F(trace_log_files, requires_a_distinct_file_for_each_format) {
  EXPECT_EQ(sentence_of<std::invalid_argument>({}),
            "trace_log: neither a CSV file nor a Chrome trace is named");
  EXPECT_EQ(sentence_of<std::invalid_argument>({.csv = files.csv(), .chrome = files.csv()}),
            "trace_log: CSV and Chrome trace have the same path, " + files.csv());
}

TEST_F(trace_log_files, rejects_one_file_under_two_names) {
  const std::filesystem::path csv{files.csv()};
  const std::string detour = (csv.parent_path() / "." / csv.filename()).string();
  EXPECT_EQ(sentence_of<std::invalid_argument>({.csv = files.csv(), .chrome = detour}),
            "trace_log: CSV and Chrome trace have the same path, " + files.csv());
  EXPECT_NO_THROW((trace_log{{.csv = "/dev/null", .chrome = "/dev/./null"}})) << "a device is no file";
}

// T.15
TEST_F(trace_log_files, reports_the_file_that_cannot_be_opened_and_the_reason) {
  EXPECT_EQ(sentence_of<std::system_error>({.csv = "/nowhere/run.csv"}),
            "trace_log: cannot open /nowhere/run.csv: No such file or directory");
  EXPECT_EQ(sentence_of<std::system_error>({.csv = files.csv(), .chrome = "/"}),
            "trace_log: cannot open /: Is a directory");
}

TEST_F(trace_log_files, reports_a_full_disk_at_once) {
  EXPECT_EQ(sentence_of<std::system_error>({.csv = "/dev/full"}),
            "trace_log: cannot write /dev/full: No space left on device");
  EXPECT_EQ(sentence_of<std::system_error>({.csv = files.csv(), .chrome = "/dev/full"}),
            "trace_log: cannot write /dev/full: No space left on device");
}

// T.15
TEST_F(trace_log_files, a_disk_that_fills_up_does_not_disturb_the_program_and_close_throws) {
  const full_disk disk{100'000};
  trace_log log{{.csv = files.csv()}};
  trace_resource traced{log};
  use(traced, 20'000);
  EXPECT_EQ(traced.stats().deallocations, 20'000u);
  const std::system_error error = test::caught<std::system_error>([&] { log.close(); });
  EXPECT_EQ(error.what(), "trace_log: cannot write " + files.csv() + ": File too large");
  EXPECT_EQ(error.code(), std::errc::file_too_large);
  EXPECT_NO_THROW(log.close());
}

TEST_F(trace_log_files, a_disk_that_fills_up_with_the_last_record_is_reported_too) {
  const full_disk disk{100};
  trace_log log{{.chrome = files.chrome()}};
  trace_resource traced{log};
  EXPECT_FALSE(log.error());  // it is all in the buffer still
  EXPECT_THROW(log.close(), std::system_error);
}

TEST_F(trace_log_files, an_error_of_close_alone_is_reported) {
  if (!std::filesystem::exists("/proc/self/fd")) GTEST_SKIP() << "there is no /proc/self/fd here";
  trace_log log{{.csv = files.csv()}};
  // Its first line is written, and no other will be, so that fclose fails.
  ASSERT_EQ(close(descriptor_of(files.csv())), 0);
  EXPECT_FALSE(log.error());
  {
    const std::system_error error = test::caught<std::system_error>([&] { log.close(); });
    EXPECT_EQ(error.what(), "trace_log: cannot write " + files.csv() + ": Bad file descriptor");
    EXPECT_EQ(error.code(), std::errc::bad_file_descriptor);
  }
}

TEST_F(trace_log_files, child_processes_do_not_inherit_its_files) {
  if (!std::filesystem::exists("/proc/self/fd")) GTEST_SKIP() << "there is no /proc/self/fd here";
  const trace_log log{{.csv = files.csv(), .chrome = files.chrome()}};
  for (std::string const& path : {files.csv(), files.chrome()}) {
    EXPECT_EQ(fcntl(descriptor_of(path), F_GETFD), FD_CLOEXEC) << path;
  }
}

TEST_F(trace_log_files, one_file_that_cannot_be_written_does_not_stop_the_other) {
  const full_disk disk{1'200'000};
  trace_log log{{.csv = files.csv(), .chrome = files.chrome(), .counter_interval = {}}};
  trace_resource traced{log};
  use(traced, 20'000);  // 0.4 MB of CSV and 3 MB of Chrome trace
  EXPECT_THROW(log.close(), std::system_error);
  EXPECT_EQ(replayed_trace{files.csv()}.deallocations, 20'000u);
}

TEST_F(trace_log_files, its_destructor_reports_an_error_that_was_not_returned) {
  const violation_recorder reports;
  for (const bool is_returned : {true, false}) {
    const full_disk disk{100'000};
    trace_log log{{.csv = files.csv()}};
    trace_resource traced{log};
    EXPECT_FALSE(log.error());
    use(traced, 20'000);
    if (is_returned) EXPECT_EQ(log.error(), std::errc::file_too_large);
  }
  EXPECT_EQ(violation_recorder::only(violation_kind::lost_output),
            "trace_log: cannot write " + files.csv() + ": File too large; the trace is incomplete");
}

TEST_F(trace_log_files, is_complete_when_an_exception_ends_the_program_part) {
  try {
    trace_log log{{.csv = files.csv(), .chrome = files.chrome()}};
    trace_resource traced{log};
    const trace_slice slice{log, "step"};
    const std::pmr::vector<int> numbers({1, 2, 3}, &traced);
    throw std::runtime_error("no");
  } catch (std::runtime_error const&) {
  }
  EXPECT_EQ(text_of(files.csv()),
            "op,id,bytes,thread\ns,0,step,0\nr,0,trace_resource,0\na,0,12,0\nf,0,0,0\ne,0,0,0\n");
  const std::string chrome = text_of(files.chrome());
  EXPECT_TRUE(chrome.ends_with("}\n]\n")) << chrome;
  EXPECT_EQ(files.events("E").size(), 1u);
}

// T.15
TEST_F(trace_log_files, its_files_end_with_a_whole_event_at_any_time) {
  trace_log log{{.csv = files.csv(), .chrome = files.chrome(), .counter_interval = {}}};
  EXPECT_EQ(text_of(files.csv()), "op,id,bytes,thread\n");
  trace_resource traced{log};
  use(traced, 10'000);
  const std::string csv = text_of(files.csv()), chrome = text_of(files.chrome());
  EXPECT_GT(csv.size(), 65'000u);
  EXPECT_TRUE(csv.ends_with(",0\n")) << csv.substr(csv.size() - 20);
  EXPECT_GT(chrome.size(), 1'000'000u);
  EXPECT_TRUE(chrome.ends_with("}}")) << chrome.substr(chrome.size() - 20);
}

TEST_F(trace_log_files, takes_a_name_longer_than_its_buffer) {
  const std::string name(100'000, 'x');
  {
    trace_log log{{.chrome = files.chrome()}};
    const trace_slice slice{log, name};
  }
  ASSERT_EQ(files.events("B").size(), 1u);
  EXPECT_TRUE(files.events("B")[0].ends_with(R"("name":")" + name + "\"},"));
}

TEST_F(trace_log_files, counts_without_writing_after_close) {
  trace_log log{{.csv = files.csv(), .chrome = files.chrome()}};
  trace_resource traced{log};
  log.close();
  const std::string csv = text_of(files.csv()), chrome = text_of(files.chrome());
  use(traced, 10'000);
  EXPECT_EQ(traced.stats().allocations, 10'000u);
  EXPECT_NO_THROW(log.close());
  EXPECT_FALSE(log.error());
  EXPECT_EQ(text_of(files.csv()), csv);
  EXPECT_EQ(text_of(files.chrome()), chrome);
}

TEST_F(trace_log_files, empties_the_files_that_it_finds) {
  std::ofstream{files.csv()} << "something else, and longer than the first line of a trace\n";
  {
    trace_log log{{.csv = files.csv()}};
  }
  EXPECT_EQ(text_of(files.csv()), "op,id,bytes,thread\n");
}

}  // namespace
}  // namespace tidemark::test
