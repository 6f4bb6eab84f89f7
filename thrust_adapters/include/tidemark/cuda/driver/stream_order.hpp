// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::stream_of` and `gpu::put_behind`: the stream of a resource's memory, and the order of streams. Own
/// nothing.
#pragma once

#include <concepts>

#include <tidemark/cuda/driver/driver.hpp>

// clang-tidy 22 sees only parts of what a module brings, and takes them for all.
namespace tidemark::gpu {  // NOLINT(modernize-concat-nested-namespaces)

/// A resource whose memory is for the work of one stream: `device_arena`, `device_pool`, `device_cache`,
/// `gpu::async_resource`. Freed memory is reused at once by later work on the same stream.
template <class R>
concept stream_bound = requires(R const& resource) {
  { resource.stream() } -> std::convertible_to<stream_handle>;
};

/// The stream that a resource's memory is for; null, the default stream, if its type has no stream.
template <class R>
[[nodiscard]] stream_handle stream_of(R const& resource) noexcept {
  if constexpr (stream_bound<R>) {
    return resource.stream();
  } else {
    return nullptr;
  }
}

/// The handle of the legacy default stream, as null is.
inline stream_handle const legacy_stream = reinterpret_cast<stream_handle>(1);
/// The handle of the calling thread's default stream: another stream in each thread. A resource whose memory
/// is for the work of one stream refuses it; a call that names a stream takes it.
inline stream_handle const per_thread_stream = reinterpret_cast<stream_handle>(2);

/// Whether both handles name one stream, for calls of the same thread.
[[nodiscard]] inline bool is_same_stream(stream_handle a, stream_handle b) noexcept {
  const auto plain = [](stream_handle stream) { return stream == legacy_stream ? nullptr : stream; };
  return plain(a) == plain(b);
}

/// Puts future work of stream `later` behind all work that is on stream `earlier` now. Does nothing if they
/// are the same. If both belong to one capture, the order is captured.
/// @return success; `status::capture_isolation`, with nothing done, if only one of them is capturing,
/// because captured work runs at another time; or the driver's error, which ends both captures if each
/// stream belongs to another one (`status::capture_merge`). No event is left in any case.
/// The streams may be of two devices: the event is made on that of `earlier`, whose context is current for
/// that long. A default stream is that of the current device.
/// Thread-safety: any thread. Not for fast paths: ten calls to the driver, twelve for two devices.
[[nodiscard]] status put_behind(driver& driver, stream_handle later, stream_handle earlier) noexcept;

namespace detail {

/// A second base of resources whose class a cache or pool above them cannot name, such as templates over the
/// types of other libraries.
class stream_ordered {
 public:
  /// Whether what is deallocated goes to later work of that stream only.
  [[nodiscard]] virtual bool is_ordered_by(stream_handle stream) const noexcept = 0;

 protected:
  ~stream_ordered() = default;
};

}  // namespace detail
}  // namespace tidemark::gpu
