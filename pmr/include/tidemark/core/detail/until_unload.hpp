// SPDX-License-Identifier: Apache-2.0
/// @file
/// `until_unload`: library state that exists until the shared object with the library's code is unloaded.
#pragma once

#include <utility>

namespace tidemark::detail {

/// Library state that the rest of the process may call into, or memory that no static object frees.
///
/// `dlclose` may unload a shared object that contains the library, while the library's threads, signal
/// handlers and thread keys exist. After the destructors of all static objects and before the code is
/// unmapped, all participants' threads are stopped. Then each participant is detached, newest first; then
/// each is destroyed, newest first. Nothing happens at the end of the process, because other threads may
/// still use the library.
///
/// Thread-safe. O(1).
class unload_participant {
 public:
  unload_participant(unload_participant const&) = delete;
  unload_participant& operator=(unload_participant const&) = delete;

 protected:
  unload_participant() noexcept = default;
  virtual ~unload_participant() = default;
  void join();
  void deregister() noexcept;

 private:
  friend struct unload_list;
  /// Ends all threads of the participant. All other participants still exist.
  virtual void stop_threads() noexcept {}
  /// Removes all calls from outside the shared object. All other participants still exist.
  virtual void detach() noexcept {}
  /// Frees the participant, if the library owns it.
  virtual void destroy() noexcept {}

  unload_participant* newer_ = nullptr;
  unload_participant* older_ = nullptr;
};

/// A `T` that the library owns and destroys only when its shared object is unloaded. `T::stop_threads()` and
/// `T::detach()` are called first, if they exist.
///
/// ```cpp
/// static auto& shared = *new until_unload<subscriber_list>;
/// return shared.value;
/// ```
/// A static object's destructor may use it, because it outlives all static objects.
template <class T>
class until_unload final : unload_participant {
 public:
  /// Joins last, so that objects made by `T`'s constructor are destroyed after it.
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
