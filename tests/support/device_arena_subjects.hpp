// SPDX-License-Identifier: Apache-2.0
// The arenas and blocks of the device part as subjects of the conformance suite and of the model tests. The
// fake device's memory is on the host, because the tests write to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/nccl/nccl_memory.hpp>
#include <tidemark/cuda/nccl/nccl_registrar.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "arena_subjects.hpp"
#include "fake_nccl.hpp"
#include "touchable_device.hpp"

namespace tidemark::test {

using touchable_device = touchable_device_of<64 * MiB>;

/// A device's memory in one range.
struct device_arena_subject : arena_subject<device_arena> {
  using supply_type = touchable_device;
  static constexpr std::size_t largest = 16 * MiB, capacity = 64 * MiB;
  explicit device_arena_subject(supply_type& supply, arena_options const& options = {})
      : arena_subject{options, gpu::virtual_memory_options{}, supply.device} {}
};

/// A device's memory in chunks so small that most allocations of the tests cross one, in pieces of two
/// granules.
struct chunked_device_arena_subject : arena_subject<device_arena> {
  using supply_type = touchable_device;
  static constexpr std::size_t largest = 16 * MiB, capacity = 64 * MiB;
  explicit chunked_device_arena_subject(supply_type& supply)
      : arena_subject{arena_options{.reserve = 64 * KiB},
                      gpu::virtual_memory_options{.handle_bytes = 32 * KiB}, supply.device} {}
};

/// One block of the driver.
template <class Arena>
struct block_arena_subject : arena_subject<Arena> {
  using supply_type = touchable_device;
  static constexpr std::size_t capacity = 8 * MiB, largest = 4 * MiB;
  explicit block_arena_subject(supply_type& supply) : arena_subject<Arena>{capacity, supply.device} {}
};
using pinned_arena_subject = block_arena_subject<pinned_arena>;
using managed_arena_subject = block_arena_subject<managed_arena>;
using device_block_arena_subject = block_arena_subject<basic_arena<gpu::device_memory>>;

/// A fake device with NCCL: device calls fail, including those that NCCL makes.
struct touchable_nccl : touchable_device {
  fake_nccl nccl{device};
  gpu::nccl_communicator communicator = nccl.communicator(stream);
};

/// Blocks of NCCL, so small that many allocations of the tests cross one.
struct nccl_arena_subject : arena_subject<basic_arena<gpu::nccl_memory>> {
  using supply_type = touchable_nccl;
  static constexpr std::size_t largest = 4 * MiB, capacity = 64 * MiB;
  explicit nccl_arena_subject(supply_type& supply)
      : arena_subject{gpu::nccl_memory{{.stream = supply.stream}, supply.nccl, supply.device},
                      arena_options{.reserve = 64 * KiB}} {}
};

/// The same as windows of a communicator.
using nccl_window_memory = registered_memory<gpu::nccl_memory, gpu::nccl_window_registrar>;
struct nccl_window_arena_subject : arena_subject<basic_arena<nccl_window_memory>> {
  using supply_type = touchable_nccl;
  static constexpr std::size_t largest = 4 * MiB, capacity = 64 * MiB;
  explicit nccl_window_arena_subject(supply_type& supply)
      : arena_subject{
            nccl_window_memory{
                gpu::nccl_memory{{.stream = supply.stream}, supply.nccl, supply.device},
                gpu::nccl_window_registrar{supply.communicator, supply.stream, supply.nccl, supply.device}},
            arena_options{.reserve = 64 * KiB}} {}
};

/// A block of the driver for each allocation. The limit is that of pinned memory, which is the host's: a fake
/// device has no end of it.
template <class Resource>
class block_resource_subject : public subject_traits<512 * KiB, 1 * MiB, touchable_device> {
 public:
  static constexpr std::size_t max_reused_bytes = 0, max_reused_align = 0;
  static constexpr std::size_t failing_rounds = 60;  // each makes a call, which makes a mapping of the host

  explicit block_resource_subject(touchable_device& supply)
      : blocks_{supply.device}, limited_{&blocks_, 1 * MiB} {}

  std::pmr::memory_resource& resource() { return limited_; }
  [[nodiscard]] std::vector<std::size_t> state() const { return counts_of(blocks_.stats()); }

 private:
  Resource blocks_;
  limit_resource limited_;
};
using device_resource_subject = block_resource_subject<gpu::device_resource>;
using pinned_resource_subject = block_resource_subject<gpu::pinned_resource>;
using managed_resource_subject = block_resource_subject<gpu::managed_resource>;

}  // namespace tidemark::test
