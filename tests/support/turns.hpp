// SPDX-License-Identifier: Apache-2.0
// Threads that take turns: only one runs at a time, and other code decides their actions.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tidemark::test {

class turns {
 public:
  explicit turns(std::size_t threads) {
    for (std::size_t t = 0; t < threads; ++t) threads_.emplace_back([this, t] { serve(t); });
  }
  turns(turns const&) = delete;
  turns& operator=(turns const&) = delete;
  ~turns() {
    assign(everyone, {});
    for (std::thread& thread : threads_) thread.join();
  }

  /// Runs `work` on thread `t`, and returns when it is done.
  void on(std::size_t t, std::function<void()> work) {
    assign(t, std::move(work));
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return whose_ == no_one; });
  }

 private:
  static constexpr std::size_t no_one = -std::size_t{1}, everyone = -std::size_t{2};  // who ends

  void assign(std::size_t t, std::function<void()> work) {
    {
      const std::lock_guard lock{mutex_};
      whose_ = t;
      work_ = std::move(work);
    }
    changed_.notify_all();
  }
  void serve(std::size_t t) {
    std::unique_lock lock{mutex_};
    while (true) {
      changed_.wait(lock, [&] { return whose_ == t || whose_ == everyone; });
      if (whose_ == everyone) return;
      work_();
      whose_ = no_one;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t whose_ = no_one;
  std::function<void()> work_;
  std::vector<std::thread> threads_;
};

}  // namespace tidemark::test
