// SPDX-License-Identifier: Apache-2.0
// A fake device as the supply of a subject of the conformance suite and of the model tests.
#pragma once

#include <cstddef>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/stream.hpp>

#include "fake_device.hpp"

namespace tidemark::test {

/// A fake device with memory on the host, because its tests write to it. @tparam CapacityBytes capacity of
/// the device; small, because each of its blocks is a mapping of the host
template <std::size_t CapacityBytes>
struct touchable_device_of {
  fake_device device{{.capacity_bytes = CapacityBytes, .granularity_bytes = 16 * KiB, .touchable = true}};

  gpu::stream stream{device};  // of subjects that need one, which are not there to see its making fail
  gpu::stream other{device};

  std::size_t& calls = device.calls;
  std::size_t& fail_from = device.fail_from;
  std::size_t& fail_count = device.fail_count;
  std::size_t& outstanding = device.outstanding;
};

}  // namespace tidemark::test
