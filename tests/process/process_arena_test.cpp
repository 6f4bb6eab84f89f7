// SPDX-License-Identifier: Apache-2.0
// Strategy: one process fills an arena with containers, and other processes, forked before the arena existed
// or executed again, read them in place. Images of an arena's file are changed bit by bit, and mapped as if
// they were a writer's. Writers and readers are killed at each system call and at random moments.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <memory_resource>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/process/detail/process_format.hpp>
#include <tidemark/process/process_arena.hpp>
#include <tidemark/process/process_view.hpp>
#include <tidemark/process/shared_memory.hpp>

#include "caught.hpp"
#include "file_call_faults.hpp"
#include "peer_process.hpp"
#include "process_memory.hpp"
#include "seeds.hpp"
#include "shared_memory_refusals.hpp"

namespace tidemark::test {
namespace {

using namespace std::chrono_literals;
using enum shared_memory_refusal;
static_assert(std::is_nothrow_move_constructible_v<process_view> &&
              std::is_nothrow_move_assignable_v<process_view> &&
              !std::is_copy_constructible_v<process_view> && !std::is_move_constructible_v<process_arena>);

/// The published data of the tests: a container of each kind, with elements that follow from one number.
struct catalogue {
  explicit catalogue(std::pmr::memory_resource* memory)
      : numbers{memory}, names{memory}, by_key{memory}, by_name{memory} {}

  void fill(int seed, int n) {
    first = seed;
    for (int i = 0; i < n; ++i) {
      numbers.push_back(seed + i);
      names.push_back(text(seed + i).c_str());
      by_key.emplace(i, text(seed - i).c_str());
      by_name.emplace(text(i).c_str(), seed * i);
    }
  }
  // Long enough to lie outside the string object.
  static std::string text(int value) { return "the text that belongs to number " + std::to_string(value); }

  /// Empty if all is as `fill` left it. It knows nothing but this object.
  [[nodiscard]] std::string wrong() const {
    const int n = static_cast<int>(numbers.size());
    if (n == 0) return "it is empty";
    if (names.size() != numbers.size() || by_key.size() != numbers.size() ||
        by_name.size() != numbers.size()) {
      return "the sizes differ";
    }
    for (int i = 0; i < n; ++i) {
      if (numbers[static_cast<std::size_t>(i)] != first + i) return "a number is wrong";
      if (std::string_view{names[static_cast<std::size_t>(i)]} != text(first + i)) return "a name is wrong";
      const auto of_key = by_key.find(i);
      if (of_key == by_key.end() || std::string_view{of_key->second} != text(first - i))
        return "a key is wrong";
      const auto of_name = by_name.find(text(i).c_str());
      if (of_name == by_name.end() || of_name->second != first * i) return "the hash map is wrong";
    }
    return "";
  }

  int first = 0;
  std::pmr::vector<int> numbers;
  std::pmr::vector<std::pmr::string> names;
  std::pmr::map<int, std::pmr::string> by_key;
  std::pmr::unordered_map<std::pmr::string, int> by_name;
};

/// Fills a catalogue and publishes it.
catalogue& publish(process_arena& memory, int seed, int n = 50) {
  auto* const made = memory.push<catalogue>(&memory);
  made->fill(seed, n);
  (void)memory.publish(*made);
  return *made;
}

// The reader's program: a newly executed process begins here, before main, with its own addresses.
constexpr char const* reader_variable = "TIDEMARK_PROCESS_ARENA_READER";
[[maybe_unused]] const bool is_no_reader = [] {
  char const* const path = std::getenv(reader_variable);
  if (path == nullptr) return true;
  std::string wrong;
  try {
    const process_view view{path, 3};
    wrong = view.root<catalogue>().wrong();
  } catch (std::exception const& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) std::fprintf(stderr, "reader: %s\n", wrong.c_str());
  ::_exit(wrong.empty() ? 0 : 1);
}();

std::string temporary_path(char const* name) {
  return "/tmp/tidemark_process_arena_" + std::to_string(::getpid()) + "_" + name;
}

// ---- readers

// H.6
TEST(process_arena, is_read_in_place_by_another_process) {
  peer_process reader{[](channel& test) -> std::string {
    const process_view view{test.receive_file().get()};
    if (view.generation() != 1 || !view.is_newest() || !view.writer_is_alive()) return "the view is wrong";
    return view.root<catalogue>().wrong();
  }};
  process_arena memory;
  EXPECT_EQ(publish(memory, 100).wrong(), "");
  memory.check_invariants();
  reader.channel().send_file(memory.export_file().get());
  EXPECT_EQ(reader.result(), "");
}

// H.6
TEST(process_arena, is_read_by_its_name_by_a_program_that_was_executed_anew) {
  const std::string path = temporary_path("executed");
  process_arena memory{{.layout_version = 3, .path = path}};
  publish(memory, 100);
  memory.link();
  for (int i = 0; i < 5; ++i) {  // each with different addresses
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv(reader_variable, path.c_str(), 1);
      ::execl("/proc/self/exe", "reader", nullptr);
      ::_exit(127);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

// H.8
TEST(process_arena, keeps_older_generations_while_it_publishes_newer_ones) {
  peer_process reader{[](channel& test) -> std::string {
    process_view view{test.receive_file().get()};
    auto const& first = view.root<catalogue>();
    test.send(view.generation());
    if (!test.receive()) return "no answer";
    if (view.is_newest() || view.generation() != 1) return "it has noticed no newer generation";
    if (!view.update() || view.generation() != 3 || !view.is_newest() || view.update()) return "update";
    auto const& third = view.root<catalogue>();
    if (&first == &third || first.first != 100 || third.first != 300) return "another root";
    return first.wrong() + third.wrong();
  }};
  process_arena memory;
  publish(memory, 100);
  reader.channel().send_file(memory.export_file().get());
  EXPECT_EQ(reader.channel().receive(), 1u);
  publish(memory, 200);
  publish(memory, 300, 5000);
  EXPECT_EQ(memory.generation(), 3u);
  reader.channel().send(0);
  EXPECT_EQ(reader.result(), "");
}

// H.3
TEST(process_arena, shares_a_reader_with_seven_other_writers) {
  constexpr int writers = 8;
  peer_process reader{[](channel& test) -> std::string {
    std::vector<process_view> views;
    for (int i = 0; i < writers; ++i) views.emplace_back(test.receive_file().get());
    for (int i = 0; i < writers; ++i) {
      auto const& root = views[static_cast<std::size_t>(i)].root<catalogue>();
      if (root.first != i) return "another writer's";
      if (std::string wrong = root.wrong(); !wrong.empty()) return wrong;
    }
    return "";
  }};
  std::vector<std::unique_ptr<process_arena>> memories;
  for (int i = 0; i < writers; ++i) {
    memories.push_back(std::make_unique<process_arena>());
    publish(*memories.back(), i);
    reader.channel().send_file(memories.back()->export_file().get());
  }
  EXPECT_EQ(reader.result(), "");
}

// ---- generations

// H.8
TEST(process_arena, rejects_a_view_before_anything_is_published) {
  peer_process reader{[](channel& test) -> std::string {
    const std::string said = refusal_of(unpublished, [&] { process_view{test.receive_file().get()}; });
    return said.ends_with("nothing is published in it yet") && mapped_files() == 0 ? "" : said;
  }};
  const process_arena memory;
  reader.channel().send_file(memory.export_file().get());
  EXPECT_EQ(reader.result(), "");
}

// H.5
TEST(process_arena, has_a_name_only_when_something_is_published) {
  const std::string path = temporary_path("name");
  process_arena memory{{.path = path}};
  EXPECT_THROW(memory.link(), std::logic_error);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  publish(memory, 1);
  memory.link();
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
}

TEST(process_arena, publishes_only_its_own_objects) {
  process_arena memory;
  const int outside = 1;
  EXPECT_THROW((void)memory.publish(outside), std::invalid_argument);
  auto const* const behind = static_cast<int*>(memory.allocate(sizeof(int))) + 4;
  EXPECT_THROW((void)memory.publish(*behind), std::invalid_argument);
  auto const* const header = reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::uintptr_t>(behind - 4) -
                                                              sizeof(detail::process_header));
  EXPECT_THROW((void)memory.publish(*header), std::invalid_argument);
  EXPECT_EQ(memory.generation(), 0u);
  memory.check_invariants();
}

// H.8
TEST(process_arena, reclaims_no_block_that_was_published) {
  process_arena memory;
  auto* const number = memory.push<int>(1);
  const std::size_t before = memory.stats().used_bytes;
  (void)memory.publish(*number);
  memory.deallocate(number, sizeof(int));
  void* const block = memory.allocate(64);
  EXPECT_GT(block, static_cast<void*>(number));
  EXPECT_GT(memory.stats().used_bytes, before);
  memory.deallocate(block, 64);
  EXPECT_EQ(memory.allocate(64), block);
  memory.check_invariants();
}

// H.7
TEST(process_arena, reports_numbers_when_full_and_stays_usable) {
  process_arena memory{{.reserve = 1 * MiB, .name = "prices"}};
  catalogue& first = publish(memory, 1);
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)memory.allocate(2 * MiB); });
  EXPECT_STREQ(error.report().resource, "prices");
  EXPECT_EQ(error.report().reserved_bytes, 1 * MiB);
  EXPECT_EQ(first.wrong(), "");
  EXPECT_EQ(publish(memory, 2).wrong(), "");
}

// ---- memory that is used again

// H.9
TEST(process_arena, frees_nothing_while_there_is_a_view) {
  peer_process reader{[](channel& test) -> std::string {
    {
      const process_view view{test.receive_file().get()};
      test.send(1);
      if (!test.receive()) return "no answer";
      if (std::string wrong = view.root<catalogue>().wrong(); !wrong.empty()) return wrong;
    }
    (void)test.receive();
    return "";
  }};
  process_arena memory;
  catalogue const* const first = &publish(memory, 100);
  const std::size_t used = memory.stats().used_bytes;
  reader.channel().send_file(memory.export_file().get());
  EXPECT_EQ(reader.channel().receive(), 1u);
  EXPECT_FALSE(memory.try_reset());
  EXPECT_EQ(memory.stats().used_bytes, used);
  EXPECT_EQ(first->wrong(), "");
  reader.channel().send(0);
  for (int i = 0; i < 60'000 && !memory.try_reset(); ++i) std::this_thread::sleep_for(1ms);
  memory.check_invariants();
  EXPECT_LT(memory.stats().used_bytes, 100u);
  EXPECT_EQ(&publish(memory, 200), first) << "the memory is used again";
  EXPECT_EQ(memory.generation(), 2u);
  memory.check_invariants();
}

// H.10
TEST(process_arena, frees_memory_when_its_reader_is_killed) {
  for (int i = 0; i < 5; ++i) {
    peer_process reader{[](channel& test) -> std::string {
      const process_view view{test.receive_file().get()};
      test.send(1);
      for (;;) {
        if (std::string wrong = view.root<catalogue>().wrong(); !wrong.empty()) return wrong;
      }
    }};
    process_arena memory;
    publish(memory, i);
    reader.channel().send_file(memory.export_file().get());
    ASSERT_TRUE(reader.channel().receive());
    EXPECT_FALSE(memory.try_reset());
    EXPECT_EQ(reader.kill(), killed);
    EXPECT_TRUE(memory.try_reset());
    EXPECT_EQ(publish(memory, i + 1).wrong(), "");
  }
}

// ---- writers that are killed

// A writer that publishes in an endless loop. Each tenth time it frees all generations, if possible.
std::string write_until_killed(channel& test, std::string const& path) {
  process_arena memory{{.reserve = 64 * MiB, .path = path}};
  publish(memory, 1);
  memory.link();
  test.send_file(memory.export_file().get());
  for (int i = 2; i < 1'000'000; ++i) {
    if (i % 10 == 0 && !memory.try_reset() && memory.stats().used_bytes > 60 * MiB) (void)test.receive();
    publish(memory, i, 10);
  }
  return "";
}

// A view as soon as a generation is published: not between a reset and the next one.
template <class From>
process_view view_when_published(From const& from) {
  for (;;) {
    try {
      return process_view{from};
    } catch (shared_memory_error const& error) {
      if (error.reason() != unpublished && error.reason() != busy) throw;
    }
  }
}

// H.11
TEST(process_arena, leaves_whole_generations_wherever_its_writer_is_killed) {
  bool finished = false;
  std::size_t with_a_view = 0;
  for (std::size_t n = 0; !finished; ++n) {
    ASSERT_LT(n, 1000u);
    peer_process writer{[&](channel& test) -> std::string {
      file_call_faults faults;
      faults.kills = true;
      faults.fail_from = n;
      process_arena memory{{.reserve = 16 * MiB}};
      test.send_file(memory.export_file().get());
      for (int i = 1; i <= 40; ++i) publish(memory, i, 100);
      (void)memory.try_reset();
      publish(memory, 41, 100);
      test.send(1);
      (void)test.receive();
      return "";
    }};
    const file_descriptor file = writer.channel().receive_file();
    finished = writer.channel().receive().has_value();
    EXPECT_EQ(writer.kill(), killed);
    if (file.get() < 0) continue;
    try {
      const process_view view{file.get()};
      EXPECT_EQ(view.root<catalogue>().wrong(), "") << "killed at call " << n;
      EXPECT_FALSE(view.writer_is_alive());
      EXPECT_EQ(view.root<catalogue>().first, static_cast<int>(view.generation()));
      ++with_a_view;
    } catch (shared_memory_error const& error) {
      EXPECT_EQ(error.reason(), unpublished) << error.what();
    }
  }
  EXPECT_GT(with_a_view, 10u);
}

// H.11
TEST(process_arena, leaves_whole_generations_when_its_writer_is_killed_at_random_moments) {
  std::minstd_rand random{static_cast<unsigned>(test::number_from_environment("TIDEMARK_SEED", 1))};
  const std::string path = temporary_path("killed");
  for (int i = 0; i < 20; ++i) {
    // Each new writer takes the name over from one that was killed.
    peer_process writer{[&](channel& test) { return write_until_killed(test, path); }};
    peer_process reader{[&](channel& test) -> std::string {
      process_view view = view_when_published(test.receive_file().get());
      test.send(1);
      while (view.writer_is_alive()) {
        (void)view.update();
        if (std::string wrong = view.root<catalogue>().wrong(); !wrong.empty()) return wrong;
      }
      (void)view.update();
      return view.root<catalogue>().wrong();
    }};
    const file_descriptor file = writer.channel().receive_file();
    reader.channel().send_file(file.get());
    ASSERT_TRUE(reader.channel().receive());
    {
      process_view view = view_when_published(path);
      const std::uint64_t until = view.generation() + random() % 200;
      while (view.generation() < until) (void)view.update();
      EXPECT_EQ(writer.kill(), killed);
      EXPECT_FALSE(view.writer_is_alive());
      (void)view.update();
      EXPECT_EQ(view.root<catalogue>().wrong(), "");
    }
    EXPECT_EQ(reader.result(), "") << "turn " << i;
    EXPECT_THROW(process_view{path}, std::system_error) << "the name of an ended writer leads to no file";
  }
  ::unlink(path.c_str());
}

// ---- files that are no process arena's, or not quite

/// A sealed file of these bytes, as a writer would export it.
file_descriptor file_of(std::vector<std::byte> const& bytes, int seals = F_SEAL_SHRINK) {
  file_descriptor file{::memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (::pwrite(file.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  if (::fcntl(file.get(), F_ADD_SEALS, seals) != 0) std::abort();
  return file;
}

struct image_of_a_file {
  [[nodiscard]] detail::process_header& header() {
    return *reinterpret_cast<detail::process_header*>(bytes_.data());
  }
  [[nodiscard]] detail::publication& published() {
    return *reinterpret_cast<detail::publication*>(bytes_.data() + header().newest.load());
  }
  std::vector<std::byte> bytes_;
};

class process_image : public ::testing::Test, public image_of_a_file {
 protected:
  process_image() {
    process_arena memory{{.reserve = 64 * KiB, .layout_version = 3}};
    auto* const root = memory.push<std::uint64_t>(42u);
    (void)memory.publish(*root);
    root_ = root;
    bytes_.resize(memory.stats().reserved_bytes);
    const file_descriptor file = memory.export_file();
    if (::pread(file.get(), bytes_.data(), bytes_.size(), 0) < 0) std::abort();
  }

  /// Returns the message of the rejection after the name.
  [[nodiscard]] std::string refused(shared_memory_refusal reason) const {
    const std::string said = refusal_of(reason, [&] { process_view{file_of(bytes_).get(), 3}; });
    const std::size_t name = said.find(": ");
    EXPECT_TRUE(said.starts_with("process_view of file descriptor ")) << said;
    return name == said.npos ? said : said.substr(name + 2);
  }
  /// Returns true if the file is rejected, or shows the published number or another number within it.
  [[nodiscard]] bool is_harmless() const {
    const int files = open_files(), mappings = mapped_files();
    const bool harmless = [&] {
      try {
        const file_descriptor file = file_of(bytes_);
        const process_view view{file.get(), 3};
        (void)view.is_newest();
        auto const* const root = &view.root<std::uint64_t>();
        const auto at = reinterpret_cast<std::uintptr_t>(root);
        EXPECT_TRUE(*root == 42 || *root != 42);  // it can be read
        return view.range().contains(at) && view.range().contains(at + sizeof *root - 1) &&
               at % alignof(std::uint64_t) == 0;
      } catch (shared_memory_error const&) {
        return true;
      } catch (std::system_error const&) {
        return true;
      }
    }();
    return harmless && open_files() == files && mapped_files() == mappings;
  }

  std::uint64_t const* root_;
};

constexpr char const* tsan_ends =
    "ThreadSanitizer ends a program that maps addresses of which it keeps no shadow";

struct contradiction {
  shared_memory_refusal reason;
  char const* sentence;
  void (*make)(image_of_a_file& of);
};
constexpr char const* foreign = "it is not a process arena";
constexpr char const* of_another_size = "its header is damaged: its size does not match its version";
constexpr char const* cut = "it is truncated, or its header is damaged: the file has ";
constexpr char const* impossible = "its header is damaged: its memory range is impossible";
constexpr char const* newest_outside = "its header is damaged: its newest generation lies outside the memory";
constexpr char const* root_outside = "its newest generation is damaged: its root lies outside the memory";
constexpr contradiction contradictions[] = {
    {damaged, foreign, [](image_of_a_file& of) { of.header().format.magic ^= 1; }},
    {damaged, foreign, [](image_of_a_file& of) { of.bytes_.resize(10); }},
    {damaged, foreign, [](image_of_a_file& of) { of.bytes_.clear(); }},
    {newer_version, "it is of version 2, and this program reads version 1",
     [](image_of_a_file& of) { of.header().format.version = 2; }},
    {damaged, of_another_size, [](image_of_a_file& of) { of.header().format.version = 0; }},
    {damaged, of_another_size, [](image_of_a_file& of) { of.header().format.header_bytes += 8; }},
    {damaged, "it is truncated, or its header is damaged: the file has 4096 bytes, and its header says 65536",
     [](image_of_a_file& of) { of.bytes_.resize(4 * KiB); }},
    {damaged, cut, [](image_of_a_file& of) { of.bytes_.resize(128 * KiB); }},
    {damaged, impossible, [](image_of_a_file& of) { of.header().format.address = 0; }},
    {damaged, impossible, [](image_of_a_file& of) { of.header().format.address += 8; }},
    {damaged, impossible, [](image_of_a_file& of) { of.header().format.address = ~std::uint64_t{0xfff}; }},
    {other_layout, "its writer was built with another compiler",
     [](image_of_a_file& of) { of.header().format.layout ^= 1u << 20; }},
    {damaged, newest_outside, [](image_of_a_file& of) { of.header().newest = 8; }},
    {damaged, newest_outside, [](image_of_a_file& of) { of.header().newest += 4; }},
    {damaged, newest_outside, [](image_of_a_file& of) { of.header().newest = 64 * KiB - 8; }},
    {damaged, newest_outside, [](image_of_a_file& of) { of.header().newest = 64 * KiB; }},
    {damaged, newest_outside, [](image_of_a_file& of) { of.header().newest = ~std::uint64_t{7}; }},
    {damaged, root_outside, [](image_of_a_file& of) { of.header().newest += 16; }},
    {damaged, root_outside, [](image_of_a_file& of) { of.published().root = 0; }},
    {damaged, root_outside, [](image_of_a_file& of) { of.published().root = of.header().format.address; }},
    {damaged, root_outside, [](image_of_a_file& of) { of.published().root = of.published().end; }},
    {damaged, root_outside, [](image_of_a_file& of) { of.published().root -= 4096; }},
    {damaged, root_outside,
     [](image_of_a_file& of) {
       of.published().root = of.published().end - 8;
       of.published().end += 64 * KiB;
     }},
};

// H.13 H.14
TEST_F(process_image, is_rejected_if_foreign_newer_truncated_or_inconsistent) {
  const std::vector<std::byte> whole = bytes_;
  for (contradiction const& each : contradictions) {
    bytes_ = whole;
    each.make(*this);
    EXPECT_TRUE(refused(each.reason).starts_with(each.sentence))
        << refused(each.reason) << " for row " << &each - contradictions;
  }
}

// H.4
TEST_F(process_image, is_rejected_if_it_could_be_truncated) {
  const std::string said =
      refusal_of(not_sealed, [&] { process_view{file_of(bytes_, F_SEAL_GROW).get(), 3}; });
  EXPECT_TRUE(said.ends_with(": the file is not sealed and could be truncated while it is read")) << said;
}

// H.13
TEST_F(process_image, is_rejected_if_its_addresses_are_impossible) {
  if (detail::thread_sanitizer_is_on) GTEST_SKIP() << tsan_ends;
  header().format.address = std::uint64_t{1} << 63;  // the kernel's
  EXPECT_THROW((process_view{file_of(bytes_).get(), 3}), std::system_error);
}

// H.14
TEST_F(process_image, is_rejected_if_its_writer_lays_types_out_differently) {
  const std::string said = refusal_of(other_layout, [&] { process_view{file_of(bytes_).get(), 4}; });
  EXPECT_TRUE(
      said.ends_with(": its writer was built with another compiler or standard library, or has another "
                     "layout version than 4"))
      << said;
}

// H.14
TEST_F(process_image, is_rejected_if_its_root_has_another_type) {
  const process_view view{file_of(bytes_).get(), 3};
  struct another {
    std::uint64_t number;
  };
  for (const std::string& said : {refusal_of(other_root, [&] { (void)view.root<std::int64_t>(); }),
                                  refusal_of(other_root, [&] { (void)view.root<std::uint32_t>(); }),
                                  refusal_of(other_root, [&] { (void)view.root<another>(); })}) {
    EXPECT_TRUE(said.ends_with(": its root has another type than requested")) << said;
  }
  EXPECT_EQ(view.root<std::uint64_t const>(), 42u);
}

TEST_F(process_image, is_rejected_if_its_root_reaches_beyond_its_end) {
  using two = std::array<std::uint64_t, 2>;
  published().root_type = detail::type_layout<two>();
  published().root = published().end - 8;
  const process_view view{file_of(bytes_).get(), 3};
  EXPECT_TRUE(refusal_of(other_root, [&] {
                (void)view.root<two>();
              }).ends_with(": its root has another type than requested"));
}

// H.15
TEST_F(process_image, is_rejected_or_harmless_after_any_bit_flip) {
  if (detail::thread_sanitizer_is_on) GTEST_SKIP() << tsan_ends;
  const std::size_t newest = header().newest.load();
  std::size_t tried = 0;
  for (const auto& [first, size] : {std::pair{std::size_t{0}, sizeof(detail::process_header)},
                                    std::pair{newest, sizeof(detail::publication)}}) {
    for (std::size_t bit = first * 8; bit < (first + size) * 8; ++bit, ++tried) {
      const std::byte mask{static_cast<unsigned char>(1u << bit % 8)};
      bytes_[bit / 8] ^= mask;
      EXPECT_TRUE(is_harmless()) << "bit " << bit;
      bytes_[bit / 8] ^= mask;
    }
    for (std::size_t byte = first; byte < first + size; ++byte) {
      const std::byte before = bytes_[byte];
      for (const int value : {0x00, 0x7f, 0x80, 0xff}) {
        bytes_[byte] = std::byte{static_cast<unsigned char>(value)};
        EXPECT_TRUE(is_harmless()) << "byte " << byte << " is " << value;
      }
      bytes_[byte] = before;
    }
  }
  EXPECT_EQ(tried, 8 * (sizeof(detail::process_header) + sizeof(detail::publication)));
}

// H.15
TEST_F(process_image, is_rejected_or_harmless_with_random_words) {
  if (detail::thread_sanitizer_is_on) GTEST_SKIP() << tsan_ends;
  std::mt19937_64 random{test::number_from_environment("TIDEMARK_SEED", 1)};
  const std::vector<std::byte> whole = bytes_;
  const std::size_t newest = header().newest.load();
  for (int i = 0; i < 500; ++i) {
    bytes_ = whole;
    // Mostly some words only, because a random magic number would hide later faults.
    const std::size_t n = i % 10 == 0 ? sizeof(detail::process_header) / 8 : 1 + random() % 3;
    for (std::size_t j = 0; j < n; ++j) {
      const std::size_t word = random() % 10;
      const std::uint64_t number = random() >> random() % 64;
      std::memcpy(bytes_.data() + (word < 6 ? word * 8 : newest + (word - 6) * 8), &number, sizeof number);
    }
    EXPECT_TRUE(is_harmless()) << "turn " << i;
  }
}

// H.15
TEST_F(process_image, keeps_a_view_at_its_generation_if_the_newest_is_invalid) {
  const file_descriptor file = file_of(bytes_);
  process_view view{file.get(), 3};
  for (const std::uint64_t newest : {std::uint64_t{0}, std::uint64_t{24}, std::uint64_t{1} << 40}) {
    ASSERT_EQ(::pwrite(file.get(), &newest, sizeof newest, offsetof(detail::process_header, newest)), 8);
    EXPECT_FALSE(view.is_newest());
    EXPECT_THROW((void)view.update(), shared_memory_error);
    EXPECT_EQ(view.generation(), 1u);
    EXPECT_EQ(view.root<std::uint64_t>(), 42u);
  }
}

// H.13
TEST(process_view, rejects_files_that_are_not_shared_memory) {
  for (char const* path : {"/dev/null", "/proc/self/exe"}) {
    const std::string said = refusal_of(damaged, [&] { process_view{path}; });
    EXPECT_EQ(said, std::string{"process_view of '"} + path + "': it is not a process arena");
  }
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const file_descriptor end{pipe[0]}, other_end{pipe[1]};
  EXPECT_THROW(process_view{pipe[0]}, std::system_error);
  EXPECT_THROW(process_view{-1}, std::system_error);
  EXPECT_THROW(process_view{"/tmp"}, std::system_error);
  EXPECT_THROW(process_view{"/tmp/tidemark_there_is_no_such_file"}, std::system_error);
}

// ---- failures

// H.16
TEST(process_arena, leaks_nothing_when_any_call_fails) {
  const std::string path = temporary_path("faults");
  const int files = open_files(), mappings = mapped_files();
  // Returns true if all calls were made while `faults` fail. A failure must change nothing that a user can
  // see.
  const auto use = [&](file_call_faults& faults) {
    bool all_served = true;
    try {
      process_arena memory{{.reserve = 16 * MiB, .path = path}};
      for (int i = 0; i < 5; ++i) {
        const std::uint64_t before = memory.generation();
        try {
          publish(memory, i, 300);
        } catch (std::bad_alloc const&) {
          EXPECT_EQ(memory.generation(), before);
          all_served = false;
        }
        memory.check_invariants();
      }
      try {
        if (memory.generation() != 0) memory.link();
        (void)memory.export_file();
      } catch (std::system_error const&) {
        all_served = false;
      }
      const std::size_t used = memory.stats().used_bytes;
      if (!memory.try_reset()) {
        EXPECT_EQ(memory.stats().used_bytes, used);
        all_served = false;
      }
      memory.check_invariants();
      faults.fail_from = test::supply::never;
      EXPECT_EQ(publish(memory, 7).wrong(), "") << "usable once the system works again";
    } catch (std::system_error const&) {
      all_served = false;
    } catch (std::bad_alloc const&) {
      all_served = false;
    }
    return all_served;
  };
  for (const std::size_t count : {std::size_t{1}, test::supply::never}) {
    std::size_t failures = 0;
    for (std::size_t n = 0;; ++n) {
      SCOPED_TRACE(::testing::Message() << count << " calls fail from call " << n << " on");
      ASSERT_LT(n, 200u);
      file_call_faults faults;
      faults.fail_from = n;
      faults.fail_count = count;
      const bool all_served = use(faults);
      EXPECT_EQ(open_files(), files) << faults.last_failed;
      EXPECT_EQ(mapped_files(), mappings) << faults.last_failed;
      EXPECT_NE(::access(path.c_str(), F_OK), 0) << faults.last_failed;
      failures += all_served ? 0 : 1;
      if (!faults.last_failed.empty()) continue;
      EXPECT_TRUE(all_served);
      break;
    }
    EXPECT_GE(failures, 7u);  // a mapping and a commit are tried again in another way
  }
}

// H.16
TEST(process_view, leaks_nothing_when_any_call_fails) {
  peer_process writer{[](channel& test) -> std::string {
    process_arena memory{{.reserve = 16 * MiB}};
    publish(memory, 1);
    test.send_file(memory.export_file().get());
    (void)test.receive();
    return memory.try_reset() ? "" : "a view that failed has left its lock";
  }};
  const file_descriptor file = writer.channel().receive_file();
  const int files = open_files();
  for (std::size_t n = 0;; ++n) {
    ASSERT_LT(n, 100u);
    file_call_faults faults;
    faults.fail_from = n;
    try {
      const process_view view{file.get()};
      EXPECT_LE(faults.calls, n);
      EXPECT_EQ(view.root<catalogue>().wrong(), "");
      EXPECT_GT(n, 5u);
      break;
    } catch (std::system_error const& error) {
      EXPECT_EQ(error.code().value(), ENOMEM);
    } catch (shared_memory_error const& error) {
      EXPECT_EQ(error.reason(), not_sealed) << "the seals are unknown";
    }
    EXPECT_EQ(open_files(), files) << faults.last_failed;
    EXPECT_EQ(mapped_files(), 0) << faults.last_failed;
  }
  writer.channel().send(0);
  EXPECT_EQ(writer.result(), "");
}

}  // namespace
}  // namespace tidemark::test
