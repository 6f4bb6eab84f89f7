// SPDX-License-Identifier: Apache-2.0
// Random sequences of all operations of an arena, compared with a model that is too simple to be wrong: a
// list of blocks with their contents, a list of marks that are live or dead, a stack of open scopes. Takes
// subjects of the conformance suite that are arenas:
//   TEST(arena_model, agrees_with_the_arena) { run_arena_model<virtual_arena_subject>(); }
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "seeds.hpp"
#include "shadow.hpp"

namespace tidemark::test {

template <class Subject>
class arena_model {
 public:
  using arena_type = typename Subject::arena_type;
  using scope_type = typename arena_type::scope;
  // If false, the subject's memory is accessible, but the arena does not know it.
  static constexpr bool host_accessible = requires(arena_type& arena) { arena.push_bytes(std::size_t{1}); };

  arena_model(Subject& subject, choices random) : arena_{subject.resource()}, random_{std::move(random)} {}
  ~arena_model() {
    while (!scopes_.empty()) scopes_.pop_back();
    arena_.reset();  // its objects count their destruction in this model
  }

  void step() {
    const std::uint64_t what = random_() % 100;
    const bool moves_blocks_only = what < 64;
    if (what < 40) allocate();
    else if (what < 48) push_zeroed();
    else if (what < 58) deallocate();
    else if (what < 64) expand();
    else if (what < 72) mark();
    else if (what < 80) rewind();
    else if (what < 85) pop();
    else if (what < 91) open_scope();
    else if (what < 97) close_scope();
    else if (what < 98) trim();
    else if (what < 99) make();
    else reset();
    if (!moves_blocks_only) barrier_ = arena_.position();
    check();
  }

  void check_contents() const {
    for (block const& b : blocks_) shadow::check({b.first, {b.bytes, 1, b.pattern}});
  }

  std::uint64_t refused_rewinds = 0, accepted_rewinds = 0, reclaimed = 0, destroyed_objects = 0;

 private:
  struct block {
    std::uintptr_t first;
    std::size_t bytes;
    unsigned char pattern;
    std::size_t begin_position, end_position;  // of the arena before and after
  };
  struct known_mark {
    arena_mark mark;
    bool live;
  };
  struct open_one {
    std::unique_ptr<scope_type> scope;
    std::size_t position;
  };
  struct counted {
    explicit counted(std::size_t& n) : n_{&n} {}
    ~counted() { ++*n_; }
    std::size_t* n_;
  };

  std::size_t random_size() {
    const std::uint64_t kind = random_() % 100;
    if (kind < 2) return 0;
    if (kind < 85) return random_() % 200;
    if (kind < 98) return random_() % 4000;
    return random_() % 30'000;
  }
  std::size_t floor() const { return scopes_.empty() ? 0 : scopes_.back().position; }

  void allocate() {
    const std::size_t bytes = random_size();
    const std::size_t align = std::size_t{1} << random_() % (random_() % 8 == 0 ? 13 : 5);
    const std::size_t before = arena_.position();
    log_line("void* ", new_block{}, " = arena.try_allocate(", bytes, ", ", align, ");");
    void* first = arena_.try_allocate(bytes, align);
    name_block(first);
    if (first == nullptr) return full(before);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % align, 0u);
    EXPECT_GE(arena_.position(), before + bytes);
    add(first, bytes, before);
  }

  void push_zeroed() {
    if constexpr (!host_accessible) return allocate();
    else return push_zeroed_on_the_host();
  }

  void push_zeroed_on_the_host()
    requires host_accessible
  {
    const std::size_t n = random_size();
    const std::size_t before = arena_.position();
    log_line("void* ", new_block{}, " = arena.push_array<unsigned char>(", n, ").data();");
    try {
      const std::span<unsigned char> bytes = arena_.template push_array<unsigned char>(n);
      name_block(bytes.data());
      EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 0; }));
      add(bytes.data(), n, before);
    } catch (std::bad_alloc const&) {
      full(before);
    }
  }

  void make() {
    if constexpr (host_accessible) make_on_the_host();
  }

  void make_on_the_host()
    requires host_accessible
  {
    const std::size_t before = arena_.position();
    log_line("arena.make<counted>(destroyed);");
    try {
      arena_.template make<counted>(destroyed_);
      made_.push_back(arena_.position());
    } catch (std::bad_alloc const&) {
      full(before);
    }
  }

  void deallocate() {
    if (blocks_.empty()) return;
    // Mostly the newest, because the others are not reclaimed.
    const std::size_t i = random_() % 4 == 0 ? random_() % blocks_.size() : blocks_.size() - 1;
    const block victim = blocks_[i];
    shadow::check({victim.first, {victim.bytes, 1, victim.pattern}});
    const std::size_t before = arena_.position();
    const bool reclaimable =
        victim.end_position == before && before != floor() && !marked_at_or_above(victim);
    // Blocks allocated after the last other move of the position are certainly reclaimed in reverse order.
    const bool surely = victim.end_position == before && victim.begin_position >= barrier_;
    void* const first = reinterpret_cast<void*>(victim.first);
    log_line("arena.deallocate(", block_at{first}, ", ", victim.bytes, ");");
    arena_.deallocate(first, victim.bytes);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    if (arena_.position() == before) {
      EXPECT_FALSE(surely) << "the newest block above all marks and scopes was not reclaimed";
      return;
    }
    ++reclaimed;
    EXPECT_TRUE(reclaimable) << "only the newest block above all marks and scopes may be reclaimed";
    EXPECT_LT(arena_.position(), before);
    EXPECT_GE(arena_.position(), floor());
  }

  void expand() {
    if (blocks_.empty()) return;
    block& newest = blocks_.back();
    const std::size_t before = arena_.position(), bytes = random_size();
    void* const first = reinterpret_cast<void*>(newest.first);
    log_line("arena.expand(", block_at{first}, ", ", newest.bytes, ", ", bytes, ");");
    if (!arena_.expand(first, newest.bytes, bytes)) {
      EXPECT_EQ(arena_.position(), before);
      return;
    }
    EXPECT_EQ(newest.end_position, before);
    EXPECT_FALSE(marked_at_or_above(newest));
    shadow::check({newest.first, {std::min(newest.bytes, bytes), 1, newest.pattern}});
    std::memset(first, newest.pattern, bytes);
    newest.bytes = bytes;
    newest.end_position = arena_.position();
  }

  void mark() {
    log_line("marks.push_back(arena.mark());");
    marks_.push_back({arena_.mark(), true});
    if (marks_.size() <= 64) return;
    const std::size_t i = random_() % marks_.size();
    log_line("marks.erase(marks.begin() + ", i, ");");
    marks_.erase(marks_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void rewind() {
    if (marks_.empty()) return;
    // Newer marks more often, because a rewind to an old mark leaves few blocks to test.
    const std::size_t back = std::min<std::size_t>(random_() % 8 * (random_() % 8), marks_.size() - 1);
    const known_mark chosen = marks_[marks_.size() - 1 - back];
    const std::size_t before = arena_.position();
    log_line("arena.rewind(marks[marks.size() - ", back + 1, "]);");
    const bool legal = chosen.live && chosen.mark.position() >= floor();
    try {
      arena_.rewind(chosen.mark);
      EXPECT_TRUE(legal) << "a dead mark, or one below an open scope, was accepted";
      EXPECT_EQ(arena_.position(), chosen.mark.position());
      remove_rewound();
      ++accepted_rewinds;
    } catch (std::invalid_argument const& error) {
      EXPECT_FALSE(legal) << error.what();
      EXPECT_EQ(arena_.position(), before);
      ++refused_rewinds;
    }
  }

  void pop() {
    const std::size_t before = arena_.position(), bytes = random_() % 3000;
    constexpr std::size_t granule = arena_type::block_granule;
    const std::size_t rounded = (bytes + granule - 1) / granule * granule;
    log_line("arena.pop(", bytes, ");");
    arena_.pop(bytes);
    EXPECT_EQ(arena_.position(), before - std::min(rounded, before - floor()));
    remove_rewound();
  }

  void open_scope() {
    if (scopes_.size() >= 12) return;
    log_line("scopes.push_back(std::make_unique<arena::scope>(arena));");
    scopes_.push_back({std::make_unique<scope_type>(arena_), arena_.position()});
  }

  void close_scope() {
    if (scopes_.empty()) return;
    const std::size_t begin = scopes_.back().position;
    log_line("scopes.pop_back();");
    scopes_.pop_back();
    EXPECT_EQ(arena_.position(), begin);
    remove_rewound();
  }

  void trim() {
    const std::size_t keep_bytes = random_() % 2 == 0 ? 0 : random_() % 100'000;
    log_line("arena.trim(", keep_bytes, ");");
    (void)arena_.trim(keep_bytes);
  }

  void reset() {
    if (random_() % 8 != 0) return;
    log_line("arena.reset();");
    if (!scopes_.empty()) {
      EXPECT_THROW(arena_.reset(), std::logic_error);
      return;
    }
    arena_.reset();
    EXPECT_EQ(arena_.position(), 0u);
    remove_rewound();
  }

  void add(void* first, std::size_t bytes, std::size_t begin_position) {
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    const auto pattern = static_cast<unsigned char>(random_());
    for (block const& other : blocks_) {
      const bool apart = begin + std::max<std::size_t>(bytes, 1) <= other.first ||
                         other.first + std::max<std::size_t>(other.bytes, 1) <= begin;
      if (!apart) ADD_FAILURE() << "two live blocks overlap";
    }
    std::memset(first, pattern, bytes);
    blocks_.push_back({begin, bytes, pattern, begin_position, arena_.position()});
    // Drops the record of the oldest block, so that a step stays O(1). Its memory is still in the arena.
    if (blocks_.size() > 100) blocks_.pop_front();
  }

  bool marked_at_or_above(block const& b) const {
    return std::any_of(marks_.begin(), marks_.end(),
                       [&](known_mark const& m) { return m.live && m.mark.position() >= b.end_position; });
  }

  // The position has fallen: all blocks and marks above it are dead.
  void remove_rewound() {
    const std::size_t position = arena_.position();
    for (known_mark& m : marks_) m.live = m.live && m.mark.position() <= position;
    while (!blocks_.empty() && blocks_.back().end_position > position) blocks_.pop_back();
    for (; !made_.empty() && made_.back() > position; made_.pop_back()) ++destroyed_objects;
  }

  // The arena had no room: nothing changed, and it gets some.
  void full(std::size_t before) {
    EXPECT_EQ(arena_.position(), before);
    while (!scopes_.empty()) close_scope();
    arena_.reset();
    remove_rewound();
    barrier_ = 0;
  }

  void check() const {
    arena_.check_invariants();
    EXPECT_EQ(destroyed_, destroyed_objects) << "destructors that ran";
    if (blocks_.empty()) return;
    block const& newest = blocks_.back();
    shadow::check({newest.first, {newest.bytes, 1, newest.pattern}});
  }

  arena_type& arena_;
  choices random_;
  std::deque<block> blocks_;
  std::vector<known_mark> marks_;
  std::vector<open_one> scopes_;
  std::vector<std::size_t> made_;
  std::size_t destroyed_ = 0;
  std::size_t barrier_ = 0;  // position after the last operation that was not about a block
};

template <class Subject>
void run_arena_model() {
  using model = arena_model<Subject>;
  std::vector<sequence_count<model>> wanted{{"refused rewinds", &model::refused_rewinds, 100},
                                            {"accepted rewinds", &model::accepted_rewinds, 100},
                                            {"reclaimed blocks", &model::reclaimed, 100}};
  if (model::host_accessible) wanted.push_back({"destroyed objects", &model::destroyed_objects, 100});
  run_for_seeds<model>(
      [](std::uint64_t seed, auto run) {
        typename Subject::supply_type supply{};
        Subject subject{supply};
        model of_arena{subject, seed};
        run(of_arena);
      },
      full_steps, wanted);
}

}  // namespace tidemark::test
