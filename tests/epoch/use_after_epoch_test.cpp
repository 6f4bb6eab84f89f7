// SPDX-License-Identifier: Apache-2.0
// Strategy: a fixture switches the detector on and lets it throw, so that each message can be compared in
// full. Death tests show the view of a user who changes only the environment (see also
// tests/epoch/use_after_epoch).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/core/violation.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/epoch/detail/tracked_block.hpp>
#include <tidemark/pool/pool.hpp>

#include "made_up_memory.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

// Operations as users write them. They compare sums, so that nothing but the detector finds two empty
// operands.
float sum(buffer<float> const& of) {
  float all = 0;
  for (const float x : of.span()) all += x;
  return all;
}
float exp(buffer<float> const& x) {
  require_live("exp", {{"x", x}});
  return sum(x);
}
float mul(buffer<float> const& lhs, buffer<float> const& rhs) {
  require_live("mul", {{"lhs", lhs}, {"rhs", rhs}});
  return sum(lhs) * sum(rhs);
}
float concat(buffer<float> const& a, buffer_view<float> b, buffer<float> const& c, buffer<float> const& d) {
  require_live("concat", {{"part 0", a}, {"part 1", b}, {"part 2", c}, {"part 3", d}});
  return sum(a) + sum(c) + sum(d);
}

class use_after_epoch_detector : public testing::Test {
 protected:
  use_after_epoch_detector()
      : was_on_{set_epoch_detector(true)},
        policy_{set_use_after_epoch_policy(use_after_epoch_policy::throw_exception)} {}
  ~use_after_epoch_detector() override {
    set_use_after_epoch_policy(policy_);
    set_epoch_detector(was_on_);
    memory.check_invariants();
  }

  /// Returns the detector's message for `use`, or an empty text.
  template <class Use>
  static std::string message_of(Use use) {
    try {
      (void)use();
    } catch (use_after_epoch const& found) {
      const std::string message = found.what();
      EXPECT_TRUE(message.starts_with("use-after-epoch: ")) << message;
      return message.substr(std::string_view{"use-after-epoch: "}.size());
    }
    return {};
  }
  /// Each access that buffers and views have is found by its name.
  static void expect_each_access_found(auto const& gone, std::string const& end) {
    EXPECT_EQ(message_of([&] { return gone.data(); }), "data" + end);
    EXPECT_EQ(message_of([&] { return gone.span().size(); }), "span" + end);
    EXPECT_EQ(message_of([&] { return gone[3]; }), "operator[]" + end);
    EXPECT_EQ(message_of([&] { return gone.begin(); }), "begin" + end);
    EXPECT_EQ(message_of([&] { return gone.end(); }), "end" + end);
    EXPECT_EQ(message_of([&] { return gone.view(1, 2).size(); }), "view" + end);
  }
  /// A buffer of 8 ones whose epoch, the second of two, has ended.
  [[nodiscard]] buffer<float> reclaimed(char const* name = "step") {
    buffer<float> gone;
    epoch outer{memory, "run"};
    epoch inner{memory, name};
    gone = {memory, 8, 1.0F};
    return gone;
  }
  [[nodiscard]] buffer<float> ones() { return {memory, 8, 1.0F}; }

  pool blocks;
  epoch_resource memory{&blocks};

 private:
  bool was_on_;
  use_after_epoch_policy policy_;
};

// ---- messages ---------------------------------------------------------------------------------------------

// S3.15
TEST_F(use_after_epoch_detector, names_operation_role_epoch_and_depth) {
  const buffer<float> a = ones(), gone = reclaimed();
  EXPECT_EQ(message_of([&] { return mul(a, gone); }), "mul: rhs was reclaimed when epoch 2 \"step\" ended");
  EXPECT_EQ(message_of([&] { return mul(gone, a); }), "mul: lhs was reclaimed when epoch 2 \"step\" ended");
  EXPECT_EQ(message_of([&] { return exp(reclaimed("forward")); }),
            "exp: x was reclaimed when epoch 2 \"forward\" ended");
}

// S3.15
TEST_F(use_after_epoch_detector, names_the_first_reclaimed_of_many_operands) {
  const buffer<float> a = ones(), gone = reclaimed();
  EXPECT_EQ(message_of([&] { return concat(a, a.view(0, 2), a, gone); }),
            "concat: part 3 was reclaimed when epoch 2 \"step\" ended");
  buffer<float> other = reclaimed("other");
  EXPECT_EQ(message_of([&] { return concat(a, a.view(), other, gone); }),
            "concat: part 2 was reclaimed when epoch 2 \"other\" ended");
}

// S3.21
TEST_F(use_after_epoch_detector, names_an_operand_that_is_a_view) {
  const buffer<float> a = ones();
  buffer<float> gone;
  buffer_view<float> row;
  with_epoch(memory, "batch", [&] {
    gone = ones();
    row = gone.view(4, 4);
  });
  EXPECT_EQ(message_of([&] { return concat(a, row, a, a); }),
            "concat: part 1 was reclaimed when epoch 1 \"batch\" ended");
}

// S3.16
TEST_F(use_after_epoch_detector, finds_two_reclaimed_operands_that_would_compare_equal) {
  const buffer<float> a = reclaimed("one"), b = reclaimed("two");
  EXPECT_EQ(message_of([&] { return sum(a) == sum(b); }),
            "span: buffer was reclaimed when epoch 2 \"one\" ended");
  EXPECT_EQ(message_of([&] { return mul(a, b); }), "mul: lhs was reclaimed when epoch 2 \"one\" ended");
}

// S3.16
TEST_F(use_after_epoch_detector, off_allows_two_reclaimed_operands_to_compare_equal) {
  const buffer<float> a = reclaimed(), b = reclaimed();
  EXPECT_TRUE(set_epoch_detector(false));
  EXPECT_FALSE(epoch_detector());
  EXPECT_EQ(message_of(
                [&] { return sum(a) == sum(b) && mul(a, b) == 0 ? 0 : throw use_after_epoch{"not 0 == 0"}; }),
            "");
  EXPECT_FALSE(set_epoch_detector(true));
}

// S3.15
TEST_F(use_after_epoch_detector, names_a_closed_buffer_group) {
  buffer_group tape{memory, "tape"};
  buffer<float> a = ones(), b;
  {
    epoch e{memory};
    b = ones();
    EXPECT_EQ(tape.add(a, b), 2u);
  }
  EXPECT_EQ(message_of([&] { return mul(a, b); }), "");
  tape.close();
  for (buffer<float> const* each : {&a, &b}) {
    EXPECT_EQ(message_of([&] { return exp(*each); }),
              "exp: x was reclaimed when buffer_group \"tape\" was closed");
  }
}

// ---- every access -----------------------------------------------------------------------------------------

// S3.18
TEST_F(use_after_epoch_detector, detects_every_access_of_a_buffer) {
  const buffer<float> gone = reclaimed();
  std::array<float, 8> there{};
  const std::string end = ": buffer was reclaimed when epoch 2 \"step\" ended";
  expect_each_access_found(gone, end);
  EXPECT_EQ(message_of([&] { return gone.view().size(); }), "view" + end);
  EXPECT_EQ(message_of([&] { return gone.copy().size(); }), "copy" + end);
  EXPECT_EQ(message_of([&] { return gone.copy_to(there), 0; }), "copy_to" + end);
}

// S3.18
TEST_F(use_after_epoch_detector, detects_every_access_of_a_view) {
  buffer<float> owned;
  buffer_view<float> gone;
  with_epoch(memory, "step", [&] {
    owned = ones();
    gone = owned.view(0, 4);
  });
  expect_each_access_found(gone, ": view was reclaimed when epoch 1 \"step\" ended");
}

TEST_F(use_after_epoch_detector, allows_liveness_queries_on_a_reclaimed_buffer) {
  buffer<float> gone = reclaimed();
  EXPECT_EQ(message_of([&] {
              const bool is_there = gone.is_live() || gone || !gone.empty();
              return is_there || gone.size() + gone.size_bytes() != 0 || gone.release();
            }),
            "");
}

// S3.28
TEST_F(use_after_epoch_detector, never_touches_the_memory) {
  made_up_memory device;
  epoch_resource there{{.host_memory = false}, &device};
  buffer<float> a;
  with_epoch(there, "kernel", [&] { a = {there, 8}; });
  EXPECT_EQ(message_of([&] { return exp(a); }), "exp: x was reclaimed when epoch 1 \"kernel\" ended");
}

// ---- no false alarm ---------------------------------------------------------------------------------------

// S3.17
TEST_F(use_after_epoch_detector, accepts_promoted_buffers) {
  buffer<float> kept;
  {
    epoch outer{memory};
    {
      epoch inner{memory};
      kept = ones();
      inner.keep(kept);
    }
    EXPECT_EQ(message_of([&] { return mul(kept, kept) + exp(kept) + *kept.copy().data(); }), "")
        << "to the parent";
    outer.keep(kept);
  }
  EXPECT_EQ(message_of([&] { return mul(kept, kept) + exp(kept) + *kept.copy().data(); }), "")
      << "to its holder";
}

// S3.17
TEST_F(use_after_epoch_detector, accepts_empty_released_and_moved_from_buffers) {
  epoch e{memory};
  const buffer<float> never, zero{memory, 0};
  buffer<float> released = ones();
  released.release();
  std::vector<buffer<float>> moved(2);
  moved[0] = ones();
  std::ranges::move(moved.begin(), moved.begin() + 1, moved.begin() + 1);
  EXPECT_EQ(message_of([&] { return mul(never, zero); }), "");
  EXPECT_EQ(message_of([&] { return mul(released, moved[0]); }), "");
  EXPECT_EQ(message_of([&] { return mul(released, moved[1]); }), "");
  EXPECT_EQ(message_of([&] { return released.copy().size() + never.view().size(); }), "");
}

// S3.17
TEST_F(use_after_epoch_detector, accepts_a_new_buffer_at_a_reclaimed_address) {
  buffer<float> gone;
  void const* where = nullptr;
  with_epoch(memory, [&] {
    gone = ones();
    where = gone.data();
  });
  const buffer<float> without_epoch = ones();
  ASSERT_EQ(without_epoch.storage().address, where) << "not a test otherwise";
  EXPECT_EQ(message_of([&] { return exp(without_epoch); }), "");
  EXPECT_NE(message_of([&] { return exp(gone); }), "");
}

// ---- a constant that was cached in an inner epoch ---------------------------------------------------------

// S3.36
TEST_F(use_after_epoch_detector, finds_a_cached_constant_whose_memory_was_reused) {
  buffer<float> cached;  // as a static one in a function that eliminates common subexpressions
  const auto constant = [&]() -> buffer<float> const& {
    if (cached.storage().address == nullptr) cached = {memory, 8, 2.0F};
    return cached;
  };
  {
    epoch run{memory, "run"};
    epoch forward{memory, "forward"};
    epoch layer{memory, "layer 1"};
    EXPECT_EQ(sum(constant()), 16.0F);
  }
  for (int step = 0; step < 3; ++step) {
    epoch e{memory, "next step"};
    const buffer<float> x = ones();
    if (step == 0) EXPECT_EQ(x.data(), cached.storage().address) << "not a test otherwise";
    EXPECT_EQ(message_of([&] { return mul(x, constant()); }),
              "mul: rhs was reclaimed when epoch 3 \"layer 1\" ended")
        << "step " << step;
  }
}

// S3.36
TEST_F(use_after_epoch_detector, names_the_first_epoch_of_reused_memory) {
  // Each successor takes the address in another way: none of them covers up the end before it.
  std::array<buffer<float>, 3> gone;
  void const* where = nullptr;
  with_epoch(memory, "first", [&] {
    gone[0] = ones();
    where = gone[0].data();
  });
  (void)ones();  // without an epoch
  memory.deallocate(memory.allocate(32, 64), 32, 64);
  buffer_group tape{memory, "second"};
  gone[1] = ones();
  tape.add(gone[1]);
  tape.close();
  with_epoch(memory, "third", [&] { gone[2] = ones(); });
  EXPECT_EQ(gone[1].storage().address, where) << "not a test otherwise";
  EXPECT_EQ(gone[2].storage().address, where) << "not a test otherwise";
  EXPECT_EQ(message_of([&] { return exp(gone[0]); }), "exp: x was reclaimed when epoch 1 \"first\" ended");
  EXPECT_EQ(message_of([&] { return exp(gone[1]); }),
            "exp: x was reclaimed when buffer_group \"second\" was closed");
  EXPECT_EQ(message_of([&] { return exp(gone[2]); }), "exp: x was reclaimed when epoch 1 \"third\" ended");
}

TEST_F(use_after_epoch_detector, reports_an_unknown_epoch_for_reuse_before_it_was_enabled) {
  set_epoch_detector(false);
  buffer<float> gone = reclaimed();
  set_epoch_detector(true);
  EXPECT_EQ(message_of([&] { return exp(gone); }), "exp: x was reclaimed when epoch 2 \"step\" ended");
  set_epoch_detector(false);
  with_epoch(memory, [&] { (void)ones(); });
  set_epoch_detector(true);
  EXPECT_EQ(message_of([&] { return exp(gone); }),
            "exp: x was deallocated, or reclaimed by an unknown epoch");
  epoch e{memory};
  buffer<float> owned = ones();
  const buffer_view<float> view = owned.view();
  owned.release();
  EXPECT_EQ(message_of([&] { return view.data(); }),
            "data: view was deallocated, or reclaimed by an unknown epoch");
}

// S3.36
TEST_F(use_after_epoch_detector, remembers_the_latest_epoch_ends_up_to_its_limit) {
  buffer<float> oldest, old;
  with_epoch(memory, "oldest", [&] { oldest = ones(); });
  with_epoch(memory, "old",
             [&] { old = ones(); });  // its address comes again, and so the oldest end is noted
  for (std::size_t i = 1; i < detail::reclaim_log::max_count; ++i) with_epoch(memory, [&] { (void)ones(); });
  // A temporary that is deallocated within its epoch ends no life that is worth a note.
  EXPECT_EQ(message_of([&] { return exp(oldest); }), "exp: x was reclaimed when epoch 1 \"oldest\" ended");
  for (std::size_t i = 0; i < detail::reclaim_log::max_count; ++i) {
    buffer<float> gone;
    with_epoch(memory, [&] { gone = ones(); });
  }
  EXPECT_EQ(message_of([&] { return exp(oldest); }),
            "exp: x was deallocated, or reclaimed by an unknown epoch");
  EXPECT_NE(message_of([&] { return exp(old); }), "") << "found all the same";
}

// ---- policies ---------------------------------------------------------------------------------------------

// S3.20
TEST_F(use_after_epoch_detector, reports_a_violation_by_default) {
  const buffer<float> gone = reclaimed();
  EXPECT_EQ(set_use_after_epoch_policy(use_after_epoch_policy::report),
            use_after_epoch_policy::throw_exception);
  const violation_recorder recorder;
  EXPECT_EQ(gone.data(), nullptr) << "a handler that returns meets an empty buffer";
  EXPECT_EQ(violation_recorder::only(violation_kind::use_after_epoch),
            "use-after-epoch: data: buffer was reclaimed when epoch 2 \"step\" ended");
}

TEST_F(use_after_epoch_detector, off_throws_at_an_element_access_by_policy) {
  const buffer<float> gone = reclaimed(), never;
  set_epoch_detector(false);
  EXPECT_EQ(message_of([&] { return gone[3]; }),
            "operator[]: buffer was reclaimed when epoch 2 \"step\" ended");
  EXPECT_EQ(message_of([&] { return never[0]; }),
            "operator[]: buffer has no block: it is empty, or was released or moved from");
  EXPECT_EQ(message_of([&] { return gone.data(); }), "");
}

TEST_F(use_after_epoch_detector, reports_each_access_once) {
  const buffer<float> gone = reclaimed();
  set_use_after_epoch_policy(use_after_epoch_policy::report);
  const violation_recorder recorder;
  (void)gone.view(0, 0);
  EXPECT_EQ(violation_recorder::count(violation_kind::use_after_epoch), 1u);
  EXPECT_THROW((void)gone.view(0, 1), std::out_of_range);
  EXPECT_EQ(violation_recorder::count(violation_kind::use_after_epoch), 2u);
}

// ---- in processes of their own ----------------------------------------------------------------------------

class use_after_epoch_death : public use_after_epoch_detector {
 protected:
  use_after_epoch_death() { set_use_after_epoch_policy(use_after_epoch_policy::report); }
};

// S3.19
TEST_F(use_after_epoch_death, use_of_a_reclaimed_buffer_aborts_with_a_message) {
  const buffer<float> a = ones(), gone = reclaimed();
  EXPECT_EXIT((void)mul(a, gone), testing::KilledBySignal(SIGABRT),
              "tidemark: use-after-epoch: mul: rhs was reclaimed when epoch 2 \"step\" ended");
}

TEST_F(use_after_epoch_death, off_aborts_at_an_element_access_of_a_reclaimed_buffer_or_view) {
  buffer<float> gone;
  buffer_view<float> view;
  with_epoch(memory, "step", [&] {
    gone = ones();
    view = gone.view(2, 3);
  });
  const buffer<float> other = ones();
  ASSERT_EQ(other.data(), gone.storage().address) << "not a test otherwise";
  set_epoch_detector(false);
  EXPECT_EXIT(gone[3] = 5, testing::KilledBySignal(SIGABRT),
              "tidemark: use-after-epoch: operator\\[\\]: buffer was reclaimed when epoch 1 \"step\" ended");
  EXPECT_EXIT((void)view[0], testing::KilledBySignal(SIGABRT),
              "tidemark: use-after-epoch: operator\\[\\]: view was reclaimed when epoch 1 \"step\" ended");
}

// S3.13
TEST_F(use_after_epoch_death, aborts_at_an_element_access_if_the_handler_returns) {
  const buffer<float> gone = reclaimed();
  set_violation_handler(
      [](violation const& found) { std::fprintf(stderr, "%s, %s", found.resource, found.message); });
  EXPECT_EXIT((void)gone[0], testing::KilledBySignal(SIGABRT),
              "^epochs, use-after-epoch: operator\\[\\]: buffer was reclaimed when epoch 2 \"step\" ended$");
  set_violation_handler(nullptr);
}

// S3.19
TEST_F(use_after_epoch_death, a_promoted_buffer_exits_cleanly) {
  buffer<float> kept;
  {
    epoch e{memory};
    kept = ones();
    e.keep(kept);
  }
  EXPECT_EXIT(std::_Exit(mul(kept, kept) == 64.0F ? 0 : 1), testing::ExitedWithCode(0), "^$");
}

// S3.19
TEST_F(use_after_epoch_death, off_two_reclaimed_buffers_exit_cleanly) {
  const buffer<float> a = reclaimed(), b = reclaimed();
  set_epoch_detector(false);
  EXPECT_EXIT(std::_Exit(sum(a) == sum(b) ? 0 : 1), testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace tidemark::test
