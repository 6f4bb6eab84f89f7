// SPDX-License-Identifier: Apache-2.0
// Adaptors of telemetry stacked in any order, as a subject of the model test. Its check compares their counts
// with each other.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <utility>
#include <variant>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/telemetry.hpp>

#include "choices.hpp"
#include "recording_supply.hpp"
#include "telemetry_subjects.hpp"

namespace tidemark::test {

/// Up to six adaptors on a resource that checks that it gets back exactly the blocks it returned. Their
/// kinds, order and options are random. Faults are random too: the lowest upstream fails now and then, and so
/// do `test_resource` adaptors on request.
class adaptor_stack {
 public:
  /// Coverage of all stacks of a test.
  struct reached {
    std::size_t stacks = 0, two_of_a_kind = 0, refused_below = 0, quarantined = 0;
  };

  adaptor_stack(choices random, trace_log& log, reached& seen)
      : random_{std::move(random)}, log_{log}, seen_{seen} {
    std::vector<std::size_t> of_kind(std::variant_size_v<layer>);
    for (std::size_t depth = 1 + below(6); depth > 0; --depth) {
      const std::size_t kind = below(of_kind.size());
      layers_.push_back(made(kind));
      if (++of_kind[kind] == 2) ++seen_.two_of_a_kind;
    }
    ++seen_.stacks;
  }
  adaptor_stack(adaptor_stack const&) = delete;
  adaptor_stack& operator=(adaptor_stack const&) = delete;
  /// Each destroyed layer returns all its memory to its upstream, without an explicit call.
  ~adaptor_stack() {
    supply_.fail_from = supply::never;
    while (!layers_.empty()) {
      layers_.pop_back();
      if (!layers_.empty()) expect_nothing_used(stats_of(layers_.back()));
    }
    EXPECT_EQ(supply_.outstanding, 0u);  // it also checks pointers, sizes and alignments
  }

  std::pmr::memory_resource& resource() { return resource_of(layers_.back()); }
  void recycle() {
    // From above, because the quarantine of a layer uses blocks of the layers below.
    for (auto at = layers_.rbegin(); at != layers_.rend(); ++at) {
      if (auto* const owner = std::get_if<owned<test_resource>>(&*at)) (*owner)->empty_quarantine();
    }
    check_all();
  }
  void check() {
    expect_consistent(stats_of(layers_.back()));
    if (++checks_ % 64 != 0) return;
    check_all();
    upset();
  }
  [[nodiscard]] std::vector<std::size_t> state() const { return visible(stats_of(layers_.back())); }

 private:
  template <class Resource>
  using owned = std::unique_ptr<Resource>;
  using layer = std::variant<owned<statistics_resource>, owned<limit_resource>, owned<tracking_resource>,
                             owned<test_resource>, owned<trace_resource>, owned<expect_no_upstream>>;

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  layer made(std::size_t kind) {
    std::pmr::memory_resource* const on = layers_.empty() ? &supply_ : &resource_of(layers_.back());
    switch (kind) {
      case 0: {
        auto counts = std::make_unique<statistics_resource>(on);
        if (below(2) == 0) counts->record_sizes(&sizes_);
        return counts;
      }
      case 1:
        return std::make_unique<limit_resource>(on, below(2) == 0 ? 1 * GiB : 4 * KiB + below(256 * KiB));
      case 2:
        return std::make_unique<tracking_resource>(on);
      case 3: {
        constexpr std::size_t guards[] = {0, 0, 1, 16, 100, test_resource::max_guard_bytes};
        constexpr std::size_t quarantines[] = {0, 1, 500, 8 * KiB, 1 * MiB};
        const test_resource_options options{.guard_bytes = guards[below(std::size(guards))],
                                            .quarantine_bytes = quarantines[below(std::size(quarantines))]};
        return std::make_unique<test_resource>(on, options);
      }
      case 4:
        return std::make_unique<trace_resource>(on, log_, "traced");
      default:
        return std::make_unique<expect_no_upstream>(on);
    }
  }

  static std::pmr::memory_resource& resource_of(layer const& of) {
    return std::visit([](auto const& owner) -> std::pmr::memory_resource& { return *owner; }, of);
  }
  static resource_stats stats_of(layer const& of) {
    return std::visit([](auto const& owner) { return owner->stats(); }, of);
  }
  static void expect_nothing_used(resource_stats const& stats) {
    EXPECT_EQ(stats.used_blocks, 0u) << stats.name;
    EXPECT_EQ(stats.used_bytes, 0u) << stats.name;
    EXPECT_EQ(stats.allocations, stats.deallocations) << stats.name;
  }

  // The lower of two layers has allocated its blocks to the upper layer, and the lowest upstream to the
  // lowest layer.
  void check_all() {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::size_t asked = bytes_requested_of_upstream(layers_[i]);
      if (i == 0) EXPECT_EQ(supply_.outstanding, asked) << stats_of(layers_[i]).name;
      else expect_agreement(layers_[i], stats_of(layers_[i - 1]), asked);
    }
  }
  static std::size_t bytes_requested_of_upstream(layer const& upper) {
    auto const* const owner = std::get_if<owned<test_resource>>(&upper);
    if (owner == nullptr) return stats_of(upper).used_bytes;
    const std::size_t guard_bytes = (*owner)->options().guard_bytes;
    std::size_t bytes = (*owner)->quarantined_bytes();
    for (live_block const& block : (*owner)->leaks())
      bytes += detail::align_up(guard_bytes, block.align) + block.bytes + guard_bytes;
    return bytes;
  }
  void expect_agreement(layer const& upper, resource_stats const& below, std::size_t asked) {
    const resource_stats above = stats_of(upper);
    EXPECT_EQ(below.used_bytes, asked) << above.name << " on " << below.name;
    if (auto const* const owner = std::get_if<owned<test_resource>>(&upper)) {
      EXPECT_EQ(below.allocations, above.allocations) << above.name << " on " << below.name;
      EXPECT_EQ(below.used_blocks > above.used_blocks, (*owner)->quarantined_bytes() != 0);
      if ((*owner)->quarantined_bytes() != 0) ++seen_.quarantined;
      return;
    }
    EXPECT_EQ(visible(below), visible(above)) << above.name << " on " << below.name;
    if (!std::holds_alternative<owned<limit_resource>>(upper))
      EXPECT_EQ(below.refused, above.refused) << above.name << " on " << below.name;
    EXPECT_LE(below.refused, above.refused) << above.name << " on " << below.name;
    if (below.refused != 0) ++seen_.refused_below;
  }

  // Sets up a failure, or makes a call that must change nothing.
  void upset() {
    if (below(4) == 0) {
      supply_.fail_from = supply_.calls + below(50);
      supply_.fail_count = 1 + below(3);
    }
    layer const& one = layers_[below(layers_.size())];
    if (auto const* const owner = std::get_if<owned<test_resource>>(&one))
      (*owner)->fail_allocation(1 + below(100));
    if (auto const* const owner = std::get_if<owned<statistics_resource>>(&one)) {
      if ((*owner)->frames() != 0 && below(2) == 0) expect_consistent_frame((*owner)->pop_counters());
      else if ((*owner)->frames() < 4) (*owner)->push_counters();
    }
  }
  static void expect_consistent_frame(resource_stats const& frame) {
    EXPECT_LE(frame.used_blocks, frame.peak_blocks);
    EXPECT_LE(frame.used_bytes, frame.peak_bytes);
    EXPECT_LE(frame.peak_bytes, frame.total_bytes);
  }

  choices random_;
  trace_log& log_;
  reached& seen_;
  size_histogram sizes_;
  recording_resource supply_;
  std::vector<layer> layers_;  // the lowest first
  std::size_t checks_ = 0;
};

}  // namespace tidemark::test
