// SPDX-License-Identifier: Apache-2.0
// Strategy: arrays that scopes and checkpoints free, and arrays that they keep, at both check levels, by
// counts and addresses before and after. One computation runs with each way to open a scope, with equal
// results.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/workspace/workspace.hpp>

#include "warning_recorder.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

template <class Workspace>
class workspaces : public workspace_suite<Workspace> {};
TYPED_TEST_SUITE(workspaces, both_levels, );

template <class Workspace>
int return_from_scope(Workspace& ws) {
  typename Workspace::template scope<> scope{ws};
  return static_cast<int>(acquire_from<double>(scope, 8).size());
}

// S4.4
TYPED_TEST(workspaces, reclaim_the_acquisitions_of_a_scope_on_every_exit) {
  EXPECT_EQ(return_from_scope(this->ws), 8);
  EXPECT_EQ(this->ws.stats().active_slots, 0u);
  for (int i = 0;; ++i) {
    typename TestFixture::template scope<> scope{this->ws};
    (void)acquire_from<double>(scope, 8);
    EXPECT_EQ(this->ws.stats().active_slots, 1u);
    if (i < 2) continue;
    break;
  }
  const auto fail = [&] {
    typename TestFixture::template scope<double> scope{this->ws};
    (void)acquire_from<double>(scope, 8);
    throw std::runtime_error{"as planned"};
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(this->ws.stats().slot_count, 1u);
  EXPECT_EQ(this->ws.stats().active_slots, 0u);
  EXPECT_EQ(this->ws.depth(), 0u);
}

// ---- ends that were skipped ----

/// The warning for a scope that ends `inside` others. Without checks no scope knows its place.
template <class Workspace>
std::string skipped(unsigned line, int inside) {
  const std::string where =
      Workspace::checked ? "the scope at " __FILE__ ":" + std::to_string(line) : "a scope";
  return "workspace 'test': " + where + " ended while " + std::to_string(inside) +
         " scopes or checkpoints inside it were open; they ended with it";
}

// S4.5
TYPED_TEST(workspaces, end_open_checkpoints_with_their_scope) {
  const warning_recorder warnings;
  const unsigned line = __LINE__ + 2;
  {
    typename TestFixture::template scope<> scope{this->ws};
    (void)acquire_from<double>(scope, 8);
    this->ws.checkpoint();
    (void)acquire_from<double>(this->ws, 8);
    this->ws.template checkpoint<float>();
    (void)acquire_from<float>(this->ws, 8);
  }
  EXPECT_EQ(this->ws.depth(), 0u);
  EXPECT_EQ(this->ws.stats().active_slots, 0u);
  ASSERT_EQ(warnings.reports().size(), 1u);
  EXPECT_EQ(warnings.reports()[0].kind, warning_kind::skipped_rewind);
  EXPECT_EQ(warnings.reports()[0].resource, "test");
  EXPECT_EQ(warnings.reports()[0].message, skipped<TypeParam>(line, 2));
}

// S4.5
TYPED_TEST(workspaces, do_not_access_a_scope_that_another_scope_ended) {
  const warning_recorder warnings;
  typename TestFixture::template scope<> outer{this->ws};
  (void)acquire_from<float>(outer, 8);
  typename TestFixture::template scope<> inner{this->ws};
  (void)acquire_from<double>(inner, 8);
  outer.end();
  {
    typename TestFixture::template scope<double, float, bool> next{
        this->ws};  // with the log at the inner scope's place
    auto view = acquire_from<double>(next, 8);
    (void)acquire_from<bool>(next, 8);
    EXPECT_NO_THROW((void)inner.returning(view.data())) << "the memory is not the inner scope's";
  }
  this->ws.release();
  EXPECT_EQ(inner.returning(5), 5);
  inner.end();
  EXPECT_EQ(this->ws.depth(), 0u);
}

template <class Source, int... Numbers>
void acquire_one_of_each(Source& source, std::integer_sequence<int, Numbers...>) {
  ((void)acquire_from<numbered<Numbers>>(source, 1), ...);
}

// S4.10
TYPED_TEST(workspaces, save_one_count_for_a_scope_that_uses_1_of_200_types) {
  acquire_one_of_each(this->ws, std::make_integer_sequence<int, 200>{});
  EXPECT_EQ(this->ws.stats().types, 200u);
  typename TestFixture::template scope<> scope{this->ws};
  EXPECT_EQ(this->ws.stats().saved_counts, 0u);
  (void)acquire_from<numbered<117>>(scope, 1);
  EXPECT_EQ(this->ws.stats().saved_counts, 1u);
  EXPECT_EQ(this->ws.stats().active_slots, 201u);
  scope.end();
  EXPECT_EQ(this->ws.stats().active_slots, 200u);
}

// ---- all ways to open a scope ----

/// A computation with temporaries of named types, and of others in a helper that is given the workspace.
template <class Workspace, class Source>
double compute(Workspace& ws, Source& source, std::span<double const> x) {
  auto squares = source.template acquire<double>(x.size());
  auto order = source.template acquire<std::int32_t>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    squares[i] = x[i] * x[i];
    order[i] = static_cast<std::int32_t>(x.size() - i);
  }
  const auto helper = [&](Workspace& given) {
    auto weights = given.template ones<float>(x.size());
    auto kept = given.trues(x.size());
    auto odd = given.template acquire<numbered<4>>(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) odd[i].values[0] = static_cast<int>(i % 2);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      kept[i] = odd[i].values[0] == 1;
      if (kept[i]) sum += static_cast<double>(weights[i]) * squares[i] * order[i];
    }
    return sum;
  };
  return helper(ws);
}

// S4.42 S4.59 S4.70
TYPED_TEST(workspaces, return_the_same_results_for_every_way_to_open_a_scope) {
  std::vector<double> x(100);
  std::iota(x.begin(), x.end(), 0.5);
  double expected = 0;
  for (std::size_t i = 1; i < x.size(); i += 2) expected += x[i] * x[i] * static_cast<double>(x.size() - i);

  auto& ws = this->ws;
  TypeParam unpooled{workspace_options{.pooling = false}};
  const auto body = [&](auto& scope) { return compute(scope.workspace(), scope, x); };
  const auto expect_clean = [&](char const* form, double result) {
    EXPECT_EQ(result, expected) << form;
    for (auto* each : {&ws, &unpooled}) {
      EXPECT_EQ(each->depth(), 0u) << form;
      EXPECT_EQ(each->stats().active_slots, 0u) << form;
      EXPECT_EQ(each->stats().saved_counts, 0u) << form;
      each->check_invariants();
    }
    EXPECT_EQ(unpooled.stats().held_bytes, 0u) << form;
  };
  for (int pass = 0; pass < 3; ++pass) {
    {
      double result = 0;
      {
        typename TestFixture::template scope<> scope{ws};
        result = compute(ws, scope, x);
      }
      expect_clean("scope", result);
      {
        typename TestFixture::template scope<double, std::int32_t> scope{ws};
        result = compute(ws, scope, x);
      }
      expect_clean("scope of named types", result);
    }
    ws.checkpoint();
    const double by_hand = compute(ws, ws, x);
    ws.rewind();
    expect_clean("checkpoint", by_hand);
    ws.template checkpoint<double, std::int32_t, numbered<4>>();
    const double by_hand_and_named = compute(ws, ws, x);
    ws.rewind();
    expect_clean("checkpoint of named types", by_hand_and_named);
    expect_clean("with_workspace", with_workspace(ws, body));
    expect_clean("with_workspace of named types", with_workspace<double, numbered<4>>(ws, body));
    expect_clean("with_workspace without parameter", with_workspace(ws, [&] { return compute(ws, ws, x); }));
    expect_clean("with_workspace, pooling off", with_workspace(unpooled, body));
    expect_clean("with_workspace of named types, pooling off",
                 with_workspace<double, std::int32_t>(unpooled, body));
  }
  EXPECT_EQ(ws.stats().slot_count, 5u) << "one slot of each type";
}

}  // namespace
}  // namespace tidemark::test
