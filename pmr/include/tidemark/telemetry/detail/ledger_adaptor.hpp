// SPDX-License-Identifier: Apache-2.0
/// @file
/// The base of the adaptors that know every live block. Owns the records.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/telemetry/detail/resource_adaptor.hpp>

namespace tidemark::detail {

/// A resource adaptor whose derived class records each block and where it was allocated.
/// @tparam Adaptor the derived class. Its `allocate` takes a site, or none through `std::pmr`.
template <class Adaptor>
class ledger_adaptor : public resource_adaptor<Adaptor> {
 public:
  /// The live blocks, the oldest first. O(n log n). @throws std::bad_alloc.
  [[nodiscard]] std::vector<live_block> leaks() const {
    const std::scoped_lock lock{mutex_};
    return live_blocks(ledger_);
  }

 protected:
  using resource_adaptor<Adaptor>::resource_adaptor;
  ~ledger_adaptor() override = default;

  mutable fork_safe<> mutex_;
  block_ledger ledger_;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) final {
    return static_cast<Adaptor*>(this)->allocate(bytes, align, std::nullopt);
  }
};

}  // namespace tidemark::detail
