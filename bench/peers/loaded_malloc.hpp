// SPDX-License-Identifier: Apache-2.0
// A malloc library as a memory resource, as Debian ships it. It is loaded and not linked, because a linked
// library would also replace malloc, and tidemark's upstreams would then be the peer too.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <memory_resource>
#include <new>
#include <string>

namespace tidemark::bench {

/// `Calls` has a static `library`, and pointers to its functions that the constructor finds. `allocate(bytes,
/// align)` and `deallocate(block, bytes, align)` call them.
template <class Calls>
class loaded_malloc final : public std::pmr::memory_resource {
 public:
  explicit loaded_malloc(Calls const& calls) : calls_{calls} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    void* const block = calls_.allocate(bytes, align);
    if (block == nullptr) throw std::bad_alloc{};
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    calls_.deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  Calls calls_;  // a copy, so that no call passes the guard of a static
};

/// A shared library that stays loaded.
class shared_library {
 public:
  explicit shared_library(char const* file) : handle_{dlopen(file, RTLD_NOW | RTLD_LOCAL)} {
    if (handle_ == nullptr) why_not_ = dlerror();
  }
  [[nodiscard]] bool is_there() const { return handle_ != nullptr; }
  [[nodiscard]] std::string const& why_not() const { return why_not_; }
  /// Sets `function` to the function of this name, or to null.
  template <class Function>
  void find(char const* name, Function*& function) const {
    function = is_there() ? reinterpret_cast<Function*>(dlsym(handle_, name)) : nullptr;
  }

 private:
  void* handle_;
  std::string why_not_;
};

/// Returns the base address of the program or library that contains a function.
template <class Function>
void* object_of(Function* function) {
  Dl_info found{};
  return dladdr(reinterpret_cast<void*>(function), &found) != 0 ? found.dli_fbase : nullptr;
}

inline bool is_of_malloc(std::size_t align) { return align <= alignof(std::max_align_t); }

struct mimalloc_calls {
  explicit mimalloc_calls(shared_library const& library) {
    library.find("mi_malloc", malloc);
    library.find("mi_malloc_aligned", malloc_aligned);
    library.find("mi_free", free);
    library.find("mi_version", version);
  }
  [[nodiscard]] bool are_there() const { return malloc && malloc_aligned && free && version; }
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align) const {
    return is_of_malloc(align) ? malloc(bytes) : malloc_aligned(bytes, align);
  }
  void deallocate(void* block, std::size_t, std::size_t) const { free(block); }
  [[nodiscard]] std::string version_text() const {  // 209 is 2.0.9, 30403 is 3.4.3
    const int number = version(), base = number < 10'000 ? 10 : 100;
    return std::to_string(number / (base * base)) + '.' + std::to_string(number / base % base) + '.' +
           std::to_string(number % base);
  }

  void* (*malloc)(std::size_t);
  void* (*malloc_aligned)(std::size_t, std::size_t);
  void (*free)(void*);
  int (*version)();
};

/// The newest mimalloc, from a PyPI wheel because Debian lacks it. Its own type, because `loaded_malloc`
/// keeps one library per type of calls.
struct mimalloc_3_calls : mimalloc_calls {
  using mimalloc_calls::mimalloc_calls;
  [[nodiscard]] static char const* file() {
    char const* const path = std::getenv("TIDEMARK_MIMALLOC_3");  // ./run bench sets it
    return path != nullptr ? path : "libmimalloc.so.3";
  }
};

struct jemalloc_calls {
  explicit jemalloc_calls(shared_library const& library) {
    library.find("malloc", malloc);
    library.find("mallocx", mallocx);
    library.find("sdallocx", sdallocx);
    library.find("mallctl", mallctl);
  }
  // A build with a prefix has no malloc. The lookup then finds the C library's malloc, because the library
  // depends on it.
  [[nodiscard]] bool are_there() const {
    return malloc && mallocx && sdallocx && mallctl && object_of(malloc) == object_of(mallocx);
  }
  // The library's own functions reject 0 bytes. The flag of an alignment is its logarithm; 0 is malloc's
  // alignment.
  [[nodiscard]] static std::size_t size(std::size_t bytes) { return bytes == 0 ? 1 : bytes; }
  [[nodiscard]] static int flags(std::size_t align) {
    return is_of_malloc(align) ? 0 : __builtin_ctzll(align);
  }
  // Uses malloc if possible, because it is shorter than mallocx. sdallocx is the shortest free.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align) const {
    return is_of_malloc(align) ? malloc(bytes) : mallocx(size(bytes), flags(align));
  }
  void deallocate(void* block, std::size_t bytes, std::size_t align) const {
    sdallocx(block, size(bytes), flags(align));
  }
  [[nodiscard]] std::string version_text() const {
    char const* text = nullptr;
    std::size_t bytes = sizeof text;
    if (mallctl("version", static_cast<void*>(&text), &bytes, nullptr, 0) != 0) return "unknown";
    const std::string all = text;
    return all.substr(0, all.find('-'));
  }

  void* (*malloc)(std::size_t);
  void* (*mallocx)(std::size_t, int);
  void (*sdallocx)(void*, std::size_t, int);
  int (*mallctl)(char const*, void*, std::size_t*, void*, std::size_t);
};

struct tcmalloc_calls {
  explicit tcmalloc_calls(shared_library const& library) {
    library.find("tc_malloc", malloc);
    library.find("tc_memalign", memalign);
    library.find("tc_free", free);
    library.find("tc_free_sized", free_sized);
    library.find("tc_version", version);
  }
  [[nodiscard]] bool are_there() const { return malloc && memalign && free && free_sized && version; }
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align) const {
    return is_of_malloc(align) ? malloc(bytes) : memalign(align, bytes);
  }
  void deallocate(void* block, std::size_t bytes, std::size_t align) const {
    is_of_malloc(align) ? free_sized(block, bytes) : free(block);
  }
  [[nodiscard]] std::string version_text() const {
    int major = 0, minor = 0;
    char const* patch = "";
    version(&major, &minor, &patch);
    return std::to_string(major) + '.' + std::to_string(minor) + patch;
  }

  void* (*malloc)(std::size_t);
  void* (*memalign)(std::size_t, std::size_t);
  void (*free)(void*);
  void (*free_sized)(void*, std::size_t);
  char const* (*version)(int*, int*, char const**);
};

}  // namespace tidemark::bench
