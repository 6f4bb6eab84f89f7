// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/detail/stream_returns.hpp>

#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {

namespace {

// Makes `all` done once it and `added` are done. @return false, with `all` unchanged, if there is no memory
bool add_fence(reuse_fence& all, reuse_fence added) noexcept {
  struct pair {
    reuse_fence first, second;
  };
  static constexpr auto as_pair = [](void* state) noexcept -> pair& { return *static_cast<pair*>(state); };
  static constexpr reuse_fence::functions calls{
      .done =
          [](void* state) noexcept { return as_pair(state).first.done() && as_pair(state).second.done(); },
      .wait =
          [](void* state) noexcept {
            as_pair(state).first.wait();
            as_pair(state).second.wait();
          },
      .destroy = [](void* state) noexcept { delete &as_pair(state); }};  // no order: two streams
  if (all.empty()) {
    all = std::move(added);
    return true;
  }
  auto* const both = new (std::nothrow) pair{};
  if (both == nullptr) return false;
  *both = {std::move(all), std::move(added)};
  all = reuse_fence{calls, both};
  return true;
}

}  // namespace

void stream_returns::route_return(returned_block const& block,
                                  std::span<stream_handle const> used_on) noexcept {
  const stream_handle own = stream_;
  std::optional<on_device> here;
  for (stream_handle const each : used_on) {
    const bool is_own = is_same_stream(each, own);
    const bool is_legacy = is_same_stream(each, nullptr);  // the legacy stream is never captured
    if (is_own && (is_legacy || serves_captures_)) continue;
    if (!is_own && !here) here.emplace(*driver_, device_);  // the handle of the own stream has its device
    const capture_state captures = capture_state_of(*driver_, each);
    if (captures == capture_state::capturing || (captures == capture_state::untouchable && is_legacy))
      return defer(block, is_legacy ? waiting_ : captured_, used_on);
  }
  reuse_fence all;
  for (stream_handle const each : used_on) {
    if (is_same_stream(each, own)) continue;
    std::optional<reuse_fence> fence = events_.record(each);
    if (fence && add_fence(all, std::move(*fence))) continue;
    const status waited = driver_->synchronize(each);
    if (!shows_end_of_work(waited))
      return report_lost(*driver_, name_, "cuStreamSynchronize", waited, block.bytes);
  }
  if (all.empty()) receiver_.free_now(receiver_.context, block);
  else receiver_.free_behind(receiver_.context, block, std::move(all));
}

// A graph may use the block, or work that cannot be awaited now. Neither this memory nor the driver may reuse
// it.
void stream_returns::defer(returned_block const& block, deferred_blocks& to,
                           std::span<stream_handle const> used_on) noexcept {
  try {
    deferred_block held{block, {used_on.begin(), used_on.end()}};
    const std::scoped_lock lock{mutex_};
    to.push_back(std::move(held));
  } catch (...) {  // any exception of the bookkeeping resource
    tidemark::detail::report_warning(
        warning_kind::refused_return, name_,
        "%s: %zu bytes are lost, because there is no memory to record that captured work, or "
        "work beside a capture, uses them",
        name_, block.bytes);
  }
}

stream_returns::deferred_blocks stream_returns::take(deferred_blocks& from) noexcept {
  deferred_blocks taken{from.get_allocator()};
  const std::scoped_lock lock{mutex_};
  taken.swap(from);
  return taken;
}

// Blocks of the legacy stream are returned behind an event of that stream, unless a capture still forbids it.
std::size_t stream_returns::release_held(bool captured_too) noexcept {
  for (deferred_block const& each : take(waiting_)) route_return(each.block, each.used_on);
  std::size_t bytes = 0;
  if (!captured_too) return bytes;
  for (deferred_block const& each : take(captured_)) {
    bytes += each.block.bytes;
    receiver_.free_now(receiver_.context, each.block);
  }
  return bytes;
}

void stream_returns::end_captures() noexcept {
  for (deferred_blocks* const held : {&captured_, &waiting_})
    for (deferred_block const& each : take(*held)) route_return(each.block, each.used_on);
}

std::size_t stream_returns::captured_bytes() const noexcept {
  const std::scoped_lock lock{mutex_};
  std::size_t bytes = 0;
  for (deferred_block const& each : captured_) bytes += each.block.bytes;
  return bytes;
}

}  // namespace tidemark::gpu::detail
