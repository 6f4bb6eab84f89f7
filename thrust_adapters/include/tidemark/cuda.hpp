// SPDX-License-Identifier: Apache-2.0
/// @file
/// All of the device part, for translation units that include instead of `import tidemark.cuda;`.
#pragma once

#include <tidemark/cuda/async_resource.hpp>
#include <tidemark/cuda/block_kind.hpp>
#include <tidemark/cuda/block_memory.hpp>
#include <tidemark/cuda/block_resource.hpp>
#include <tidemark/cuda/capture.hpp>
#include <tidemark/cuda/capture_backend.hpp>
#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/device_arena.hpp>
#include <tidemark/cuda/device_cache.hpp>
#include <tidemark/cuda/device_cache_options.hpp>
#include <tidemark/cuda/device_planned_arena.hpp>
#include <tidemark/cuda/device_pool.hpp>
#include <tidemark/cuda/device_pool_options.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/cuda/event.hpp>
#include <tidemark/cuda/memory_access.hpp>
#include <tidemark/cuda/memory_pool.hpp>
#include <tidemark/cuda/status.hpp>
#include <tidemark/cuda/stream.hpp>
#include <tidemark/cuda/stream_order.hpp>
#include <tidemark/cuda/virtual_memory.hpp>
