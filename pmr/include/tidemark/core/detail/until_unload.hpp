// SPDX-License-Identifier: Apache-2.0
/// @file
/// `until_unload`: state of the library that exists until the shared object with the library's code is unloaded.
#pragma once

#include <utility>

namespace tidemark::detail {

/// State of the library that the rest of the process may call into, or memory that no static object frees.
///
/// A shared object that contains the library may be unloaded by `dlclose` while its threads, signal handlers
/// and keys of the threads library exist. After the destructors of all static objects, and before the code is
/// unmapped, the threads of all participants are stopped; then each participant is detached, the newest first, and
/// then each is destroyed, the newest first. At the end of the process nothing happens: other threads may still use the library.
///
/// Any thread; O(1).
class unload_participant {
 public:
  unload_participant(unload_participant const&) = delete;
  unload_participant& operator=(unload_participant const&) = delete;

 protected:
  unload_participant() noexcept = default;
  virtual ~unload_participant() = default;
  void join();
  void leave() noexcept;

 private:
  friend struct unload_list;
  /// Afterwards no thread of the participant exists. All other participants still exist.
  virtual void stop_threads() noexcept {}
  /// Afterwards nothing outside of the shared object calls into it. All other participants still exist.
  virtual void detach() noexcept {}
  /// Frees the participant, if the library owns it.
  virtual void destroy() noexcept {}

  unload_participant* newer_ = nullptr;
  unload_participant* older_ = nullptr;
};

/// A `T` that the library owns and never destroys, except when its shared object is unloaded. `T::stop_threads()`
/// and `T::detach()` are called first, if there are such functions.
///
/// ```cpp
/// static auto& shared = *new until_unload<subscriber_list>;
/// return shared.value;
/// ```
/// A member of a static object's destructor may use it, because it outlives all static objects.
template <class T>
class until_unload final : unload_participant {
 public:
  /// Joins last: the objects that the constructor of `T` makes are destroyed after it.
  template <class... Arguments>
  explicit until_unload(Arguments&&... arguments) : value{std::forward<Arguments>(arguments)...} {
    join();
  }

  T value;

 private:
  void stop_threads() noexcept override {
    if constexpr (requires { value.stop_threads(); }) value.stop_threads();
  }
  void detach() noexcept override {
    if constexpr (requires { value.detach(); }) value.detach();
  }
  void destroy() noexcept override { delete this; }
};

}  // namespace tidemark::detail
