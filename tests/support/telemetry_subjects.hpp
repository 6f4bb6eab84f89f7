// SPDX-License-Identifier: Apache-2.0
// Every adaptor as a subject of the conformance suite and of the model test. Between the adaptor and the
// supply is an arena, so that memory can be reused without calling the supply. Above the arena a resource
// compares each returned block with the allocated one.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/diagnose/expect_resource.hpp>
#include <tidemark/telemetry/expect_no_upstream.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/telemetry/test_resource.hpp>
#include <tidemark/telemetry/tracking_resource.hpp>

#include "logged_upstream.hpp"
#include "recording_supply.hpp"
#include "subject_traits.hpp"

namespace tidemark::test {

/// Checks the relations between the counts of `resource_stats`.
inline void expect_consistent(resource_stats const& stats) {
  EXPECT_EQ(stats.allocations - stats.deallocations, stats.used_blocks);
  EXPECT_LE(stats.used_blocks, stats.peak_blocks);
  EXPECT_LE(stats.peak_blocks, stats.allocations);
  EXPECT_LE(stats.used_bytes, stats.peak_bytes);
  EXPECT_LE(stats.peak_bytes, stats.total_bytes);
}

/// All of the counts but `refused`, which a failed call raises.
inline std::vector<std::size_t> visible(resource_stats const& stats) {
  return {stats.allocations, stats.deallocations, stats.used_blocks, stats.peak_blocks,
          stats.used_bytes,  stats.peak_bytes,    stats.total_bytes};
}

/// The upstream of a subject's adaptor.
class adaptor_ground {
 public:
  explicit adaptor_ground(std::pmr::memory_resource* supply) : arena_{supply} {}
  std::pmr::memory_resource* upstream() { return &exact_; }
  void recycle() { arena_.reset(); }

 private:
  upstream_arena arena_;
  recording_resource exact_{&arena_};
};

template <class Adaptor>
class adaptor_subject : public subject_traits<64 * MiB>, private adaptor_ground {
 public:
  template <class... Arguments>
  explicit adaptor_subject(supply_type& supply, Arguments... arguments)
      : adaptor_ground{&supply}, adaptor_{upstream(), arguments...} {}

  Adaptor& resource() { return adaptor_; }
  void recycle() {
    if constexpr (requires { adaptor_.empty_quarantine(); }) adaptor_.empty_quarantine();
    adaptor_ground::recycle();
  }
  void check() const { expect_consistent(adaptor_.stats()); }
  [[nodiscard]] std::vector<std::size_t> state() const { return visible(adaptor_.stats()); }

 private:
  Adaptor adaptor_;
};

using statistics_subject = adaptor_subject<statistics_resource>;
using expect_no_upstream_subject = adaptor_subject<expect_no_upstream>;
using tracking_subject = adaptor_subject<tracking_resource>;

struct limit_subject : adaptor_subject<limit_resource> {
  explicit limit_subject(supply_type& supply) : adaptor_subject{supply, 256 * MiB} {}
};

struct test_subject : adaptor_subject<test_resource> {
  explicit test_subject(supply_type& supply)
      : adaptor_subject{supply, test_resource_options{.quarantine_bytes = 8 * KiB}} {}
};

/// The resource that replaces the default resource in a scope of `expect_resource`.
class watching_subject : public subject_traits<64 * MiB>, private adaptor_ground {
 public:
  explicit watching_subject(supply_type& supply) : adaptor_ground{&supply}, set_{upstream()} {}

  std::pmr::memory_resource& resource() { return *watching_; }
  void recycle() { adaptor_ground::recycle(); }
  [[nodiscard]] std::vector<std::size_t> state() const { return {}; }

 private:
  default_resource_scope set_;
  arena elsewhere_;
  expect_resource scope_{&elsewhere_};
  std::pmr::memory_resource* watching_ = std::pmr::get_default_resource();
};

/// A limit that the tests reach.
class reached_limit_subject {
 public:
  using supply_type = supply;
  static constexpr std::size_t capacity = 64 * KiB, largest = 4 * KiB;

  explicit reached_limit_subject(supply&) {}

  limit_resource& resource() { return limited_; }
  void recycle() {}
  void check() const {
    expect_consistent(limited_.stats());
    EXPECT_LE(limited_.stats().peak_bytes, capacity);
  }
  [[nodiscard]] std::vector<std::size_t> state() const { return visible(limited_.stats()); }

 private:
  recording_resource exact_;
  limit_resource limited_{&exact_, capacity};
};

}  // namespace tidemark::test
