// SPDX-License-Identifier: Apache-2.0
// `epoch_resource` as a subject of the conformance suite and of the model test: with no epoch open, with one,
// and with one over a pool.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/pool/pool.hpp>

#include "recording_supply.hpp"
#include "subject_traits.hpp"
#include "telemetry_subjects.hpp"

namespace tidemark::test {

inline std::vector<std::size_t> visible_state(epoch_resource const& memory) {
  const epoch_stats stats = memory.stats();
  return {stats.allocations, stats.deallocations, stats.reclaimed,
          stats.used_blocks, stats.used_bytes,    stats.late};
}

/// Every request passes through, but the tables are not empty, so that each address is looked up.
class epoch_resource_subject : public subject_traits<8 * MiB>, private adaptor_ground {
 public:
  explicit epoch_resource_subject(supply_type& supply) : adaptor_ground{&supply}, memory_{upstream()} {
    const epoch e{memory_};
    (void)memory_.allocate(1);
  }

  epoch_resource& resource() { return memory_; }
  using adaptor_ground::recycle;
  void check() const { memory_.check_invariants(); }
  [[nodiscard]] std::vector<std::size_t> state() const { return visible_state(memory_); }

 private:
  epoch_resource memory_;
};

/// Everything is tracked, by records alone: the upstream is rewound while the epoch is open.
class open_epoch_subject : public subject_traits<8 * MiB>, private adaptor_ground {
 public:
  explicit open_epoch_subject(supply_type& supply)
      : adaptor_ground{&supply}, memory_{{.host_memory = false}, upstream()}, epoch_{memory_, "subject"} {}

  epoch_resource& resource() { return memory_; }
  using adaptor_ground::recycle;
  // O(blocks of the epoch): not after every step.
  void check() const { check_one_of(32, memory_); }
  [[nodiscard]] std::vector<std::size_t> state() const { return visible_state(memory_); }

 private:
  epoch_resource memory_;
  epoch epoch_;
};

/// Everything is tracked, small blocks in slabs, and freed memory is soon used again.
class epoch_on_pool_subject : public subject_traits<8 * MiB> {
 public:
  static constexpr std::size_t max_reused_bytes = 16 * KiB;
  static constexpr std::size_t max_reused_align = 256;

  explicit epoch_on_pool_subject(supply_type& upstream)
      : pool_{&upstream}, memory_{&pool_}, epoch_{memory_} {}

  epoch_resource& resource() { return memory_; }
  void check() const { check_one_of(32, memory_); }
  [[nodiscard]] std::vector<std::size_t> state() const { return visible_state(memory_); }

 private:
  pool pool_;
  epoch_resource memory_;
  epoch epoch_;
};

}  // namespace tidemark::test
