// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_specific`: one object for each thread, which outlives the thread's other thread_local objects.
#pragma once

#include <memory>
#include <utility>

namespace tidemark::detail {

/// An object that belongs to one thread. Destroyed by that thread when it ends, or by another one: when the
/// library is unloaded, or when the thread made the object so late in its end that it could not destroy it.
class thread_object {
 public:
  thread_object() = default;
  thread_object(thread_object const&) = delete;
  thread_object& operator=(thread_object const&) = delete;
  virtual ~thread_object() = default;

 private:
  friend class thread_registry;
  std::unique_ptr<thread_object> older_;  // of the same thread
};

/// The calling thread owns the object from now on. @throws std::bad_alloc; the object is destroyed then.
void give_to_this_thread(std::unique_ptr<thread_object> object);

/// One `T` for each thread that uses one, made at its first use and destroyed when the thread ends.
///
/// A plain pointer, and owned by a key of the threads library, because destructors of other thread_local
/// objects may still use it: they run before the key's, and in any order. A thread_local object with a
/// destructor would also keep a shared object loaded as long as the thread exists. The main thread's `T` is
/// destroyed only if the library is unloaded.
template <class T>
class thread_specific {
 public:
  /// This thread's, or null before its first use and after its end.
  [[nodiscard]] static T* find() noexcept { return this_threads; }
  /// This thread's. @throws std::bad_alloc.
  [[nodiscard]] static T& get() {
    if (this_threads == nullptr) {
      auto made = std::make_unique<owned>();
      T* const object = &made->object;
      give_to_this_thread(std::move(made));
      this_threads = object;
    }
    return *this_threads;
  }

 private:
  struct owned final : thread_object {
    T object;
    ~owned() override {
      if (this_threads == &object) this_threads = nullptr;
    }
  };

  static inline thread_local T* this_threads = nullptr;
};

}  // namespace tidemark::detail
