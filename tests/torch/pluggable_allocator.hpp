// SPDX-License-Identifier: Apache-2.0
// PyTorch's side of a pluggable allocator: it loads a library, finds functions by name, and keeps for each
// block the arguments that it passes on free. It also checks the values it gets.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>

#include "fake_device.hpp"

namespace tidemark::test {

/// A library, loaded like PyTorch does, on a driver of the test, and an allocator made of its functions.
///
/// The types of the functions are those to which PyTorch casts addresses (torch/csrc/cuda/Module.cpp, 2.2 and
/// later). Every live block is checked to share no byte with another. The destructor ends the library's
/// memory. Thread-safety: any thread.
class pluggable_allocator {
 public:
  using mempool_id = std::pair<unsigned long long, unsigned long long>;
  using stream_filter = std::function<bool(gpu::stream_handle)>;

  explicit pluggable_allocator(gpu::driver& driver) {
    use_driver(&driver);
    find(alloc_fn, "tidemark_torch_alloc");
    find(free_fn, "tidemark_torch_free");
    find(record_stream_fn, "tidemark_torch_record_stream");
    find(reset_fn, "tidemark_torch_reset");
    find(memory_fraction_fn, "tidemark_torch_memory_fraction");
    find(base_alloc_fn, "tidemark_torch_base_alloc");
    find(begin_pool_fn, "tidemark_torch_begin_pool");
    find(end_pool_fn, "tidemark_torch_end_pool");
    find(release_pool_fn, "tidemark_torch_release_pool");
    find(segment_alloc_fn, "tidemark_torch_segment_alloc");
    find(segment_free_fn, "tidemark_torch_segment_free");
    find(configure_all, "tidemark_torch_configure");
    find(begin_step, "tidemark_torch_begin_step");
    find(end_step, "tidemark_torch_end_step");
    find(close_trace, "tidemark_torch_close_trace");
    find(stats, "tidemark_torch_stats");
  }
  pluggable_allocator(pluggable_allocator const&) = delete;
  pluggable_allocator& operator=(pluggable_allocator const&) = delete;
  ~pluggable_allocator() {
    delete_all();
    use_driver(nullptr);
    dlclose(library_);
  }

  /// A block for work on a stream; PyTorch does not look whether it is null.
  void* malloc(std::size_t bytes, gpu::stream_handle stream, int device = 0) {
    void* const block = alloc_fn(bytes, device, stream);
    if (block == nullptr) return nullptr;
    const std::scoped_lock lock{mutex_};
    const auto begin = reinterpret_cast<std::uintptr_t>(block);
    EXPECT_EQ(begin % 256, 0u) << "PyTorch's kernels expect that";
    const auto next = blocks_.lower_bound(begin);
    EXPECT_TRUE(next == blocks_.end() || begin + bytes <= next->first) << "overlaps the next block";
    EXPECT_TRUE(next == blocks_.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= begin)
        << "overlaps the block before";
    blocks_.emplace(begin, metadata{.bytes = bytes, .device = device, .stream = stream});
    return block;
  }
  char const* configure(char const* resource, long long max_cached_bytes, char const* trace,
                        long long max_kinds = -1) const {
    return configure_all(resource, max_cached_bytes, trace, max_kinds);
  }
  /// As the deleter of a tensor.
  void raw_delete(void* block) {
    if (block == nullptr) return;
    metadata freed{};
    {
      const std::scoped_lock lock{mutex_};
      const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(block));
      ASSERT_NE(found, blocks_.end()) << "Trying to free a pointer not allocated here";
      freed = found->second;
      blocks_.erase(found);
    }
    free_fn(block, freed.bytes, freed.device, freed.stream);
  }
  void delete_all() {
    while (!blocks_.empty()) raw_delete(reinterpret_cast<void*>(blocks_.begin()->first));
  }
  /// The statistic of a device.
  [[nodiscard]] std::uint64_t stat(std::string const& word, int device = 0) const {
    const std::string all = stats(device), key = "\"" + word + "\": ";
    const std::size_t at = all.find(key);
    EXPECT_NE(at, std::string::npos) << word << " is not in " << all;
    return at == std::string::npos ? 0 : std::stoull(all.substr(at + key.size()));
  }

  // The functions, by PyTorch's names.
  void* (*alloc_fn)(std::size_t, int, gpu::stream_handle) = nullptr;
  void (*free_fn)(void*, std::size_t, int, gpu::stream_handle) = nullptr;
  void (*record_stream_fn)(void*, gpu::stream_handle) = nullptr;
  void (*reset_fn)() = nullptr;
  void (*memory_fraction_fn)(double, int) = nullptr;
  void* (*base_alloc_fn)(void*, std::size_t*) = nullptr;
  void (*begin_pool_fn)(int, mempool_id, stream_filter) = nullptr;
  void (*end_pool_fn)(int, mempool_id) = nullptr;
  void (*release_pool_fn)(int, mempool_id) = nullptr;
  void* (*segment_alloc_fn)(std::size_t, int, gpu::stream_handle) = nullptr;
  void (*segment_free_fn)(void*, std::size_t, int, gpu::stream_handle) = nullptr;
  // And those of tidemark_torch.py.
  char const* (*configure_all)(char const*, long long, char const*, long long) = nullptr;
  char const* (*begin_step)(long long) = nullptr;
  char const* (*end_step)() = nullptr;
  char const* (*close_trace)() = nullptr;
  char const* (*stats)(int) = nullptr;

 private:
  struct metadata {
    std::size_t bytes;
    int device;
    gpu::stream_handle stream;
  };

  template <class Function>
  void find(Function*& function, char const* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name << " is not exported";
  }
  void use_driver(gpu::driver* driver) {
    void (*use)(gpu::driver*) = nullptr;
    find(use, "tidemark_torch_test_use_driver");
    if (use != nullptr) use(driver);
  }

  void* library_ = dlopen(TIDEMARK_TORCH_ON_FAKE, RTLD_NOW | RTLD_LOCAL);
  std::mutex mutex_;
  std::map<std::uintptr_t, metadata> blocks_;
};

/// A fake device, some streams, and an allocator on it.
struct torch_test : ::testing::Test {
  explicit torch_test(std::size_t capacity_bytes = 256 * MiB)
      : device{{.capacity_bytes = capacity_bytes, .granularity_bytes = 64 * KiB}} {}

  fake_device device;
  gpu::stream main_stream{device}, side_stream{device};
  gpu::stream_handle main = main_stream.get(), side = side_stream.get();
  pluggable_allocator torch{device};

  void TearDown() override {
    torch.delete_all();
    device.run_all();
  }

  /// Bytes that the device has handed out, which the budget and the statistics must count exactly.
  std::size_t held_bytes() {
    (void)device.physical_bytes();  // settles what unmapping leaves
    EXPECT_EQ(device.budget(0).held_bytes(), device.used_bytes());
    return device.used_bytes();
  }
  /// As `side.wait_stream(main)` in Python.
  void side_waits_for_main() { side_stream.wait(gpu::event{main, device}); }
  /// Work that writes a block.
  void write(void* block, std::size_t bytes, gpu::stream_handle on, std::string const& name = "kernel") {
    EXPECT_EQ(device.launch_kernel(on, {.name = name, .reads = {}, .writes = {range_of(block, bytes)}}),
              gpu::status::success);
  }
  static byte_range range_of(void* block, std::size_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(block), bytes};
  }
  /// A sentence that a call throws.
  template <class Call>
  static std::string thrown_by(Call call) {
    try {
      call();
    } catch (std::runtime_error const& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
};

}  // namespace tidemark::test
