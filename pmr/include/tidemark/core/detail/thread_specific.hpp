// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_specific`: one object per thread, which outlives the thread's other thread_local objects.
#pragma once

#include <memory>
#include <utility>

namespace tidemark::detail {

/// An object that belongs to one thread, which destroys it at its end. Another thread destroys it when the
/// library is unloaded, or if the object was made too late in its thread's end.
class thread_object {
 public:
  virtual ~thread_object() = default;

 private:
  friend class thread_registry;
  std::unique_ptr<thread_object> older_;  // object of the same thread
};

/// Makes the calling thread the owner of the object. @throws std::bad_alloc; the object is destroyed then.
void transfer_to_this_thread(std::unique_ptr<thread_object> object);

/// One `T` for each thread that uses it, made at first use and destroyed at the thread's end.
///
/// A plain pointer refers to the object, and a key of the threads library owns it. Destructors of other
/// thread_local objects may therefore still use it: they run before the key's destructor, in any order. A
/// thread_local object with a destructor would also keep a shared object loaded as long as the thread exists.
/// The main thread's `T` is destroyed only if the library is unloaded.
template <class T>
class thread_specific {
 public:
  /// The calling thread's object; null before its first use and after its end.
  [[nodiscard]] static T* find() noexcept { return this_threads; }
  /// The calling thread's object, made at first use. @throws std::bad_alloc.
  [[nodiscard]] static T& get() {
    if (this_threads == nullptr) {
      auto made = std::make_unique<owned>();
      T* const object = &made->object;
      transfer_to_this_thread(std::move(made));
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
