// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_specific`: one object for each thread, which outlives the thread's other thread_local objects.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace tidemark::detail {

/// One `T` for each thread that uses one, made at its first use and destroyed when the thread ends.
///
/// A plain pointer, and owned by a key of the threads library, because destructors of other thread_local
/// objects may still use it: they run before the key's, and in any order. The main thread's is not destroyed.
template <class T>
class thread_specific {
 public:
  /// This thread's, or null before its first use and after its end.
  [[nodiscard]] static T* find() noexcept { return this_threads; }
  /// This thread's. @throws std::bad_alloc.
  [[nodiscard]] static T& get() {
    if (this_threads == nullptr) {
      auto made = std::make_unique<T>();
      if (pthread_setspecific(key(), made.get()) != 0) throw std::bad_alloc{};
      this_threads = made.release();
    }
    return *this_threads;
  }

 private:
  static void destroy(void* object) {
    this_threads = nullptr;
    delete static_cast<T*>(object);
  }
  static pthread_key_t key() {
    static const pthread_key_t key = [] {
      pthread_key_t created{};
      if (pthread_key_create(&created, destroy) != 0) throw std::bad_alloc{};
      return created;
    }();
    return key;
  }

  static inline thread_local T* this_threads = nullptr;
};

}  // namespace tidemark::detail
