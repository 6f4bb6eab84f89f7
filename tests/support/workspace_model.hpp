// SPDX-License-Identifier: Apache-2.0
// Random sequences of all operations of a workspace on one thread, compared with a model. The model has a
// vector of allocated arrays, a vector of open scopes, and for each type the sizes of its slots. The contents
// of each array last until its scope ends, no two arrays share memory, and a slot with enough room does not
// move.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <tidemark/workspace/workspace.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "recording_supply.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {

template <class Workspace>
class workspace_model {
 public:
  workspace_model(std::pmr::memory_resource* upstream, choices random)
      : upstream_{upstream},
        ws_{workspace_options{.bookkeeping = &records_, .upstream = &upstream_, .name = "model"}},
        random_{std::move(random)} {}
  workspace_model(workspace_model const&) = delete;
  workspace_model& operator=(workspace_model const&) = delete;
  ~workspace_model() { end_from(0); }

  void step() {
    const std::uint64_t what = random_() % 1000;
    if (what < 500) acquire();
    else if (what < 620) open();
    else if (what < 740) close();
    else if (what < 830) rewind();
    else if (what < 850) ended_.clear();
    else if (what < 870) reset();
    else if (what < 890) reset_one();
    else if (what < 920) trim();
    else if (what < 940) trim_one();
    else if (what < 960) trim_to_recent_peak();
    else if (what < 995) compact();
    else release();
    check_counts();
    ws_.check_invariants();
  }

  /// Checks that each array holds the contents written at its acquisition.
  void check_contents() const {
    for (held const& each : held_) expect_contents(each);
  }

  std::uint64_t skipped = 0, refused = 0, trimmed = 0, compacted = 0, kept_in_use = 0, reused = 0, grown = 0;

 private:
  static constexpr std::size_t type_count = 10;
  static constexpr std::array<std::size_t, type_count> element_bytes{
      8, 4, 8, 4, 8, 16, sizeof(numbered<0>), sizeof(numbered<3>), sizeof(numbered<5>), 8};

  // The allocated arrays, the oldest first.
  struct held {
    std::size_t type;
    std::byte* first;
    std::size_t bytes;
    std::byte written;
  };
  // A scope or checkpoint that is open.
  using plain_scope = typename Workspace::template scope<>;
  using named_scope = typename Workspace::template scope<double, numbered<3>, packed_bits>;
  struct frame {
    std::unique_ptr<plain_scope> plain;
    std::unique_ptr<named_scope> named;
    std::size_t held_before;
    std::bitset<type_count> saved;
    [[nodiscard]] bool is_checkpoint() const { return plain == nullptr && named == nullptr; }
  };
  struct slot {
    std::size_t capacity = 0, newest = 0;  // in elements; of bits, in words
    std::byte* first = nullptr;
  };
  struct slots {
    std::vector<slot> all;
    std::size_t active = 0, peak = 0;
  };

  // ---- operations ----

  using types = std::tuple<double, float, std::int64_t, std::int32_t, std::complex<float>,
                           std::complex<double>, numbered<0>, numbered<3>, numbered<5>>;

  template <class Source, std::size_t Type = 0>
  std::span<std::byte> acquire_from(Source& source, std::size_t type, std::size_t n) {
    if constexpr (Type == std::tuple_size_v<types>) {
      return std::as_writable_bytes(source.bits(n).words());
    } else {
      if (type != Type) return acquire_from<Source, Type + 1>(source, type, n);
      return bytes_of(test::acquire_from<std::tuple_element_t<Type, types>>(source, n));
    }
  }
  static std::span<std::byte> bytes_of(auto view) { return std::as_writable_bytes(view.elements()); }

  void acquire() {
    if (held_.size() > 150) return;
    const std::size_t type = random_() % type_count;
    std::size_t n = random_() % (random_() % 40 == 0 ? 3000 : 60);
    if (random_() % 10 == 0) n = 0;
    // Through the innermost scope, or the workspace, as a function does that was called.
    frame* const in = frames_.empty() || random_() % 2 == 0 ? nullptr : &frames_.back();
    log_line(in == nullptr ? "ws" : "scopes.back()", ".acquire<types[", type, "]>(", n, ");");
    std::span<std::byte> memory;
    if (in != nullptr && in->plain != nullptr) memory = acquire_from(*in->plain, type, n);
    else if (in != nullptr && in->named != nullptr) memory = acquire_from(*in->named, type, n);
    else memory = acquire_from(ws_, type, n);

    if (type == type_count - 1) n = (n + 63) / 64;
    EXPECT_EQ(memory.size(), n * element_bytes[type]);
    record_acquired(slots_[type], n, memory.data());
    if (!frames_.empty()) frames_.back().saved.set(type);
    EXPECT_FALSE(shares_memory(memory));
    const auto written = static_cast<std::byte>(random_());
    if (!memory.empty()) std::memset(memory.data(), static_cast<int>(written), memory.size());
    held_.push_back({type, memory.data(), memory.size(), written});
  }

  [[nodiscard]] bool shares_memory(std::span<std::byte> memory) const {
    for (held const& other : held_) {
      if (memory.data() < other.first + other.bytes && other.first < memory.data() + memory.size())
        return true;
    }
    return false;
  }

  void record_acquired(slots& of, std::size_t n, std::byte* first) {
    if (of.active == of.all.size()) of.all.emplace_back();
    slot& next = of.all[of.active++];
    of.peak = std::max(of.peak, of.active);
    if (n > next.capacity) {
      next.capacity = next.capacity == 0 ? n : std::max(n, next.capacity + next.capacity / 2);
      next.first = first;
      ++grown;
    } else if (next.first != nullptr) {
      if (n > 0) EXPECT_EQ(first, next.first) << "a slot with room is where it was";
      ++reused;
    } else {
      next.first = first;
    }
    next.newest = n;
  }

  void open() {
    if (frames_.size() >= 12) return;
    frame fresh{.plain = nullptr, .named = nullptr, .held_before = held_.size(), .saved = {}};
    const std::uint64_t kind = random_() % 4;
    log_line(kind == 0   ? "open(workspace::scope<>{ws});"
             : kind == 1 ? "open(workspace::scope<double, numbered<3>, packed_bits>{ws});"
             : kind == 2 ? "ws.checkpoint();"
                         : "ws.checkpoint<float, numbered<5>, float>();");
    switch (kind) {
      case 0:
        fresh.plain = std::make_unique<plain_scope>(ws_);
        break;
      case 1:
        fresh.named = std::make_unique<named_scope>(ws_);
        fresh.saved.set(0).set(7).set(9);
        break;
      case 2:
        ws_.checkpoint();
        break;
      default:
        ws_.template checkpoint<float, numbered<5>, float>();
        fresh.saved.set(1).set(8);
    }
    frames_.push_back(std::move(fresh));
  }

  void close() {
    std::size_t i = frames_.size();
    while (i > 0 && (frames_[i - 1].is_checkpoint() || random_() % 8 == 0)) --i;
    if (i == 0 || frames_[i - 1].is_checkpoint()) return;
    end_from(i - 1);
  }

  /// Ends the frame at `i`, a scope or the first frame, and all frames inside it.
  void end_from(std::size_t i) {
    while (i < frames_.size() && frames_[i].is_checkpoint()) {  // at the very end only
      remove_above(frames_.back().held_before);
      if (frames_.back().is_checkpoint()) ws_.rewind();
      frames_.pop_back();
    }
    if (i >= frames_.size()) return;
    if (i + 1 != frames_.size()) ++skipped;
    remove_above(frames_[i].held_before);
    log_line("scopes[", i, "].end();");
    if (frames_[i].plain != nullptr) frames_[i].plain->end();
    else frames_[i].named->end();
    // Inner scopes do nothing when they end later.
    for (std::size_t j = i + 1; j < frames_.size(); ++j) ended_.push_back(std::move(frames_[j]));
    frames_.resize(i);
  }

  void rewind() {
    log_line("ws.rewind();  // or not, where nothing is open");
    if (frames_.empty()) {
      if (random_() % 4 != 0) return;
      remove_above(0);
      ws_.rewind();
    } else {
      remove_above(frames_.back().held_before);
      ws_.rewind();
      if (frames_.back().is_checkpoint()) frames_.pop_back();
    }
  }

  [[nodiscard]] bool scopes_are_open() const {
    return std::ranges::any_of(frames_, [](frame const& one) { return !one.is_checkpoint(); });
  }

  template <class Call>
  bool is_refused(bool expected, Call call) {
    bool thrown = false;
    try {
      call();
    } catch (std::logic_error const&) {
      thrown = true;
    }
    EXPECT_EQ(thrown, expected);
    refused += thrown ? 1 : 0;
    return thrown;
  }

  void reset() {
    log_line("ws.reset();");
    check_contents();
    if (!is_refused(scopes_are_open(), [&] { ws_.reset(); })) end_all();
  }

  void end_all() {
    held_.clear();
    frames_.clear();  // checkpoints only
    for (slots& of : slots_) of.active = 0;
  }

  void reset_one() {
    log_line("ws.reset<double>(); ws.reset<numbered<3>>();");
    check_contents();
    if (is_refused(!frames_.empty(), [&] { ws_.template reset<double>(); })) return;
    std::erase_if(held_, [&](held const& each) { return each.type == 0; });
    slots_[0].active = 0;
    is_refused(false, [&] { ws_.template reset<numbered<3>>(); });
    std::erase_if(held_, [&](held const& each) { return each.type == 7; });
    slots_[7].active = 0;
  }

  void release() {
    log_line("ws.release();");
    check_contents();
    if (is_refused(scopes_are_open(), [&] { ws_.release(); })) return;
    end_all();
    slots_ = {};
    EXPECT_EQ(records_.outstanding, 0u);
  }

  trim_summary cut(std::size_t type, std::size_t keep) {
    slots& of = slots_[type];
    trim_summary expected;
    while (of.all.size() > keep) {
      ++expected.slot_count;
      expected.bytes += of.all.back().capacity * element_bytes[type];
      of.all.pop_back();
    }
    trimmed += expected.slot_count;
    return expected;
  }
  static void expect_same(trim_summary const& now, trim_summary const& expected) {
    EXPECT_EQ(now.slot_count, expected.slot_count);
    EXPECT_EQ(now.bytes, expected.bytes);
  }

  void trim() {
    log_line("ws.trim();");
    trim_summary expected;
    for (std::size_t type = 0; type < type_count; ++type) {
      const trim_summary one = cut(type, slots_[type].active);
      expected.slot_count += one.slot_count;
      expected.bytes += one.bytes;
    }
    expect_same(ws_.trim(), expected);
  }
  void trim_one() {
    log_line("ws.trim<float>(); ws.trim<numbered<0>>(); ws.trim<packed_bits>();");
    expect_same(ws_.template trim<float>(), cut(1, slots_[1].active));
    expect_same(ws_.template trim<numbered<0>>(), cut(6, slots_[6].active));
    expect_same(ws_.template trim<packed_bits>(), cut(9, slots_[9].active));
  }
  void trim_to_recent_peak() {
    log_line("ws.trim_to_recent_peak();");
    trim_summary expected;
    for (std::size_t type = 0; type < type_count; ++type) {
      slots& of = slots_[type];
      const trim_summary one = cut(type, std::max(of.active, of.peak));
      of.peak = of.active;
      expected.slot_count += one.slot_count;
      expected.bytes += one.bytes;
    }
    expect_same(ws_.trim_to_recent_peak(), expected);
  }

  void compact() {
    compact_options options;
    options.factor = static_cast<double>(random_() % 5) / 2;
    options.headroom = static_cast<double>(random_() % 8) / 4;
    options.least_bytes = random_() % (random_() % 2 == 0 ? 100 : 10'000);
    log_line("ws.compact({.factor = ", options.factor, ", .headroom = ", options.headroom,
             ", .least_bytes = ", options.least_bytes, "});");
    compact_summary expected;
    for (std::size_t type = 0; type < type_count; ++type) {
      for (std::size_t i = 0; i < slots_[type].all.size(); ++i) {
        slot& one = slots_[type].all[i];
        const auto used = static_cast<double>(one.newest);
        const auto target = static_cast<std::size_t>(std::ceil(used * std::max(options.headroom, 1.0)));
        if (static_cast<double>(one.capacity) < options.factor * used || target >= one.capacity) continue;
        const std::size_t saved = (one.capacity - target) * element_bytes[type];
        if (saved < options.least_bytes) continue;
        if (i < slots_[type].active) {
          ++expected.in_use;
          continue;
        }
        ++expected.slot_count;
        expected.bytes += saved;
        one.capacity = target;
        one.first = nullptr;
      }
    }
    const compact_summary now = ws_.compact(options);
    EXPECT_EQ(now.slot_count, expected.slot_count);
    EXPECT_EQ(now.bytes, expected.bytes);
    EXPECT_EQ(now.in_use, expected.in_use);
    EXPECT_EQ(now.failed, 0u);
    compacted += now.slot_count;
    kept_in_use += now.in_use;
  }

  // ---- checks ----

  void remove_above(std::size_t held_before) {
    while (held_.size() > held_before) {
      expect_contents(held_.back());
      --slots_[held_.back().type].active;
      held_.pop_back();
    }
  }

  // Every byte is right if the first is, and each equals the byte before it.
  static void expect_contents(held const& each) {
    if (each.bytes == 0) return;
    EXPECT_TRUE(each.first[0] == each.written &&
                std::memcmp(each.first, each.first + 1, each.bytes - 1) == 0);
  }

  void check_counts() const {
    workspace_stats expected;
    for (std::size_t type = 0; type < type_count; ++type) {
      slots const& of = slots_[type];
      expected.types += of.all.empty() ? 0 : 1;
      expected.slot_count += of.all.size();
      expected.active_slots += of.active;
      for (slot const& one : of.all) expected.held_bytes += one.capacity * element_bytes[type];
    }
    for (held const& each : held_) expected.used_bytes += each.bytes;
    for (frame const& each : frames_) expected.saved_counts += each.saved.count();
    const workspace_stats now = ws_.stats();
    EXPECT_EQ(now.types, expected.types);
    EXPECT_EQ(now.slot_count, expected.slot_count);
    EXPECT_EQ(now.active_slots, expected.active_slots);
    EXPECT_EQ(now.active_slots, held_.size());
    EXPECT_EQ(now.used_bytes, expected.used_bytes);
    EXPECT_EQ(now.held_bytes, expected.held_bytes);
    EXPECT_EQ(now.held_bytes, upstream_.outstanding);
    EXPECT_EQ(now.depth, frames_.size());
    EXPECT_EQ(now.saved_counts, expected.saved_counts);
    EXPECT_EQ(warning_recorder::reports().size(), skipped);
  }

  warning_recorder warnings_;
  recording_resource records_;
  recording_resource upstream_;
  Workspace ws_;
  choices random_;
  std::vector<frame> ended_;  // scopes that others have ended; before frames_, because they do nothing later
  std::vector<frame> frames_;
  std::vector<held> held_;
  std::array<slots, type_count> slots_;
};

}  // namespace tidemark::test
