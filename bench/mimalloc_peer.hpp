// SPDX-License-Identifier: Apache-2.0
// mimalloc as a memory resource, as Debian ships it. It is loaded and not linked, because its library also
// replaces malloc: then our own upstreams would be mimalloc too.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <memory_resource>
#include <new>

namespace tidemark::bench {

class mimalloc_resource final : public std::pmr::memory_resource {
 public:
  /// Whether it is installed.
  [[nodiscard]] static bool is_there() { return calls().malloc != nullptr && calls().free != nullptr; }
  /// The one there is. @pre `is_there()`.
  [[nodiscard]] static mimalloc_resource& instance() {
    static mimalloc_resource resource;
    return resource;
  }

 private:
  struct functions {
    void* (*malloc)(std::size_t) = nullptr;
    void* (*malloc_aligned)(std::size_t, std::size_t) = nullptr;
    void (*free)(void*) = nullptr;
  };
  static functions const& calls() {
    static const functions loaded = [] {
      functions found;
      void* const library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) return found;
      found.malloc = reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "mi_malloc"));
      found.malloc_aligned =
          reinterpret_cast<void* (*)(std::size_t, std::size_t)>(dlsym(library, "mi_malloc_aligned"));
      found.free = reinterpret_cast<void (*)(void*)>(dlsym(library, "mi_free"));
      return found;
    }();
    return loaded;
  }

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    void* const block =
        align <= alignof(std::max_align_t) ? calls_.malloc(bytes) : calls_.malloc_aligned(bytes, align);
    if (block == nullptr) throw std::bad_alloc{};
    return block;
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override { calls_.free(block); }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  functions calls_ = calls();  // a copy, so that no call passes the guard of a static
};

}  // namespace tidemark::bench
