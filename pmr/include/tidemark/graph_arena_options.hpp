// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_arena_options`: how a graph arena is made.
#pragma once

namespace tidemark {

/// What a graph arena does when it is given back what it does not hold: a block twice, of another size, or
/// one that was never its own.
enum class bad_deallocate_policy {
  report,  ///< report a violation, which aborts by default
  ignore,  ///< count it, in `graph_arena_stats::bad_deallocations`, and do nothing
};

/// How a graph arena is made.
struct graph_arena_options {
  bad_deallocate_policy bad_deallocate = bad_deallocate_policy::report;
  /// Name in messages and statistics; must outlive the arena and the exceptions it throws.
  char const* name = "graph_arena";
};

}  // namespace tidemark
