// SPDX-License-Identifier: Apache-2.0
// The steps of a capture: the switch is frozen, the arena is installed and rewound, and the backend records.
// Each step is undone if a later step throws.
#include <tidemark/graph/capture.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/graph/graph_errors.hpp>

namespace tidemark {
namespace {

class host_instance final : public graph_instance {
 public:
  void wait() noexcept override {}
  void launch(graph_stream) override {}
  [[nodiscard]] bool is_replay_capable() const noexcept override { return false; }
};

// A deleter that undoes a step of a capture with this member function if a later step throws.
template <auto Undo>
struct undone_by {
  void operator()(auto* of) const noexcept { (void)(of->*Undo)(); }
};

std::unique_ptr<graph_instance> ended(graph_backend& backend) {
  std::unique_ptr<graph_instance> made = backend.end();
  if (made == nullptr) throw std::logic_error{"capture: the backend's end() returned null, and no graph"};
  return made;
}

// @throws layout_mismatch if the arena was made from a rehearsal and its layout differs
void require_expected_layout(graph_arena const& arena) {
  if (!arena.expected() || arena.is_planned()) return;
  graph_layout const& expected = *arena.expected();
  const graph_layout found = arena.layout();
  // The alignment is not compared: it belongs to the arena, and a smaller alignment moves no block.
  if (found.hash == expected.hash && found.allocations == expected.allocations &&
      found.bytes == expected.bytes)
    return;
  throw layout_mismatch{"capture: graph_arena '" + std::string{arena.name()} +
                            "' was made for a rehearsal of " + std::to_string(expected.allocations) +
                            " blocks in " + std::to_string(expected.bytes) + " bytes, and the capture had " +
                            std::to_string(found.allocations) + " in " + std::to_string(found.bytes) +
                            (found.allocations == expected.allocations && found.bytes == expected.bytes
                                 ? ", of other sizes or in another order"
                                 : ""),
                        expected, found};
}

}  // namespace

std::unique_ptr<graph_instance> host_backend::end() { return std::make_unique<host_instance>(); }

bool graph_backend::end_into(std::unique_ptr<graph_instance>& instance) {
  instance = ended(*this);  // the destructor of the old instance waits for its launches
  return false;
}

namespace detail {

/// Rewinds an arena to the mark at which a graph's body began, so that a new body gets the same addresses.
/// The destructor restores the arena, unless `dismiss` was called.
///
/// The rewind reuses addresses, which is safe only here: the new graph replaces the old graph, and its
/// launches follow all earlier launches. Blocks below the mark stay.
///
/// If a switch knows the arena, each step takes the switch's lock, because other threads may deallocate
/// blocks. Thread-safety: one thread at a time. Complexity: O(bytes above the mark / 256) if blocks are in
/// use, and O(requests) with a plan.
class rewound_arena {
 public:
  /// @throws allocator_busy if blocks of the old body are in use; nothing has changed then
  [[nodiscard]] rewound_arena(graph_arena& arena, monotone_layout const& begin, std::size_t request);
  rewound_arena(rewound_arena const&) = delete;
  rewound_arena& operator=(rewound_arena const&) = delete;
  /// Restores counts and layout, unless dismissed. Blocks in use above the mark stay in use. Launches of the
  /// graph overwrite these blocks, because they overlap the graph's temporaries.
  ~rewound_arena() {
    if (arena_ != nullptr) restore();
  }

  /// Leaves the arena in its current state.
  void dismiss() noexcept { arena_ = nullptr; }

  /// Returns the current layout: later blocks lie after it. O(1).
  [[nodiscard]] static monotone_layout layout_of(graph_arena const& arena) noexcept { return arena.layout_; }
  /// Returns the next request of the plan; 0 without a plan.
  [[nodiscard]] static std::size_t next_request_of(graph_arena const& arena) noexcept {
    return arena.planned_ != nullptr ? arena.planned_->cursor() : 0;
  }
  /// @throws allocator_busy if the memory is shared and blocks are in use, because other graphs would
  /// overwrite the blocks
  static void require_no_block_outlives(graph_arena const& arena);

 private:
  [[nodiscard]] static std::unique_lock<fork_safe<>> locked(graph_arena const& arena);
  template <class Function>
  void for_each_new_block(Function function) const;
  void restore() noexcept;

  graph_arena* arena_;  // null: dismissed
  monotone_layout begin_, before_;
  std::size_t request_;
  std::size_t peak_bytes_before_ = 0, peak_blocks_before_ = 0;
};

// Excludes other threads, which deallocate through the switch that knows the arena.
std::unique_lock<fork_safe<>> rewound_arena::locked(graph_arena const& arena) {
  if (arena.recognising_switch_ == nullptr) return {};
  return std::unique_lock{arena.recognising_switch_->mutex_};
}

// Visits blocks in use that were allocated since the body began, by the plan and after the plan.
template <class Function>
void rewound_arena::for_each_new_block(Function function) const {
  const std::size_t end = arena_->high_water_bytes() / monotone_layout::granule_bytes;
  for (std::size_t i = begin_.high_water_bytes() / monotone_layout::granule_bytes; i < end; ++i) {
    const std::size_t granules = arena_->granules_[i];
    if (granules != 0)
      function(arena_->layout_.begin() + i * monotone_layout::granule_bytes,
               granules * monotone_layout::granule_bytes);
  }
  if (arena_->planned_ == nullptr) return;
  for (plan_replayer::slot const& slot : arena_->planned_->all_slots().subspan(request_)) {
    if (slot.live()) function(slot.address, monotone_layout::block_bytes(slot.bytes));
  }
}

rewound_arena::rewound_arena(graph_arena& arena, monotone_layout const& begin, std::size_t request)
    : arena_{&arena}, begin_{begin}, before_{arena.layout_}, request_{request} {
  const auto lock = locked(arena);
  std::size_t blocks = 0;
  if (arena.used_blocks_ != 0) for_each_new_block([&](auto...) { ++blocks; });
  if (blocks != 0) {
    throw allocator_busy{"graph_arena '" + std::string{arena.name()} + "': update of a graph while " +
                             std::to_string(blocks) + " blocks that its body allocated are in use",
                         blocks};
  }
  arena.update_peaks();
  peak_bytes_before_ = std::exchange(arena.peak_bytes_, arena.used_bytes_);
  peak_blocks_before_ = std::exchange(arena.peak_blocks_, arena.used_blocks_);
  arena.layout_ = begin;
  if (arena.planned_ == nullptr) return;
  arena.planned_->begin(++arena.now_);
  arena.planned_->advance_to(request);
}

void rewound_arena::restore() noexcept {
  const auto lock = locked(*arena_);
  monotone_layout restored = before_;
  for_each_new_block([&](std::uintptr_t block, std::size_t bytes) {
    restored.count_block(block, bytes);
    restored.skip_to(block + bytes);
  });
  arena_->layout_ = restored;
  arena_->peak_bytes_ = std::max(peak_bytes_before_, arena_->used_bytes_);
  arena_->peak_blocks_ = std::max(peak_blocks_before_, arena_->used_blocks_);
  if (arena_->planned_ == nullptr) return;
  arena_->layout_.close();
  // The current graph owns the whole plan, so further requests go to the tail.
  arena_->planned_->advance_to(arena_->planned_->requests());
}

void rewound_arena::require_no_block_outlives(graph_arena const& arena) {
  if (!arena.is_shared()) return;
  const auto lock = locked(arena);
  if (arena.used_blocks_ == 0) return;
  throw allocator_busy{"capture: graph_arena '" + std::string{arena.name()} + "': the body left " +
                           std::to_string(arena.used_blocks_) +
                           " blocks in use in memory that other graphs overwrite",
                       arena.used_blocks_};
}

// ---- parts of a captured graph ------------------------------------------------------------------------

graph_parts::graph_parts(capture_switch* through, std::unique_ptr<graph_arena>&& temporaries,
                         graph_stream launched_on)
    : memory_{through},
      stream{launched_on},
      arena{std::move(temporaries)},
      body_begin_{rewound_arena::layout_of(*arena)},
      first_request_{rewound_arena::next_request_of(*arena)} {}

graph_parts::~graph_parts() = default;

void graph_parts::launch(graph_stream on) {
  const std::scoped_lock lock{mutex_};
  graph->launch(on);
  ++launches_;
}

std::uint64_t graph_parts::launch_count() const {
  const std::scoped_lock lock{mutex_};
  return launches_;
}

bool graph_parts::record(graph_backend& capturing,
                         std::function<void(std::pmr::memory_resource&)> const& body) {
  if (memory_ != nullptr) memory_->freeze();
  std::unique_ptr<capture_switch, undone_by<&capture_switch::unfreeze>> frozen{memory_};
  if (memory_ != nullptr) memory_->install_arena(*arena);
  std::unique_ptr<capture_switch, undone_by<&capture_switch::clear_arena>> installed{memory_};
  std::optional<rewound_arena> rewound;
  if (graph != nullptr) rewound.emplace(*arena, body_begin_, first_request_);
  {
    const std::scoped_lock lock{mutex_};  // no launch reaches the capturing stream after this
    capturing.begin();
  }
  std::unique_ptr<graph_backend, undone_by<&graph_backend::abandon>> recording{&capturing};
  // With a switch, not the arena: other threads may deallocate blocks of the arena, and the switch has the
  // lock for this.
  body(memory_ != nullptr ? static_cast<std::pmr::memory_resource&>(*memory_) : *arena);
  require_expected_layout(*arena);
  rewound_arena::require_no_block_outlives(*arena);
  const bool is_in_place = end_capture(*recording.release());
  if (rewound) rewound->dismiss();
  installed.reset();
  const baked_blocks replaced =
      std::exchange(baked_, frozen != nullptr ? frozen.release()->unfreeze() : baked_blocks{});
  if (replaced.size() == 0) return is_in_place;
  const std::scoped_lock lock{mutex_};
  graph->wait();  // launches may use the blocks of the earlier capture
  return is_in_place;
}

// @return as `record`
bool graph_parts::end_capture(graph_backend& capturing) {
  const std::scoped_lock lock{mutex_};
  if (graph != nullptr) return capturing.end_into(graph);
  graph = ended(capturing);
  return false;
}

}  // namespace detail
}  // namespace tidemark
