// SPDX-License-Identifier: Apache-2.0
// A backend of captures whose kernels are host functions: it records and replays them, fails on demand, and
// checks that its functions are called in the promised order.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/graph.hpp>

namespace tidemark::test {

/// Events in order: the names of ended objects, and calls of a backend.
using event_log = std::vector<std::string>;

/// Writes its end to a log, unless it was moved from.
class ending_probe {
 public:
  ending_probe(event_log& log, std::string name) : log_{&log}, name_{std::move(name)} {}
  ending_probe(ending_probe&& other) noexcept
      : log_{std::exchange(other.log_, nullptr)}, name_{std::move(other.name_)} {}
  ending_probe& operator=(ending_probe&&) = delete;
  ~ending_probe() {
    if (log_ != nullptr) log_->push_back(name_ + " ends");
  }

 private:
  event_log* log_;
  std::string name_;
};

/// Counts of a backend's recordings and launches, from any thread.
struct replay_counts {
  std::atomic<int> instances{0};  ///< alive
  std::atomic<int> launches{0};   ///< that were begun
  std::atomic<int> waits{0};      ///< for launches, of a graph that lives on
  std::atomic<int> inside{0};     ///< launches that run now
  std::atomic<int> overlaps{0};   ///< launches that began while another ran
  std::atomic<graph_stream> last_stream{nullptr};
  std::atomic<bool> launch_throws{false};  ///< the next launches fail
};

/// Host functions as kernels. `enqueue` is the program's stream: outside of a capture it runs the work at
/// once, inside it only records the work.
class replaying_backend final : public graph_backend {
 public:
  using kernel = std::function<void()>;
  struct begin_error {};
  struct end_error {};
  struct launch_error {};

  /// Calls and ends are noted there; null: nowhere.
  explicit replaying_backend(event_log* log = nullptr) : log_{log} {}
  ~replaying_backend() override { EXPECT_FALSE(is_capturing()) << "a capture was never ended nor abandoned"; }

  bool begin_throws = false, end_throws = false, end_is_null = false;
  bool updates_in_place = false;  ///< else a graph that is updated gets a new instance

  [[nodiscard]] bool is_capturing() const noexcept { return recorded_.has_value(); }
  [[nodiscard]] replay_counts& counts() const noexcept { return *counts_; }

  void enqueue(kernel work) {
    if (recorded_) recorded_->push_back(std::move(work));
    else work();
  }

  [[nodiscard]] bool supports_capture() const noexcept override { return true; }
  void begin() override {
    log_event("begin");
    EXPECT_FALSE(is_capturing()) << "begin in a capture";
    if (begin_throws) throw begin_error{};
    recorded_.emplace();
  }
  [[nodiscard]] std::unique_ptr<graph_instance> end() override {
    const std::vector<kernel> recorded = end_recording();
    if (end_is_null) return nullptr;
    return std::make_unique<instance>(recorded, counts_, log_);
  }
  bool end_into(std::unique_ptr<graph_instance>& of) override {
    if (!updates_in_place) return graph_backend::end_into(of);
    dynamic_cast<instance&>(*of).set_work(end_recording());
    return true;
  }
  void abandon() noexcept override {
    log_event("abandon");
    EXPECT_TRUE(is_capturing()) << "abandon of no capture";
    recorded_.reset();
  }

 private:
  class instance final : public graph_instance {
   public:
    instance(std::vector<kernel> work, std::shared_ptr<replay_counts> counts, event_log* log)
        : work_{std::move(work)}, counts_{std::move(counts)}, log_{log} {
      ++counts_->instances;
    }
    instance(instance const&) = delete;
    instance& operator=(instance const&) = delete;
    ~instance() override {
      --counts_->instances;
      if (log_ != nullptr) log_->emplace_back("graph ends");
    }

    void set_work(std::vector<kernel> work) { work_ = std::move(work); }
    void wait() noexcept override { ++counts_->waits; }
    void launch(graph_stream stream) override {
      if (counts_->inside.fetch_add(1) != 0) ++counts_->overlaps;
      ++counts_->launches;
      counts_->last_stream = stream;
      std::this_thread::yield();  // so that another launch would come in between, if it could
      if (counts_->launch_throws) {
        --counts_->inside;
        throw launch_error{};
      }
      for (kernel const& one : work_) one();
      --counts_->inside;
    }
    [[nodiscard]] bool is_replay_capable() const noexcept override { return true; }

   private:
    std::vector<kernel> work_;
    std::shared_ptr<replay_counts> counts_;
    event_log* log_;
  };

  std::vector<kernel> end_recording() {
    log_event("end");
    EXPECT_TRUE(is_capturing()) << "end of no capture";
    std::vector<kernel> recorded = std::exchange(recorded_, std::nullopt).value_or(std::vector<kernel>{});
    if (end_throws) throw end_error{};
    if (recorded.empty()) throw empty_capture{"capture: nothing was enqueued"};
    return recorded;
  }
  void log_event(char const* call) {
    if (log_ != nullptr) log_->emplace_back(call);
  }

  event_log* log_;
  std::optional<std::vector<kernel>> recorded_;  // none: no capture is open
  std::shared_ptr<replay_counts> counts_ = std::make_shared<replay_counts>();
};

}  // namespace tidemark::test
