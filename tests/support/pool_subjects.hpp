// SPDX-License-Identifier: Apache-2.0
// Both pools as subjects of the conformance suite and of the model test.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/pool.hpp>

#include "recording_supply.hpp"
#include "subject_traits.hpp"

namespace tidemark::test {

template <class Pool>
class basic_pool_subject : public subject_traits<8 * MiB> {
 public:
  static constexpr std::size_t max_reused_bytes = 40'000;
  static constexpr std::size_t max_reused_align = 256;

  explicit basic_pool_subject(supply_type& upstream) : pool_{&upstream} {}
  basic_pool_subject(supply_type& upstream, pool_options const& options) : pool_{options, &upstream} {}

  Pool& resource() { return pool_; }
  // O(cached blocks), while an arena's check is O(chunks). Therefore not after every step.
  void check() const { check_one_of(32, pool_); }
  // Excludes cached blocks: a failed request frees them before it retries.
  [[nodiscard]] std::vector<std::size_t> state() const {
    const pool_stats stats = pool_.stats();
    return {stats.allocations, stats.deallocations, stats.used_blocks, stats.used_bytes,
            stats.requested_bytes};
  }

 private:
  Pool pool_;
};

struct pool_subject : basic_pool_subject<pool> {
  using basic_pool_subject::basic_pool_subject;
};
/// The limit of cached bytes is low enough that trims happen all the time.
struct tight_pool_subject : basic_pool_subject<pool> {
  static constexpr std::size_t max_reused_bytes = 0;
  explicit tight_pool_subject(supply_type& upstream)
      : basic_pool_subject{upstream, {.max_cached_bytes = 8 * KiB}} {}
};
/// Classes that are no powers of two, so that alignments differ from class to class.
struct odd_pool_subject : basic_pool_subject<pool> {
  explicit odd_pool_subject(supply_type& upstream)
      : basic_pool_subject{upstream, {.size_classes = {32, 48, 80, 192, 1040, 2048, 40'000, 1 * MiB}}} {}
};
struct synchronized_pool_subject : basic_pool_subject<synchronized_pool> {
  using basic_pool_subject::basic_pool_subject;
};
struct tight_synchronized_pool_subject : basic_pool_subject<synchronized_pool> {
  static constexpr std::size_t max_reused_bytes = 0;
  static constexpr bool returns_all_memory =
      true;  // its limit may return the memory of each class that a round used
  explicit tight_synchronized_pool_subject(supply_type& upstream)
      : basic_pool_subject{upstream, {.max_cached_bytes = 8 * KiB}} {}
};

}  // namespace tidemark::test
