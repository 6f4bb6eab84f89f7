// SPDX-License-Identifier: Apache-2.0
// A generator and a task whose frames a promise base of ours places.
#pragma once

#include <coroutine>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include <tidemark/core/macros.hpp>
#include <tidemark/coroutine/pmr_promise.hpp>

namespace tidemark::test {

/// Owns a coroutine.
template <class Promise>
class coroutine_owner {
 public:
  using handle = std::coroutine_handle<Promise>;

  coroutine_owner() = default;
  explicit coroutine_owner(Promise& promise) noexcept : handle_{handle::from_promise(promise)} {}
  coroutine_owner(coroutine_owner&& other) noexcept : handle_{std::exchange(other.handle_, {})} {}
  coroutine_owner& operator=(coroutine_owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~coroutine_owner() { reset(); }

  void reset() noexcept {
    if (handle_) std::exchange(handle_, {}).destroy();
  }
  [[nodiscard]] handle get() const noexcept { return handle_; }
  /// Releases ownership of the coroutine to the caller.
  handle release() noexcept { return std::exchange(handle_, {}); }

 private:
  handle handle_;
};

/// Values of a coroutine, one at a time.
template <class T, class PromiseBase = pmr_promise<>>
class TIDEMARK_COROUTINE generator {
 public:
  struct promise_type : PromiseBase {
    generator get_return_object() noexcept { return generator{*this}; }
    static std::suspend_always initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(T given) noexcept {
      value = given;
      return {};
    }
    static void return_void() noexcept {}
    void unhandled_exception() { throw; }

    T value{};
  };

  struct iterator {
    std::coroutine_handle<promise_type> at;
    T operator*() const noexcept { return at.promise().value; }
    iterator& operator++() {
      at.resume();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const noexcept { return at.done(); }
  };
  iterator begin() { return ++iterator{owner.get()}; }
  static std::default_sentinel_t end() noexcept { return {}; }

  generator() = default;
  coroutine_owner<promise_type> owner;

 private:
  explicit generator(promise_type& promise) noexcept : owner{promise} {}
};

/// A result that is computed when it is awaited, or by `run`.
template <class T, class PromiseBase = pmr_promise<>>
class TIDEMARK_COROUTINE task {
 public:
  struct promise_type : PromiseBase {
    task get_return_object() noexcept { return task{*this}; }
    static std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct awaiter {
        static bool await_ready() noexcept { return false; }
        static std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
          return ended.promise().waiting;
        }
        static void await_resume() noexcept {}
      };
      return awaiter{};
    }
    void return_value(T given) noexcept { value = given; }
    void unhandled_exception() noexcept { thrown = std::current_exception(); }
    T result() const {
      if (thrown) std::rethrow_exception(thrown);
      return *value;
    }

    std::optional<T> value;
    std::exception_ptr thrown;
    std::coroutine_handle<> waiting = std::noop_coroutine();
  };

  auto operator co_await() && noexcept {
    struct awaiter {
      std::coroutine_handle<promise_type> of;
      static bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept {
        of.promise().waiting = caller;
        return of;
      }
      T await_resume() const { return of.promise().result(); }
    };
    return awaiter{owner.get()};
  }
  T run() {
    owner.get().resume();
    return owner.get().promise().result();
  }

  task() = default;
  coroutine_owner<promise_type> owner;

 private:
  explicit task(promise_type& promise) noexcept : owner{promise} {}
};

}  // namespace tidemark::test
