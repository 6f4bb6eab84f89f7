// SPDX-License-Identifier: Apache-2.0
// Strategy: rare cases in which a review of workspaces found faults, and cases that no test covered. Each is
// a small program that fails if the fault returns.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <ranges>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "unseen_write.hpp"
#include "violation_recorder.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

template <class Workspace>
class workspace_corners : public workspace_suite<Workspace> {};
TYPED_TEST_SUITE(workspace_corners, both_levels, );

// ---- many types -------------------------------------------------------------------------------------------

template <class Workspace, std::size_t... Number>
std::size_t counts_of_a_scope_of(Workspace& ws, std::index_sequence<Number...>) {
  const typename Workspace::template scope<numbered<int{Number}>...> scope{ws};
  return ws.stats().saved_counts;
}
template <class Workspace, std::size_t... Number>
std::size_t counts_of_a_checkpoint_of(Workspace& ws, std::index_sequence<Number...>) {
  ws.template checkpoint<numbered<int{Number}>...>();
  const std::size_t counts = ws.stats().saved_counts;
  ws.rewind();
  return counts;
}

// S4.8
TYPED_TEST(workspace_corners, first_scope_can_use_more_types_than_the_initial_log_holds) {
  EXPECT_EQ(counts_of_a_scope_of(this->ws, std::make_index_sequence<32>{}), 32u);
  this->ws.release();
  EXPECT_EQ(counts_of_a_scope_of(this->ws, std::make_index_sequence<40>{}), 40u);
  this->ws.release();
  EXPECT_EQ(counts_of_a_checkpoint_of(this->ws, std::make_index_sequence<33>{}), 33u);
  EXPECT_EQ(this->ws.depth(), 0u);
}

// ---- tensors without elements -----------------------------------------------------------------------------

TYPED_TEST(workspace_corners, empty_tensor_can_have_any_representable_extents) {
  typename TestFixture::template scope<> scope{this->ws};
  dl_tensor const* const empty = acquire_tensor<double>(scope, 0, std::int64_t{1} << 40, 1LL << 40);
  EXPECT_EQ(empty->shape[0], 0);
  EXPECT_EQ(empty->shape[2], std::int64_t{1} << 40);
  EXPECT_EQ(empty->strides[2], 1);
  EXPECT_EQ(empty->strides[1], std::int64_t{1} << 40);
  dl_tensor const* const rows = acquire_tensor<double>(scope, 3, 0, 5);
  EXPECT_EQ(rows->strides[0], 5) << "an extent of 0 counts as 1";
}

TYPED_TEST(workspace_corners, rejects_an_extent_beyond_the_header_and_acquires_nothing) {
  typename TestFixture::template scope<> scope{this->ws};
  EXPECT_THROW((void)acquire_tensor<double>(scope, 0, std::uint64_t{1} << 63), out_of_memory);
  EXPECT_EQ(this->ws.stats().active_slots, 0u);
}

TYPED_TEST(workspace_corners, returns_memory_of_a_rejected_header_if_pooling_is_off) {
  recording_resource bookkeeping, upstream;
  TypeParam ws{workspace_options{.pooling = false, .bookkeeping = &bookkeeping, .upstream = &upstream}};
  typename TestFixture::template scope<> scope{ws};
  (void)scope.template acquire<double>(1);  // the list has its records
  const std::size_t held_bytes = ws.stats().held_bytes;
  bookkeeping.fail_from = bookkeeping.calls;
  EXPECT_THROW((void)acquire_tensor<double>(scope, 100), std::bad_alloc);
  EXPECT_EQ(ws.stats().held_bytes, held_bytes);
  EXPECT_EQ(ws.stats().active_slots, 1u);
}

// ---- results ----------------------------------------------------------------------------------------------

TYPED_TEST(workspace_corners, single_pass_range_result_arrives_complete) {
  std::istringstream text{"3 1 4"};
  auto numbers = with_workspace(this->ws, [&](auto&) {
    return std::ranges::subrange{std::istream_iterator<int>{text}, std::istream_iterator<int>{}};
  });
  std::vector<int> read;
  for (int number : numbers) read.push_back(number);
  EXPECT_EQ(read, (std::vector{3, 1, 4}));
}

struct throws_when_copied {
  throws_when_copied() = default;
  throws_when_copied(throws_when_copied const&) { throw std::runtime_error{"copied"}; }
  throws_when_copied& operator=(throws_when_copied const&) = default;
};

TYPED_TEST(workspace_corners, valueless_variant_is_no_escape) {
  using either = std::variant<int*, throws_when_copied>;
  either value = nullptr;
  const throws_when_copied source;
  EXPECT_THROW(value.emplace<throws_when_copied>(source), std::runtime_error);
  typename TestFixture::template scope<> scope{this->ws};
  EXPECT_NO_THROW((void)scope.returning(value));
}

// ---- returns other than by a scope's end
// -----------------------------------------------------

// S4.28
TEST(workspace_corners_checked, reset_and_rewind_make_views_stale_and_poison_their_memory) {
  checked_workspace ws;
  const auto view = ws.zeros<std::int32_t>(4);
  std::int32_t const* const memory = view.data();
  ws.reset<std::int32_t>();
  EXPECT_THROW((void)view[0], stale_view);
  EXPECT_EQ(read_unseen(memory, 3), 0x7F) << "the last byte of the largest int32";
  checked_workspace::scope scope{ws};
  const auto rewound = scope.zeros<std::int32_t>(4);
  ws.rewind();
  EXPECT_THROW((void)rewound[0], stale_view);
  EXPECT_EQ(read_unseen(memory, 3), 0x7F);
}

// ---- threads
// --------------------------------------------------------------------------------------------------

// S4.56
TEST(workspace_corners_checked, reports_another_thread_after_the_owner_thread_has_ended) {
  const violation_recorder recorder;
  checked_workspace ws;
  std::thread{[&] { (void)ws.acquire<double>(1); }}.join();
  std::thread{[&] { (void)ws.acquire<double>(1); }}.join();
  ASSERT_EQ(violation_recorder::reports().size(), 1u);
  EXPECT_EQ(violation_recorder::reports()[0].kind, violation_kind::wrong_thread);
  ws.release_thread_ownership();
}

TEST(workspace_corners_checked, checks_a_stale_view_while_others_use_its_record) {
  auto workspace_of_the_view = std::make_unique<checked_workspace>();
  const auto view = workspace_of_the_view->acquire<double>(1);
  workspace_of_the_view.reset();
  std::atomic<bool> done{false};
  std::thread others{[&] {
    for (int i = 0; i < 200; ++i) {
      checked_workspace ws;
      const checked_workspace::scope scope{ws};
      (void)ws.acquire<double>(1);
    }
    done = true;
  }};
  do {
    EXPECT_THROW((void)view[0], stale_view);
  } while (!done);
  others.join();
}

// ---- settings and fences
// ---------------------------------------------------------------------------------------

TEST(workspace_corners, rejects_invalid_default_options) {
  const std::size_t before = default_workspace_options().alignment;
  EXPECT_THROW(set_default_workspace_options({.alignment = 3}), std::invalid_argument);
  EXPECT_EQ(default_workspace_options().alignment, before);
}

TYPED_TEST(workspace_corners, waits_for_a_fence_passed_after_the_scope_has_ended) {
  static int waits;
  waits = 0;
  constexpr static reuse_fence::functions never_done{.done = [](void*) noexcept { return false; },
                                                     .wait = [](void*) noexcept { ++waits; },
                                                     .destroy = nullptr};
  typename TestFixture::template scope<> scope{this->ws};
  scope.end();
  scope.end_after(reuse_fence{never_done, nullptr});
  EXPECT_EQ(waits, 1);
}

}  // namespace
}  // namespace tidemark::test
