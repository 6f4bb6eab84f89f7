// SPDX-License-Identifier: Apache-2.0
// A thread that runs a test's bodies one after another, because a capture must end on the thread that began
// it.
#pragma once

#include <functional>
#include <semaphore>
#include <thread>
#include <utility>

namespace tidemark::test {

/// Runs `body` on a new thread to its end.
template <class Body>
void on_another_thread(Body body) {
  std::thread{std::move(body)}.join();
}

/// A thread beside the test's own, alive as long as this object.
class other_thread {
 public:
  other_thread() : runner_{[this] { serve(); }} {}
  other_thread(other_thread const&) = delete;
  other_thread& operator=(other_thread const&) = delete;
  ~other_thread() {
    body_ = nullptr;
    asked_.release();
    runner_.join();
  }

  /// Runs `body` there, and returns when it has returned.
  void run(std::function<void()> body) {
    body_ = std::move(body);
    asked_.release();
    done_.acquire();
  }

 private:
  void serve() {
    for (asked_.acquire(); body_; asked_.acquire()) {
      body_();
      done_.release();
    }
  }

  std::function<void()> body_;
  std::binary_semaphore asked_{0}, done_{0};
  std::thread runner_;
};

}  // namespace tidemark::test
