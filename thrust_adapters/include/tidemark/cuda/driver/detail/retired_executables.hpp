// SPDX-License-Identifier: Apache-2.0
/// @file
/// `retired_executables`: graphs that are to be destroyed when nothing captures. Owns them until then.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>

struct CUgraphExec_st;

namespace tidemark::gpu {

class driver;

namespace detail {

/// The executables of ended graphs. `cuGraphExecDestroy` invalidates captures in mode `global` of any thread
/// (seen on hardware: pytorch#161037, warp#992), so an executable waits while a capture of tidemark's goes
/// on, and where the driver refuses. Captures that others begin are not known here.
///
/// Each `driver` has one. What it still has when that ends is lost with the device's context.
/// Thread-safety: any thread. The driver destroys under the lock, so that no capture begins meanwhile.
class retired_executables {
 public:
  /// A capture begins; nothing is destroyed until as many have ended. Waits for what is being destroyed.
  void capture_begins() noexcept;
  /// A capture has ended: destroys what waits if it was the last.
  void capture_ended(driver& calls) noexcept;
  /// Makes room for one more, so that `retire` cannot fail. @throws std::bad_alloc.
  void reserve_one();
  /// Destroys an executable, and all that wait, now or later. @pre `reserve_one` was called for it.
  void retire(driver& calls, ::CUgraphExec_st* executable) noexcept;
  /// How many wait.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  void destroy_waiting(driver& calls) noexcept;  // under the lock

  mutable tidemark::detail::fork_safe<> mutex_;  // for what follows
  std::vector<::CUgraphExec_st*> waiting_;       // has capacity for all executables there are
  std::size_t executables_ = 0;                  // live or waiting
  std::size_t captures_ = 0;                     // that go on
};

}  // namespace detail
}  // namespace tidemark::gpu
