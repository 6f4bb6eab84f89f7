// SPDX-License-Identifier: Apache-2.0
// Stream capture on the fake device: the fate of a capture, and the resulting graphs. Requires the lock of
// fake_device.hpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/driver.hpp>

#include "fake_memory.hpp"
#include "fake_refusals.hpp"
#include "fake_streams.hpp"

namespace tidemark::test {

/// Memory that a graph's node allocates. The graph owns its address as long as the graph exists. The block
/// uses capacity for this time.
struct fake_graph_block {
  fake_graph_block(fake_memory& of, std::uintptr_t at) : memory{of}, first{at} {}
  fake_graph_block(fake_graph_block const&) = delete;
  fake_graph_block& operator=(fake_graph_block const&) = delete;
  ~fake_graph_block() { memory.deallocate(fake_memory::block_kind::graph, first); }

  fake_memory& memory;
  std::uintptr_t first;
};

struct fake_graph;

/// A graph that can be launched.
struct fake_executable {
  std::shared_ptr<fake_graph const> graph;
  std::shared_ptr<fake_moment> last;  ///< end of the launch before, which the next one waits for
};

struct fake_node {
  enum class kind { host_function, kernel, allocation, free };

  kind what;
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
  std::shared_ptr<fake_kernel const> kernel = {};
  std::shared_ptr<fake_graph_block> block = {};  ///< that is allocated or freed
  std::size_t place = 0;                         ///< its own in the capture
  fake_places behind = {};                       ///< that come before it
};

struct fake_graph {
  std::vector<fake_node> nodes;               ///< in one valid order of the capture
  std::weak_ptr<fake_executable> executable;  ///< an executable of the graph, if one exists

  [[nodiscard]] bool allocates() const {
    for (fake_node const& node : nodes)
      if (node.block != nullptr) return true;
    return false;
  }
};

struct fake_capture {
  enum class condition { active, invalidated, ended };

  std::shared_ptr<fake_stream> origin;
  std::thread::id thread;
  gpu::capture_mode mode{};
  condition now = condition::active;
  std::shared_ptr<fake_graph> graph = std::make_shared<fake_graph>();
  std::size_t places = 0;                                            ///< given so far
  std::vector<std::shared_ptr<fake_stream>> streams;                 ///< that it drew in, the origin too
  std::map<std::uintptr_t, std::shared_ptr<fake_graph_block>> live;  ///< blocks allocated and not freed in it
};

/// The state machine of the programming guide. An invalid operation invalidates every capture that it
/// touches. All use of the capture's streams and events is then refused until it is ended, which gives no
/// graph.
class fake_captures {
 public:
  using status = gpu::status;
  using condition = fake_capture::condition;

  fake_captures(fake_memory& memory, fake_accesses& accesses) : memory_{memory}, accesses_{accesses} {}
  fake_captures(fake_captures const&) = delete;
  fake_captures& operator=(fake_captures const&) = delete;
  ~fake_captures() {
    EXPECT_TRUE(captures_.empty()) << captures_.size() << " captures were not ended";
    while (!captures_.empty()) close(captures_.front());
    EXPECT_TRUE(graphs_.empty()) << graphs_.size() << " graphs were not destroyed";
    EXPECT_TRUE(executables_.empty()) << executables_.size() << " executable graphs were not destroyed";
    EXPECT_TRUE(live_.empty()) << live_.size() << " blocks that a graph allocated were not freed";
  }

  // ---- captures ----

  status begin(std::shared_ptr<fake_stream> const& on, gpu::capture_mode mode) {
    if (on->is == fake_stream::sort::legacy) return status::capture_unsupported;
    if (on->capture != nullptr) return violate(*on->capture, status::illegal_state);
    auto begun = std::make_shared<fake_capture>();
    begun->origin = on;
    begun->thread = std::this_thread::get_id();
    begun->mode = mode;
    draw_in(begun, on, {});
    captures_.push_back(std::move(begun));
    return status::success;
  }
  status end(fake_stream& on, gpu::graph_handle& graph) {
    if (on.capture == nullptr) return status::illegal_state;
    std::shared_ptr<fake_capture> const capture = on.capture;
    if (capture->origin.get() != &on) return violate(*capture, status::capture_unmatched);
    if (capture->mode != gpu::capture_mode::relaxed && capture->thread != std::this_thread::get_id())
      return violate(*capture, status::capture_wrong_thread);
    const bool valid = capture->now == condition::active;
    const bool joined = on.behind.size() == capture->places;
    std::shared_ptr<fake_graph> made = capture->graph;
    close(capture);
    if (!valid) return status::capture_invalidated;
    if (!joined) return status::capture_unjoined;
    graph = reinterpret_cast<gpu::graph_handle>(next_fake_handle());
    graphs_.emplace(graph, std::move(made));
    return status::success;
  }
  /// Ends the capture that the stream belongs to, and drops its graph.
  void abandon(fake_stream& of) {
    if (of.capture != nullptr) close(std::shared_ptr<fake_capture>{of.capture});
  }
  /// The stream is destroyed: so is the capture that it began; another that it belongs to has lost work.
  void lose(fake_stream& gone) {
    if (gone.capture == nullptr) return;
    if (gone.capture->origin.get() == &gone) return abandon(gone);
    (void)violate(*gone.capture, status::capture_invalidated);
  }
  /// Invalidates a capture. @return `result`, or that the capture was already invalid
  static status violate(fake_capture& capture, status result) {
    if (capture.now == condition::invalidated) return status::capture_invalidated;
    capture.now = condition::invalidated;
    return result;
  }
  /// Returns the answer of the active captures to a call by this thread. Each capture that rejects the call
  /// becomes invalid.
  status refuse(fake_refusal const& call) {
    const auto exchanged = modes_.find(std::this_thread::get_id());
    const gpu::capture_mode here_mode =
        exchanged == modes_.end() ? gpu::capture_mode::global : exchanged->second;
    if (here_mode == gpu::capture_mode::relaxed && !call.in_relaxed_too) return status::success;
    status result = status::success;
    for (auto const& each : captures_) {
      const bool is_own = each->thread == std::this_thread::get_id();
      const bool reaches_others = here_mode != gpu::capture_mode::thread_local_ || call.in_relaxed_too;
      const bool is_concerned =
          is_own ? call.by_own && each->mode != gpu::capture_mode::relaxed
                 : call.by_others && each->mode == gpu::capture_mode::global && reaches_others;
      if (!is_concerned) continue;
      const status here = violate(*each, status::capture_unsupported);
      if (result != status::capture_unsupported) result = here;
    }
    return result;
  }
  /// The calling thread's own mode, which is global until it is exchanged.
  void exchange_mode(gpu::capture_mode& mode) {
    gpu::capture_mode& here =
        modes_.try_emplace(std::this_thread::get_id(), gpu::capture_mode::global).first->second;
    std::swap(here, mode);
  }
  /// Refuses to synchronize a device with a capturing stream, in every mode.
  status refuse_synchronization(gpu::device_number device) {
    status result = status::success;
    for (auto const& each : captures_) {
      bool touched = false;
      for (auto const& stream : each->streams) touched = touched || stream->device == device;
      if (!touched) continue;
      const status here = violate(*each, status::capture_unsupported);
      if (result != status::capture_unsupported) result = here;
    }
    return result;
  }
  /// Refuses to look at an event that was last recorded in a capture, which is no work that ever runs.
  static status refuse_captured(fake_event const& event) {
    if (event.capture == nullptr) return status::success;
    if (event.capture->now == condition::ended) return status::captured_event;
    return violate(*event.capture, status::captured_event);
  }
  /// Refuses work on the legacy stream while a blocking stream of the device captures, because the work would
  /// have to wait for this stream.
  status refuse_legacy(fake_stream const& on) {
    status result = status::success;
    if (on.is != fake_stream::sort::legacy) return result;
    for (auto const& each : captures_) {
      if (!has_blocking_stream(*each, on.device)) continue;
      const status here = violate(*each, status::capture_implicit);
      if (result != status::capture_implicit) result = here;
    }
    return result;
  }
  /// Returns true if work on this stream would be rejected.
  [[nodiscard]] bool disturbed_by(fake_stream const& on) const {
    return on.is == fake_stream::sort::legacy && std::ranges::any_of(captures_, [&](auto const& each) {
             return has_blocking_stream(*each, on.device);
           });
  }
  /// Returns true if this thread has begun a capture that has not ended.
  [[nodiscard]] bool captures_here() const {
    for (auto const& each : captures_)
      if (each->thread == std::this_thread::get_id()) return true;
    return false;
  }

  /// Records an event in the stream's capture. @pre the stream captures.
  static status record(fake_event& event, fake_stream const& on) {
    if (on.capture->now == condition::invalidated) return status::capture_invalidated;
    event.last = nullptr;
    event.capture = on.capture;
    event.behind = on.behind;
    return status::success;
  }
  /// Makes a stream wait for an event, if one of the two belongs to a capture.
  static status wait(std::shared_ptr<fake_stream> const& on, fake_event const& event) {
    fake_capture* const waiting = on->capture.get();
    if (waiting != nullptr && waiting->now == condition::invalidated) return status::capture_invalidated;
    if (event.capture == nullptr) return violate(*waiting, status::capture_isolation);
    if (event.capture->now == condition::ended)
      return waiting == nullptr ? status::captured_event : violate(*waiting, status::capture_isolation);
    if (waiting != nullptr && event.capture.get() != waiting) {
      (void)violate(*event.capture, status::capture_merge);
      return violate(*waiting, status::capture_merge);
    }
    if (event.capture->now == condition::invalidated) return status::invalid_value;
    if (on->is == fake_stream::sort::legacy) return violate(*event.capture, status::capture_implicit);
    if (waiting == nullptr) {
      draw_in(event.capture, on, event.behind);
    } else {
      on->behind.insert(event.behind.begin(), event.behind.end());
    }
    return status::success;
  }
  /// Appends a node to the captured work of the stream. @pre the stream captures
  static status add(fake_stream& on, fake_node node) {
    fake_capture& capture = *on.capture;
    if (capture.now == condition::invalidated) return status::capture_invalidated;
    node.place = capture.places++;
    node.behind = on.behind;
    check_order(*capture.graph, node);
    capture.graph->nodes.push_back(std::move(node));
    on.behind.insert(capture.graph->nodes.back().place);
    return status::success;
  }
  /// Puts an allocation there.
  status allocate(fake_stream& on, gpu::device_number device, std::size_t bytes, std::uintptr_t& first) {
    if (on.capture->now == condition::invalidated) return status::capture_invalidated;
    std::uintptr_t address = 0;
    const status result = memory_.allocate(fake_memory::block_kind::graph, device, bytes, address);
    if (result != status::success) return violate(*on.capture, result);
    first = address;
    auto made = std::make_shared<fake_graph_block>(memory_, address);
    on.capture->live.emplace(address, made);
    return add(on, {.what = fake_node::kind::allocation, .block = std::move(made)});
  }
  /// Puts a free there, of a block that a graph allocates: this one, or one that was launched.
  status deallocate(fake_stream& on, std::uintptr_t first) {
    if (on.capture->now == condition::invalidated) return status::capture_invalidated;
    std::shared_ptr<fake_graph_block> block;
    if (const auto own = on.capture->live.find(first); own != on.capture->live.end()) {
      block = own->second;
      on.capture->live.erase(own);
    } else if (const auto other = live_.find(first); other != live_.end()) {
      block = other->second;
    }
    if (block == nullptr) return violate(*on.capture, status::invalid_value);
    return add(on, {.what = fake_node::kind::free, .block = std::move(block)});
  }

  // ---- graphs ----

  /// Returns the graph, or null.
  std::shared_ptr<fake_graph> graph(gpu::graph_handle handle) const {
    const auto found = graphs_.find(handle);
    return found == graphs_.end() ? nullptr : found->second;
  }
  bool destroy(gpu::graph_handle handle) { return graphs_.erase(handle) == 1; }
  bool destroy(gpu::executable_handle handle) { return executables_.erase(handle) == 1; }
  status instantiate(gpu::graph_handle handle, gpu::executable_handle& executable) {
    std::shared_ptr<fake_graph> const of = graph(handle);
    if (of == nullptr) return status::invalid_value;
    // One at a time of a graph that allocates: both would own the same addresses.
    if (of->allocates() && !of->executable.expired()) return status::invalid_value;
    auto made = std::make_shared<fake_executable>(fake_executable{.graph = of, .last = {}});
    of->executable = made;
    executable = reinterpret_cast<gpu::executable_handle>(next_fake_handle());
    executables_.emplace(executable, std::move(made));
    return status::success;
  }
  /// Later launches are of the new graph if it matches the executable's graph. Earlier launches keep theirs.
  status update(gpu::executable_handle handle, gpu::graph_handle graph_of) {
    const auto found = executables_.find(handle);
    std::shared_ptr<fake_graph> const made = graph(graph_of);
    if (found == executables_.end() || made == nullptr) return status::invalid_value;
    if (!is_updatable(*found->second->graph, *made)) return status::graph_update_failed;
    // Another object, because work that was launched refers to the one before.
    found->second =
        std::make_shared<fake_executable>(fake_executable{.graph = made, .last = found->second->last});
    return status::success;
  }
  status launch(gpu::executable_handle handle, std::shared_ptr<fake_stream> const& on) {
    const auto found = executables_.find(handle);
    if (found == executables_.end()) return status::invalid_value;
    std::shared_ptr<fake_executable> const executable = found->second;
    if (on->capture != nullptr) return violate(*on->capture, status::capture_unsupported);
    if (!launch_memory(*executable->graph)) return status::invalid_value;
    if (executable->last != nullptr) fake_streams::wait(*on, executable->last);
    on->known.tick(on->identity);  // behind the launch before
    const fake_accesses::moment now{on->identity, on->known.number(on->identity), on->known};
    for (fake_node const& node : executable->graph->nodes)
      if (node.kernel != nullptr) accesses_.check(*node.kernel, now);
    for (fake_node const& node : executable->graph->nodes)
      if (node.kernel != nullptr) accesses_.record(*node.kernel, now);
    launch_nodes(*executable->graph, *on, executable);
    executable->last = fake_streams::record(on);
    return status::success;
  }
  /// Frees a block that a launched graph allocated. Returns false if none exists.
  bool free_block(std::uintptr_t first) { return live_.erase(first) == 1; }

 private:
  static bool has_blocking_stream(fake_capture const& capture, gpu::device_number device) {
    return std::ranges::any_of(capture.streams, [&](auto const& stream) {
      return stream->device == device && stream->is == fake_stream::sort::blocking;
    });
  }
  // The stream gets its own place, which joining it again refers to, even if it captured nothing.
  static void draw_in(std::shared_ptr<fake_capture> const& to, std::shared_ptr<fake_stream> const& on,
                      fake_places behind) {
    on->capture = to;
    on->behind = std::move(behind);
    on->behind.insert(to->places++);
    to->streams.push_back(on);
  }
  // By the documentation of cuGraphExecUpdate: the same nodes with the same dependencies, in the same order.
  // It does not mention allocating nodes. The strictest reading therefore holds: a graph with such nodes does
  // not match.
  static bool is_updatable(fake_graph const& before, fake_graph const& now) {
    return !before.allocates() && !now.allocates() &&
           std::ranges::equal(before.nodes, now.nodes, {}, &fake_node::what, &fake_node::what) &&
           dependencies_of(before) == dependencies_of(now);
  }
  // Returns for each node the numbers of the nodes before it.
  static std::vector<std::vector<std::size_t>> dependencies_of(fake_graph const& graph) {
    std::vector<std::vector<std::size_t>> all;
    for (fake_node const& node : graph.nodes) {
      std::vector<std::size_t>& of_node = all.emplace_back();
      for (std::size_t i = 0; i < graph.nodes.size(); ++i)
        if (node.behind.contains(graph.nodes[i].place)) of_node.push_back(i);
    }
    return all;
  }
  void close(std::shared_ptr<fake_capture> const& capture) {
    std::shared_ptr<fake_capture> const kept = capture;
    kept->now = condition::ended;
    for (auto const& stream : kept->streams) {
      stream->capture = nullptr;
      stream->behind.clear();
    }
    kept->streams.clear();
    kept->origin = nullptr;
    kept->graph = nullptr;  // an event may hold the capture for long
    kept->live.clear();
    std::erase(captures_, kept);
  }
  // Allocates and frees by a graph's nodes, in order. Changes nothing if a node cannot.
  bool launch_memory(fake_graph const& graph) {
    auto live = live_;
    for (fake_node const& node : graph.nodes) {
      if (node.what == fake_node::kind::allocation && !live.emplace(node.block->first, node.block).second)
        return false;
      if (node.what == fake_node::kind::free && live.erase(node.block->first) == 0) return false;
    }
    live_ = std::move(live);
    return true;
  }
  // In any order that their dependencies leave open: branches run side by side.
  void launch_nodes(fake_graph const& graph, fake_stream& on, std::shared_ptr<void const> const& keeps) {
    std::vector<fake_node const*> waiting;
    for (fake_node const& node : graph.nodes) waiting.push_back(&node);
    while (!waiting.empty()) {
      std::vector<std::size_t> ready;
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        const bool waits = std::ranges::any_of(waiting, [&](fake_node const* other) {
          return other != waiting[i] && waiting[i]->behind.contains(other->place);
        });
        if (!waits) ready.push_back(i);
      }
      const auto next = waiting.begin() + static_cast<std::ptrdiff_t>(ready[random_() % ready.size()]);
      fake_node const& node = **next;
      waiting.erase(next);
      if (node.what != fake_node::kind::host_function && node.what != fake_node::kind::kernel) continue;
      on.queue.push_back(
          {.what = node.kernel != nullptr ? fake_work::kind::kernel : fake_work::kind::host_function,
           .function = node.function,
           .argument = node.argument,
           .kernel = node.kernel,
           .moment = {},
           .done = {},
           .keeps = keeps});
    }
  }
  // Branches of a graph run side by side, so no branch may write memory that another touches.
  static void check_order(fake_graph const& graph, fake_node const& added) {
    if (added.kernel == nullptr) return;
    for (fake_node const& node : graph.nodes) {
      if (node.kernel == nullptr || added.behind.contains(node.place)) continue;
      if (!fake_accesses::conflict(*node.kernel, *added.kernel)) continue;
      ADD_FAILURE() << "race in a graph: '" << added.kernel->name << "' and '" << node.kernel->name
                    << "' use the same memory, and nothing orders them";
    }
  }

  fake_memory& memory_;
  fake_accesses& accesses_;
  std::minstd_rand random_;                              // the same in each run
  std::vector<std::shared_ptr<fake_capture>> captures_;  // that have not ended
  std::map<std::thread::id, gpu::capture_mode> modes_;
  std::map<gpu::graph_handle, std::shared_ptr<fake_graph>> graphs_;
  std::map<gpu::executable_handle, std::shared_ptr<fake_executable>> executables_;
  std::map<std::uintptr_t, std::shared_ptr<fake_graph_block>> live_;  // that launches allocated
};

}  // namespace tidemark::test
