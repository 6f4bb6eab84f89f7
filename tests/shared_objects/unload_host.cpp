// SPDX-License-Identifier: Apache-2.0
// A program without tidemark that loads and unloads shared objects with tidemark inside: unload_host CASE
// PLUGIN. Each case is one fact. If the fact does not hold, the program ends with a message and a nonzero
// status.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

[[noreturn]] void fail(std::string const& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(1);
}
void require(bool fact, std::string const& what) {
  if (!fact) fail(what);
}

class plugin {
 public:
  explicit plugin(std::string const& path) : library_{dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)} {
    if (library_ == nullptr) fail(dlerror());
  }
  plugin(plugin const&) = delete;
  plugin& operator=(plugin const&) = delete;
  ~plugin() { unload(); }
  void unload() {
    if (library_ != nullptr) dlclose(std::exchange(library_, nullptr));
  }

  template <class Function>
  Function* find(char const* name) const {
    void* const found = dlsym(library_, name);
    require(found != nullptr, std::string{"no function "} + name);
    return reinterpret_cast<Function*>(found);
  }
  unsigned parts() const { return find<unsigned()>("count_parts")(); }
  void use(unsigned which) const {
    require(find<int(unsigned)>("use_parts")(which) == 1, "a part does not work");
  }

 private:
  void* library_;
};
constexpr unsigned all_parts = ~0U;
constexpr unsigned parts_without_threads = 0b0000'0111'1111'1111;
constexpr unsigned parts_without_leaks = 0b0001'1111'1111'1111;

bool is_mapped(std::string_view name) {
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);)
    if (line.find(name) != std::string::npos) return true;
  return false;
}

struct resources {
  long keys = 0, mappings = 0, resident_kib = 0, threads = 0, files = 0;

  static resources now() {
    resources held;
    std::vector<pthread_key_t> keys;
    for (pthread_key_t key{}; pthread_key_create(&key, nullptr) == 0;) keys.push_back(key);
    held.keys = -static_cast<long>(keys.size());  // those that are left
    for (const pthread_key_t key : keys) pthread_key_delete(key);
    std::ifstream maps{"/proc/self/maps"};
    for (std::string line; std::getline(maps, line);) ++held.mappings;
    std::ifstream status{"/proc/self/status"};
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmRSS:")) held.resident_kib = std::stol(line.substr(6));
      if (line.starts_with("Threads:")) held.threads = std::stol(line.substr(8));
    }
    for ([[maybe_unused]] auto const& file : std::filesystem::directory_iterator{"/proc/self/fd"})
      ++held.files;
    return held;
  }
  // glibc keeps some 600 bytes of each object that was loaded.
  void require_no_more_than(resources const& before, long extra_kib) const {
    require(keys <= before.keys, "keys of threads are lost: " + std::to_string(keys - before.keys));
    require(mappings <= before.mappings + 4,
            "mappings are lost: " + std::to_string(mappings - before.mappings));
    require(threads <= before.threads, "threads are left: " + std::to_string(threads - before.threads));
    require(files <= before.files, "files are open: " + std::to_string(files - before.files));
    require(resident_kib <= before.resident_kib + extra_kib,
            "memory is lost: " + std::to_string(resident_kib - before.resident_kib) + " KiB");
  }
};

// A thread that runs commands of other threads, until a command ends it.
class commanded_thread {
 public:
  commanded_thread() = default;
  commanded_thread(commanded_thread const&) = delete;
  commanded_thread& operator=(commanded_thread const&) = delete;
  ~commanded_thread() {
    run(nullptr);
    thread_.join();
  }
  // Null: the thread ends.
  void run(std::function<void()> command) {
    std::unique_lock lock{mutex_};
    const bool is_end = command == nullptr;
    command_ = std::move(command);
    is_set_ = true;
    changed_.notify_all();
    if (!is_end) changed_.wait(lock, [&] { return !is_set_; });
  }

 private:
  void loop() {
    std::unique_lock lock{mutex_};
    while (true) {
      changed_.wait(lock, [&] { return is_set_; });
      if (command_ == nullptr) return;
      command_();
      is_set_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> command_;
  bool is_set_ = false;
  std::thread thread_{[this] { loop(); }};
};

std::string path;    // of the plugin
std::string folder;  // temporary

// The object is gone, its threads end later, the process forks, and a fault reaches the program's handler.
void is_unloaded_after_use_of_any_part() {
  const unsigned parts = plugin{path}.parts();
  for (unsigned i = 0; i <= parts; ++i) {
    const unsigned which = i < parts ? 1U << i : all_parts;
    const std::string part = "after part " + std::to_string(i) + ' ';
    commanded_thread later;
    plugin loaded{path};
    later.run([&] { loaded.use(which); });
    loaded.use(which);
    require(is_mapped("libtidemark"), part + "nothing is mapped");
    loaded.unload();
    require(!is_mapped("libtidemark"), part + "the plugin or its libtidemark.so stays mapped");
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    require(status == 0, part + "a fork fails");
  }
}

void require_nothing_left_after(int cycles) {
  commanded_thread always;
  resources before;
  for (int i = 0; i < cycles; ++i) {
    if (i == 100) before = resources::now();
    commanded_thread later;
    plugin loaded{path};
    always.run([&] { loaded.use(parts_without_threads); });
    later.run([&] { loaded.use(parts_without_threads); });
    loaded.use(parts_without_leaks);
    loaded.unload();
    if (i % 100 == 0) require(!is_mapped("libtidemark"), "the plugin or its libtidemark.so stays mapped");
  }
  resources::now().require_no_more_than(before, cycles * 16 / 10);
}

void leaves_nothing_after_a_thousand_cycles() { require_nothing_left_after(1000); }

void leaves_nothing_of_two_hundred_copies() {
  commanded_thread always;
  resources before;
  std::string copy;
  for (int i = 0; i < 200; ++i) {
    if (i == 10) before = resources::now();
    copy = folder + "/plugin_" + std::to_string(i) + ".so";
    std::filesystem::copy_file(path, copy);
    plugin loaded{copy};
    always.run([&] { loaded.use(all_parts); });
    loaded.use(all_parts);
    loaded.unload();
    require(!is_mapped(copy), copy + " stays mapped");
    std::filesystem::remove(copy);
  }
  resources::now().require_no_more_than(before, 4 << 10);
}

sigjmp_buf before_fault;
void recover(int) { siglongjmp(before_fault, 1); }
void require_recovery() {
  struct sigaction now{};
  sigaction(SIGSEGV, nullptr, &now);
  require(now.sa_handler == recover, "the program's handler is lost");
  if (sigsetjmp(before_fault, 1) == 0) *reinterpret_cast<int volatile*>(16) = 1;
}

// Copies of the library whose handlers are above each other, and leave in any order.
void restores_signal_handlers_in_every_order() {
  constexpr int copies = 4;
  signal(SIGSEGV, recover);
  for (int i = 0; i < copies; ++i)
    std::filesystem::copy_file(path, folder + "/plugin_" + std::to_string(i) + ".so");
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::map<int, plugin> loaded;
    for (int i = 0; i < copies; ++i) {
      loaded.try_emplace(i, folder + "/plugin_" + std::to_string(i) + ".so").first->second.use(all_parts);
    }
    for (const int i : order) loaded.erase(i);
    require(!is_mapped("plugin_"), "a copy stays mapped");
    require_recovery();
  } while (std::next_permutation(order.begin(), order.end()));
}

// A fault of the program passes all handlers on; the next trap arms one copy's again, above the others'.
void restores_signal_handlers_after_faults() {
  signal(SIGSEGV, recover);
  for (int i = 0; i < 2; ++i)
    std::filesystem::copy_file(path, folder + "/plugin_" + std::to_string(i) + ".so");
  plugin first{folder + "/plugin_0.so"};
  plugin second{folder + "/plugin_1.so"};
  for (int i = 0; i < 100; ++i) {
    first.use(all_parts);
    second.use(all_parts);
    if (i % 2 == 0) first.use(all_parts);
    if (sigsetjmp(before_fault, 1) == 0) *reinterpret_cast<int volatile*>(16) = 1;
    require_recovery();
  }
  first.use(all_parts);
  second.use(all_parts);
  first.unload();
  if (sigsetjmp(before_fault, 1) == 0) *reinterpret_cast<int volatile*>(16) = 1;
  second.unload();
  require_recovery();
}

// Threads end while the object is unloaded.
void waits_for_threads_that_end() {
  for (int i = 0; i < 500; ++i) {
    plugin loaded{path};
    std::vector<std::thread> threads;
    std::atomic<int> used{0};
    std::atomic<bool> ends{false};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        loaded.use(parts_without_threads);
        ++used;
        while (!ends) std::this_thread::yield();
      });
    }
    while (used != 4) std::this_thread::yield();
    ends = true;
    std::this_thread::sleep_for(std::chrono::microseconds{i});
    loaded.unload();
    for (std::thread& each : threads) each.join();
  }
}

// In a child that was forked while other threads had parts.
void is_unloaded_in_a_child() {
  commanded_thread other;
  plugin loaded{path};
  other.run([&] { loaded.use(all_parts); });
  loaded.use(all_parts);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    loaded.use(parts_without_threads);
    std::thread{[&] { loaded.use(parts_without_threads); }}.join();
    loaded.unload();
    require(!is_mapped("libtidemark"), "the plugin or its libtidemark.so stays mapped");
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(status == 0, "the child fails");
}

// A static object of the program unloads a plugin while a thread exists that ends after it.
void outlives_a_program_that_unloads_it_at_its_end() {
  static commanded_thread* const never_ends = new commanded_thread;
  static plugin closed_at_exit{path};  // destroyed after the plugin's static objects: registered before them
  closed_at_exit.use(all_parts);
  never_ends->run([] { closed_at_exit.use(all_parts); });
  static struct last_of_all {
    ~last_of_all() { never_ends->run(nullptr); }
  } ends_the_thread;
  std::exit(0);
}

// A destructor of another key that uses the library in the last round of destructors.
pthread_key_t rounds_key;
void (*use_at_the_end)();
void count_rounds(void* value) {
  const auto round = reinterpret_cast<std::uintptr_t>(value);
  if (round < PTHREAD_DESTRUCTOR_ITERATIONS)
    pthread_setspecific(rounds_key, reinterpret_cast<void*>(round + 1));
  else use_at_the_end();
}
void keeps_no_parts_of_threads_that_used_it_in_their_last_round() {
  plugin loaded{path};
  use_at_the_end = loaded.find<void()>("use_at_the_end");
  pthread_key_create(&rounds_key, count_rounds);
  use_at_the_end();  // the library's key comes after: both orders
  for (const bool uses_it_before : {false, true}) {
    resources before;
    for (int i = 0; i < 8000; ++i) {
      if (i == 100) before = resources::now();
      std::thread{[&] {
        pthread_setspecific(rounds_key, reinterpret_cast<void*>(std::uintptr_t{1}));
        if (uses_it_before) use_at_the_end();
      }}.join();
    }
    resources::now().require_no_more_than(before, 2 << 10);
    require(loaded.find<std::size_t()>("count_threads")() <= 3,
            "threads that are gone have parts of the pool");
  }
}

}  // namespace

int main(int, char** arguments) {
  const std::map<std::string_view, void (*)()> cases{
#define CASE(name) {#name, name}
      CASE(is_unloaded_after_use_of_any_part),
      CASE(leaves_nothing_after_a_thousand_cycles),
      CASE(leaves_nothing_of_two_hundred_copies),
      CASE(restores_signal_handlers_in_every_order),
      CASE(restores_signal_handlers_after_faults),
      CASE(waits_for_threads_that_end),
      CASE(is_unloaded_in_a_child),
      CASE(outlives_a_program_that_unloads_it_at_its_end),
      CASE(keeps_no_parts_of_threads_that_used_it_in_their_last_round),
#undef CASE
  };
  path = arguments[2];
  std::string made = (std::filesystem::temp_directory_path() / "unload_XXXXXX").string();
  folder = mkdtemp(made.data());
  static const std::string psi = folder + "/psi";
  std::ofstream{psi} << "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345\n";
  setenv("UNLOAD_PSI", psi.c_str(), 1);
  std::atexit([] { std::filesystem::remove_all(std::filesystem::path{psi}.parent_path()); });
  cases.at(arguments[1])();
}
