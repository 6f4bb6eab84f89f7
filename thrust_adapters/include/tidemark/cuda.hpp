// SPDX-License-Identifier: Apache-2.0
/// @file
/// All headers of the device part, for translation units that include instead of `import tidemark.cuda;`.
#pragma once

#include <tidemark/cuda/driver/capture.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/device_budget.hpp>
#include <tidemark/cuda/driver/device_set.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/cuda/memory/async_resource.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/memory/exported_memory.hpp>
#include <tidemark/cuda/memory/imported_memory.hpp>
#include <tidemark/cuda/memory/memory_access.hpp>
#include <tidemark/cuda/memory/memory_pool.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/cuda/nccl/nccl.hpp>
#include <tidemark/cuda/nccl/nccl_error.hpp>
#include <tidemark/cuda/nccl/nccl_memory.hpp>
#include <tidemark/cuda/nccl/nccl_registrar.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/cuda/resources/device_cache.hpp>
#include <tidemark/cuda/resources/device_planned_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/cuda/resources/device_pools.hpp>
