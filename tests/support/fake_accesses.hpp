// SPDX-License-Identifier: Apache-2.0
// Records which work touches which memory, and checks that it is ordered. Vector clocks find each race on the
// path of a run, whatever the schedule.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/byte_range.hpp>

namespace tidemark::test {

/// A point in the order of a program: for each actor (a stream, a host thread) the number of moments known to
/// come before (Fidge; Mattern: "Virtual Time and Global States of Distributed Systems", 1989).
class fake_clock {
 public:
  /// The next moment of an actor.
  void tick(std::uintptr_t actor) { ++known_[actor]; }
  /// The number of its last moment that is known; 0 if none is.
  [[nodiscard]] std::size_t number(std::uintptr_t actor) const {
    const auto found = known_.find(actor);
    return found == known_.end() ? 0 : found->second;
  }
  /// Adds the knowledge of the other clock.
  void join(fake_clock const& other) {
    for (auto const& [actor, moment] : other.known_) {
      std::size_t& here = known_[actor];
      here = std::max(here, moment);
    }
  }
  /// Returns true if this moment of the actor comes before.
  [[nodiscard]] bool knows(std::uintptr_t actor, std::size_t moment) const { return number(actor) >= moment; }

 private:
  std::map<std::uintptr_t, std::size_t> known_;
};

/// The memory accesses of a kernel. The name is for messages.
struct fake_kernel {
  std::string name;
  std::vector<byte_range> reads;
  std::vector<byte_range> writes;
};

/// The last accesses to each byte. A race fails the test and names both sides.
///
/// Invariant: if two accesses overlap and one of them writes, the later is ordered after the earlier, or was
/// reported.
class fake_accesses {
 public:
  /// An actor that touches memory, its moment, and its knowledge.
  struct moment {
    std::uintptr_t actor;
    std::size_t number;
    fake_clock const& known;
  };

  /// A kernel is put on a stream, or launched with a graph.
  void touch(fake_kernel const& kernel, moment const& at) {
    check(kernel, at);
    record(kernel, at);
  }
  /// All kernels of a graph are checked before any is recorded. The graph's own order is checked separately.
  void check(fake_kernel const& kernel, moment const& at) const {
    if (any_overlap(kernel.reads, freed_) || any_overlap(kernel.writes, freed_))
      ADD_FAILURE() << "'" << kernel.name << "' uses memory that was freed";
    for (byte_range const& range : kernel.reads) check(range, false, kernel.name, at);
    for (byte_range const& range : kernel.writes) check(range, true, kernel.name, at);
  }
  void record(fake_kernel const& kernel, moment const& at) {
    for (byte_range const& range : kernel.reads) record(range, false, kernel.name, at);
    for (byte_range const& range : kernel.writes) record(range, true, kernel.name, at);
  }
  /// Memory exists from this moment on. Actors that do not know this moment must not touch it.
  void begin(byte_range range, std::string const& what, moment const& at) {
    appear(range);
    record(range, true, what, at);
  }
  /// Memory of any kind exists: it is no longer freed.
  void appear(byte_range range) {
    std::erase_if(freed_, [&](byte_range each) { return overlap(each, range); });
  }
  /// Memory is freed in the order of a stream. It may exist for long, but no work may be launched on it.
  void free(byte_range range, std::string const& what, fake_clock const& known) {
    end(range, what, known);
    freed_.push_back(range);
  }
  /// Memory ends: every access to it must come before. The driver does not wait.
  void end(byte_range range, std::string const& what, fake_clock const& known) {
    for (access const& each : accesses_) {
      if (!overlap(each.range, range) || known.knows(each.actor, each.number)) continue;
      ADD_FAILURE() << what << " takes memory at " << text(range) << " while '" << each.name
                    << "' may still use it: nothing orders them";
    }
    std::erase_if(accesses_, [&](access const& each) { return overlap(each.range, range); });
  }
  /// Returns true if two kernels of a graph conflict. They may run in any order only if neither writes memory
  /// that the other touches.
  static bool conflict(fake_kernel const& a, fake_kernel const& b) {
    return any_overlap(a.writes, b.writes) || any_overlap(a.writes, b.reads) ||
           any_overlap(a.reads, b.writes);
  }

  /// Returns other addresses of the same memory, whose accesses must also be ordered; empty if none exist.
  std::function<std::vector<byte_range>(byte_range)> aliases_of;

 private:
  struct access {
    byte_range range;
    bool is_write;
    std::string name;
    std::uintptr_t actor;
    std::size_t number;
  };

  static bool overlap(byte_range a, byte_range b) { return a.begin < b.end() && b.begin < a.end(); }
  static bool any_overlap(std::vector<byte_range> const& some, std::vector<byte_range> const& others) {
    return std::ranges::any_of(some, [&](byte_range a) {
      return std::ranges::any_of(others, [&](byte_range b) { return overlap(a, b); });
    });
  }
  static std::string text(byte_range range) {
    return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end()) + ")";
  }
  void check(byte_range range, bool is_write, std::string const& name, moment const& at) const {
    check_at(range, is_write, name, at);
    if (!aliases_of) return;
    for (byte_range alias : aliases_of(range)) check_at(alias, is_write, name, at);
  }
  void check_at(byte_range range, bool is_write, std::string const& name, moment const& at) const {
    for (access const& each : accesses_) {
      if (!overlap(each.range, range) || (!is_write && !each.is_write)) continue;
      if (at.known.knows(each.actor, each.number)) continue;
      ADD_FAILURE() << "race: '" << name << "' " << (is_write ? "writes " : "reads ") << text(range)
                    << ", which '" << each.name << (each.is_write ? "' writes" : "' reads")
                    << ", and nothing orders them";
    }
  }
  // A write that covers earlier accesses and comes behind them stands for them.
  void record(byte_range range, bool is_write, std::string const& name, moment const& at) {
    std::erase_if(accesses_, [&](access const& each) {
      const bool is_covered = range.begin <= each.range.begin && each.range.end() <= range.end();
      return is_covered && at.known.knows(each.actor, each.number) && (is_write || !each.is_write) &&
             !(each.actor == at.actor && each.number == at.number);
    });
    accesses_.push_back({range, is_write, name, at.actor, at.number});
  }

  std::vector<access> accesses_;
  std::vector<byte_range> freed_;  // in stream order, and not allocated again
};

}  // namespace tidemark::test
