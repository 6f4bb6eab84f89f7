// SPDX-License-Identifier: Apache-2.0
// A function on its own stack that yields at chosen points, for tests that decide the order of execution.
#pragma once

#include <cxxabi.h>
#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define TIDEMARK_FIBER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define TIDEMARK_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TIDEMARK_FIBER_ASAN 1
#elif __has_feature(thread_sanitizer)
#define TIDEMARK_FIBER_TSAN 1
#endif
#endif
#if TIDEMARK_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#elif TIDEMARK_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif

namespace tidemark::test {

/// A stack and its point of continuation. All fibers of a group run in one thread, one at a time. A switch
/// takes less than a microsecond, while a switch between waiting threads takes several.
class fiber {
 public:
  /// The caller's own stack.
  fiber() { attach_sanitizer(false); }
  /// A stack on which `body` runs from the first switch to it. `body` returns the fiber of the final switch.
  explicit fiber(std::function<fiber*()> body)
      : body_{std::move(body)}, stack_{std::make_unique_for_overwrite<std::byte[]>(stack_bytes)} {
    attach_sanitizer(true);
    getcontext(&context_);
    context_.uc_stack = {.ss_sp = stack_.get(), .ss_flags = 0, .ss_size = stack_bytes};
    makecontext(&context_, start, 0);
    bottom_ = stack_.get();
    bytes_ = stack_bytes;
#ifdef VALGRIND_STACK_REGISTER
    valgrind_id_ = VALGRIND_STACK_REGISTER(stack_.get(), stack_.get() + stack_bytes);
#endif
  }
  fiber(fiber const&) = delete;
  fiber& operator=(fiber const&) = delete;
  /// @pre it is not running, and no object on its stack is needed: no destructors run there
  ~fiber() {
#if TIDEMARK_FIBER_TSAN
    if (stack_) __tsan_destroy_fiber(tsan_);
#endif
#ifdef VALGRIND_STACK_DEREGISTER
    if (stack_) VALGRIND_STACK_DEREGISTER(valgrind_id_);
#endif
  }

  /// Goes on in `to`, until something switches to this fiber, which is the running one. With `for_good`
  /// nothing will.
  void switch_to(fiber& to, bool for_good = false) {
    auto& exceptions = *reinterpret_cast<exception_state*>(abi::__cxa_get_globals());
    exceptions_ = std::exchange(exceptions, to.exceptions_);
    previous_ = this;
    next_ = &to;
#if TIDEMARK_FIBER_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, to.bottom_, to.bytes_);
#elif TIDEMARK_FIBER_TSAN
    __tsan_switch_to_fiber(to.tsan_, 0);
#endif
    (void)for_good;
    swapcontext(&context_, &to.context_);
    arrive();
  }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{256} << 10;

  // The state behind __cxa_get_globals in libstdc++ and libc++abi: the exceptions being handled and the
  // number of those in flight. Each fiber has its own, so that it may yield in a catch block or while the
  // stack unwinds.
  struct exception_state {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };

  static void start() {
    fiber& self = *next_;
    self.arrive();
    fiber* successor = self.body_();
    self.switch_to(*successor, true);
  }
  void arrive() {
#if TIDEMARK_FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake_stack_, &previous_->bottom_, &previous_->bytes_);
#endif
  }
  void attach_sanitizer([[maybe_unused]] bool own_stack) {
#if TIDEMARK_FIBER_TSAN
    tsan_ = own_stack ? __tsan_create_fiber(0) : __tsan_get_current_fiber();
#endif
  }

  inline static fiber* previous_ = nullptr;
  inline static fiber* next_ = nullptr;

  std::function<fiber*()> body_;
  std::unique_ptr<std::byte[]> stack_;  // none: the stack of the thread
  ucontext_t context_{};
  exception_state exceptions_;
  void const* bottom_ = nullptr;
  std::size_t bytes_ = 0;
#if TIDEMARK_FIBER_ASAN
  void* fake_stack_ = nullptr;
#elif TIDEMARK_FIBER_TSAN
  void* tsan_ = nullptr;
#endif
#ifdef VALGRIND_STACK_REGISTER
  unsigned valgrind_id_ = 0;
#endif
};

}  // namespace tidemark::test
