// SPDX-License-Identifier: Apache-2.0
// The resources with the standard's interface as subjects of the conformance suite and of the model test.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <tidemark/compat.hpp>
#include <tidemark/core/units.hpp>

#include "recording_supply.hpp"
#include "subject_traits.hpp"

namespace tidemark::test {

template <class Resource>
class compat_subject : public subject_traits<8 * MiB> {
 public:
  // Larger or more aligned blocks go straight back to the upstream.
  static constexpr std::size_t max_reused_bytes = 16 * KiB, max_reused_align = 256;

  template <class... Buffer>
  explicit compat_subject(supply_type& upstream, Buffer... buffer)
      : upstream_{upstream}, resource_{buffer..., &upstream} {}

  Resource& resource() { return resource_; }
  // These resources have no statistics: only their held bytes are visible.
  [[nodiscard]] std::vector<std::size_t> state() const { return {upstream_.outstanding}; }

 private:
  supply_type& upstream_;
  Resource resource_;
};

using compat_unsynchronized_subject = compat_subject<compat::unsynchronized_pool_resource>;
using compat_synchronized_subject = compat_subject<compat::synchronized_pool_resource>;

struct compat_buffer {
  std::array<std::byte, 4 * KiB> bytes;
};
/// Uses a buffer, because `release` returns all other memory.
struct compat_monotonic_subject : private compat_buffer,
                                  public compat_subject<compat::monotonic_buffer_resource> {
  static constexpr std::size_t max_reused_bytes = 0, max_reused_align = 0;
  explicit compat_monotonic_subject(supply_type& upstream)
      : compat_subject{upstream, static_cast<void*>(bytes.data()), bytes.size()} {}
  void recycle() { resource().release(); }
};

}  // namespace tidemark::test
