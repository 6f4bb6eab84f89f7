// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA: where device memory comes from, arenas and pools of it, streams and events, and the driver's calls.
module;

#include <tidemark/cuda/capture.hpp>
#include <tidemark/cuda/capture_backend.hpp>
#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/cuda/event.hpp>
#include <tidemark/cuda/status.hpp>
#include <tidemark/cuda/stream.hpp>

export module tidemark.cuda;

export namespace tidemark {

// Errors
using tidemark::cuda_error;

// Captures
using tidemark::capture;
using tidemark::stream_capture_options;

namespace cuda {

// The driver
using tidemark::cuda::capture_mode;
using tidemark::cuda::default_driver;
using tidemark::cuda::device_number;
using tidemark::cuda::driver;
using tidemark::cuda::event_handle;
using tidemark::cuda::executable_handle;
using tidemark::cuda::graph_handle;
using tidemark::cuda::memory_info;
using tidemark::cuda::physical_handle;
using tidemark::cuda::pool_handle;
using tidemark::cuda::require;
using tidemark::cuda::set_default_driver;
using tidemark::cuda::status;
using tidemark::cuda::stream_handle;
using tidemark::cuda::system_driver;

// Captures
using tidemark::cuda::capture_backend;

// Streams and events
using tidemark::cuda::event;
using tidemark::cuda::stream;

}  // namespace cuda
}  // namespace tidemark
