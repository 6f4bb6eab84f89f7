// SPDX-License-Identifier: Apache-2.0
// The stream-ordered allocator of the fake device. Requires the lock of fake_device.hpp.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include <tidemark/cuda/driver/driver.hpp>

#include "fake_memory.hpp"
#include "fake_streams.hpp"

namespace tidemark::test {

/// Pools of blocks. A freed block stays in its pool, and uses the device's capacity, until a synchronization
/// finds more held bytes than the release threshold, or the pool is trimmed. Work on the stream that freed it
/// may reuse it at once, other streams after the free has run. The driver reuses more (events), but a program
/// cannot rely on this.
class fake_pools {
 public:
  using status = gpu::status;

  fake_pools(fake_memory& memory, std::size_t granule_bytes)
      : memory_{memory}, granule_bytes_{granule_bytes} {}
  fake_pools(fake_pools const&) = delete;
  fake_pools& operator=(fake_pools const&) = delete;
  ~fake_pools() {
    std::size_t alive = 0, blocks = 0;
    for (auto& [handle, each] : pools_) {
      alive += each.destroyed ? 0 : 1;
      for (auto const& [first, held] : each.blocks) {
        blocks += held.freed_on == 0 ? 1 : 0;
        memory_.deallocate(fake_memory::block_kind::pooled, first);
      }
    }
    for (auto const& each : plain_) memory_.deallocate(fake_memory::block_kind::device, each.first);
    EXPECT_EQ(alive, 0u) << "pools were not destroyed";
    EXPECT_EQ(blocks, 0u) << "blocks of pools were not freed";
  }

  gpu::pool_handle create(gpu::device_number device) {
    auto* const handle = reinterpret_cast<gpu::pool_handle>(next_fake_handle());
    pools_[handle].device = device;
    return handle;
  }
  /// Its blocks stay until they are freed.
  bool destroy(gpu::pool_handle handle) {
    pool* const found = find(handle);
    if (found == nullptr) return false;
    found->destroyed = true;
    return true;
  }
  [[nodiscard]] bool exists(gpu::pool_handle handle) const {
    const auto found = pools_.find(handle);
    return found != pools_.end() && !found->second.destroyed;
  }
  [[nodiscard]] gpu::device_number device(gpu::pool_handle handle) const { return pools_.at(handle).device; }
  bool set_threshold(gpu::pool_handle handle, std::size_t bytes) {
    pool* const found = find(handle);
    if (found == nullptr) return false;
    found->threshold_bytes = bytes;
    return true;
  }
  /// Applies to existing and later blocks. @pre the pool and the devices exist
  status allow_access(gpu::pool_handle handle, gpu::device_set devices) {
    pool& granted = pools_.at(handle);
    // The documentation names only invalid_value.
    if (!memory_.can_access(devices, granted.device)) return status::invalid_value;
    granted.peers = devices;
    for (auto const& [first, held] : granted.blocks) (void)memory_.allow_access_to_block(first, devices);
    return status::success;
  }
  bool trim(gpu::pool_handle handle, std::size_t keep_bytes) {
    pool* const found = find(handle);
    if (found == nullptr) return false;
    shrink(*found, keep_bytes);
    return true;
  }

  /// @pre the pool exists.
  status allocate(std::size_t bytes, gpu::pool_handle handle, fake_stream const& on, std::uintptr_t& first) {
    if (bytes == 0) return status::invalid_value;
    pool& from = pools_.at(handle);
    auto best = from.blocks.end();
    for (auto each = from.blocks.begin(); each != from.blocks.end(); ++each) {
      block const& held = each->second;
      const bool free = held.freed_on != 0 && (held.freed_on == on.identity || *held.free_has_run);
      if (free && held.bytes >= bytes && (best == from.blocks.end() || held.bytes < best->second.bytes))
        best = each;
    }
    if (best != from.blocks.end()) {
      best->second.freed_on = 0;
      best->second.free_has_run = nullptr;
      live_bytes_ += best->second.bytes;
      first = best->first;
      return status::success;
    }
    if (bytes > SIZE_MAX / 2) return status::out_of_memory;
    const std::size_t rounded = (bytes + granule_bytes_ - 1) / granule_bytes_ * granule_bytes_;
    const status result = memory_.allocate(fake_memory::block_kind::pooled, from.device, rounded, first);
    if (result != status::success) return result;
    (void)memory_.allow_access_to_block(first, from.peers);
    from.blocks.emplace(first, block{.bytes = rounded, .free_has_run = {}});
    live_bytes_ += rounded;
    return status::success;
  }
  /// Frees a block in the order of a stream, or at once without a stream. Returns false if no such block
  /// exists.
  bool deallocate(std::uintptr_t first, fake_stream* on) {
    for (auto& [handle, each] : pools_) {
      const auto found = each.blocks.find(first);
      if (found == each.blocks.end()) continue;
      if (found->second.freed_on != 0) return false;
      found->second.free_has_run = std::make_shared<bool>(on == nullptr);
      found->second.freed_on = on == nullptr ? nowhere : on->identity;
      found->second.freed_as = ++frees_;
      live_bytes_ -= found->second.bytes;
      if (on != nullptr) on->queue.push_back({.done = found->second.free_has_run});
      return true;
    }
    return false;
  }
  /// Frees a block of the ordinary kind when a stream has come there. @pre it is such a block.
  void deallocate_plain(std::uintptr_t first, fake_stream& on) {
    plain_.push_back({.first = first, .free_has_run = std::make_shared<bool>(false)});
    on.queue.push_back({.done = plain_.back().free_has_run});
  }
  /// Returns true if an ordinary block waits for its free to run.
  [[nodiscard]] bool freeing_plain(std::uintptr_t first) const {
    for (auto const& each : plain_)
      if (each.first == first) return true;
    return false;
  }

  /// Shrinks pools to their thresholds, as every synchronization does.
  void release_surplus() {
    for (auto& [handle, each] : pools_) shrink(each, each.threshold_bytes);
  }
  /// Ends memory that only waited for work that has now run.
  void collect() {
    std::erase_if(plain_, [this](plain_free const& each) {
      return *each.free_has_run && memory_.deallocate(fake_memory::block_kind::device, each.first);
    });
    for (auto& [handle, each] : pools_)
      if (each.destroyed) shrink(each, 0);
    std::erase_if(pools_,
                  [](auto const& each) { return each.second.destroyed && each.second.blocks.empty(); });
  }

  /// Bytes that a pool holds, in blocks and free.
  [[nodiscard]] std::size_t reserved_bytes(gpu::pool_handle handle) const {
    return exists(handle) ? reserved_bytes(pools_.at(handle)) : 0;
  }
  [[nodiscard]] std::size_t threshold_bytes(gpu::pool_handle handle) const {
    return exists(handle) ? pools_.at(handle).threshold_bytes : 0;
  }
  /// Returns true if the bytes begin in a freed block.
  [[nodiscard]] bool freed(std::uintptr_t address) const {
    for (auto const& [handle, each] : pools_) {
      const auto after = each.blocks.upper_bound(address);
      if (after == each.blocks.begin()) continue;
      auto const& [first, held] = *std::prev(after);
      if (address - first < held.bytes) return held.freed_on != 0;
    }
    return false;
  }
  /// Bytes in the blocks of all pools that are not freed.
  [[nodiscard]] std::size_t live_bytes() const { return live_bytes_; }

 private:
  static constexpr std::uintptr_t nowhere = 1;  // of frees that no stream ordered

  struct block {
    std::size_t bytes = 0;
    std::uintptr_t freed_on = 0;  // the stream that freed it; 0: live
    std::size_t freed_as = 0;     // the number of the free, of all
    std::shared_ptr<bool> free_has_run;
  };
  struct pool {
    gpu::device_number device = 0;
    std::size_t threshold_bytes = 0;
    bool destroyed = false;
    gpu::device_set peers;  // that may touch its blocks
    std::map<std::uintptr_t, block> blocks;
  };
  struct plain_free {
    std::uintptr_t first;
    std::shared_ptr<bool> free_has_run;
  };

  pool* find(gpu::pool_handle handle) { return exists(handle) ? &pools_.at(handle) : nullptr; }
  static std::size_t reserved_bytes(pool const& of) {
    std::size_t sum = 0;
    for (auto const& [first, held] : of.blocks) sum += held.bytes;
    return sum;
  }
  // Returns free blocks to the device, earliest freed first, except blocks whose return would leave too
  // little.
  void shrink(pool& of, std::size_t keep_bytes) {
    std::map<std::size_t, std::uintptr_t> free;
    for (auto const& [first, held] : of.blocks)
      if (held.freed_on != 0 && *held.free_has_run) free.emplace(held.freed_as, first);
    std::size_t reserved = reserved_bytes(of);
    for (auto const& [number, first] : free) {
      const std::size_t bytes = of.blocks.at(first).bytes;
      if (reserved - bytes < keep_bytes) continue;
      memory_.deallocate(fake_memory::block_kind::pooled, first);
      of.blocks.erase(first);
      reserved -= bytes;
    }
  }

  fake_memory& memory_;
  std::size_t granule_bytes_;
  std::map<gpu::pool_handle, pool> pools_;
  std::vector<plain_free> plain_;
  std::size_t frees_ = 0;
  std::size_t live_bytes_ = 0;
};

}  // namespace tidemark::test
