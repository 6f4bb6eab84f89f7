// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::stream_of` and `cuda::put_behind`: whose work uses a resource's memory, and in which order. Own
/// nothing.
#pragma once

#include <concepts>

#include <tidemark/cuda/driver.hpp>

// clang-tidy 22 sees only parts of what a module brings, and takes them for all.
namespace tidemark::cuda {  // NOLINT(modernize-concat-nested-namespaces)

/// A resource whose memory is for the work of one stream: `device_arena`, `device_pool`, `device_cache`,
/// `cuda::async_resource`. What was given back is handed out again at once, to work that comes later on the
/// same stream.
template <class R>
concept stream_bound = requires(R const& resource) {
  { resource.stream() } -> std::convertible_to<stream_handle>;
};

/// The stream that a resource's memory is for; null, the default stream, if its type knows none.
template <class R>
[[nodiscard]] stream_handle stream_of(R const& resource) noexcept {
  if constexpr (stream_bound<R>) {
    return resource.stream();
  } else {
    return nullptr;
  }
}

/// Puts what comes later on stream `later` behind all work that is on stream `earlier` now. If the two are
/// one, nothing is to be done, and no call is made. Both may belong to one capture: then the order is
/// captured.
/// @return success; `status::capture_isolation`, with nothing done and the capture as it was, if one of the
/// two is captured and the other is not: what is captured runs another time, if at all, than what is not; or
/// what the driver says, which ends both captures where each stream belongs to one of its own
/// (`status::capture_merge`). No event is left in any case.
/// @pre the current device is that of both. Thread-safety: any thread. Not for fast paths: six calls to the
/// driver.
[[nodiscard]] status put_behind(driver& driver, stream_handle later, stream_handle earlier) noexcept;

}  // namespace tidemark::cuda
