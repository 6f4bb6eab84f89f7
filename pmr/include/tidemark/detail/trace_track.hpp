// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a `trace_log` knows of one resource and of one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <tidemark/resource_stats.hpp>

namespace tidemark::detail {

/// A moment, counted from the making of the log.
using trace_time = std::chrono::nanoseconds;

/// A live block of a traced resource.
struct trace_block {
  std::uint64_t id;   ///< its number in the log
  std::size_t bytes;  ///< as asked for
};

/// A value of a counter.
struct trace_point {
  trace_time time{};
  std::size_t bytes = 0;
};

/// One traced resource. Guarded by the log's mutex.
struct trace_track {
  std::string name;       ///< as given
  std::string json_name;  ///< quoted, and unlike that of any other track of the log
  resource_stats stats;   ///< its `name` is `name.c_str()`
  /// Live blocks by address; no two overlap.
  std::map<std::uintptr_t, trace_block> live;

  // The counter in the Chrome trace: at most one window of points is held back.
  trace_time written{};  ///< when the last point was that was written at once
  trace_point highest;   ///< of the points held back
  trace_point last;      ///< of the points held back
  bool holds_back = false;
};

/// One thread that was seen. Guarded by the log's mutex.
struct trace_thread {
  std::uint64_t number = 0;     ///< from 0, by first appearance
  std::size_t open_slices = 0;  ///< begun and not ended
};

}  // namespace tidemark::detail
