// SPDX-License-Identifier: Apache-2.0
// Queries of device tests to a fake device: the calls that a piece of code makes, and the state when a
// stream's work ran.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/driver.hpp>

#include "fake_device.hpp"

namespace tidemark::test {

/// Names of calls in their order.
using call_names = std::vector<std::string>;

/// Returns the calls that `body` makes to the device, except queries of the operations that captures forbid
/// the thread. These queries surround other calls, and cost nothing.
template <class Body>
call_names calls_of(fake_device const& device, Body&& body) {
  const auto before = static_cast<std::ptrdiff_t>(device.counts_total());
  body();
  const call_names all = device.log();
  call_names made{all.begin() + before, all.end()};
  std::erase(made, "cuThreadExchangeStreamCaptureMode");
  return made;
}

/// One row of calls behind the other.
inline call_names joined(std::initializer_list<call_names> rows) {
  call_names all;
  for (call_names const& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}
/// The same calls `n` times.
inline call_names times(std::size_t n, call_names const& row) {
  call_names all;
  for (std::size_t i = 0; i < n; ++i) all.insert(all.end(), row.begin(), row.end());
  return all;
}

/// Work that records whether it has run, and whether the device could then touch some bytes. It must not move
/// until it has run.
class noting_work {
 public:
  noting_work(fake_device& device, gpu::stream_handle stream, byte_range used = {}, gpu::device_number on = 0)
      : device_{&device}, used_{used}, on_{on} {
    EXPECT_EQ(device.launch_on_host(stream, &run, this), gpu::status::success);
  }
  noting_work(noting_work const&) = delete;
  noting_work& operator=(noting_work const&) = delete;

  bool has_run = false;
  bool had_memory = false;
  int turn = 0;  ///< how many such works had run before, since the program began

 private:
  static void run(void* self) {
    auto& work = *static_cast<noting_work*>(self);
    static int turns = 0;
    work.has_run = true;
    work.turn = turns++;
    work.had_memory = work.device_->accessible(work.used_.data(), work.used_.size, work.on_);
  }

  fake_device* device_;
  byte_range used_;
  gpu::device_number on_;
};

}  // namespace tidemark::test
