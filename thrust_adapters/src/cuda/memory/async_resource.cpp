// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/async_resource.hpp>

#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/behind_event.hpp"
#include "../driver/driver_errors.hpp"

namespace tidemark::gpu {
namespace {

char const* name_of(async_resource_options const& options) {
  char const* const name = options.name != nullptr ? options.name : async_resource_options{}.name;
  detail::require_one_stream("async_resource", name, options.stream);
  if (options.pool != nullptr) return name;
  throw std::invalid_argument("async_resource '" + std::string{name} +
                              "': the pool is null; memory comes from a gpu::memory_pool");
}

}  // namespace

async_resource::async_resource(async_resource_options const& options, driver& driver)
    : driver_resource{"async_resource", name_of(options), options.device, driver, counting::counted, false},
      pool_{options.pool},
      stream_{options.stream} {
  budget_ = &driver.budget(device(), pool_);
  pool_record_ = budget_->find_pool(pool_);
  if (pool_record_ == nullptr) return;  // a pool of the caller, who trims it
  waits_ = budget_->add_member([this] { return wait(); }, device_budget::member_kind::pool_user);
}

// Memory freed on the stream is unused memory of the pool afterwards. Returns false if the stream is
// capturing.
bool async_resource::wait() noexcept {
  const detail::on_device here{*driver_, device()};
  return here.result() == status::success && detail::wait_for(*driver_, stream_) == status::success;
}

// Memory of a graph does not belong to the pool, but the base counts it there.
detail::outcome async_resource::allocate_block(std::size_t bytes, std::uintptr_t& block) {
  const detail::on_device here{*driver_, device()};
  if (here.result() != status::success) return {here.result(), "cuCtxSetCurrent"};
  std::set<std::uintptr_t> of_graph;  // made before the driver call, because the record must not fail
  if (pool_record_ != nullptr && detail::capture_state_of(*driver_, stream_) != detail::capture_state::none)
    of_graph.insert(0);
  const detail::outcome allocated{driver_->allocate_async(bytes, pool_, stream_, block),
                                  "cuMemAllocFromPoolAsync"};
  if (!allocated.good() || of_graph.empty()) return allocated;
  auto node = of_graph.extract(of_graph.begin());
  node.value() = block;
  const std::scoped_lock lock{graph_blocks_mutex_};
  graph_blocks_.insert(std::move(node));
  pool_record_->live_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return allocated;
}

// Calls the driver even if the device could not be made current: only the default stream needs the device.
detail::outcome async_resource::free_block(std::uintptr_t block, std::size_t bytes) noexcept {
  const detail::on_device here{*driver_, device()};
  bool capturing = false;
  // On the default stream the free would end the capture of a stream that waits for it.
  if (driver_->is_capturing(stream_, capturing) == status::capture_implicit)
    return {status::capture_implicit, "cuMemFreeAsync"};
  const detail::outcome freed{driver_->free_async(block, stream_), "cuMemFreeAsync"};
  if (!freed.good() || pool_record_ == nullptr) return freed;
  const std::scoped_lock lock{graph_blocks_mutex_};
  if (graph_blocks_.erase(block) != 0) pool_record_->live_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return freed;
}

void async_resource::deallocate_after(void* block, std::size_t bytes, std::size_t align,
                                      event_handle event) noexcept {
  if (block == nullptr) return;
  const detail::on_device here{*driver_, device()};
  if (detail::put_behind(*driver_, stream_, event, name(), bytes)) deallocate(block, bytes, align);
  else counter_.on_deallocate(bytes);
}

void async_resource::deallocate_after(void* block, std::size_t bytes, std::size_t align,
                                      stream_handle last_used_on) noexcept {
  if (block == nullptr) return;
  const detail::on_device here{*driver_, device()};
  if (detail::put_behind(*driver_, stream_, last_used_on, name(), bytes)) deallocate(block, bytes, align);
  else counter_.on_deallocate(bytes);
}

}  // namespace tidemark::gpu
