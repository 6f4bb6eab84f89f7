// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture_switch_options`: how a capture switch is made.
#pragma once

#include <memory_resource>

namespace tidemark {

/// What a frozen `capture_switch` does that has no graph arena for the thread.
enum class frozen_policy {
  forward,  ///< take memory of the upstream all the same, and keep it out of use as long as the graph lives
  refuse,   ///< throw `allocator_frozen`: of an upstream that must not be called in a capture
};

/// How a capture switch is made.
struct capture_switch_options {
  /// What to do where a thread has frozen the switch and installed no arena.
  frozen_policy without_arena = frozen_policy::forward;
  /// In messages and statistics; must outlive the switch.
  char const* name = "capture_switch";
  /// Where memory comes from outside captures; null: `std::pmr::get_default_resource()`. Must outlive the
  /// switch, and be thread-safe if several threads use that.
  std::pmr::memory_resource* upstream = nullptr;
};

}  // namespace tidemark
