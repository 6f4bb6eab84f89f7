// SPDX-License-Identifier: Apache-2.0
// Records the calls to the fake device: their number, their order, and the calls that fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/driver.hpp>

#include "recording_supply.hpp"

namespace tidemark::test {

/// The lock of the fake device, and its calls.
class fake_calls : public supply {
 public:
  fake_calls() = default;
  fake_calls(fake_calls const&) = delete;
  fake_calls& operator=(fake_calls const&) = delete;

  gpu::status failure = gpu::status::out_of_memory;  ///< result of calls that are made to fail

  /// Makes call `n` of one function fail, counted from 0 over all calls of it, and `how_many - 1` after it.
  void fail_in(std::string name, std::size_t n, std::optional<gpu::status> result = {},
               std::size_t how_many = 1) {
    const std::scoped_lock held{mutex_};
    planned_.push_back({.name = std::move(name), .first = n, .count = how_many, .result = result});
  }
  /// Makes the next call of one function fail.
  void fail_next(std::string const& name, std::optional<gpu::status> result = {}) {
    fail_in(name, count(name), result);
  }
  /// Number of calls of a function so far, by the driver's name, including failed calls.
  [[nodiscard]] std::size_t count(std::string_view name) const {
    const std::scoped_lock held{mutex_};
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }
  /// Calls of all functions so far.
  [[nodiscard]] std::size_t counts_total() const {
    const std::scoped_lock held{mutex_};
    return log_.size();
  }
  /// The names of all calls so far, in order.
  [[nodiscard]] std::vector<std::string> log() const {
    const std::scoped_lock held{mutex_};
    return log_;
  }
  /// Names of the calls that threads made during their own captures, except calls of the capture itself
  /// (begin, end, query).
  [[nodiscard]] std::vector<std::string> calls_during_capture() const {
    const std::scoped_lock held{mutex_};
    return during_capture_;
  }

 protected:
  ~fake_calls() = default;

  /// Notes a call. @return success, unless it is to fail. @pre the lock is held.
  gpu::status record_call(char const* name, bool can_fail, bool captures_here) {
    log_.emplace_back(name);
    const std::size_t n = counts_[log_.back()]++;
    if (captures_here && !is_of_captures(name)) during_capture_.push_back(log_.back());
    const bool by_number = can_fail && this_one_fails();
    for (plan const& each : planned_)
      if (each.name == name && n >= each.first && n - each.first < each.count)
        return each.result.value_or(failure);
    return by_number ? failure : gpu::status::success;
  }

  /// Returns the result of `look`, called under the lock.
  template <class Read>
  auto locked(Read read) const {
    const std::scoped_lock held{mutex_};
    return read();
  }

  mutable std::mutex mutex_;  // of all that the device is

 private:
  struct plan {
    std::string name;
    std::size_t first, count;
    std::optional<gpu::status> result;
  };

  static bool is_of_captures(std::string_view name) {
    return name == "cuStreamBeginCapture" || name == "cuStreamEndCapture" || name == "cuStreamIsCapturing" ||
           name == "cuThreadExchangeStreamCaptureMode";
  }

  std::map<std::string, std::size_t, std::less<>> counts_;
  std::vector<std::string> log_;
  std::vector<std::string> during_capture_;
  std::vector<plan> planned_;
};

}  // namespace tidemark::test
