// SPDX-License-Identifier: Apache-2.0
// Strategy: deliberate misuse of workspaces at both levels. A test compares the exact text of the report, and
// checks that nothing else happened. Beside each misuse is the most similar correct use, which must pass.
// Level 0 and level 1 are named, so that every build has both.
#include <gtest/gtest.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "other_thread.hpp"
#include "unseen_write.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

using checked_scope = checked_workspace::scope<>;
using unchecked_scope = unchecked_workspace::scope<>;

struct particle {
  std::int64_t id;
  std::int32_t charge;
};

std::string place(unsigned line) {
  return std::string{std::source_location::current().file_name()} + ":" + std::to_string(line);
}

/// An element of memory that was freed, which sanitizers forbid to read in any other way.
template <class T>
T read_late(T const* first, std::size_t i) {
  std::array<unsigned char, sizeof(T)> bytes{};
  for (std::size_t b = 0; b < sizeof(T); ++b) {
    bytes[b] = read_unseen(first + i, static_cast<std::ptrdiff_t>(b));
  }
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

workspace_options named(char const* name) {
  workspace_options options;
  options.name = name;
  return options;
}

// Behaviour at level 0.

static_assert(!unchecked_workspace::checked && checked_workspace::checked);
static_assert(!std::is_same_v<unchecked_workspace, checked_workspace>, "the level is part of the type");
static_assert(std::is_same_v<unchecked_workspace::view<double, 3>, tensor_view<double, 3>>,
              "at level 0 a view is the one that anybody can make");
static_assert(sizeof(unchecked_workspace::view<double, 3>) == sizeof(double*) + 3 * sizeof(std::size_t));
static_assert(sizeof(unchecked_workspace::bits_view<2>) == sizeof(void*) + 2 * sizeof(std::size_t));
static_assert(sizeof(checked_workspace::view<double>) > sizeof(unchecked_workspace::view<double>));
static_assert(sizeof(unchecked_scope) == 2 * sizeof(void*), "a scope does not know where it was opened");
static_assert(noexcept(std::declval<unchecked_workspace::view<double>>()[0]));
static_assert(!noexcept(std::declval<checked_workspace::view<double>>()[0]));

// S4.45
TEST(workspace_level_0, changes_neither_memory_nor_results) {
  unchecked_workspace ws;
  const auto view = with_workspace(ws, [](unchecked_scope& scope) { return scope.acquire<double>(3); });
  EXPECT_NE(view.data(), nullptr);
  const auto* header =
      with_workspace(ws, [](unchecked_scope& scope) { return acquire_tensor<double>(scope, 3); });
  EXPECT_NE(header->data, nullptr);
  double const* late = nullptr;
  {
    unchecked_scope scope{ws};
    late = scope.fill(7.0, 3).data();
  }
  EXPECT_EQ(read_late(late, 2), 7.0);
}

// S4.45
TEST(workspace_level_0, acquires_through_outer_scopes_and_other_threads_unreported) {
  const violation_recorder recorder;
  unchecked_workspace ws;
  unchecked_scope outer{ws};
  {
    const unchecked_scope inner{ws};
    (void)outer.acquire<double>(3);
  }
  on_another_thread([&] { (void)outer.acquire<double>(3); });
  EXPECT_TRUE(violation_recorder::reports().empty());
}

// Contents of memory at level 1.

template <class T>
class workspace_poison : public testing::Test {};
using poisoned_types =
    testing::Types<double, float, std::int64_t, std::int32_t, std::complex<double>, std::complex<float>, bool,
                   std::uint8_t, std::int16_t, std::uint64_t, long double>;
TYPED_TEST_SUITE(workspace_poison, poisoned_types, );

template <class T>
bool is_poison(T value) {
  return std::is_floating_point_v<T> ? value != value : value == std::numeric_limits<T>::max();
}
template <class T>
bool is_poison(std::complex<T> value) {
  return is_poison(value.real()) && is_poison(value.imag());
}

// S4.46
TYPED_TEST(workspace_poison, fills_every_element_after_its_scope) {
  checked_workspace ws;
  TypeParam const* late = nullptr;
  {
    checked_scope scope{ws};
    late = scope.zeros<TypeParam>(5, 7).data();
    ASSERT_FALSE(is_poison(read_late(late, 34)));
  }
  for (std::size_t i = 0; i < 35; ++i) EXPECT_TRUE(is_poison(read_late(late, i))) << i;
}

// S4.46
TEST(workspace_poison_of, structs_is_the_freed_fill_and_of_bits_is_ones) {
  checked_workspace ws;
  particle const* late = nullptr;
  {
    checked_scope scope{ws};
    late = scope.fill(particle{1, 2}, 3).data();
  }
  auto const* bytes = reinterpret_cast<unsigned char const*>(late);
  for (std::size_t i = 0; i < 3 * sizeof(particle); ++i) {
    EXPECT_EQ(read_unseen(bytes, static_cast<std::ptrdiff_t>(i)), detail::freed_fill) << i;
  }
  std::uint64_t const* bits = nullptr;
  with_workspace(ws, [&](checked_scope& scope) { bits = scope.falses(100).words().data(); });
  EXPECT_EQ(read_late(bits, 0), ~std::uint64_t{0});
  EXPECT_EQ(read_late(bits, 1), ~std::uint64_t{0});
}

TEST(workspace_poison_of, a_slot_covers_its_newest_request) {
  checked_workspace ws;
  particle const* late = nullptr;
  with_workspace(ws, [&](checked_scope& scope) { late = scope.acquire<particle>(100).data(); });
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<particle*>(late));
  constexpr auto beyond = static_cast<std::ptrdiff_t>(10 * sizeof(particle));
  write_unseen(bytes, beyond - 1, 1);
  write_unseen(bytes, beyond, 1);
  with_workspace(ws, [&](checked_scope& scope) { ASSERT_EQ(scope.acquire<particle>(10).data(), late); });
  EXPECT_EQ(read_unseen(bytes, beyond - 1), detail::freed_fill);
  EXPECT_EQ(read_unseen(bytes, beyond), 1) << "memory that was not allocated again";
}

// Views that outlive their memory.

std::string stale_text(std::string const& what, unsigned acquired, unsigned ended) {
  return "workspace 'steps': " + what + " acquired at " + place(acquired) +
         " is used after its memory was freed by the end of the scope at " + place(ended) +
         "; copy the data, or acquire it from the enclosing scope";
}

// S4.47
TEST(workspace_stale_view, names_the_acquisition_its_location_and_the_ended_scope) {
  checked_workspace ws{named("steps")};
  checked_workspace::view<float, 2> late;
  unsigned opened = 0;
  unsigned acquired = 0;
  {
    opened = __LINE__ + 1;
    checked_scope scope{ws};
    acquired = __LINE__ + 1;
    late = scope.acquire<float>(3, 4);
  }
  EXPECT_EQ(message_of<stale_view>([&] { late(0, 0) = 1; }), stale_text("float32[3, 4]", acquired, opened));
}

TEST(workspace_stale_view, calls_the_violation_handler_with_the_text_before_throwing) {
  checked_workspace ws{named("steps")};
  const auto late = with_workspace(ws, [](checked_scope& scope) { return scope.acquire<double>(6); });
  const auto late_bits = with_workspace(ws, [](checked_scope& scope) { return scope.trues(6); });
  const checked_scope scope{ws};
  const auto other = scope.workspace().fill(7.0, 6);
  violation_recorder recorder;
  const std::vector<std::function<void()>> uses{[&] { late[3] = 1; }, [&] { (void)late.data(); },
                                                [&] { (void)late.begin(); }, [&] { late_bits[3] = true; },
                                                [&] { (void)late_bits.words(); }};
  for (auto const& use : uses) {
    recorder.reports().clear();
    const std::string text = message_of<stale_view>(use);
    ASSERT_EQ(recorder.reports().size(), 1u);
    EXPECT_EQ(recorder.reports()[0].kind, violation_kind::stale_view);
    EXPECT_EQ(recorder.reports()[0].resource, "steps");
    EXPECT_EQ(recorder.reports()[0].message, text);
  }
  EXPECT_EQ(other[3], 7.0);
}

TEST(workspace_stale_view, allows_the_handler_to_use_the_workspace) {
  checked_workspace ws{named("steps")};
  const auto late = with_workspace(ws, [](checked_scope& scope) { return scope.acquire<double>(6); });
  static checked_workspace* used = nullptr;
  used = &ws;
  violation_handler const before = set_violation_handler([](violation const&) {
    checked_scope scope{*used};
    scope.fill(1.0, 600)[599] = 2;
  });
  EXPECT_THROW((void)late[0], stale_view);
  (void)set_violation_handler(before);
}

// S4.29 S4.47
TEST(workspace_stale_view, is_thrown_after_trim_release_and_the_end_of_the_workspace) {
  auto ws = std::make_unique<checked_workspace>(named("steps"));
  const auto trimmed = with_workspace(*ws, [](checked_scope& scope) { return scope.acquire<double>(6); });
  (void)ws->trim();
  EXPECT_THROW((void)trimmed[0], stale_view);
  const auto released = ws->acquire<double>(6);
  ws->release();
  EXPECT_THROW((void)released[0], stale_view);
  const auto orphan = ws->acquire<double>(6);
  ws.reset();
  EXPECT_PRED2(contains, message_of<stale_view>([&] { (void)orphan[0]; }), "workspace 'steps': float64[6]");
}

// A view that is itself the result.

// S4.52
TEST(workspace_result, allows_a_discarded_view) {
  checked_workspace ws;
  EXPECT_NO_THROW((void)with_workspace(ws, [](checked_scope& scope) { return scope.acquire<double>(6); }));
  EXPECT_NO_THROW((void)with_workspace(ws, [](checked_scope& scope) { return scope.trues(6); }));
}

// S4.52
TEST(workspace_result, view_result_reports_its_acquisition_at_first_use) {
  checked_workspace ws{named("steps")};
  const unsigned line = __LINE__ + 1;
  const auto late = with_workspace(ws, [](checked_scope& scope) { return scope.acquire<double>(2, 3); });
  EXPECT_EQ(message_of<stale_view>([&] { (void)late(1, 1); }), stale_text("float64[2, 3]", line, line));
}

TEST(workspace_result, rejects_an_unguarded_view_as_an_escape) {
  checked_workspace ws;
  const auto unguarded = [](checked_scope& scope) -> tensor_view<double, 1> {
    return scope.acquire<double>(6);
  };
  EXPECT_THROW((void)with_workspace(ws, unguarded), workspace_escape);
  const auto unguarded_bits = [](checked_scope& scope) {
    return bit_view<>{scope.bits(6).words().data(), {6}};
  };
  EXPECT_THROW((void)with_workspace(ws, unguarded_bits), workspace_escape);
}

// What escapes.

template <class Body>
void expect_escape(Body body) {
  checked_workspace ws;
  EXPECT_THROW((void)with_workspace(ws, body), workspace_escape);
  EXPECT_EQ(ws.stats().active_slots, 0u) << "the scope has ended all the same";
  checked_scope scope{ws};
  EXPECT_THROW((void)scope.returning(body(scope)), workspace_escape);
}

template <class Body>
void expect_no_escape(Body body) {
  checked_workspace ws;
  EXPECT_NO_THROW((void)with_workspace(ws, body));
  checked_scope scope{ws};
  EXPECT_NO_THROW((void)scope.returning(body(scope)));
}

std::span<double> acquired(checked_scope& scope) { return scope.acquire<double>(8); }

struct opaque;  // the type of somebody's handle

// S4.48
TEST(workspace_escapes, are_pointers_of_all_kinds) {
  expect_escape([](checked_scope& scope) { return acquired(scope).data(); });
  expect_escape([](checked_scope& scope) -> double const* { return acquired(scope).data(); });
  expect_escape([](checked_scope & scope)->double volatile* { return acquired(scope).data(); });
  expect_escape([](checked_scope& scope) -> void* { return acquired(scope).data(); });
  expect_escape([](checked_scope& scope) -> void const* { return acquired(scope).data(); });
  expect_escape([](checked_scope& scope) { return reinterpret_cast<opaque*>(acquired(scope).data()); });
  expect_escape(
      [](checked_scope& scope) { return reinterpret_cast<std::byte*>(acquired(scope).data()) + 63; });
  expect_escape([](checked_scope& scope) { return acquired(scope).begin() + 7; });
  expect_no_escape([](checked_scope& scope) { return acquired(scope).data() + 8; });
}

TEST(workspace_escapes, are_references_to_elements) {
  checked_workspace ws;
  EXPECT_THROW((void)with_workspace(ws, [](checked_scope& scope) -> double& { return acquired(scope)[3]; }),
               workspace_escape);
  double outside = 7;
  double& same = with_workspace(ws, [&](checked_scope&) -> double& { return outside; });
  EXPECT_EQ(&same, &outside);
}

// S4.48
TEST(workspace_escapes, are_spans) {
  expect_escape([](checked_scope& scope) { return acquired(scope); });
  expect_escape([](checked_scope& scope) { return std::span<double const>{acquired(scope)}; });
  expect_escape([](checked_scope& scope) { return std::span<double, 8>{acquired(scope)}; });
  expect_escape([](checked_scope& scope) { return acquired(scope).subspan(7, 1); });
  expect_escape([](checked_scope& scope) { return std::as_bytes(acquired(scope)); });
}

// S4.48
TEST(workspace_escapes, are_views_in_other_values) {
  expect_escape([](checked_scope& scope) { return std::tuple{1, scope.acquire<double>(2, 3)}; });
  expect_escape([](checked_scope& scope) { return std::pair{scope.acquire<double>(3), 1}; });
  expect_escape([](checked_scope& scope) {
    return std::array{scope.acquire<double>(3), checked_workspace::view<double>{}};
  });
  expect_escape([](checked_scope& scope) { return std::vector{scope.acquire<double>(3)}; });
  expect_escape([](checked_scope& scope) { return std::optional{scope.acquire<double>(3)}; });
  expect_escape([](checked_scope& scope) { return std::pair{1, scope.acquire<double>(6).reshape(2, 3)}; });
}

TEST(workspace_escapes, are_ranges_of_escaping_values) {
  expect_escape([](checked_scope& scope) { return std::map<int, std::span<double>>{{1, acquired(scope)}}; });
  expect_escape([](checked_scope& scope) { return std::map<double*, int>{{acquired(scope).data(), 1}}; });
  expect_escape([](checked_scope& scope) { return std::set<double const*>{acquired(scope).data()}; });
  expect_escape([](checked_scope& scope) {
    return std::vector{std::span<double>{}, acquired(scope)};  // the last one of several
  });
}

TEST(workspace_escapes, are_found_inside_optionals_variants_and_pointers) {
  using choice = std::variant<int, std::span<double>>;
  expect_escape([](checked_scope& scope) { return std::optional{acquired(scope)}; });
  expect_escape([](checked_scope& scope) { return choice{acquired(scope)}; });
  expect_no_escape([](checked_scope& scope) { return (void)acquired(scope), choice{1}; });
  expect_escape([](checked_scope& scope) { return std::make_unique<std::span<double>>(acquired(scope)); });
  expect_escape([](checked_scope& scope) { return std::make_shared<std::span<double>>(acquired(scope)); });
  expect_escape([](checked_scope& scope) { return std::ref(acquired(scope)[3]); });
  expect_escape([](checked_scope& scope) {
    return std::optional{std::tuple{1, std::vector{std::pair{2, acquired(scope)}}}};
  });
}

TEST(workspace_escapes, are_smart_pointers_that_do_not_free) {
  expect_escape(
      [](checked_scope& scope) { return std::shared_ptr<double>{acquired(scope).data(), [](double*) {}}; });
  expect_escape([](checked_scope& scope) {
    constexpr auto nothing = [](double*) {};
    return std::unique_ptr<double[], decltype(nothing)>{acquired(scope).data(), nothing};
  });
}

TEST(workspace_escapes, are_bits_their_words_and_bit_references) {
  expect_escape([](checked_scope& scope) { return scope.bits(100).words(); });
  expect_escape([](checked_scope& scope) { return std::pair{1, scope.bits(100)}; });
  expect_escape([](checked_scope& scope) { return std::pair{1, scope.bits(100).reshape(10, 10)}; });
  expect_escape([](checked_scope& scope) { return scope.trues(100)[70]; });
  expect_no_escape([](checked_scope& scope) { return static_cast<bool>(scope.trues(100)[70]); });
}

TEST(workspace_escapes, are_tensor_headers) {
  expect_escape([](checked_scope& scope) { return acquire_tensor<double>(scope, 2, 3); });
  expect_escape([](checked_scope& scope) { return *acquire_tensor<double>(scope, 2, 3); });
  expect_escape([](checked_scope& scope) { return std::vector{acquire_tensor<double>(scope, 2, 3)}; });
}

struct fit {
  double error;
  std::span<double> slopes;
};
template <class Visit>
void visit_memory(fit const& one, Visit&& visit) {
  visit(one.slopes);
}

TEST(workspace_escapes, are_found_in_a_user_struct_that_exposes_its_memory) {
  expect_escape([](checked_scope& scope) { return fit{0.5, acquired(scope)}; });
  expect_escape([](checked_scope& scope) { return std::vector{fit{0.5, acquired(scope)}}; });
  expect_no_escape([](checked_scope& scope) { return (void)acquired(scope), fit{0.5, {}}; });
}

/// As std::mdspan is, which standard libraries of C++20 do not have.
struct strided {
  struct map {
    [[nodiscard]] std::size_t required_span_size() const { return 4; }
  };
  double* first;
  [[nodiscard]] double* data_handle() const { return first; }
  [[nodiscard]] map mapping() const { return {}; }
};

TEST(workspace_escapes, are_found_in_user_arrays_like_mdspan) {
  expect_escape([](checked_scope& scope) { return strided{acquired(scope).data()}; });
  expect_escape([](checked_scope& scope) { return strided{acquired(scope).data() - 3}; });
  expect_no_escape([](checked_scope& scope) { return strided{acquired(scope).data() - 4}; });
}

TEST(workspace_escapes, are_not_copies_scalars_and_texts) {
  expect_no_escape([](checked_scope& scope) {
    const auto all = acquired(scope);
    return std::vector<double>(all.begin(), all.end());
  });
  expect_no_escape([](checked_scope& scope) { return scope.fill(7.0, 3)[2]; });
  expect_no_escape([](checked_scope& scope) { return std::pair{scope.fill(7.0, 3)[2], std::string{"sum"}}; });
  expect_no_escape([](checked_scope& scope) { return std::make_unique<double>(scope.fill(7.0, 3)[2]); });
}

TEST(workspace_escapes, are_not_null_pointers_and_empty_spans) {
  expect_no_escape([](checked_scope& scope) { return (void)acquired(scope), static_cast<double*>(nullptr); });
  expect_no_escape([](checked_scope& scope) { return (void)acquired(scope), nullptr; });
  expect_no_escape([](checked_scope& scope) { return (void)acquired(scope), std::span<double>{}; });
  expect_no_escape([](checked_scope& scope) { return acquired(scope).subspan(3, 0); });
  expect_no_escape(
      [](checked_scope& scope) { return (void)acquired(scope), std::optional<std::span<double>>{}; });
  expect_no_escape(
      [](checked_scope& scope) { return (void)acquired(scope), std::unique_ptr<std::span<double>>{}; });
}

TEST(workspace_escapes, are_not_views_of_foreign_memory) {
  static std::array<double, 3> elsewhere{};
  expect_no_escape([](checked_scope& scope) { return (void)acquired(scope), std::span{elsewhere}; });
  expect_no_escape([](checked_scope& scope) { return (void)acquired(scope), elsewhere.data(); });
  checked_workspace another;
  const auto others = another.acquire<double>(8);
  expect_no_escape([&](checked_scope& scope) { return (void)acquired(scope), std::pair{1, others}; });
}

TEST(workspace_escapes, are_not_stale_views) {
  checked_workspace ws;
  const auto late = with_workspace(ws, [](checked_scope& scope) { return scope.acquire<double>(8); });
  checked_scope scope{ws};
  (void)scope.acquire<double>(8);
  EXPECT_NO_THROW((void)scope.returning(std::pair{1, late}));
}

// S4.50
TEST(workspace_escapes, are_reported_with_elements_both_locations_and_the_remedy) {
  checked_workspace ws{named("steps")};
  checked_scope scope{ws};
  const unsigned acquired_at = __LINE__ + 1;
  std::span<float> values = scope.acquire<float>(42);
  const unsigned left_at = __LINE__ + 1;
  const auto leave = [&] { (void)scope.returning(values); };
  EXPECT_EQ(message_of<workspace_escape>(leave),
            "workspace 'steps': float32[42] acquired at " + place(acquired_at) +
                " would leave its scope at " + place(left_at) +
                "; return a copy, or acquire it from the enclosing scope");
}

// S4.50
TEST(workspace_escapes, are_reported_with_the_location_of_the_with_workspace_call) {
  checked_workspace ws{named("steps")};
  const auto body = [](checked_scope& scope) { return acquired(scope); };
  const unsigned left_at = __LINE__ + 1;
  const std::string text = message_of<workspace_escape>([&] { (void)with_workspace(ws, body); });
  EXPECT_PRED2(contains, text, "float64[8] acquired at ");
  EXPECT_PRED2(contains, text, "would leave its scope at " + place(left_at));
}

// Ownership of memory.

// S4.49 S4.77
TEST(workspace_outer_memory, is_distinguished_over_three_levels) {
  checked_workspace ws;
  checked_scope first{ws};
  const auto a = first.acquire<double>(3);
  checked_scope second{ws};
  const auto b = second.acquire<double>(3);
  checked_scope third{ws};
  const auto c = third.acquire<double>(3);
  EXPECT_NO_THROW((void)third.returning(std::tuple{a, b}));
  EXPECT_THROW((void)third.returning(third.acquire<particle>(3)), workspace_escape);
  EXPECT_THROW((void)third.returning(c), workspace_escape);
  third.end();
  EXPECT_NO_THROW((void)second.returning(a));
  EXPECT_THROW((void)second.returning(b), workspace_escape);
  second.end();
  EXPECT_THROW((void)first.returning(a), workspace_escape);
}

// S4.49
TEST(workspace_outer_memory, is_distinguished_after_an_unended_checkpoint) {
  checked_workspace ws;
  checked_scope outer{ws};
  const auto kept = outer.acquire<double>(3);
  checked_scope inner{ws};
  const auto brief = inner.acquire<double>(3);
  ws.checkpoint();
  const auto acquired_outside = ws.acquire<double>(3);
  EXPECT_NO_THROW((void)inner.returning(kept));
  EXPECT_THROW((void)inner.returning(brief), workspace_escape);
  EXPECT_THROW((void)inner.returning(acquired_outside), workspace_escape);
  const warning_recorder recorder;
  inner.end();
  EXPECT_EQ(warning_recorder::count(warning_kind::skipped_rewind), 1u);
  EXPECT_THROW((void)outer.returning(kept), workspace_escape);
}

TEST(workspace_outer_memory, includes_memory_acquired_through_the_workspace_before_the_scope) {
  checked_workspace ws;
  const auto kept = ws.acquire<double>(3);
  checked_scope scope{ws};
  EXPECT_NO_THROW((void)scope.returning(kept));
  const auto brief = ws.acquire<double>(3);
  EXPECT_THROW((void)scope.returning(brief), workspace_escape) << "acquired inside, if not through it";
}

// Restrictions by types.

template <class View>
concept can_grow = requires(View view) { view.resize(3); } || requires(View view) { view.push_back(1); } ||
                   requires(View view) { view.insert(view.begin(), 1); } ||
                   requires(View view) { view.clear(); } || requires(View view) { view.assign(3, 1); } ||
                   requires(View view) { view.reserve(3); } || requires(View view) { view.pop_back(); };
template <class View>
concept accepts_extents =
    requires(View view) { view.extents() = {3}; } || requires(View view) { view.extents()[0] = 3; } ||
    requires(View view) { view.extent(0) = 3; } || requires(View view) { view.size() = 3; } ||
    requires(View view) { view.data() = nullptr; };

static_assert(can_grow<std::vector<int>>, "the test can tell");
static_assert(accepts_extents<dl_tensor> == false);
template <class View>
constexpr bool has_fixed_structure =
    !can_grow<View> && !accepts_extents<View> && !std::is_assignable_v<View&, std::size_t>;
static_assert(has_fixed_structure<unchecked_workspace::view<double>>);
static_assert(has_fixed_structure<checked_workspace::view<double>>);
static_assert(has_fixed_structure<checked_workspace::view<double, 3, column_major>>);
static_assert(has_fixed_structure<unchecked_workspace::bits_view<>>);
static_assert(has_fixed_structure<checked_workspace::bits_view<2>>);

// S4.53
TEST(workspace_structure, cannot_be_changed_through_a_view) {
  checked_workspace ws;
  checked_scope scope{ws};
  auto mine = scope.acquire<double>(6);
  double* const first = mine.data();
  mine = mine.reshape(2, 3).reshape(6);
  mine = {};  // another view of nothing; the slot knows nothing of that
  EXPECT_EQ(mine.size(), 0u);
  EXPECT_EQ(ws.stats().elements, 6u);
  scope.end();
  EXPECT_EQ(ws.acquire<double>(6).data(), first);
  ws.check_invariants();
}

// Threads.

// S4.56
TEST(workspace_owner_thread, is_required_by_every_call_that_changes_something) {
  const violation_recorder recorder;
  checked_workspace ws{named("steps")};
  (void)ws.acquire<double>(3);
  EXPECT_TRUE(violation_recorder::reports().empty()) << "the first that uses it owns it";
  const auto told = [&](void (*use)(checked_workspace&)) {
    violation_recorder::reports().clear();
    on_another_thread([&] { use(ws); });
    std::string all;
    for (auto const& report : violation_recorder::reports()) {
      EXPECT_EQ(report.kind, violation_kind::wrong_thread);
      const std::size_t reason = report.message.find(" on a thread");
      EXPECT_EQ(report.message.substr(reason),
                " on a thread that does not own the workspace; see release_thread_ownership()");
      all += report.message.substr(0, reason) + ";";
    }
    return all;
  };
  const std::string name = "workspace 'steps': ";
  EXPECT_EQ(told([](checked_workspace& one) { const checked_scope scope{one}; }),
            name + "opening of a scope;" + name + "end of a scope;");
  EXPECT_EQ(told([](checked_workspace& one) { (void)one.acquire<double>(3); }), name + "acquisition;");
  EXPECT_EQ(told([](checked_workspace& one) { one.checkpoint(); }), name + "checkpoint;");
  EXPECT_EQ(told([](checked_workspace& one) { one.rewind(); }), name + "rewind;");
  EXPECT_EQ(told([](checked_workspace& one) { one.reset(); }), name + "reset;");
  EXPECT_EQ(told([](checked_workspace& one) { one.reset<double>(); }), name + "reset;");
  EXPECT_EQ(told([](checked_workspace& one) { (void)one.trim(); }), name + "trim;");
  EXPECT_EQ(told([](checked_workspace& one) { (void)one.trim<double>(); }), name + "trim;");
  EXPECT_EQ(told([](checked_workspace& one) { (void)one.trim_to_recent_peak(); }), name + "trim;");
  EXPECT_EQ(told([](checked_workspace& one) { (void)one.compact(); }), name + "compact;");
  EXPECT_EQ(told([](checked_workspace& one) { one.release(); }), name + "release;");
}

// S4.56
TEST(workspace_owner_thread, changes_after_a_release) {
  const violation_recorder recorder;
  checked_workspace ws;
  (void)ws.acquire<double>(3);
  ws.release_thread_ownership();
  on_another_thread([&] { (void)ws.acquire<double>(3); });
  EXPECT_TRUE(violation_recorder::reports().empty());
  (void)ws.acquire<double>(3);
  EXPECT_EQ(violation_recorder::count(violation_kind::wrong_thread), 1u)
      << "the other thread owns the workspace now";
}

// Scopes that are used, or end, out of turn.

TEST(workspace_scope_misuse, acquisition_through_an_outer_scope_is_reported) {
  const violation_recorder recorder;
  checked_workspace ws{named("steps")};
  checked_scope outer{ws};
  (void)outer.acquire<double>(3);
  {
    const checked_scope inner{ws};
    (void)outer.acquire<double>(3);
  }
  const std::string message = violation_recorder::only(violation_kind::outer_scope_use);
  EXPECT_TRUE(message.starts_with(
      "workspace 'steps': acquiring through an outer scope while a scope or checkpoint inside it is open; "
      "the end of the inner scope would free the memory; the outer scope was opened at "))
      << message;
  EXPECT_PRED2(contains, message, "workspace_safety_test.cpp:");
  (void)outer.acquire<double>(3);
  EXPECT_EQ(violation_recorder::reports().size(), 1u) << "the inner one has ended";
}

TEST(workspace_scope_misuse, acquisition_through_an_ended_scope_throws) {
  checked_workspace ws;
  checked_scope scope{ws};
  scope.end();
  const std::string thrown = message_of<std::logic_error>([&] { (void)scope.acquire<double>(3); });
  EXPECT_TRUE(thrown.starts_with("acquisition through a workspace's scope that has ended, opened at "))
      << thrown;
  EXPECT_PRED2(contains, thrown, "workspace_safety_test.cpp:");
  EXPECT_THROW((void)scope.workspace(), std::logic_error);
  EXPECT_THROW((void)scope.zeros<double>(3), std::logic_error);
  EXPECT_THROW((void)scope.trues(3), std::logic_error);
  EXPECT_THROW((void)acquire_tensor<double>(scope, 3), std::logic_error);
  EXPECT_EQ(ws.stats().slot_count, 0u);
}

TEST(workspace_outlived_scope, is_reported_when_the_workspace_ends) {
  alignas(checked_scope) std::array<std::byte, sizeof(checked_scope)> place_of_scope;
  const violation_recorder recorder;
  {
    checked_workspace ws{named("brief")};
    new (place_of_scope.data()) checked_scope{ws};
    ws.checkpoint();
  }
  ASSERT_EQ(violation_recorder::reports().size(), 1u);
  EXPECT_EQ(violation_recorder::reports()[0].message,
            "workspace 'brief': destroyed while a scope on it is open; the scope must not be used any more");
}

}  // namespace
}  // namespace tidemark::test
