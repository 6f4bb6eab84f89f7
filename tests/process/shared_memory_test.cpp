// SPDX-License-Identifier: Apache-2.0
// Strategy: the memory through its own process and through a second process, which was forked before the
// memory existed and knows only a descriptor, a name and an address. Each system call fails once. The second
// process is ended at each call, and while it holds a view.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <tidemark/core/file_descriptor.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/process/shared_memory.hpp>
#include <tidemark/process/shared_memory_view.hpp>

#include "caught.hpp"
#include "file_call_faults.hpp"
#include "peer_process.hpp"
#include "process_memory.hpp"
#include "shared_memory_refusals.hpp"
#include "temporary_folder.hpp"

namespace tidemark::test {
namespace {

// A range of a space, released at the end.
struct held_range {
  held_range(shared_memory_options options, std::size_t bytes) : space{std::move(options)} {
    range = space.reserve(1, bytes);
  }
  held_range(held_range const&) = delete;
  held_range& operator=(held_range const&) = delete;
  ~held_range() { release(); }
  void release() {
    if (!range.empty()) space.release(std::exchange(range, {}));
  }

  [[nodiscard]] byte_range part(std::size_t first, std::size_t bytes) const {
    return {range.begin + first, bytes};
  }
  void fill(std::size_t first, std::size_t bytes, int value) {
    ASSERT_TRUE(space.commit(part(first, bytes)));
    std::memset(part(first, bytes).data(), value, bytes);
  }
  // Bytes of the file that have memory.
  [[nodiscard]] std::size_t memory() const {
    struct stat status{};
    EXPECT_EQ(::fstat(space.export_file().get(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }

  shared_memory space;
  byte_range range;
};

unsigned char byte_at(std::uintptr_t address) { return *reinterpret_cast<unsigned char volatile*>(address); }

// ---- the memory in its own process

// H.1
TEST(shared_memory, reads_as_zero_when_it_is_committed) {
  held_range of{{}, 1 * MiB};
  ASSERT_EQ(of.range.size, 1 * MiB);
  ASSERT_TRUE(of.space.commit(of.part(64 * KiB, 64 * KiB)));
  for (std::size_t i = 64 * KiB; i < 128 * KiB; ++i) ASSERT_EQ(byte_at(of.range.begin + i), 0);
  EXPECT_DEATH(byte_at(of.range.begin), "");
}

// H.1
TEST(shared_memory, allocates_memory_when_it_is_committed_and_not_before) {
  held_range of{{}, 1 * GiB};
  EXPECT_EQ(of.memory(), 0u);
  ASSERT_TRUE(of.space.commit(of.part(1 * MiB, 128 * KiB)));
  EXPECT_EQ(of.memory(), 128 * KiB);
}

TEST(shared_memory, changes_nothing_if_the_system_has_no_memory) {
  held_range of{{}, 1 * MiB};
  for (char const* call : {"fallocate", "mprotect"}) {
    file_call_faults faults;
    faults.only = call;
    faults.fail_from = 0;
    EXPECT_FALSE(of.space.commit(of.part(0, 64 * KiB)));
    EXPECT_EQ(of.memory(), 0u);
    EXPECT_DEATH(byte_at(of.range.begin), "") << call;
    EXPECT_TRUE(of.space.commit(of.part(0, 64 * KiB)));
    of.fill(64 * KiB, 64 * KiB, 1);
    of.release();
    of.range = of.space.reserve(1, 1 * MiB);
  }
}

// H.2
TEST(shared_memory, keeps_memory_on_decommit_if_writes_are_sealed) {
  held_range of{{}, 1 * MiB};
  of.fill(0, 64 * KiB, 0xFF);
  EXPECT_FALSE(of.space.decommit(of.part(0, 64 * KiB)));
  EXPECT_EQ(byte_at(of.range.begin), 0xFF);
  EXPECT_EQ(of.memory(), 64 * KiB);
}

TEST(shared_memory, reserves_one_range_at_a_time) {
  shared_memory space;
  const byte_range range = space.reserve(1, 64 * KiB);
  EXPECT_TRUE(space.reserve(1, 64 * KiB).empty());
  shared_memory moved{std::move(space)};
  EXPECT_TRUE(moved.reserve(1, 64 * KiB).empty());
  moved.release(range);
  const byte_range next = moved.reserve(1, 128 * KiB);
  EXPECT_EQ(next.size, 128 * KiB);
  moved.release(next);
  EXPECT_TRUE(moved.reserve(std::size_t{0} - 1, 1).empty());
}

// H.3
TEST(shared_memory, maps_at_the_configured_address) {
  const std::uintptr_t address = [] { return held_range{{}, 1 * MiB}.range.begin; }();
  const held_range there{{.address = address}, 1 * MiB};
  EXPECT_EQ(there.range.begin, address);
}

TEST(shared_memory, rejects_an_address_that_is_in_use) {
  held_range of{{}, 1 * MiB};
  of.fill(0, 64 * KiB, 7);
  const int files = open_files(), mappings = mapped_files();
  const std::string said = refusal_of(shared_memory_refusal::addresses_taken, [&] {
    shared_memory second{{.address = of.range.begin + 64 * KiB, .name = "second"}};
    (void)second.reserve(1, 64 * KiB);
  });
  EXPECT_NE(said.find("shared_memory 'second': this process already uses its addresses, 0x5"), said.npos)
      << said;
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(mapped_files(), mappings);
}

// H.4
TEST(shared_memory, exported_to_another_process_cannot_be_written_or_truncated) {
  held_range of{{}, 1 * MiB};
  of.fill(0, 64 * KiB, 7);
  const file_descriptor exported = of.space.export_file();
  const std::string path = "/proc/self/fd/" + std::to_string(exported.get());
  const file_descriptor writable{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  ASSERT_GE(writable.get(), 0);
  EXPECT_EQ(::pwrite(writable.get(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::mmap(nullptr, 64 * KiB, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0), MAP_FAILED);
  EXPECT_EQ(::fallocate(writable.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 64 * KiB), -1);
  for (const off_t size : {off_t{0}, off_t{2 * MiB}}) {
    EXPECT_EQ(::ftruncate(writable.get(), size), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(::fcntl(writable.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(byte_at(of.range.begin), 7);
}

// ---- and in another one

// H.3
TEST(shared_memory_view, maps_at_the_address_of_the_writer) {
  struct node {
    node const* next;
    int value;
  };
  peer_process reader{[](channel& test) -> std::string {
    const file_descriptor file = test.receive_file();
    const shared_memory_view view{file.get(), *test.receive()};
    int sum = 0;
    for (node const* at = view.range().size == 1 * MiB ? static_cast<node*>(view.range().data()) : nullptr;
         at != nullptr; at = at->next) {
      sum += at->value;
    }
    return sum == 6 ? "" : "the sum is " + std::to_string(sum);
  }};
  held_range of{{}, 1 * MiB};
  ASSERT_TRUE(of.space.commit(of.part(0, 64 * KiB)));
  auto* const nodes = static_cast<node*>(of.range.data());
  nodes[0] = {&nodes[2], 1};
  nodes[2] = {&nodes[1], 2};
  nodes[1] = {nullptr, 3};
  reader.channel().send_file(of.space.export_file().get());
  reader.channel().send(of.range.begin);
  EXPECT_EQ(reader.result(), "");
}

TEST(shared_memory_view, rejects_addresses_in_use_in_its_process) {
  peer_process reader{[](channel& test) -> std::string {
    const file_descriptor file = test.receive_file();
    const std::uint64_t address = *test.receive();
    void* const taken = ::mmap(reinterpret_cast<void*>(address + 64 * KiB), 4 * KiB, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (taken == MAP_FAILED) return "the address cannot be taken";
    const int files = open_files();
    const std::string said = refusal_of(shared_memory_refusal::addresses_taken,
                                        [&] { const shared_memory_view view{file.get(), address}; });
    if (open_files() != files || mapped_files() != 0) return "something is left";
    if (::munmap(taken, 4 * KiB) != 0) return "munmap";
    const shared_memory_view now_free{file.get(), address};
    return said.starts_with("shared_memory_view: this process already uses its addresses") ? "" : said;
  }};
  held_range of{{}, 1 * MiB};
  reader.channel().send_file(of.space.export_file().get());
  reader.channel().send(of.range.begin);
  EXPECT_EQ(reader.result(), "");
}

// H.4
TEST(shared_memory_view, cannot_be_written_through) {
  peer_process reader{[](channel& test) -> std::string {
    const shared_memory_view view{test.receive_file().get(), *test.receive()};
    ::signal(SIGSEGV, SIG_DFL);
    *static_cast<char volatile*>(view.range().data()) = 1;
    return "it was written";
  }};
  held_range of{{}, 1 * MiB};
  of.fill(0, 64 * KiB, 7);
  reader.channel().send_file(of.space.export_file().get());
  reader.channel().send(of.range.begin);
  EXPECT_EQ(reader.result(), "it was ended by signal 11");
  EXPECT_EQ(byte_at(of.range.begin), 7);
}

TEST(shared_memory_view, rejects_a_file_that_could_be_truncated_while_read) {
  const file_descriptor unsealed{::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  const temporary_folder folder;
  std::ofstream{folder / "file"} << "some text";
  const file_descriptor regular = open_shared_memory(folder / "file");
  for (const int file : {unsealed.get(), regular.get()}) {
    const std::string said = refusal_of(shared_memory_refusal::not_sealed,
                                        [&] { const shared_memory_view view{file, 0, "prices"}; });
    EXPECT_EQ(said, "prices: the file is not sealed and could be truncated while it is read");
  }
  EXPECT_THROW((shared_memory_view{-1, 0}), std::system_error);
}

// H.12
TEST(shared_memory_view, keeps_the_memory_when_the_writer_has_released_it) {
  std::optional<shared_memory_view> view;
  {
    held_range of{{}, 1 * MiB};
    of.fill(0, 64 * KiB, 7);
    view.emplace(of.space.export_file().get(), 0);
    EXPECT_TRUE(view->writer_is_alive());
  }
  EXPECT_FALSE(view->writer_is_alive());
  EXPECT_EQ(byte_at(view->range().begin), 7);
}

// H.9
TEST(shared_memory_view, keeps_its_writer_from_freeing_memory_until_it_ends) {
  const held_range of{{}, 1 * MiB};
  ASSERT_TRUE(of.space.try_exclude_views());
  const std::string said =
      refusal_of(shared_memory_refusal::busy, [&] { shared_memory_view{of.space.export_file().get(), 0}; });
  EXPECT_EQ(said, "shared_memory_view: its writer frees the memory at this moment");
  of.space.admit_views();
  {
    shared_memory_view first{of.space.export_file().get(), 0};
    shared_memory_view second{of.space.export_file().get(), 0};
    EXPECT_FALSE(of.space.try_exclude_views());
    first = std::move(second);
    EXPECT_TRUE(second.range().empty());  // NOLINT(bugprone-use-after-move)
    EXPECT_FALSE(of.space.try_exclude_views());
  }
  EXPECT_TRUE(of.space.try_exclude_views());
}

// H.12
TEST(shared_memory_view, counts_a_forked_child_of_the_writer_as_the_writer_until_it_ends) {
  held_range of{{}, 1 * MiB};
  const shared_memory_view view{of.space.export_file().get(), 0};
  peer_process child{[](channel& test) -> std::string {
    (void)test.receive();
    return "";
  }};
  of.release();
  EXPECT_TRUE(view.writer_is_alive());
  EXPECT_EQ(child.kill(), killed);
  EXPECT_FALSE(view.writer_is_alive());
}

// ---- names

// H.5
TEST(shared_memory, is_found_by_its_name_until_it_is_released) {
  const temporary_folder folder;
  const std::string path = folder / "prices";
  std::ofstream{path + "." + std::to_string(::getpid())} << "a file beside the name";
  EXPECT_THROW((held_range{{}, 64 * KiB}.space.link()), std::logic_error) << "without a path";
  {
    held_range of{{.path = path}, 1 * MiB};
    of.fill(0, 64 * KiB, 7);
    EXPECT_THROW((void)open_shared_memory(path), std::system_error);
    of.space.link();
    of.space.link();
    const shared_memory_view view{open_shared_memory(path).get(), 0};
    EXPECT_EQ(byte_at(view.range().begin), 7);
  }
  EXPECT_EQ(folder.names(), 1) << "the file beside it";
}

TEST(shared_memory, takes_a_name_over_and_leaves_it_to_the_next) {
  const temporary_folder folder;
  held_range first{{.path = folder / "name"}, 1 * MiB};
  first.fill(0, 64 * KiB, 1);
  first.space.link();
  held_range second{{.path = folder / "name"}, 1 * MiB};
  second.fill(0, 64 * KiB, 2);
  second.space.link();
  first.release();
  const shared_memory_view view{open_shared_memory(folder / "name").get(), 0};
  EXPECT_EQ(byte_at(view.range().begin), 2);
}

TEST(shared_memory, replaces_no_file_by_a_name) {
  const temporary_folder folder;
  std::ofstream{folder / "file"} << "some text";
  const held_range of{{.path = folder / "file", .name = "mine"}, 1 * MiB};
  const std::system_error error = test::caught<std::system_error>([&] { of.space.link(); });
  EXPECT_EQ(error.code(), std::errc::file_exists);
  EXPECT_NE(std::string{error.what()}.find("shared_memory 'mine': it cannot be given the name '"),
            std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(folder / "file"), 9u);
}

// H.5
TEST(shared_memory, has_its_name_or_not_wherever_its_process_is_killed) {
  const temporary_folder folder;
  const std::string path = folder / "name";
  held_range old{{.path = path}, 1 * MiB};
  old.fill(0, 64 * KiB, 1);
  bool finished = false;
  for (std::size_t n = 0; !finished; ++n) {
    ASSERT_LT(n, 100u);
    old.space.link();
    peer_process writer{[&](channel& test) -> std::string {
      file_call_faults faults;
      faults.kills = true;
      faults.fail_from = n;
      held_range of{{.path = path}, 1 * MiB};
      of.fill(0, 64 * KiB, 2);
      of.space.link();
      test.send(1);
      (void)test.receive();
      return "";
    }};
    finished = writer.channel().receive().has_value();
    if (finished) {
      const shared_memory_view view{open_shared_memory(path).get(), 0};
      EXPECT_EQ(byte_at(view.range().begin), 2);
      EXPECT_EQ(writer.kill(), killed);
      EXPECT_THROW((void)open_shared_memory(path), std::system_error) << "its writer has ended";
      old.space.link();
    } else {
      EXPECT_EQ(writer.result(), killed);
    }
    const shared_memory_view view{open_shared_memory(path).get(), 0};
    EXPECT_EQ(byte_at(view.range().begin), 1);
  }
}

TEST(shared_memory, loses_no_name_to_a_forked_child_that_destroys_it) {
  const temporary_folder folder;
  const std::string path = folder / "name";
  held_range of{{.path = path}, 1 * MiB};
  of.fill(0, 64 * KiB, 7);
  of.space.link();
  const pid_t child = ::fork();
  if (child == 0) {
    of.space.release(of.range);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const shared_memory_view view{open_shared_memory(path).get(), 0};
  EXPECT_EQ(byte_at(view.range().begin), 7);
  EXPECT_EQ(byte_at(of.range.begin), 7);
}

}  // namespace
}  // namespace tidemark::test
