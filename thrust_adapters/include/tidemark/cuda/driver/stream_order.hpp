// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::stream_of` and `gpu::put_behind`: the stream of a resource's memory, and the order of streams. Own
/// nothing.
#pragma once

#include <concepts>

#include <tidemark/cuda/driver/driver.hpp>

// clang-tidy 22 sees only parts of a module's contents and assumes that they are all.
namespace tidemark::gpu {  // NOLINT(modernize-concat-nested-namespaces)

/// A resource whose memory is for the work of one stream: `device_arena`, `device_pool`, `device_cache`,
/// `gpu::async_resource`. Later work on the same stream reuses freed memory at once.
template <class R>
concept stream_bound = requires(R const& resource) {
  { resource.stream() } -> std::convertible_to<stream_handle>;
};

/// Returns the stream of a resource's memory; null, the default stream, if its type has no stream.
template <class R>
[[nodiscard]] stream_handle stream_of(R const& resource) noexcept {
  if constexpr (stream_bound<R>) {
    return resource.stream();
  } else {
    return nullptr;
  }
}

/// Handle of the legacy default stream, which null also names.
inline stream_handle const legacy_stream = reinterpret_cast<stream_handle>(1);
/// Handle of the calling thread's default stream, which differs in each thread. Resources for the work of one
/// stream refuse it; calls that name a stream accept it.
inline stream_handle const per_thread_stream = reinterpret_cast<stream_handle>(2);

/// Returns true if both handles mean one stream in calls of one thread.
[[nodiscard]] inline bool is_same_stream(stream_handle a, stream_handle b) noexcept {
  const auto plain = [](stream_handle stream) { return stream == legacy_stream ? nullptr : stream; };
  return plain(a) == plain(b);
}

/// Orders future work of stream `later` behind all present work of stream `earlier`. Does nothing for one
/// stream. If both streams belong to one capture, the order is captured.
/// @return success. `status::capture_isolation`, with nothing done, if only one of the streams is capturing,
/// because captured work runs at another time. Otherwise the driver's error, which ends both captures if the
/// streams belong to two captures (`status::capture_merge`). No event is left in any case.
///
/// The streams may be on two devices: the event is made on the device of `earlier`, whose context is current
/// meanwhile. A default stream belongs to the current device. Thread-safety: any thread. Not for fast paths:
/// ten driver calls, or twelve for two devices.
[[nodiscard]] status put_behind(driver& driver, stream_handle later, stream_handle earlier) noexcept;

namespace detail {

/// A second base class of resources. A cache or pool queries the stream through it if it cannot name the
/// resource's class, such as a template over types of another library.
class stream_ordered {
 public:
  /// Returns true if deallocated memory is reused only by later work of this stream.
  [[nodiscard]] virtual bool is_ordered_by(stream_handle stream) const noexcept = 0;

 protected:
  ~stream_ordered() = default;
};

}  // namespace detail
}  // namespace tidemark::gpu
